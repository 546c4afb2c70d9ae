"""Copy: remember ten symbols over T steps of nothing, then repeat them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import Batch, Spec, Task, check_choice

SYMBOLS, LENGTH = 8, 10  # symbols 0..7, ten to remember
DUMMY, SIGNAL = 8, 9
CLASSES = 10


class Copy(Task):
    """The copy memory task.

    Source: Hochreiter & Schmidhuber 1997 in the form of Arjovsky et al. 2016; Chien et al. 2021, section 4.1.

    layout="paper" (Chien et al., text; T = 5 shown, `.` dummy, `!` signal, scored answers underlined):

        input   3 1 4 1 5 2 6 5 3 5 . . . . . ! . . . . . . . . .
        target  . . . . . . . . . . . . . . . 3 1 4 1 5 2 6 5 3 5
                                              -------------------

    "authors" (Chien et al.'s code): one dummy fewer, T + 19 steps. "tallec" (Tallec & Ollivier 2018): the signal one
    step before the first answer, T + 20 steps. "gu" (Gu et al. 2020, as in their later code): ten signals, an
    answer under each, T + 20 steps.
    score: "all" averages the loss over every position, "answers" over the ten answers.
    fresh=False draws train_size sequences once (the paper: 100,000), in the same order each epoch (authors' code);
    True draws new ones every epoch. Metrics: accuracy of the ten answers, and of whole sequences.
    Ends as "solved" when both accuracies reach .999 and as "failed" when accuracy is below .2 after epoch 200
    (authors' code); the paper allows up to 1,000 epochs. In layout "gu" nothing ends it early: Gu et al. compare losses
    after as many steps.
    """

    def __init__(
        self,
        *,
        T: int = 200,
        layout: str = "paper",
        score: str = "all",
        fresh: bool = False,
        batch_size: int = 128,
        train_size: int = 100_000,
        valid_size: int = 10_000,
        test_size: int = 10_000,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            batch_size=batch_size, seed=seed, device=device,
            train_size=train_size, valid_size=valid_size, test_size=test_size,
        )  # fmt: skip
        check_choice("layout", layout, ("paper", "authors", "tallec", "gu"))
        check_choice("score", score, ("all", "answers"))
        smallest = 1 if layout in ("authors", "tallec") else 0
        if smallest > T:
            raise ValueError(f"T must be at least {smallest} in layout {layout}, not {T}")
        self.T, self.layout, self.score, self.fresh = T, layout, score, fresh
        self.steps = T + (19 if layout == "authors" else 20)
        self.spec = Spec("one_hot", CLASSES, CLASSES, "all", horizon=max(3 * T // 2, 3))
        # Everything but the symbols is the same in every sequence.
        signal = {"paper": T + 10, "authors": T + 9, "tallec": T + 9, "gu": T + 10}[layout]
        self.blank = torch.full((self.steps,), DUMMY, device=self.device)
        self.blank[signal : None if layout == "gu" else signal + 1] = SIGNAL
        self._sets: dict[str, tuple[int, Tensor]] = {}

    def symbols(self, split: str, epoch: int) -> Tensor:
        """The ten symbols of every sequence of a split, (N, 10); kept on the device as bytes."""
        key = epoch if self.fresh and split == "train" else 0
        if self._sets.get(split, (None,))[0] != key:
            drawn = torch.randint(SYMBOLS, (self.size(split), LENGTH), generator=self.generator(split, key))
            self._sets[split] = key, drawn.to(self.device, torch.uint8)
        return self._sets[split][1]

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        symbols = self.symbols(split, epoch)[first:end].T.long()
        x = self.blank.unsqueeze(1).repeat(1, end - first)
        x[:LENGTH] = symbols
        target = torch.full_like(x, DUMMY)
        target[-LENGTH:] = symbols
        return Batch(x, target)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        scored = slice(-LENGTH, None) if self.score == "answers" else slice(None)
        return F.cross_entropy(logits[scored].flatten(0, 1), batch.target[scored].flatten())

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return (logits[-LENGTH:].argmax(-1) == batch.target[-LENGTH:]).all(0)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        right = logits[-LENGTH:].argmax(-1) == batch.target[-LENGTH:]
        n = right.shape[1]
        return {
            "loss": (self.loss(logits, batch) * n, n),
            "accuracy": (right.sum(), right.numel()),
            "sequence_accuracy": (right.all(0).sum(), n),
        }

    def chance(self) -> float:
        return math.log(SYMBOLS) * (1.0 if self.score == "answers" else LENGTH / self.steps)

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        if self.layout == "gu":
            return None
        if min(metrics["accuracy"], metrics["sequence_accuracy"]) >= 0.999:
            return "solved"
        return "failed" if epoch > 200 and metrics["accuracy"] < 0.2 else None
