"""Which law the units' time scales follow: inverse gamma, as language asks for, or one scale for all.

Source: Mahto et al. 2021, sections 2.2 and 3.2.1, and Fig. 1. If T ~ InvGamma(alpha, 1), the units' exponential decays
add up to the power law E[e^(-t/T)] = (t + 1)^(-alpha).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import mean_forget, timescale
from timescales.analysis.run import MARKERS, Run, by_unit
from timescales.analysis.study import Study
from timescales.nn.inits import inverse_gamma_isf
from timescales.tasks import Task
from timescales.training.model import SequenceModel

GRID = torch.arange(1, 51, dtype=torch.float64) / 10  # of alpha, and of mu
TITLE = "Time scales of all units, -1 / ln(mean forget gate on test data), and the laws nearest to them"
SIGMA = 0.1  # of the narrow Gaussian that stands for a single time scale


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """What `fit` finds for the units of all layers together. A unit's time scale is -1 / ln(mean forget gate), Eq. 3.

    Differs: in the authors' code every window of a text weighs the same, also the short last one; here every step does.
    """
    return fit(timescale(torch.cat(mean_forget(model, task))).cpu())


def study(run: Run) -> Study:
    """The units' time scales by rank, and how far each law is from them: Fig. 1. Rows: one a unit, longest first."""
    times = torch.cat([timescale(forget) for forget in run.forget])
    return Study(TITLE, rows_of(run), fit(times), lambda figure: draw(figure, [(run, times)]))


def compare(runs: Sequence[Run]) -> Study:
    """The same of several runs, such as of a corpus and its Markov twin. Values: "1/alpha" is the first run's."""
    times = [torch.cat([timescale(forget) for forget in run.forget]) for run in runs]
    values = {f"{k}/{key}": value for k, own in enumerate(times, 1) for key, value in fit(own).items()}
    rows = [{"run": run.directory.name, **row} for run in runs for row in rows_of(run)]
    return Study(TITLE, rows, values, lambda figure: draw(figure, list(zip(runs, times, strict=True))))


def rows_of(run: Run) -> list[dict[str, float]]:
    """A row a unit, longest time scale first: its layer, its place there, its time scale in steps."""
    times = torch.cat([timescale(forget) for forget in run.forget]).tolist()
    return sorted(by_unit(run.model, {"timescale": times}), key=lambda row: -row["timescale"])


PRINTED = (("alpha, 1.4 (PTB)", 1.4, (0, (1, 1))), ("mean, 0.5 (Markov-PTB)", 0.5, (0, (5, 3))))  # Fig. 1


def draw(figure: Any, found: Sequence[tuple[Run, Tensor]]) -> None:
    """Left: time scales by rank, with the best law of either kind. Right: distance of each law by its parameter."""
    left, right = plotting.panels(figure, 2, width=13.0)
    for k, (run, times) in enumerate(found):
        best, share = fit(times), (torch.arange(len(times), dtype=torch.float64) + 0.5) / len(times)
        width = max(0.6, 3.0 - 1.2 * k)  # runs of one model have one colour, and line styles are the laws'
        look: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "ms": 4}
        often = max(1, len(times) // 12)
        name = run.title if len(found) > 1 else f"{len(times):,} units, measured"
        ordered = times.sort(descending=True).values
        left.plot(share, ordered.where(ordered > 0, torch.nan), color=run.colour, lw=width, label=name,
                  markevery=often, **look)  # fmt: skip
        laws = {
            f"inverse gamma, alpha {best['alpha']:.1f}": inverse_gamma_isf(share, best["alpha"]),
            f"normal, mean {best['mu']:.1f}, sd {SIGMA}": best["mu"] + SIGMA * torch.special.ndtri(1.0 - share),
        }
        for (words, law), (_, _, style) in zip(laws.items(), PRINTED, strict=True):
            left.plot(share, law, ls=style, color="black", lw=width / 2, label=f"best {words}", markevery=often, **look)
        for words, cdf, (_, _, style) in zip(
            ("inverse gamma, by alpha", "normal, by mean"), (inverse_gamma_cdf, normal_cdf), PRINTED, strict=True
        ):
            label = f"{words};\n{run.title}" if len(found) > 1 else words
            right.plot(GRID, kolmogorov_smirnov(times, cdf), color=run.colour, ls=style, lw=width, label=label,
                       markevery=4, **look)  # fmt: skip
    if found[0][0].config["task"]["name"] == "ptb_word":
        for words, value, style in PRINTED:
            right.axvline(value, color="#999999", ls=style, lw=1, label=f"the paper's {words}")
    left.set(yscale="log", xlabel="share of units with a longer time scale", ylabel="time scale (steps)")
    right.set(xlabel="alpha, or mean in steps", ylabel="Kolmogorov-Smirnov distance from the units", ylim=(0, 1.02))
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def fit(times: Tensor) -> dict[str, float]:
    """Best alpha of InvGamma(alpha, 1) and mu of Normal(mu, 0.1) for time scales (n,), each with its distance `ks_...`;
    and the shares of the units below 10 and below 150 steps (appendix A.2 has over 90 % and all of AWD-LSTM's).

    Both laws on a grid of 0.1 steps from 0.1 to 5; Mahto et al. do not state theirs.
    """
    gamma, normal = (kolmogorov_smirnov(times, cdf) for cdf in (inverse_gamma_cdf, normal_cdf))
    return {
        "alpha": float(GRID[gamma.argmin()]), "ks_inverse_gamma": float(gamma.min()),
        "mu": float(GRID[normal.argmin()]), "ks_normal": float(normal.min()),
        **{f"below_{steps}": float((times < steps).double().mean()) for steps in (10, 150)},
    }  # fmt: skip


def inverse_gamma_cdf(times: Tensor) -> Tensor:
    """P(T <= t) of InvGamma(alpha, 1) for each alpha of GRID: (len(GRID), n)."""
    alpha, rate = torch.broadcast_tensors(GRID.unsqueeze(1), 1.0 / times.double())
    return torch.special.gammaincc(alpha, rate)


def normal_cdf(times: Tensor) -> Tensor:
    """P(T <= t) of Normal(mu, 0.1) for each mu of GRID: (len(GRID), n)."""
    return torch.special.ndtr((times.double() - GRID.unsqueeze(1)) / SIGMA)


def kolmogorov_smirnov(times: Tensor, cdf: Callable[[Tensor], Tensor]) -> Tensor:
    """Largest distance between the empirical distribution of times (n,) and each row of cdf(times): (len(GRID),)."""
    n = len(times)
    law = cdf(times.sort().values)
    # The empirical one just after each time; just before it is 1/n less.
    above = torch.arange(1, n + 1, dtype=torch.float64) / n
    return torch.maximum((above - law).amax(-1), (law - above + 1.0 / n).amax(-1))
