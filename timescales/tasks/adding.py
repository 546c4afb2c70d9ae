"""Adding: the sum of two marked numbers in a long sequence."""

from typing import ClassVar, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import Batch, Sizes, Spec, Task


class Adding(Task):
    """The adding problem: two numbers of a long sequence are marked, and the model must output their sum.

    Source: Hochreiter & Schmidhuber 1997 in the form of Arjovsky et al. 2016; Gu et al. 2020, appendix D.1.

        number  .31 .85 .07 .62 | .44 .90 .15 .58     T = 8: uniform on [0, 1)
        marker   0   1   0   0  |  0   0   1   0      one in each half
        target                                1.00    .85 + .15; read from the final state

    Input: T steps of two numbers, the number and its marker. Output: one number, after the last step.
    Loss: mean squared error; 1/6 at chance. Metric: accuracy, the share of answers within .04 of the sum (the
    tolerance of Hochreiter & Schmidhuber 1997).
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.
    """

    TOLERANCE = 0.04

    SIZES: ClassVar[Sizes] = Sizes(batch_size=32, train_size=32_000, valid_size=1_000, test_size=5_000)
    is_exact = True

    def __init__(self, *, T: int = 2000, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**self.SIZES | sizes)
        if T < 2:
            raise ValueError(f"T must be at least 2, a step for each of the two numbers; not {T}")
        self.T = T
        self.spec = Spec("real", 2, 1, "last", horizon=T, select=("loss", "min"))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator, n = self.generator(split, epoch, step), end - first
        numbers = torch.rand(self.T, n, generator=generator)
        half = self.T // 2
        in_first_half = torch.randint(half, (n,), generator=generator)
        in_second_half = torch.randint(half, self.T, (n,), generator=generator)
        marked = torch.stack([in_first_half, in_second_half])
        x = torch.stack([numbers, torch.zeros(self.T, n).scatter_(0, marked, 1.0)], -1)
        target = numbers.gather(0, marked).sum(0)
        dtype = torch.get_default_dtype()
        return Batch(self.moved(x.to(dtype)), self.moved(target.to(dtype)))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.mse_loss(logits.squeeze(-1), batch.target.to(logits.dtype))

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return (logits.squeeze(-1) - batch.target).abs() < self.TOLERANCE

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        n = len(batch.target)
        return {"loss": (self.loss(logits, batch) * n, n), "accuracy": (self.correct(logits, batch).sum(), n)}

    def chance(self) -> float:
        """Return the mean squared error of the constant answer 1: twice the variance of a uniform number."""
        return 1 / 6
