"""How have these runs learned, side by side, and where do the papers' numbers lie?

As Chien et al. 2021, Fig. 3, shows copy runs, for any runs of one task: also those that no table has yet, such as the
first epochs of long ones, those that go on, and those of which only the record is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from timescales import plotting
from timescales.analysis.run import Group, Run, groups, titles
from timescales.analysis.study import Study
from timescales.files import csv_rows
from timescales.runs.loggers import Curve

TITLE = "Validation while training"
WEIGHTS = None


class Printed(NamedTuple):
    """A paper's value of a metric ("test/accuracy"), in a record's unit, and the table that has it."""

    metric: str
    value: float
    table: str


def nothing(config: Mapping[str, Any], horizon: int) -> list[Printed]:
    """No paper's values."""
    return []


def compare(runs: Sequence[Run], printed: Callable[[Mapping[str, Any], int], Sequence[Printed]] = nothing) -> Study:
    """Rows: one a validation of a run: run, step, epoch and what was measured.

    Values: of the n-th run "n/best", its step and "n/last" of the metric that chooses its weights, and of each
    configuration "NAME/TABLE/METRIC", what a paper prints of such runs.

    Args:
        printed: gives what papers print of runs of a configuration and a horizon: `papers.printed.printed`.
    """
    metric, direction = runs[0].task.spec.select
    values: dict[str, float] = {}
    for k, run in enumerate(runs, 1):
        if line := points(run, metric):
            step, best = {"max": max, "min": min}[direction](line, key=lambda point: point[1])
            values |= {f"{k}/best": best, f"{k}/best_step": step, f"{k}/last": line[-1][1]}
    found = [(group, printed(group.runs[0].config, group.runs[0].task.spec.horizon)) for group in groups(runs)]
    values |= {f"{group.name}/{one.table}/{one.metric}": one.value for group, papers in found for one in papers}
    named = list(zip(titles(runs), runs, strict=True))
    rows = [{"run": name, **point} for name, run in named for point in curve(run)]
    notes = [] if any(papers for _, papers in found) else ["no table has a printed score of such runs"]
    notes += [f"{name}: no validation in its record or curve.csv" for name, run in named if not curve(run)]
    title = f"{TITLE}: {runs[0].config['task']['name']}"
    return Study(title, rows, values, lambda figure: draw(figure, found), notes)


def curve(run: Run) -> list[dict[str, float]]:
    """A run's validations: from its record, or, while it goes on or was interrupted, from its curve.csv."""
    found = run.record["curve"] or csv_rows(run.directory / "curve.csv")
    lines = [{k: float(v) for k, v in line.items() if v not in ("", None) and k != Curve.CHECK} for line in found]
    lines = [line | {"step": int(line["step"])} for line in lines]
    return [line for line in lines if any(key.startswith("valid/") for key in line)]


def points(run: Run, metric: str) -> list[tuple[float, float]]:
    """Steps and values of a validation metric, without those of a model that had diverged."""
    found = [(point["step"], point.get(f"valid/{metric}", math.nan)) for point in curve(run)]
    return [(step, value) for step, value in found if math.isfinite(value)]


def draw(figure: Any, found: Sequence[tuple[Group, Sequence[Printed]]]) -> None:
    """The metric that chooses the weights, those with a printed value (dashed), the loss: a line a run."""
    first = found[0][0].runs[0]
    said = [paper.metric.partition("/")[2] for _, papers in found for paper in papers]
    names = list(dict.fromkeys([first.task.spec.select[0], *said, "loss"]))
    panels = plotting.panels(figure, len(names), width=6.0 * len(names))
    for one, name in zip(panels, names, strict=True):
        heights: list[float] = []
        for group, papers in found:
            for k, run in enumerate(group.runs):
                steps, values = zip(*points(run, name), strict=True) if points(run, name) else ((), ())
                heights += values
                look = {"color": group.colour, "lw": 1.5, "marker": "o" if len(steps) < 30 else "", "ms": 4}
                one.plot(steps, values, group.style, **look, label=None if k else group.label)
            for paper in papers:
                if paper.metric.endswith(f"/{name}"):
                    label = f"{group.name}: {paper.value:.4g} printed, {paper.metric} ({paper.table})"
                    one.axhline(paper.value, color=group.colour, ls=(0, (6, 3)), lw=1, label=label)
        chances = {run.record.get("chance") for group, _ in found for run in group.runs}
        for chance in sorted(c for c in chances if c is not None and name == "loss"):
            one.axhline(chance, color="#bbbbbb", ls=":", lw=1, label=f"chance, {chance:.3g}")
        one.set(xlabel="training steps", ylabel=f"valid/{name}", xlim=(0, None))
        falling = name == "loss" or (name, "min") == first.task.spec.select
        if falling and heights and 0 < 10 * min(heights) < max(heights):
            one.set_yscale("log")
            plotting.plain(one)
        one.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    lines = [one.get_legend_handles_labels() for one in panels]
    handles = {label: handle for both in lines for handle, label in zip(*both, strict=True)}  # each label once
    look = {"loc": "outside lower center", "ncols": len(names) + 1, "frameon": False, "fontsize": 8}
    figure.legend(handles.values(), handles, **look)
