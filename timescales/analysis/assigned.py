"""Compare the time scales with which units forget with those that the units were assigned.

Source: Mahto et al. 2021, appendix A.2 and Fig. 4, appendix A.5 and Fig. 9.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, by_unit
from timescales.nn.inits import InverseGamma, timescale_of_gate

TITLE = "Time scale of each unit: assigned by its initial forget bias, and -1 / ln(mean forget gate on test data)"


def study(run: Trained) -> Study:
    """Study assigned and estimated time scales.

    The assigned ones are those of the biases before training. In multi-timescale models these biases are fixed.

    Rows: one per unit: layer, unit, assigned and estimated time scale in steps. Values: for each layer, the rank
    correlation (Spearman), how much of the variance of the estimated ranks the assigned ones explain (the square of
    that correlation, 0 if it is negative) and how much not, the correlation of logarithms (Pearson, over units for
    which both are finite and above 0), both medians, and the shares of units assigned less than 20 steps (80 % in layer
    2 of the paper, section 3.1.1) and at least 1,000 ("ranging up to the thousands"). Raises ConfigError for a model
    without forget gates.
    """
    pairs = [
        (cell.timescales().detach().cpu().double(), timescale_of_gate(forget))
        for cell, forget in zip(run.initial.rnn.layers, run.forget, strict=True)
    ]
    assigned, estimated = (torch.cat(layers).tolist() for layers in zip(*pairs, strict=True))
    rows = by_unit(run.model, {"assigned": assigned, "estimated": estimated})
    values = {
        f"layer{layer}/{name}": value for layer, pair in enumerate(pairs, 1) for name, value in agreement(*pair).items()
    }
    return Study(TITLE, rows, values, lambda figure: draw(figure, run, pairs, values))


def agreement(assigned: Tensor, estimated: Tensor) -> dict[str, float]:
    """Return the values of one layer, from the assigned and the estimated time scales of its units, (H,) float64."""
    usable = (assigned > 0) & assigned.isfinite() & (estimated > 0) & estimated.isfinite()
    spearman = correlation(ranks(assigned), ranks(estimated))
    explained = max(spearman, 0.0) ** 2  # nan stays nan
    return {
        "spearman": spearman,
        "explained": explained,
        "unexplained": 1.0 - explained,
        "pearson_log": correlation(assigned[usable].log(), estimated[usable].log()),
        "assigned_median": float(assigned.median()),
        "estimated_median": float(estimated.median()),
        "assigned_below_20": float((assigned < 20).double().mean()),
        "assigned_from_1000": float((assigned >= 1000).double().mean()),
    }


def ranks(values: Tensor) -> Tensor:
    """Return the rank of each value (n,), float64. Equal values share the mean of their ranks."""
    from scipy.stats import rankdata

    return torch.from_numpy(rankdata(values))


def correlation(a: Tensor, b: Tensor) -> float:
    """Return Pearson's r of two (n,); nan if one is constant."""
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1]) if len(a) > 1 else math.nan


def draw(figure: Any, run: Trained, pairs: Sequence[tuple[Tensor, Tensor]], values: dict[str, float]) -> None:
    """Draw a panel per layer, a dot per unit; for the multi-timescale model also the assignments by alpha."""
    mts = run.config["model"]["name"] == "mts"
    axes = plotting.panels(figure, len(pairs) + mts, width=4.4 * (len(pairs) + mts), height=4.4)
    for layer, (ax, pair) in enumerate(zip(axes, pairs, strict=False), 1):
        _draw_layer(ax, run.colour, *pair)
        r = values[f"layer{layer}/spearman"]
        correlation_text = "" if math.isnan(r) else f", rank correlation {r:.3f}"
        ax.set_title(f"layer {layer}, {len(pair[0]):,} units{correlation_text}", loc="left", fontsize=9)
    if not mts:
        return
    settings, assigned = run.config["model"], pairs[min(1, len(pairs) - 1)][0]
    options = {key: settings[key] for key in ("scale", "quantiles") if key in settings}
    others = [0.36, 0.46, 0.56, 0.66, 0.8, 1.0, 1.5]  # those of conf/table/mahto_alpha.yaml; the paper prints none
    others = [alpha for alpha in others if alpha != settings["alpha"]]
    colours = {**dict(zip(others, plotting.shades(len(others)), strict=True)), settings["alpha"]: run.colour}
    for alpha in sorted(colours):
        of_run = alpha == settings["alpha"]
        times = assigned if of_run else InverseGamma(alpha, **options).timescales(len(assigned))
        y = times.where(times > 0, torch.nan)
        axes[-1].plot(range(1, len(y) + 1), y, color=colours[alpha], lw=2.5 if of_run else 1.2, label=f"alpha {alpha}")
    axes[-1].set(yscale="log", xlabel="unit", ylabel="assigned time scale (steps)")
    axes[-1].set_title("assignment by alpha", loc="left", fontsize=9)
    plotting.small_legend(axes[-1])


def _draw_layer(ax: Any, colour: str, assigned: Tensor, estimated: Tensor) -> None:
    ax.plot(assigned, estimated, "o", color=colour, ms=3, alpha=0.4, mew=0)
    times = torch.cat([assigned, estimated])
    times = times[(times > 0) & times.isfinite()]
    ends = [float(times.min()), float(times.max())]
    ax.plot(ends, ends, "-", color="#999999", lw=1, zorder=0)
    limits = (ends[0] / 1.2, ends[1] * 1.2)
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    ax.set(xlabel="assigned (steps)", ylabel="estimated (steps)")
    plotting.plain_ticks(ax)
