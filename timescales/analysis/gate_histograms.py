"""Show how the forget gates of the units are distributed, before and after training.

Source: Gu et al. 2020, appendix D.1 and Fig. 5 (copy task), appendix E.1 and Fig. 12 (adding from gates near 1): the
forget gate of a unit is averaged over time and samples.
Differs: "after" are the weights of the best validation; `forgetting` measures the last weights, as the paper.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import titles
from timescales.analysis.observe import mean_forget
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, by_unit, joined
from timescales.nn.inits import timescale_of_gate

TITLE = "Forget gates of the units, each averaged over time and test sequences"
ACTIVATIONS = [k / 40 for k in range(41)]


class Gates(NamedTuple):
    """Mean forget gates of a run before and after training: (H,) per layer."""

    run: Trained
    before: list[Tensor]
    after: list[Tensor]


def study(run: Trained) -> Study:
    """Study the mean gates of one run.

    Rows: one per unit: layer, unit, mean gate before and after training, and their time scales -1 / ln f in steps.

    Values: before and after training, the mean gate, the shares of units above .9 and above .99, and the smallest,
    median and largest time scale. Differs: the paper's time scale of a gate is 1 / (1 - f), half a step more.
    """
    gates = mean_gates(run)
    return Study(TITLE, rows_of(gates), summary(gates), lambda figure: draw(figure, [gates], [""]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare runs: a row of panels for each.

    Values: "1/after/smallest" is that of the first run; `smallest_ratio` is the ratio of the largest to the smallest
    of the runs' smallest time scales after training (Fig. 12: above 10).
    """
    gates = [mean_gates(run) for run in runs]
    names = titles(runs)
    rows, values = joined([(rows_of(own), summary(own)) for own in gates], [{"run": name} for name in names])
    smallest = [values[f"{k}/after/smallest"] for k in range(1, len(runs) + 1)]
    values["smallest_ratio"] = max(smallest) / max(min(smallest), 1e-300)
    return Study(TITLE, rows, values, lambda figure: draw(figure, gates, names))


def mean_gates(run: Trained) -> Gates:
    """Compute the mean gates of a run."""
    return Gates(run, [f.cpu() for f in mean_forget(run.initial, run.task)], run.forget)


def rows_of(gates: Gates) -> list[TableRow]:
    """Return the rows of `study`."""
    before, after = torch.cat(gates.before), torch.cat(gates.after)
    times = {"steps_before": timescale_of_gate(before), "steps_after": timescale_of_gate(after)}
    columns = {"before": before, "after": after, **times}
    return by_unit(gates.run.model, {name: values.tolist() for name, values in columns.items()})


def summary(gates: Gates) -> dict[str, float]:
    """Return the values of `study`."""
    values: dict[str, float] = {}
    for when, layers in (("before", gates.before), ("after", gates.after)):
        f = torch.cat(layers)
        times = timescale_of_gate(f)
        values |= {
            f"{when}/mean": float(f.mean()),
            f"{when}/share_above_0.9": float((f > 0.9).double().mean()),
            f"{when}/share_above_0.99": float((f > 0.99).double().mean()),
            f"{when}/smallest": float(times.min()),
            f"{when}/median": float(times.median()),
            f"{when}/largest": float(times.max()),
        }
    return values


def draw(figure: Any, gates: Sequence[Gates], names: Sequence[str]) -> None:
    """Draw a row of panels per run: a histogram of activations (left) and one of time scales (right)."""
    axes = plotting.panels(figure, 2, len(gates), width=12.0, height=0.8 + 3.2 * len(gates), sharex="col")
    pairs = [(torch.cat(of_run.before), torch.cat(of_run.after)) for of_run in gates]
    times = [tuple(timescale_of_gate(f).clamp(min=0.05, max=1e6) for f in pair) for pair in pairs]
    every = torch.cat([values for pair in times for values in pair])
    low, high = (float(end.log10()) for end in (every.min() * 0.9, every.max() * 1.1))
    edges = torch.logspace(low, high, 41, dtype=torch.float64)
    for k, of_run in enumerate(gates):
        left, right = axes[2 * k : 2 * k + 2]
        means = [f"mean {f.mean():.3f}" for f in pairs[k]]
        smallest = [f"smallest {values.min():.3g} steps" for values in times[k]]
        _draw_histograms(left, pairs[k], ACTIVATIONS, of_run.run.colour, means)
        _draw_histograms(right, times[k], edges, of_run.run.colour, smallest)
        left.set_title(plotting.literal(names[k]), loc="left", fontsize=9)
        right.set_xscale("log")
        plotting.plain_ticks(right)
    axes[-2].set_xlabel("mean forget gate f")
    axes[-1].set_xlabel("time scale -1 / ln f (steps)")


def _draw_histograms(ax: Any, pair: Sequence[Tensor], bins: Any, colour: str, words: Sequence[str]) -> None:
    """Draw histograms of the values before and after training; `words` describe both."""
    before, after = pair
    ax.hist(before, bins, color="#cccccc", label=f"before training, {words[0]}")
    ax.hist(after, bins, color=colour, histtype="step", lw=2, label=f"after, {words[1]}")
    ax.margins(y=0.3)  # room for the legend
    ax.set_ylabel(f"units (of {len(after)})")
    plotting.small_legend(ax)
