"""Do units forget with the time scales that they were given?

Source: Mahto et al. 2021, appendix A.2 and Fig. 4, appendix A.5 and Fig. 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import timescale
from timescales.analysis.run import Run, by_unit
from timescales.analysis.study import Study
from timescales.nn.inits import InverseGamma

TITLE = "Time scale of each unit: as its forget bias began, and -1 / ln(mean forget gate on test data) after training"
ALPHAS = (0.36, 0.46, 0.56, 0.66, 0.8, 1.0, 1.5)  # those of conf/table/mahto_alpha.yaml; the paper's are not in print


def study(run: Run) -> Study:
    """Rows: one a unit: layer, place, assigned and estimated time scale in steps. Values: by layer, the correlation of
    ranks (Spearman), that of logarithms (Pearson, of units where both are finite and above 0), both medians, and the
    share of units assigned less than 20 steps (80 % in layer 2 of the paper's, section 3.1.1).

    Assigned is what the bias says before training; in multi-timescale models it stays. Raises ConfigError for a model
    without forget gates.
    """
    pairs = [
        (cell.timescales().detach().cpu().double(), timescale(forget))
        for cell, forget in zip(run.initial.rnn.layers, run.forget, strict=True)
    ]
    both = (torch.cat(layers).tolist() for layers in zip(*pairs, strict=True))
    rows = by_unit(run.model, dict(zip(("assigned", "estimated"), both, strict=True)))
    values: dict[str, float] = {}
    for layer, (assigned, estimated) in enumerate(pairs, 1):
        usable = [bool(0 < a < math.inf and 0 < e < math.inf) for a, e in zip(assigned, estimated, strict=True)]
        logs = correlation(assigned[usable].log(), estimated[usable].log())
        values |= {
            f"layer{layer}/spearman": correlation(ranks(assigned), ranks(estimated)), f"layer{layer}/pearson_log": logs,
            f"layer{layer}/assigned_median": float(assigned.median()),
            f"layer{layer}/estimated_median": float(estimated.median()),
            f"layer{layer}/assigned_below_20": float((assigned < 20).double().mean()),
        }  # fmt: skip
    return Study(TITLE, rows, values, lambda figure: draw(figure, run, pairs, values))


def ranks(values: Tensor) -> Tensor:
    """The place of each value (n,) in their order, float64; equal ones share the mean of theirs."""
    from scipy.stats import rankdata

    return torch.from_numpy(rankdata(values))


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's r of two (n,); nan where one does not vary."""
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1]) if len(a) > 1 else math.nan


def draw(figure: Any, run: Run, pairs: Sequence[tuple[Tensor, Tensor]], values: dict[str, float]) -> None:
    """A panel a layer, every unit a dot; for the multi-timescale model one more, the law at several alpha."""
    mts = run.config["model"]["name"] == "mts"
    axes = plotting.panels(figure, len(pairs) + mts, width=4.4 * (len(pairs) + mts), height=4.4)
    for layer, (one, (assigned, estimated)) in enumerate(zip(axes, pairs, strict=False), 1):
        one.plot(assigned, estimated, "o", color=run.colour, ms=3, alpha=0.4, mew=0)
        finite = torch.cat([assigned, estimated])
        finite = finite[(finite > 0) & finite.isfinite()]
        ends = [float(finite.min()), float(finite.max())]
        one.plot(ends, ends, "-", color="#999999", lw=1, zorder=0)
        limits = (ends[0] / 1.2, ends[1] * 1.2)
        one.set(
            xscale="log", yscale="log", xlabel="assigned (steps)", ylabel="estimated (steps)", xlim=limits, ylim=limits
        )
        plotting.plain(one)
        r = values[f"layer{layer}/spearman"]
        said = "" if math.isnan(r) else f", rank correlation {r:.3f}"
        one.set_title(f"layer {layer}, {len(assigned):,} units{said}", loc="left", fontsize=9)
    if mts:
        settings, assigned = run.config["model"], pairs[min(1, len(pairs) - 1)][0]
        own, law = settings["alpha"], {key: settings[key] for key in ("scale", "quantiles") if key in settings}
        others = [alpha for alpha in ALPHAS if alpha != own]
        shades = plotting.shades(len(others))
        for alpha, shade in sorted([*zip(others, shades, strict=True), (own, run.colour)], key=lambda pair: pair[0]):
            times = assigned if alpha == own else InverseGamma(alpha, **law).timescales(len(assigned))
            axes[-1].plot(range(1, len(times) + 1), times.where(times > 0, torch.nan), color=shade,
                          lw=2.5 if alpha == own else 1.2, label=f"alpha {alpha}")  # fmt: skip
        axes[-1].set(yscale="log", xlabel="unit", ylabel="assigned time scale (steps)")
        axes[-1].set_title("what each alpha assigns", loc="left", fontsize=9)
        axes[-1].legend(frameon=False, fontsize=8)
