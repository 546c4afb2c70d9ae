"""Delayed match: a colour is shown, must be kept through a delay with rewarded distractors, and is then chosen."""

from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import IGNORED, Batch, Sizes, Spec, StepTask, check_at_least, loss_of_steps


class DelayedMatch(StepTask):
    """Delayed match to sample: after a delay the model must choose the place that shows the colour it saw at first.

    Source: the memory content of the Passive and Active Match of Hung et al. 2018 (arXiv 1810.06721), on which Gu et
    al. 2020 test gates (appendices D.3 and E.2), as a supervised task; the delayed match to sample of neuroscience.

        place 1   C . . o . . . F      delay=6, choices=4: letters are colours, `o` is an apple
        place 2   . . . . . . . A
        place 3   . . . . . o . C
        place 4   . o . . . . . B
        target      4   1   3   3      the place of each apple; at the end that of the first colour

    In the original, a picture shows one of the colours, apples are collected for rewards, and a room then shows the
    colour among others, in random order. Here each step shows what is at each place (the first colour at place 1), and
    the target is the place to go to. Each sequence has `choices` different colours. Which of them is shown first, and
    their order at the end, are uniform. At each step of the delay there is an apple with probability `distractors`, at
    a random place.

    Input: at each place a one-hot vector of the colours and the apple, (S, B, choices (colours + 1)) with
    S = delay + 2. Output: the places. Loss: cross-entropy, the mean over the steps with a target. Metrics: accuracy,
    the share of correct choices at the end; distractor_accuracy, that of apples; both are 1 / choices at chance, but
    apples need no memory.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    delay: the steps between the colour and the choice.
    distractors: the probability of an apple at each of these steps.
    choices: the number of places, and of colours that are shown at the end.
    colours: the number of all colours.

    Differs: nothing is seen in perspective or acted out, and no reward is discounted. This is not the task of Gu et
    al.'s figures 8 to 10 and 13 (docs/coverage.md).
    """

    is_exact = is_balanced = True

    def __init__(
        self,
        *,
        delay: int = 90,
        distractors: float = 0.3,
        choices: int = 4,
        colours: int = 16,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_at_least(0, delay=delay)
        if not 0.0 <= distractors <= 1.0:
            raise ValueError(f"distractors must be a probability, from 0 to 1, not {distractors}")
        if not 2 <= choices <= colours:
            raise ValueError(f"choices must be at least 2 and at most colours, not {choices} of {colours}")
        self.delay, self.distractors, self.choices, self.colours = delay, distractors, choices, colours
        self.spec = Spec("real", choices * (colours + 1), choices, "all", horizon=delay + 1)

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator, n = self.generator(split, epoch, step), end - first
        shown = torch.rand(n, self.colours, generator=generator).argsort(1)[:, : self.choices].T  # at the end
        right = torch.randint(self.choices, (n,), generator=generator)
        is_apple = torch.rand(self.delay, n, generator=generator) < self.distractors
        places = torch.randint(self.choices, (self.delay, n), generator=generator)
        target = torch.cat([torch.full((1, n), IGNORED), places.where(is_apple, IGNORED), right.unsqueeze(0)])

        apple, nothing = self.colours, self.colours + 1
        things = torch.full((self.delay + 2, n, self.choices), nothing)
        things[0, :, 0] = shown.gather(0, right.unsqueeze(0))
        things[1:-1] = torch.where(torch.arange(self.choices) == target[1:-1].unsqueeze(-1), apple, nothing)
        things[-1] = shown.T
        x = F.one_hot(self.moved(things), nothing + 1)[..., :nothing].flatten(2)
        return Batch(x.to(torch.get_default_dtype()), self.moved(target))

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return logits[-1].argmax(-1) == batch.target[-1]

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        loss = loss_of_steps(logits, batch.target, "sum")
        choice, apples = batch.target.shape[1], int((batch.target[1:-1] != IGNORED).sum())
        collected = (logits[1:-1].argmax(-1) == batch.target[1:-1]).sum()
        sums = {"loss": (loss, choice + apples), "accuracy": (self.correct(logits, batch).sum(), choice)}
        return sums | ({"distractor_accuracy": (collected, apples)} if apples else {})

    def trivial_baselines(self) -> dict[str, float]:
        """Return the accuracy of a random choice."""
        return {"a choice at random": 1.0 / self.choices}
