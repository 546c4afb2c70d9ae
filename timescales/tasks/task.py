"""The base class of all tasks: data, loss, metrics and the loss at chance. A task does not know the model or the loop.

Shapes: S steps, B sequences of a batch, I numbers per input step, C classes. Sequences are time-major, (S, B, ...).
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypedDict

import torch
from torch import Tensor
from torch.nn import functional as F

EVAL_BATCH = 500  # sequences in a validation or test batch; texts are read in streams instead

IGNORED = -100  # the target of steps that are not scored
VECTOR = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8  # numbers that the processor computes at once


@dataclass(frozen=True)
class AWD:
    """What a word-level task requires of its model, `timescales.models.awd.AWDModel`: dropout and tied weights.

    embedding, input, hidden, output, weight: dropout rates, each at least 0 and below 1.
    recurrent: "trained", or "frozen" for recurrent weights that stay as initialised.
    tied: whether the readout uses the weights of the embedding.
    cutoffs: None for a softmax over all words. For an adaptive softmax, the numbers of the words (by frequency) at
        which its second, third, ... cluster begins.
    """

    embedding: float
    input: float
    hidden: float
    output: float
    weight: float
    recurrent: str = "trained"
    tied: bool = True
    cutoffs: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("embedding", "input", "hidden", "output", "weight"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"dropout of {name} must be at least 0 and below 1, not {getattr(self, name)}")
        check_choice("recurrent", self.recurrent, ("trained", "frozen"))


@dataclass(frozen=True)
class Spec:
    """What a model must know about a task.

    input: "one_hot" or "tokens" (x holds integers below input_size, (S, B)) or "real" (x is (S, B, input_size)).
    readout: "all" (logits at every step, (S, B, output_size)) or "last" (from the final state, (B, output_size)).
    horizon: the longest time in steps over which something must be remembered; the value of chrono's T_max="auto".
    select: the validation metric that selects the best weights, and "max" or "min" for its direction.
    embedding: for "tokens", the size E of the vectors to train, or frozen vectors, (input_size, E).
    dropout: rate on the input of the readout.
    carried: whether each batch begins with the final state of the batch before it. The first batch of an epoch or split
        begins with zeros.
    awd: settings of the word-level language model of `timescales.models.awd`, None for any other model.
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
        """Return how many numbers the RNN reads at each step."""
        if self.embedding is None:
            return self.input_size
        return self.embedding if isinstance(self.embedding, int) else self.embedding.shape[1]


class Batch(NamedTuple):
    """A batch of sequences on the task's device.

    x: input, (S, B) or (S, B, I).
    target: what the task's loss compares the logits with.
    mask: (S, B), 0 where a step does not exist; None if all exist.
    dt: (S, B), the time since the previous step; None if it is always 1.
    lr_scale: factor of the learning rate in the training step on this batch; None for 1.
    reset: (S, B), whether the state is reset before a step; None if it never is, since some engines need batches
        without it.
    """

    x: Tensor
    target: Tensor
    mask: Tensor | None = None
    dt: Tensor | None = None
    lr_scale: float | None = None
    reset: Tensor | None = None


class Sizes(TypedDict, total=False):
    """The arguments of every task that generates its data, with the defaults of `Task.SIZES`.

    train_size, valid_size, test_size: sequences of a split (of training: in one epoch).
    """

    batch_size: int
    train_size: int
    valid_size: int
    test_size: int
    seed: int
    device: str | torch.device


