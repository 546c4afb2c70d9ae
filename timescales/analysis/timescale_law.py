"""Which law the units' time scales follow: inverse gamma, as language asks for, or one scale for all.

Source: Mahto et al. 2021, sections 2.2 and 3.2.1, and Fig. 1. If T ~ InvGamma(alpha, 1), the units' exponential decays
add up to the power law E[e^(-t/T)] = (t + 1)^(-alpha).
"""

from __future__ import annotations

import torch
from torch import Tensor

from timescales.analysis.activations import mean_forget, timescale
from timescales.model import SequenceModel
from timescales.tasks import Task

GRID = torch.arange(1, 51, dtype=torch.float64) / 10  # of alpha, and of mu
SIGMA = 0.1  # of the narrow Gaussian that stands for a single time scale


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """The best laws of all layers' units pooled; see `fit`. A unit's time scale is -1 / ln(mean forget gate), Eq. 3.

    Differs: in the authors' code every window of a text weighs the same, also the short last one; here every step does.
    """
    return fit(timescale(torch.cat(mean_forget(model, task))).cpu())


def fit(times: Tensor) -> dict[str, float]:
    """Best alpha of InvGamma(alpha, 1) and mu of Normal(mu, 0.1) for time scales (n,), each with its distance `ks_...`.

    Both on a grid of 0.1 steps from 0.1 to 5; Mahto et al. do not state theirs.
    """
    gamma, normal = (kolmogorov_smirnov(times, cdf) for cdf in (inverse_gamma_cdf, normal_cdf))
    return {
        "alpha": float(GRID[gamma.argmin()]), "ks_inverse_gamma": float(gamma.min()),
        "mu": float(GRID[normal.argmin()]), "ks_normal": float(normal.min()),
    }  # fmt: skip


def inverse_gamma_cdf(times: Tensor) -> Tensor:
    """P(T <= t) of InvGamma(alpha, 1) for each alpha of GRID: (len(GRID), n)."""
    alpha, rate = torch.broadcast_tensors(GRID.unsqueeze(1), 1.0 / times.double())
    return torch.special.gammaincc(alpha, rate)


def normal_cdf(times: Tensor) -> Tensor:
    """P(T <= t) of Normal(mu, 0.1) for each mu of GRID: (len(GRID), n)."""
    return torch.special.ndtr((times.double() - GRID.unsqueeze(1)) / SIGMA)


def kolmogorov_smirnov(times: Tensor, cdf: object) -> Tensor:
    """Largest distance between the empirical distribution of times (n,) and each row of cdf(times): (len(GRID),)."""
    n = len(times)
    law = cdf(times.sort().values)  # type: ignore[operator]
    above = (
        torch.arange(1, n + 1, dtype=torch.float64) / n
    )  # the empirical one just after each time; just before: - 1/n
    return torch.maximum((above - law).amax(-1), (law - above + 1.0 / n).amax(-1))
