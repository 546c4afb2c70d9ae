"""Variable copy: the copy task with a delay that differs from sequence to sequence."""

import math
from typing import Unpack

import torch
from torch import Tensor

from timescales.tasks.copy import CLASSES, DUMMY, LENGTH, SIGNAL, SYMBOLS, Copy
from timescales.tasks.task import IGNORED, Batch, Sizes, Spec, loss_of_steps


class VariableCopy(Copy):
    """The copy memory task with a delay T for each sequence, uniform on the integers low to high, both included.

    Source: Tallec & Ollivier 2018; Chien et al. 2021, appendix A.3: T from 200 to 500, and from 200 to 1000.

        input   3 1 4 1 5 2 6 5 3 5 . . . ! . . . . . . . . .     T = 3   (`.` dummy, `!` signal)
        target  . . . . . . . . . . . . . 3 1 4 1 5 2 6 5 3 5
        input   2 7 1 8 2 8 1 8 2 8 . ! . . . . . . . . .         T = 1: two steps fewer, masked at the end
        target  . . . . . . . . . . . 2 7 1 8 2 8 1 8 2 8

    A batch is as long as its longest sequence. Loss: cross-entropy, the mean over all steps that exist. At chance it
    is 10 ln 8 / (mean T + 20). Metrics, data sets and the rules that end a run are those of `Copy`.
    """

    answers = slice(None)  # each sequence has its own

    def __init__(self, *, low: int = 200, high: int = 500, solved: float | None = None, **sizes: Unpack[Sizes]) -> None:
        if not 0 <= low <= high:
            raise ValueError(f"low and high must fulfil 0 <= low <= high, not {low} and {high}")
        super().__init__(T=high, solved=solved, **sizes)
        self.low, self.high = low, high
        self.spec = Spec("one_hot", CLASSES, CLASSES, "all", horizon=max(high, 3))
        self._delays: dict[str, Tensor] = {}

    def delays(self, split: str) -> Tensor:
        """Return the delay of every sequence of a split, (N,), on the CPU, where the length of a batch is computed."""
        if split not in self._delays:
            generator = self.generator(f"{split}/delays")
            self._delays[split] = torch.randint(self.low, self.high + 1, (self.size(split),), generator=generator)
        return self._delays[split]

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        symbols = self.symbols(split, epoch)[first:end].T.long()
        delays = self.delays(split)[first:end]
        steps = int(delays.max()) + 2 * LENGTH
        signal = self.moved((delays + LENGTH).unsqueeze(0))  # (1, B): the step of the signal and of the first answer
        mask = torch.arange(steps, device=self.device).unsqueeze(1) < signal + LENGTH
        x = torch.full((steps, end - first), DUMMY, device=self.device)
        x[:LENGTH] = symbols
        x.scatter_(0, signal, SIGNAL)
        target = torch.where(mask, DUMMY, IGNORED)
        target.scatter_(0, signal + torch.arange(LENGTH, device=self.device).unsqueeze(1), symbols)
        return Batch(x, target, mask)

    def right(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the number of correct answers of each sequence, (B,), 0 to 10."""
        is_answer = (batch.target >= 0) & (batch.target < SYMBOLS)
        return ((logits.argmax(-1) == batch.target) & is_answer).sum(0)

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return self.right(logits, batch) == LENGTH

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        correct = self.right(logits, batch)
        loss = loss_of_steps(logits, batch.target, "sum")
        n = len(correct)
        return {
            "loss": (loss, int((batch.target != IGNORED).sum())),
            "accuracy": (correct.sum(), LENGTH * n),
            "sequence_accuracy": ((correct == LENGTH).sum(), n),
        }

    def chance(self) -> float:
        """Return the loss of a predictor that sees the signal but forgets the symbols: 10 ln 8 / (mean T + 20)."""
        return LENGTH * math.log(SYMBOLS) / ((self.low + self.high) / 2 + 2 * LENGTH)
