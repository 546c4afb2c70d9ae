"""The common part of N-parity and N-delayed match: bits, an answer that depends on the last N bits, and a growing N."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import Batch, Sizes, Spec, Task, check_choice


class Curriculum(Task):
    """A task on bits whose answer depends on the last N of them, with an N that grows in training.

    Source: Khajehabdollahi et al. 2024 (arXiv 2309.12927), tasks and curricula, and their released code.

    After a validation whose accuracy is above `threshold`, N grows by 1 before the next training step. In "multi" the
    accuracy of the newest N and the mean over all N must both be above it. A run ends as "solved" when N would grow
    above N_max. N is a function of the validations so far (`follow`), so a resumed run needs only its curve.

    Input: one bit a step, as a number, (S, B, 1). All sequences of a batch are equally long; the number of steps is
    uniform on the integers from N + 2 to N + 1 + STRETCH N. Output: after the last step, two classes for each N that is
    trained. Loss: the sum over these N of the cross-entropy. Metrics, for the N that are currently trained:

        accuracy          the share of correct answers
        newest_accuracy   the same only for the largest N
        N                 the largest N
        score             N + accuracy, which selects the best weights: so they are always from the last N

    curriculum: "single", the network answers only for N, always with the same output; "multi", it answers for all of 2
        to N, each with its own output.
    N: the first one. With N = N_max it never grows.
    N_max: the last one; it sets the number of outputs in "multi".
    threshold: the validation accuracy above which N grows.
    """

    STRETCH: ClassVar[float]

    SIZES: ClassVar[Sizes] = Sizes(batch_size=256, train_size=153_600, valid_size=12_800, test_size=12_800)
    is_exact = True

    def __init__(
        self,
        *,
        curriculum: str = "single",
        N: int = 2,
        N_max: int = 100,
        threshold: float = 0.98,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("curriculum", curriculum, ("single", "multi"))
        if not 2 <= N <= N_max:
            raise ValueError(f"N and N_max must fulfil 2 <= N <= N_max, not {N} and {N_max}")
        if not 0.0 < threshold < 1.0:
            raise ValueError(f"threshold must be above 0 and below 1, not {threshold}")
        self.curriculum, self.first, self.N_max, self.threshold = curriculum, N, N_max, threshold
        self.N = N
        outputs = 1 if curriculum == "single" else N_max - 1
        self.spec = Spec("real", 1, 2 * outputs, "last", horizon=N_max, select=("score", "max"))

    def follow(self, curve: Sequence[Mapping[str, float]]) -> None:
        """Grow N by 1 for each validation that was solved; at most to N_max."""
        solved = sum(self.solved(row["valid/accuracy"], row["valid/newest_accuracy"]) for row in curve)
        self.N = min(self.first + solved, self.N_max)

    def solved(self, accuracy: float, newest_accuracy: float) -> bool:
        """Return whether N may grow after a validation with these accuracies."""
        return min(accuracy, newest_accuracy) > self.threshold

    @property
    def trained(self) -> list[int]:
        """Return each N that the network currently answers for, K of them, the largest last."""
        return [self.N] if self.curriculum == "single" else list(range(2, self.N + 1))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator = self.generator(split, epoch, step)
        shortest = self.N + 2
        steps = int(torch.randint(shortest, shortest + int(self.STRETCH * self.N), (), generator=generator))
        bits = self.moved(self.bits(steps, end - first, generator))
        target = self.answers(bits.flip(0))
        return Batch(bits.to(torch.get_default_dtype()).unsqueeze(-1), target.T.contiguous())

    def bits(self, steps: int, n: int, generator: torch.Generator) -> Tensor:
        """Draw random bits of n sequences, (S, n) int64, on the CPU. 0 and 1 are equally probable."""
        return torch.randint(2, (steps, n), generator=generator)

    def answers(self, backwards: Tensor) -> Tensor:
        """Return the answer for each trained N, (K, B) int64. backwards: the bits, the last one first, (S, B)."""
        raise NotImplementedError

    def logits_of(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the logits for each N that is trained, (B, K, 2)."""
        return logits.unflatten(-1, (-1, 2))[:, : batch.target.shape[1]]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        loss = F.cross_entropy(self.logits_of(logits, batch).flatten(0, 1), batch.target.flatten())
        return loss * batch.target.shape[1]

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return (self.logits_of(logits, batch).argmax(-1) == batch.target).all(1)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        correct = self.logits_of(logits, batch).argmax(-1) == batch.target
        n = len(correct)
        return {
            "loss": (self.loss(logits, batch) * n, n),
            "accuracy": (correct.sum(), correct.numel()),
            "newest_accuracy": (correct[:, -1].sum(), n),
        }

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics | {"N": float(self.N), "score": self.N + metrics["accuracy"]}

    def stop(self, epoch: int, metrics: dict[str, float]) -> str | None:
        if self.N_max == self.N and self.solved(metrics["accuracy"], metrics["newest_accuracy"]):
            return "solved"
        return None
