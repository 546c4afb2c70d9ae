"""Copy: remember ten symbols over T steps, then repeat them."""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from timescales.tasks.task import Batch, Sizes, Spec, StepTask, check_choice, loss_of_steps

SYMBOLS, LENGTH = 8, 10  # ten symbols, each one of 0 to 7
DUMMY, SIGNAL = 8, 9
CLASSES = 10


class Copy(StepTask):
    """The copy memory task: the model reads ten symbols, T dummy steps and a signal, and must repeat the ten symbols.

    Source: Hochreiter & Schmidhuber 1997 in the form of Arjovsky et al. 2016; Chien et al. 2021, section 4.1.

    layout="paper" (Chien et al., text; T = 5 shown, `.` dummy, `!` signal, answers underlined):

        input   3 1 4 1 5 2 6 5 3 5 . . . . . ! . . . . . . . . .
        target  . . . . . . . . . . . . . . . 3 1 4 1 5 2 6 5 3 5
                                              -------------------

    Input and output: ten classes (eight symbols, dummy, signal) at every step. Loss: cross-entropy. At chance it is
    10 ln 8 / (number of steps) with score="all" and ln 8 with "answers".
    Metrics: accuracy, the share of correct answers; sequence_accuracy, the share of sequences with all ten correct.
    A run ends as "failed" if accuracy is below .2 after epoch 200, and as "solved" by the rule of `solved` (Chien et
    al.'s code; their text allows up to 1,000 epochs).

    T: the delay in steps.
    layout: "paper"; "authors" (Chien et al.'s code), one dummy fewer, T + 19 steps; "tallec" (Tallec & Ollivier 2018),
        the signal one step before the first answer, T + 20 steps; "gu" (Gu et al. 2020, their later code), ten
        signals, one at each answer, T + 20 steps. No rule ends a run of layout "gu" early: Gu et al. compare losses
        after equal numbers of steps.
    score: "all" averages the loss over all positions, "answers" over the ten answers.
    fresh: False draws train_size sequences once (Chien et al.: 100,000), in the same order in every epoch (their
        code); True draws new ones for every epoch.
    solved: None ends a run as "solved" when accuracy and sequence_accuracy are both at least .999 (Chien et al.'s
        code). A number ends it when accuracy is at least that.
    """

    SIZES: ClassVar[Sizes] = Sizes(batch_size=128, train_size=100_000, valid_size=10_000, test_size=10_000)
    is_exact = True

    answers = slice(-LENGTH, None)

    def __init__(
        self,
        *,
        T: int = 200,
        layout: str = "paper",
        score: str = "all",
        fresh: bool = False,
        solved: float | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("layout", layout, ("paper", "authors", "tallec", "gu"))
        check_choice("score", score, ("all", "answers"))
        smallest = 1 if layout in ("authors", "tallec") else 0
        if smallest > T:
            raise ValueError(f"T must be at least {smallest} in layout {layout}, not {T}")
        if solved is not None and not 0.0 < solved <= 1.0:
            raise ValueError(f"solved must be above 0 and at most 1, not {solved}")
        if solved is not None and layout == "gu":
            raise ValueError("no rule ends a run of layout gu early: leave out solved")
        self.T, self.layout, self.score, self.fresh, self.solved = T, layout, score, fresh, solved
        self.steps = T + (19 if layout == "authors" else 20)
        signal = T + (9 if layout in ("authors", "tallec") else 10)
        # The input without the ten symbols, (S,): dummies and the signal, the same in every sequence.
        self.blank = torch.full((self.steps,), DUMMY, device=self.device)
        self.blank[signal : None if layout == "gu" else signal + 1] = SIGNAL
        self.spec = Spec("one_hot", CLASSES, CLASSES, "all", horizon=max(3 * T // 2, 3))
        self._symbols: dict[str, tuple[int, Tensor]] = {}

    def symbols(self, split: str, epoch: int) -> Tensor:
        """Return the ten symbols of every sequence of a split, (N, 10) uint8, on the task's device."""
        key = epoch if self.fresh and split == "train" else 0
        if split not in self._symbols or self._symbols[split][0] != key:
            drawn = torch.randint(SYMBOLS, (self.size(split), LENGTH), generator=self.generator(split, key))
            self._symbols[split] = key, drawn.to(self.device, torch.uint8)
        return self._symbols[split][1]

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        symbols = self.symbols(split, epoch)[first:end].T.long()
        x = self.blank.unsqueeze(1).repeat(1, end - first)
        x[:LENGTH] = symbols
        target = torch.full_like(x, DUMMY)
        target[-LENGTH:] = symbols
        return Batch(x, target)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) if self.score == "answers" else loss_of_steps(logits, batch.target)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        n = batch.target.shape[1]
        return super().metrics(logits, batch) | {"loss": (self.loss(logits, batch) * n, n)}

    def chance(self) -> float:
        return math.log(SYMBOLS) * (1.0 if self.score == "answers" else LENGTH / self.steps)

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        if self.layout == "gu":
            return None
        both = min(metrics["accuracy"], metrics["sequence_accuracy"])
        if both >= 0.999 or (self.solved is not None and metrics["accuracy"] >= self.solved):
            return "solved"
        return "failed" if epoch > 200 and metrics["accuracy"] < 0.2 else None