class Task:
    """Data, loss and metrics of a task. A subclass sets `spec` in __init__ and implements `batch`.

    The loss and metrics of this class are those of classification: logits (B, C) and targets (B,). Other tasks override
        `loss`, `correct` and `metrics`.

    The same seed gives the same data on every device. Each random draw comes from a CPU generator that depends only on
    (seed, split, epoch, step), so a resumed run needs only its counters (and its curve: `follow`). Only training
    sequences are shuffled: sequence k of the validation or test split is the same in every epoch.
    """

    # The defaults of a task that passes `**self.SIZES | sizes` to this class.
    SIZES: ClassVar[Sizes] = Sizes(batch_size=64, train_size=64_000, valid_size=1_000, test_size=5_000)
    is_exact: ClassVar[bool] = False  # whether a perfect predictor is always right, so that the lowest loss is 0
    is_balanced: ClassVar[bool] = False  # whether all classes are equally frequent, so that the loss at chance is ln C
    has_resets: bool = False  # whether some batches have `reset`; the first one may have none
    spec: Spec

    def __init__(
        self,
        *,
        batch_size: int,
        train_size: int,
        valid_size: int,
        test_size: int,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        check_at_least(1, batch_size=batch_size, train_size=train_size, valid_size=valid_size, test_size=test_size)
        self.batch_size, self.seed, self.device = batch_size, seed, torch.device(device)
        self.sizes = {"train": train_size, "valid": valid_size, "test": test_size}
        self.partial: list[str] = []  # for the record: which data sets are incomplete or differ, one line each
        self.data: dict[str, str] = {}  # for the record: the user's files and word vectors, and a digest of each
        self._order: tuple[int, Tensor] | None = None

    def generator(self, split: str, epoch: int = 0, step: int = 0) -> torch.Generator:
        """Return a CPU generator that depends only on the arguments and the task's seed.

        "valid" and "test" are the same in every epoch.
        """
        epoch = 0 if split in ("valid", "test") else epoch
        # No state is carried from draw to draw, so a resumed run only needs its counters.
        return seeded(f"{self.seed}/{split}/{epoch}/{step}")

    def shuffled(self, epoch: int) -> Tensor:
        """Return the indices of the training sequences in the order of an epoch, (N,), on the CPU."""
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, torch.randperm(self.size("train"), generator=self.generator("train", epoch))
        return self._order[1]

    def moved(self, value: Tensor) -> Tensor:
        """Copy a CPU tensor to the task's device. The CPU does not wait for a copy to a GPU."""
        if self.device.type == "cuda":  # a copy from pageable memory would block
            value = value.pin_memory()
        return value.to(self.device, non_blocking=True)

    def size(self, split: str) -> int:
        """Return the number of sequences of a split (of "train": in one epoch)."""
        return self.sizes[split]

    def n_batches(self, split: str) -> int:
        """Return the number of batches of a split (of "train": in one epoch)."""
        return -(-self.size(split) // (self.batch_size if split == "train" else EVAL_BATCH))

    def start_of(self, epoch: int) -> int:
        """Return the number of training steps before an epoch."""
        return epoch * self.n_batches("train")

    def position(self, step: int) -> tuple[int, int]:
        """Return the epoch after `step` training steps, and the number of steps done in it."""
        return divmod(step, self.n_batches("train"))

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of a split, from batch number `start` on. The last one may be smaller."""
        size = self.batch_size if split == "train" else EVAL_BATCH
        n = self.size(split)
        for step in range(start, self.n_batches(split)):
            yield self.batch(split, epoch, step, step * size, min(n, (step + 1) * size))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        """Return sequences first to end - 1 of a split in an epoch. `step` is the number of the batch."""
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the scalar that training minimises, without `penalty`: cross-entropy in nats here."""
        return F.cross_entropy(logits, batch.target)

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return whether each sequence is answered correctly, (B,) bool."""
        return logits.argmax(-1) == batch.target

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """Return each metric as (sum over the batch, number of items in the sum). "loss" must be one of them."""
        loss, n = F.cross_entropy(logits, batch.target, reduction="sum"), len(batch.target)
        return {"loss": (loss, n), "accuracy": (self.correct(logits, batch).sum(), n)}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the means of the metrics over a split, with metrics that are computed from these means."""
        return metrics

    def exists(self, batch: Batch) -> Tensor:
        """Return which steps belong to a sequence, (S, B) bool. Padding does not, even where the model reads it."""
        if batch.mask is None:
            return torch.ones(batch.x.shape[:2], dtype=torch.bool, device=batch.x.device)
        return batch.mask.bool()

    def words(self, x: Tensor) -> list[str] | None:
        """Return the words of tokens (S,); None if the inputs are not words."""
        return None

    def penalty(self, output: Any) -> Tensor | float:
        """Return the regularisation term that training adds to the loss, computed from the model's output."""
        return 0.0

    def chance(self) -> float:
        """Return the loss of the best predictor that ignores the input; nan if it is not known."""
        return math.log(self.spec.output_size) if self.is_balanced else math.nan

    def trivial_baselines(self) -> dict[str, float]:
        """Return what simple rules reach without any skill: each rule's name, and its accuracy or selection metric.

        Empty for tasks where the loss at chance is enough.
        """
        return {}

    def notes(self) -> list[str]:
        """Return what to know about the data before training begins, one line each; nothing for generated data."""
        return []

    def optimum(self) -> float:
        """Return the lowest loss that any predictor can have, as a mean over many sequences; nan if it is not known."""
        return 0.0 if self.is_exact else math.nan

    def follow(self, curve: Sequence[Mapping[str, float]]) -> None:
        """Set what depends on earlier validations, such as a curriculum's difficulty. Called after each validation.

        curve: a row for each validation so far, its metrics under valid/<name>, as in a record. The result must depend
            only on `curve`, never on an earlier call.
        """

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        """Return the outcome ("solved", "failed") if the protocol ends the run after this validation, else None."""
        return None


def same_data(before: Mapping[str, str] | None, now: Mapping[str, str]) -> bool:
    """Return whether the digests of a record or checkpoint equal those of `Task.data` now, wherever the files are.

    A record of older code has no digests, and counts as equal: nothing is known about its data.
    """
    return not before or sorted(before.values()) == sorted(now.values())


class StepTask(Task):
    """A task with an answer at each of several steps: logits (S, B, C) and targets (S, B), IGNORED at the other steps.

    Loss: cross-entropy, the mean over all answers. Metrics: accuracy, the share of correct answers; sequence_accuracy,
    the share of sequences with all answers correct.
    answers: the steps that may have answers; all others are skipped.
    """

    answers = slice(None)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of_steps(logits[self.answers], batch.target[self.answers])

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        target = batch.target[self.answers]
        return ((logits[self.answers].argmax(-1) == target) | (target == IGNORED)).all(0)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        target = batch.target[self.answers]
        n = int((target != IGNORED).sum())
        return {
            "loss": (loss_of_steps(logits[self.answers], target, "sum"), n),
            "accuracy": ((logits[self.answers].argmax(-1) == target).sum(), n),
            "sequence_accuracy": (self.correct(logits, batch).sum(), target.shape[1]),
        }


def time_since_last(time: Tensor, present: Tensor) -> Tensor:
    """Return the time since the last step that is present, (S, B); 1 at the first such step and at all others."""
    last = torch.where(present, time, -math.inf).cummax(0).values
    before = torch.cat([last.new_full((1, last.shape[1]), -math.inf), last[:-1]])
    return torch.where(present & before.isfinite(), time - before, 1.0)


def seeded(words: str) -> torch.Generator:
    """Return a CPU generator whose seed is a hash of the string."""
    digest = hashlib.sha256(words.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def loss_of_steps(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy in nats of logits (S, B, C) and targets (S, B), over the steps with a target.

    reduction: "mean", "sum", or "none" for the loss of each step, (S B,). Steps whose target is IGNORED are skipped.
    """
    logits, target = logits.flatten(0, 1), target.flatten()
    if logits.shape[1] < VECTOR:  # torch would compute number by number; with the classes first it has vectors of steps
        logits, target = logits.T.contiguous().unsqueeze(0), target.unsqueeze(0)
    loss = F.cross_entropy(logits, target, ignore_index=IGNORED, reduction=reduction)
    return loss.flatten() if reduction == "none" else loss


def entropy(counts: Tensor) -> float:
    """Return the entropy in nats of the frequencies given by counts (C,)."""
    return float(torch.special.entr(counts.double() / counts.sum()).sum())


def entropy_of_bit(p: float) -> float:
    """Return the entropy in nats of a bit that is 1 with probability p, which is neither 0 nor 1."""
    return -p * math.log(p) - (1.0 - p) * math.log(1.0 - p)


def sizes_within(
    name: str, items: str, n: int, n_test: int, train_size: int | None, valid_size: int, test_size: int | None
) -> dict[str, int]:
    """Return the sizes of the splits as arguments of `Task`, for a data set with n training and n_test test items.

    Validation items come from the training items. None means all items that are left.

    Raises: ValueError if there are too few; `name` and `items` appear in the message.
    """
    if n < 2 or n_test < 1:
        raise ValueError(f"{name} has only {n} training and {n_test} test {items} here: get the complete data set")
    if train_size is None and valid_size >= n:
        raise ValueError(
            f"valid_size must be below {n}, the number of training {items} of {name} that it is a part of; not "
            f"{valid_size}"
        )
    train_size = n - valid_size if train_size is None else train_size
    test_size = n_test if test_size is None else test_size
    if train_size + valid_size > n or test_size > n_test:
        raise ValueError(
            f"{name} has {n} training and {n_test} test {items}; "
            f"train_size {train_size} + valid_size {valid_size} and test_size {test_size} are too many"
        )
    return {"train_size": train_size, "valid_size": valid_size, "test_size": test_size}


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise ValueError, with the choices, if value is not one of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; not {value!r}")


def check_at_least(least: int, **values: int) -> None:
    """Raise ValueError for the first value below `least`."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")
