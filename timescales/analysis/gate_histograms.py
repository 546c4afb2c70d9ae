"""How are the forget gates of the units distributed, before and after training?

Source: Gu et al. 2020, appendix D.1 and Fig. 5 (copy task), appendix E.1 and Fig. 12 (adding from gates near 1): a
unit's forget gate is averaged over time and samples.
Differs: "after" are the weights of the best validation; the probe `forgetting` asks those at the end, as the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import mean_forget, timescale
from timescales.analysis.run import Run, by_unit, titles
from timescales.analysis.study import Study

TITLE = "Forget gates of the units, each averaged over time and test sequences"
ACTIVATIONS = [k / 40 for k in range(41)]


class Found(NamedTuple):
    """Mean forget gates of one run, a layer's (H,) each."""

    run: Run
    before: list[Tensor]
    after: list[Tensor]


def study(run: Run) -> Study:
    """Rows: one a unit: layer, unit, mean gate before and after training, and their time scales -1 / ln f in steps.

    Values: before and after: mean gate, the share of units above .9 and above .99, smallest, median and largest time
    scale. Differs: the paper's time scale of a gate is 1 / (1 - f), half a step more.
    """
    found = gates(run)
    return Study(TITLE, rows_of(found), summary(found), lambda figure: draw(figure, [found], [""]))


def compare(runs: Sequence[Run]) -> Study:
    """A line of panels a run. Values: "1/after/smallest" is the first run's; `smallest_ratio` is the largest over the
    smallest of the runs' smallest time scales after training (Fig. 12: above 10)."""
    found = [gates(run) for run in runs]
    each = [summary(one) for one in found]
    values = {f"{k}/{key}": value for k, own in enumerate(each, 1) for key, value in own.items()}
    smallest = [own["after/smallest"] for own in each]
    values["smallest_ratio"] = max(smallest) / max(min(smallest), 1e-300)
    words = titles(runs)
    rows = [{"run": name, **row} for name, one in zip(words, found, strict=True) for row in rows_of(one)]
    return Study(TITLE, rows, values, lambda figure: draw(figure, found, words))


def gates(run: Run) -> Found:
    """Both distributions of a run; those of an earlier study of the same weights are read again."""
    if (rows := run.earlier("gate_histograms")) is not None:
        layers = sorted({row["layer"] for row in rows})

        def of(key: str, layer: int) -> Tensor:
            return torch.tensor([float(row[key]) for row in rows if row["layer"] == layer], dtype=torch.float64)

        return Found(run, [of("before", layer) for layer in layers], [of("after", layer) for layer in layers])
    return Found(run, [f.cpu() for f in mean_forget(run.initial, run.task)], run.forget)


def rows_of(found: Found) -> list[dict[str, Any]]:
    """A row a unit."""
    before, after = torch.cat(found.before), torch.cat(found.after)
    times = {"steps_before": timescale(before), "steps_after": timescale(after)}
    columns = {"before": before, "after": after, **times}
    return by_unit(found.run.model, {name: values.tolist() for name, values in columns.items()})


def summary(found: Found) -> dict[str, float]:
    """The values of `study`."""
    values: dict[str, float] = {}
    for when, layers in (("before", found.before), ("after", found.after)):
        f = torch.cat(layers)
        times = timescale(f)
        values |= {
            f"{when}/mean": float(f.mean()),
            f"{when}/share_above_0.9": float((f > 0.9).double().mean()),
            f"{when}/share_above_0.99": float((f > 0.99).double().mean()),
            f"{when}/smallest": float(times.min()),
            f"{when}/median": float(times.median()),
            f"{when}/largest": float(times.max()),
        }
    return values


def draw(figure: Any, found: Sequence[Found], words: Sequence[str]) -> None:
    """A line a run. Left: histogram of activations; right: of time scales."""
    axes = plotting.panels(figure, 2, len(found), width=12.0, height=0.8 + 3.2 * len(found), sharex="col")
    both = [(torch.cat(one.before), torch.cat(one.after)) for one in found]
    times = [timescale(f).clamp(min=0.05, max=1e6) for pair in both for f in pair]
    low, high = min(float(t.min()) for t in times), max(float(t.max()) for t in times)
    edges = torch.logspace(torch.tensor(low * 0.9).log10(), torch.tensor(high * 1.1).log10(), 41, dtype=torch.float64)
    for k, (one, (before, after)) in enumerate(zip(found, both, strict=True)):
        left, right = axes[2 * k : 2 * k + 2]
        colour = one.run.colour
        for axis, bins, (a, b), what in (
            (left, ACTIVATIONS, (before, after), ""),
            (right, edges, (times[2 * k], times[2 * k + 1]), "smallest {:.3g} steps"),
        ):
            said = [what.format(v.min()) if what else f"mean {v.mean():.3f}" for v in (a, b)]
            axis.hist(a, bins, color="#cccccc", label=f"before training, {said[0]}")
            axis.hist(b, bins, color=colour, histtype="step", lw=2, label=f"after, {said[1]}")
            axis.margins(y=0.3)  # room for the legend
            axis.set_ylabel(f"units (of {len(after)})")
            axis.legend(frameon=False, fontsize=8)
        left.set_title(words[k], loc="left", fontsize=9)
        right.set_xscale("log")
        plotting.plain(right)
    axes[-2].set_xlabel("mean forget gate f")
    axes[-1].set_xlabel("time scale -1 / ln f (steps)")
