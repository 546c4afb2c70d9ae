"""What every task is: data, loss, metrics and the level of chance. No model, no optimizer, no clock.

Shapes: S steps, B batch, I input, C classes. Sequences are time-major, (S, B, ...).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SPLITS = ("train", "valid", "test")
EVAL_BATCH = 500  # sequences, whatever the training batch is: no metric depends on it. Texts are read in streams.


@dataclass(frozen=True)
class AWD:
    """What `timescales.training.awd.AWDModel` must know of a task: rates of dropout, and two settings of the weights.

    recurrent: "trained" or "frozen" recurrent weights; tied: the readout's weights are the embedding's.
    """

    embedding: float
    input: float
    hidden: float
    output: float
    weight: float
    recurrent: str = "trained"
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("embedding", "input", "hidden", "output", "weight"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"dropout of {name} must be at least 0 and below 1, not {getattr(self, name)}")
        check_choice("recurrent", self.recurrent, ("trained", "frozen"))


@dataclass(frozen=True)
class Spec:
    """What a model must know of a task.

    input: "one_hot" or "tokens" (x holds whole numbers below input_size, (S, B)), "real" (x is (S, B, input_size)).
    readout: "all" (logits at every step, (S, B, output_size)) or "last" (from the final state, (B, output_size)).
    horizon: the longest time (steps) over which something must be remembered; chrono's T_max="auto" is this.
    select: the validation metric that chooses the best step, and whether more ("max") or less ("min") of it is better.
    embedding: of "tokens": the size E of vectors to train, or the vectors themselves, (input_size, E), then frozen.
    dropout: on what the readout reads.
    carried: a batch begins with the state in which the one before ended, the first of an epoch or split with zeros.
    awd: read the tokens with the word-level language model of `timescales.training.awd`.
    """

    input: str
    input_size: int
    output_size: int
    readout: str
    horizon: int
    select: tuple[str, str] = ("accuracy", "max")
    embedding: int | Tensor | None = field(default=None, compare=False, repr=False)
    dropout: float = 0.0
    carried: bool = False
    awd: AWD | None = None

    def __post_init__(self) -> None:
        check_choice("input", self.input, ("one_hot", "tokens", "real"))
        check_choice("readout", self.readout, ("all", "last"))
        check_choice("the second of select", self.select[1], ("max", "min"))

    @property
    def width(self) -> int:
        """How many numbers the RNN reads at each step."""
        if self.embedding is None:
            return self.input_size
        return self.embedding if isinstance(self.embedding, int) else self.embedding.shape[1]


class Batch(NamedTuple):
    """x: (S, B) or (S, B, I); target: whatever the task's loss reads; mask: (S, B), 0 where a step does not exist;
    dt: (S, B), time since the previous step; lr_scale: what the learning rate of its training step is multiplied by."""

    x: Tensor
    target: Tensor
    mask: Tensor | None = None
    dt: Tensor | None = None
    lr_scale: float | None = None


class Task:
    """Data and rules of one task; `spec` is set in __init__.

    The same seed gives the same data on every device: every random draw comes from a CPU generator that is a pure
    function of (seed, split, epoch, step), so a resumed run needs no more than its counters. Only training sequences
    are ever shuffled: sequence k of another split is always the same one.
    A task of classes, logits (B, C) and targets (B,), needs no loss and metrics of its own.
    """

    spec: Spec

    def __init__(
        self,
        *,
        batch_size: int,
        train_size: int,
        valid_size: int,
        test_size: int,
        seed: int,
        device: str | torch.device,
    ) -> None:
        check_positive(batch_size=batch_size, train_size=train_size, valid_size=valid_size, test_size=test_size)
        self.batch_size, self.seed, self.device = batch_size, seed, torch.device(device)
        self.sizes = {"train": train_size, "valid": valid_size, "test": test_size}
        self.partial: list[str] = []  # what the data lack that the task's name promises, in words for the record
        self._order: tuple[int, Tensor] | None = None

    def generator(self, split: str, epoch: int = 0, step: int = 0) -> torch.Generator:
        """A CPU generator that depends on these and the seed alone."""
        return seeded(f"{self.seed}/{split}/{epoch}/{step}")

    def shuffled(self, epoch: int) -> Tensor:
        """The training sequences in an epoch's order, (N,), on the CPU."""
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, torch.randperm(self.size("train"), generator=self.generator("train", epoch))
        return self._order[1]

    def moved(self, value: Tensor) -> Tensor:
        """A CPU tensor on the task's device. The CPU does not wait for the copy, so it stays ahead of a GPU."""
        if self.device.type == "cuda":  # the copy of a large tensor that may be paged out is waited for
            value = value.pin_memory()
        return value.to(self.device, non_blocking=True)

    def size(self, split: str) -> int:
        """Number of sequences in a split (for "train": in one epoch)."""
        return self.sizes[split]

    def n_batches(self, split: str) -> int:
        """Batches of a split (of "train": in one epoch)."""
        return -(-self.size(split) // (self.batch_size if split == "train" else EVAL_BATCH))

    def start_of(self, epoch: int) -> int:
        """Training steps before an epoch."""
        return epoch * self.n_batches("train")

    def position(self, step: int) -> tuple[int, int]:
        """The epoch that training is in after so many steps, and how many of them belong to it."""
        return divmod(step, self.n_batches("train"))

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of a split on the task's device, from batch number `start` on; the last may be smaller."""
        size = self.batch_size if split == "train" else EVAL_BATCH
        n = self.size(split)
        for step in range(start, self.n_batches(split)):
            yield self.batch(split, epoch, step, step * size, min(n, (step + 1) * size))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        """Sequences first..end-1 of a split in the given epoch, as batch number `step`."""
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The scalar to descend, in nats."""
        return F.cross_entropy(logits, batch.target)

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        """Which of the batch's sequences are answered rightly, (B,) bool; analyses split them by length."""
        return logits.argmax(-1) == batch.target

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """Per metric its sum over the batch and how many items it sums over; "loss" is among them."""
        loss, n = F.cross_entropy(logits, batch.target, reduction="sum"), len(batch.target)
        return {"loss": (loss, n), "accuracy": (self.correct(logits, batch).sum(), n)}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics' means over a split, and what follows from them."""
        return metrics

    def exists(self, batch: Batch) -> Tensor:
        """Which steps are a sequence's own, (S, B) bool: padding is none, even where a model reads it."""
        if batch.mask is None:
            return torch.ones(batch.x.shape[:2], dtype=torch.bool, device=batch.x.device)
        return batch.mask.bool()

    def words(self, x: Tensor) -> list[str] | None:
        """The words that tokens (S,) stand for; None where they stand for none."""
        return None

    def penalty(self, output: Any) -> Tensor | float:
        """What training adds to the loss, from a model's whole output."""
        return 0.0

    def chance(self) -> float:
        """Loss of the best predictor that ignores the input, shown beside a run's; nan where nobody worked it out."""
        return math.nan

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        """A word if the paper's protocol ends the run after this epoch's validation, else None."""
        return None


def seeded(words: str) -> torch.Generator:
    """A CPU generator that depends on these words alone."""
    digest = hashlib.sha256(words.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def sizes_within(
    name: str, items: str, n: int, n_test: int, train_size: int | None, valid_size: int, test_size: int | None
) -> dict[str, int]:
    """Sizes of the splits of a data set with n training and n_test test items; validation is cut from the former.

    A size that is None takes all that is left. Raises ValueError where there are not enough items.
    """
    train_size = n - valid_size if train_size is None else train_size
    test_size = n_test if test_size is None else test_size
    if train_size + valid_size > n or test_size > n_test:
        raise ValueError(
            f"{name} has {n} training and {n_test} test {items}; "
            f"train_size {train_size} + valid_size {valid_size} and test_size {test_size} are too many"
        )
    return {"train_size": train_size, "valid_size": valid_size, "test_size": test_size}


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise ValueError naming the choices if value is none of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; not {value!r}")


def check_positive(**values: int) -> None:
    """Raise ValueError naming the first of the values that is below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
