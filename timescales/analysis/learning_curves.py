"""Learning curves of several runs, beside the numbers that papers print.

Chien et al. 2021, Fig. 3, shows copy runs so. Here any runs of one task can be shown: also runs that belong to no
table, runs that have not ended, and runs of which only the record is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from timescales import plotting
from timescales.analysis.groups import Group, groups, titles
from timescales.analysis.run import Trained
from timescales.analysis.study import Study
from timescales.config import Config
from timescales.files import csv_rows
from timescales.runs.loggers import Curve

TITLE = "Validation while training"
WEIGHTS = None


class Printed(NamedTuple):
    """The value that a paper prints for a metric ("test/accuracy"), in the unit of records, and its table here."""

    metric: str
    value: float
    table: str


def nothing(config: Config, horizon: int) -> list[Printed]:
    """No paper's values."""
    return []


def compare(runs: Sequence[Trained], printed: Callable[[Config, int], Sequence[Printed]] = nothing) -> Study:
    """Rows: one per validation of a run: run, step, epoch and the metrics.

    Values: "1/best", "1/best_step" and "1/last" of the metric that selects the weights, of the first run and so on, and
    "NAME/TABLE/METRIC", what a paper prints for the runs of a configuration.

    printed: returns what papers print for runs of a configuration, given its horizon: `papers.printed.printed`.
    """
    metric, direction = runs[0].task.spec.select
    values: dict[str, float] = {}
    for k, run in enumerate(runs, 1):
        if line := points(run, metric):
            step, best = {"max": max, "min": min}[direction](line, key=lambda point: point[1])
            values |= {f"{k}/best": best, f"{k}/best_step": step, f"{k}/last": line[-1][1]}
    lines = [(group, printed(group.runs[0].config, group.runs[0].task.spec.horizon)) for group in groups(runs)]
    values |= {f"{group.name}/{paper.table}/{paper.metric}": paper.value for group, papers in lines for paper in papers}
    curves = {name: curve(run) for name, run in zip(titles(runs), runs, strict=True)}
    rows = [{"run": name, **point} for name, validations in curves.items() for point in validations]
    notes = [] if any(papers for _, papers in lines) else ["no table has a printed score of such runs"]
    notes += [f"{name}: no validation in its record or curve.csv" for name, points in curves.items() if not points]
    title = f"{TITLE}: {runs[0].config['task']['name']}"
    return Study(title, rows, values, lambda figure: draw(figure, lines), notes)


def curve(run: Trained) -> list[dict[str, float]]:
    """The validations of a run, from its record or, if it has not ended, from its curve.csv."""
    rows = run.record.curve or csv_rows(run.directory / "curve.csv")
    points = [{k: float(v) for k, v in row.items() if v not in ("", None) and k != Curve.CHECK} for row in rows]
    points = [point | {"step": int(point["step"])} for point in points]
    return [point for point in points if any(key.startswith("valid/") for key in point)]


def points(run: Trained, metric: str) -> list[tuple[float, float]]:
    """Steps and values of a validation metric, where it is finite."""
    values = [(point["step"], point.get(f"valid/{metric}", math.nan)) for point in curve(run)]
    return [(step, value) for step, value in values if math.isfinite(value)]


def draw(figure: Any, lines: Sequence[tuple[Group, Sequence[Printed]]]) -> None:
    """A panel per metric: the one that selects the weights, those with a printed value (dashed), the loss.

    lines: the groups of runs, and what papers print for each.
    """
    select = lines[0][0].runs[0].task.spec.select
    printed = [paper.metric.partition("/")[2] for _, papers in lines for paper in papers]
    metrics = list(dict.fromkeys([select[0], *printed, "loss"]))
    axes = plotting.panels(figure, len(metrics), width=6.0 * len(metrics))
    for ax, metric in zip(axes, metrics, strict=True):
        for group, papers in lines:
            _draw_runs(ax, group, metric)
            _draw_printed(ax, group, papers, metric)
        if metric == "loss":
            _draw_chance(ax, [run for group, _ in lines for run in group.runs])
        if metric == "accuracy":
            plotting.draw_floors(ax, lines[0][0].runs[0].task.floors())
        values = [value for group, _ in lines for run in group.runs for _, value in points(run, metric)]
        ax.set(xlabel="training steps", ylabel=f"valid/{metric}", xlim=(0, None))
        falling = metric == "loss" or (metric, "min") == select
        if falling and values and 0 < 10 * min(values) < max(values):
            ax.set_yscale("log")
            plotting.plain_ticks(ax)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    _common_legend(figure, axes)


def _draw_runs(ax: Any, group: Group, metric: str) -> None:
    for k, run in enumerate(group.runs):
        steps, values = zip(*points(run, metric), strict=True) if points(run, metric) else ((), ())
        look = {"color": group.colour, "lw": 1.5, "marker": "o" if len(steps) < 30 else "", "ms": 4}
        ax.plot(steps, values, group.style, label=None if k else group.label, **look)


def _draw_printed(ax: Any, group: Group, papers: Sequence[Printed], metric: str) -> None:
    for paper in papers:
        if paper.metric.endswith(f"/{metric}"):
            label = f"{group.name}: {paper.value:.4g} printed, {paper.metric} ({paper.table})"
            ax.axhline(paper.value, color=group.colour, ls=(0, (6, 3)), lw=1, label=label)


def _draw_chance(ax: Any, runs: Sequence[Trained]) -> None:
    chances = {run.record.chance for run in runs}
    for chance in sorted(chance for chance in chances if chance is not None):
        ax.axhline(chance, color="#bbbbbb", ls=":", lw=1, label=f"chance, {chance:.3g}")


def _common_legend(figure: Any, axes: Sequence[Any]) -> None:
    """One legend below all axes, with each label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    look = {"loc": "outside lower center", "ncols": len(axes) + 1, "frameon": False, "fontsize": 8}
    figure.legend(handles.values(), handles, **look)
