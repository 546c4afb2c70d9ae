"""Linear functional: a weighted sum of all inputs so far, with weights that decay exponentially or as a power."""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.task import Batch, Sizes, Spec, Task, check_at_least, check_choice


class LinearFunctional(Task):
    """A linear functional: at every step the model must output a weighted sum of the inputs so far.

    Source: Li et al. 2021 (arXiv 2009.07799), Wang et al. 2023 (arXiv 2305.19190), Wang & Li 2024 (arXiv 2311.14495),
    who ask which models have a memory that decays exponentially, and which as a power. Kernels and input are those of
    the released code of Wang & Li.

        y_t = rho_0 x_t + rho_1 x_(t-1) + ... + rho_(t-1) x_1      x: white noise, normal, of variance 1

        kernel        rho_s is proportional to
        exponential   exp(-s / tau)
        polynomial    (1 + s / tau)^-p

        input    .62  .43  -.09  .68 ...    T = 500, tau = 10, p = 1.1
        target   .27  .39   .36  .46 ...    every step is scored

    Input and output: one number at every step, (S, B, 1). Loss: mean squared error. Metric: excess, the loss relative
    to that of the best predictor: (loss - optimum) / (chance - optimum), 0 at the optimum and 1 at chance. The optimum
    is noise^2, since the rest of the target follows from the inputs. `loss_with(memory)` is the lowest loss with a
    memory of so many steps, so a loss can be converted to a number of steps.
    Training sequences are new in every epoch; validation and test sets are fixed by the seed.

    T: steps of a sequence.
    kernel: "exponential" or "polynomial"; tau: its time constant in steps; p: the power (only for "polynomial").
    noise: standard deviation of normal noise that is added to the target.

    Differs: the weights are scaled so that the sum of their squares over T steps, the variance of the last target, is
    1, and noise is added, so that there is a loss that no model can beat. The released code has neither, reads 100
    steps of .1 time units (one kernel of each kind: exp(-t), (1 + t/10)^-1.1), and draws its sequences once.
    """

    SIZES: ClassVar[Sizes] = Sizes(batch_size=32, train_size=32_000, valid_size=1_000, test_size=5_000)

    def __init__(
        self,
        *,
        T: int = 500,
        kernel: str = "polynomial",
        tau: float = 10.0,
        p: float = 1.1,
        noise: float = 0.1,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**self.SIZES | sizes)
        check_choice("kernel", kernel, ("exponential", "polynomial"))
        check_at_least(1, T=T)
        if not (tau > 0.0 and p > 0.0 and 0.0 <= noise < math.inf):  # also false for nan
            raise ValueError(f"tau and p must be above 0 and noise at least 0, not {tau}, {p} and {noise}")
        self.T, self.noise = T, noise
        lag = torch.arange(T, dtype=torch.float64, device=self.device)
        weights = torch.exp(-lag / tau) if kernel == "exponential" else (1.0 + lag / tau) ** -p
        self.weights = weights / weights.square().sum().sqrt()  # (T,), the weight of the newest input first
        self.spec = Spec("real", 1, 1, "all", horizon=T, select=("loss", "min"))

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        generator = self.generator(split, epoch, step)
        drawn = self.moved(torch.randn(2, self.T, end - first, generator=generator, dtype=torch.float64))
        # The sum over s <= t of weights[s] x[t - s] at every step t.
        spectrum = torch.fft.rfft(drawn[0], 2 * self.T, dim=0) * torch.fft.rfft(self.weights, 2 * self.T).unsqueeze(1)
        target = torch.fft.irfft(spectrum, 2 * self.T, dim=0)[: self.T] + self.noise * drawn[1]
        dtype = torch.get_default_dtype()
        return Batch(drawn[0].unsqueeze(-1).to(dtype), target.to(dtype))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.mse_loss(logits.squeeze(-1), batch.target.to(logits.dtype))

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        n = batch.target.numel()
        return {"loss": (self.loss(logits, batch) * n, n)}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        optimum = self.optimum()
        return metrics | {"excess": (metrics["loss"] - optimum) / (self.chance() - optimum)}

    def loss_with(self, memory: int) -> float:
        """Return the lowest loss of a predictor that remembers the last `memory` inputs, the present one included."""
        forgotten = torch.where(torch.arange(self.T, device=self.device) < memory, 0.0, self.weights.square())
        return float(forgotten.cumsum(0).mean()) + self.optimum()

    def chance(self) -> float:
        """Return the variance of the target, the mean over all steps: the loss of the constant answer 0."""
        return self.loss_with(memory=0)

    def optimum(self) -> float:
        """Return the variance of the noise."""
        return self.noise**2
