"""Fit the distribution of the units' time scales: an inverse gamma, as language requires, or one scale for all.

Source: Mahto et al. 2021, sections 2.2 and 3.2.1, and Fig. 1. If T ~ InvGamma(alpha, 1), the units' exponential decays
add up to the power law E[e^(-t/T)] = (t + 1)^(-alpha).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.observe import mean_forget
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, by_unit, joined
from timescales.models.sequence import SequenceModel
from timescales.nn.inits import inverse_gamma_isf, timescale_of_gate
from timescales.tasks import Task

GRID = torch.arange(1, 51, dtype=torch.float64) / 10  # values of alpha, and of mu
TITLE = "Time scales of all units, -1 / ln(mean forget gate on test data), and the nearest distributions"
SIGMA = 0.1  # standard deviation of the narrow normal distribution that stands for a single time scale
# Line styles of both distributions. The paper's parameters (Fig. 1) are alpha on PTB and the mean on Markov-PTB.
INVERSE_GAMMA, NORMAL = (0, (1, 1)), (0, (5, 3))
PRINTED = (("alpha, 1.4 (PTB)", 1.4, INVERSE_GAMMA), ("mean, 0.5 (Markov-PTB)", 0.5, NORMAL))


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return the values of `fit` for the units of all layers. A unit's time scale is -1 / ln(mean forget gate), Eq. 3.

    Differs: in the authors' code all windows of a text have the same weight, even the short last one; here all steps
    have.
    """
    return fit(timescale_of_gate(torch.cat(mean_forget(model, task))).cpu())


def study(run: Trained) -> Study:
    """Study the units' time scales by rank, and their distances from both distributions: Fig. 1.

    Rows: one per unit, longest time scale first: layer, unit, time scale in steps. Values: those of `measure`.
    """
    times = times_of(run)
    rows = sorted(by_unit(run.model, {"timescale": times.tolist()}), key=lambda row: -row["timescale"])
    return Study(TITLE, rows, fit(times), lambda figure: draw(figure, [run]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare several runs, such as on PTB and on Markov-PTB. Values: "1/alpha" is that of the first run."""
    heads = [{"run": run.directory.name} for run in runs]
    rows, values = joined([(found.rows, found.values) for found in map(study, runs)], heads)
    return Study(TITLE, rows, values, lambda figure: draw(figure, runs))


def times_of(run: Trained) -> Tensor:
    """Return the time scales of the units of all layers, (units,)."""
    return torch.cat([timescale_of_gate(forget) for forget in run.forget])


def fit(times: Tensor) -> dict[str, float]:
    """Fit alpha of InvGamma(alpha, 1) and mu of Normal(mu, 0.1) to time scales (n,). Add both distances `ks_...`.

    Also the shares of units below 10 and 150 steps (AWD-LSTM in appendix A.2: over 90 % and all), and from 10 steps on.
    Both parameters are on a grid of 0.1 from 0.1 to 5. Mahto et al. do not state their grid.
    """
    gamma, normal = (kolmogorov_smirnov(times, cdf) for cdf in (inverse_gamma_cdf, normal_cdf))
    return {
        "alpha": float(GRID[gamma.argmin()]),
        "ks_inverse_gamma": float(gamma.min()),
        "mu": float(GRID[normal.argmin()]),
        "ks_normal": float(normal.min()),
        **{f"below_{steps}": float((times < steps).double().mean()) for steps in (10, 150)},
        "from_10": float((times >= 10).double().mean()),
    }


def inverse_gamma_cdf(times: Tensor) -> Tensor:
    """Return P(T <= t) of InvGamma(alpha, 1) for each alpha of GRID: (len(GRID), n)."""
    alpha, rate = torch.broadcast_tensors(GRID.unsqueeze(1), 1.0 / times.double())
    return torch.special.gammaincc(alpha, rate)


def normal_cdf(times: Tensor) -> Tensor:
    """Return P(T <= t) of Normal(mu, 0.1) for each mu of GRID: (len(GRID), n)."""
    return torch.special.ndtr((times.double() - GRID.unsqueeze(1)) / SIGMA)


def kolmogorov_smirnov(times: Tensor, cdf: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the largest distance between the empirical distribution of times (n,) and each row of cdf(times).

    Returns: (len(GRID),).
    """
    n = len(times)
    probability = cdf(times.sort().values)
    # The empirical distribution just after each time; just before it, the value is 1/n less.
    empirical = torch.arange(1, n + 1, dtype=torch.float64) / n
    return torch.maximum((empirical - probability).amax(-1), (probability - empirical + 1.0 / n).amax(-1))


def draw(figure: Any, runs: Sequence[Trained]) -> None:
    """Draw time scales by rank with the best distribution of either kind (left), and distances by parameter (right)."""
    left, right = plotting.panels(figure, 2, width=13.0)
    kinds = (("inverse gamma, by alpha", inverse_gamma_cdf, INVERSE_GAMMA), ("normal, by mean", normal_cdf, NORMAL))
    for k, run in enumerate(runs):
        # The runs of a model have one colour, and line styles distinguish the distributions.
        width, marker = max(0.6, 3.0 - 1.2 * k), plotting.MARKERS[k % len(plotting.MARKERS)]
        look: plotting.Look = {"lw": width, "marker": marker, "ms": 4}
        times = times_of(run)
        best, share = fit(times), (torch.arange(len(times), dtype=torch.float64) + 0.5) / len(times)
        every = max(1, len(times) // 12)
        label = f"{len(times):,} units, measured" if len(runs) == 1 else run.title
        plotting.by_rank(left, times.tolist(), color=run.colour, label=label, markevery=every, **look)
        of_law = look | {"color": "black", "lw": width / 2, "markevery": every}
        gamma = inverse_gamma_isf(share, best["alpha"])
        left.plot(share, gamma, ls=INVERSE_GAMMA, label=f"best inverse gamma, alpha {best['alpha']:.1f}", **of_law)
        normal = best["mu"] + SIGMA * torch.special.ndtri(1.0 - share)
        left.plot(share, normal, ls=NORMAL, label=f"best normal, mean {best['mu']:.1f}, sd {SIGMA}", **of_law)
        for words, cdf, style in kinds:
            label = words if len(runs) == 1 else f"{words};\n{run.title}"
            distance = kolmogorov_smirnov(times, cdf)
            right.plot(GRID, distance, color=run.colour, ls=style, label=label, markevery=4, **look)
    if runs[0].config["task"]["name"] == "ptb_word":
        for words, value, style in PRINTED:
            right.axvline(value, color="#999999", ls=style, lw=1, label=f"the paper's {words}")
    left.set(yscale="log", xlabel="share of units with a longer time scale", ylabel="time scale (steps)")
    right.set(xlabel="alpha, or mean in steps", ylabel="Kolmogorov-Smirnov distance from the units", ylim=(0, 1.02))
    plotting.small_legend(left)
    plotting.legend_at_right(right)
