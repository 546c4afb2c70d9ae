"""Show learning curves of several runs, beside the numbers that papers print.

Chien et al. 2021, Fig. 3, shows copy runs so. Here any runs of one task can be shown, also runs that belong to no
table, runs that have not ended, and runs that only have a record.
"""

import math
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from timescales import plotting
from timescales.analysis.groups import Group, groups, titles
from timescales.analysis.run import Trained
from timescales.analysis.study import Study
from timescales.config import Config
from timescales.files import csv_rows
from timescales.runs.loggers import Curve
from timescales.tasks.skill import no_skill

KEY = 10  # of a legend: letters that a line's key takes
TITLE = "Validation while training"
WEIGHTS = None


class Printed(NamedTuple):
    """The value that a paper prints for a metric ("test/accuracy"), in the unit of records, and its table here."""

    metric: str
    value: float
    table: str


def compare(
    runs: Sequence[Trained], printed: Callable[[Config, int], Sequence[Printed]] = lambda config, horizon: ()
) -> Study:
    """Draw the curves of runs; several seeds of one configuration are their mean and a band.

    Rows: one per validation of a run: run, step, epoch and the metrics.

    Values: "NAME/best", "NAME/best_step" and "NAME/last" of the metric that selects the weights, by the run's name, and
    "NAME/TABLE/METRIC", what a paper prints for the runs of a configuration.

    printed: returns what papers print for runs of a configuration, given its horizon: `papers.printed.printed`.
    """
    metric, direction = runs[0].task.spec.select
    values: dict[str, float] = {}
    words = []
    for name, run in zip(titles(runs), runs, strict=True):
        if line := points(run, metric):
            step, best = {"max": max, "min": min}[direction](line, key=lambda point: point[1])
            values |= {f"{name}/best": best, f"{name}/best_step": step, f"{name}/last": line[-1][1]}
            end = f"{line[-1][1]:.4g} at the last one, step {line[-1][0]:,}"
            words.append(f"{name}: best {in_words(metric)} {best:.4g} at step {step:,}; {end}")
    lines = [(group, printed(group.runs[0].config, group.runs[0].task.spec.horizon)) for group in groups(runs)]
    for group, papers in lines:
        values |= {f"{group.name}/{paper.table}/{paper.metric}": paper.value for paper in papers}
        words += [f"{group.name}: {paper.metric} {paper.value:.4g} printed ({paper.table})" for paper in papers]
    curves = {name: curve(run) for name, run in zip(titles(runs), runs, strict=True)}
    rows = [{"run": name, **point} for name, validations in curves.items() for point in validations]
    notes = [] if any(papers for _, papers in lines) else ["no table has a printed score of such runs"]
    notes += [f"{name}: no validation in its record or curve.csv" for name, points in curves.items() if not points]
    title = f"{TITLE}: {runs[0].config['task']['name']}"
    return Study(title, rows, values, lambda figure: draw(figure, lines), notes, words)


def in_words(metric: str) -> str:
    """Name a metric of validation as a reader would: "validation sequence accuracy"."""
    return f"validation {metric.replace('_', ' ')}"


def curve(run: Trained) -> list[dict[str, float]]:
    """Return the validations of a run, from its record or, if the run has not ended, from its curve.csv."""
    rows = run.record.curve or csv_rows(run.directory / "curve.csv")
    points = [{k: float(v) for k, v in row.items() if v not in ("", None) and k != Curve.CHECK} for row in rows]
    points = [point | {"step": int(point["step"])} for point in points]
    return [point for point in points if any(key.startswith("valid/") for key in point)]


def points(run: Trained, metric: str) -> list[tuple[int, float]]:
    """Return steps and values of a validation metric, where it is finite."""
    values = [(int(point["step"]), point.get(f"valid/{metric}", math.nan)) for point in curve(run)]
    return [(step, value) for step, value in values if math.isfinite(value)]


def draw(figure: Any, lines: Sequence[tuple[Group, Sequence[Printed]]]) -> None:
    """Draw a panel per metric: the one that selects the weights, those with a printed value (dashed), the loss.

    lines: the groups of runs, and what papers print for each.
    """
    select = lines[0][0].runs[0].task.spec.select
    printed = [paper.metric.partition("/")[2] for _, papers in lines for paper in papers]
    metrics = list(dict.fromkeys([select[0], *printed, "loss"]))
    axes = plotting.panels(figure, len(metrics), width=6.0 * len(metrics))
    steps = "training steps"
    if any(len(group.runs) > 1 for group, _ in lines):
        steps += " (line: mean of the seeds; band: lowest to highest)"
    for ax, metric in zip(axes, metrics, strict=True):
        for group, papers in lines:
            _draw_runs(ax, group, metric)
            for paper in (paper for paper in papers if paper.metric.endswith(f"/{metric}")):
                name = plotting.literal(group.name)
                label = f"{name}: {paper.value:.4g} printed, {paper.metric} ({paper.table})"
                ax.axhline(paper.value, color=group.colour, ls=(0, (6, 3)), lw=1, label=label)
        _draw_no_skill(ax, [group.runs[0] for group, _ in lines], metric)
        values = [value for group, _ in lines for run in group.runs for _, value in points(run, metric)]
        ax.set(xlabel=steps, ylabel=in_words(metric), xlim=(0, None))
        falling = metric == "loss" or (metric, "min") == select
        if falling and values and 0 < 10 * min(values) < max(values):
            ax.set_yscale("log")
            plotting.plain_ticks(ax)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    _common_legend(figure, axes)


def _draw_runs(ax: Any, group: Group, metric: str) -> None:
    """Draw a run as a line, several as their mean and a band, while all have validations at the same steps."""
    curves = [dict(found) for run in group.runs if (found := points(run, metric))]
    shared = sorted(set.intersection(*map(set, curves))) if len(curves) > 1 else []
    look = {"color": group.colour, "ls": group.style}

    def line(of: Mapping[int, float], **more: Any) -> None:
        ax.plot(list(of), list(of.values()), marker="o" if len(of) < 30 else "", ms=4, **look, **more)

    if not shared:
        for k, each in enumerate(curves):
            line(each, lw=1.5, label=None if k else group.label)
        return
    values = {step: [each[step] for each in curves] for step in shared}
    line({step: statistics.fmean(of) for step, of in values.items()}, lw=2, label=group.label)
    low, high = ([end(of) for of in values.values()] for end in (min, max))
    if len(shared) > 1:
        ax.fill_between(shared, low, high, color=group.colour, alpha=0.18, lw=0)
    else:  # a band at one step has no width
        ax.vlines(shared, low, high, color=group.colour, alpha=0.18, lw=4)
    for each in curves:  # the runs that continue after others have ended
        rest = {step: value for step, value in each.items() if step >= shared[-1]}
        if len(rest) > 1:
            ax.plot(list(rest), list(rest.values()), lw=0.8, alpha=0.6, **look)


def _draw_no_skill(ax: Any, runs: Sequence[Trained], metric: str) -> None:
    """Draw what needs no skill, in each panel: trivial baselines if the task names some, else chance."""
    rules = runs[0].task.trivial_baselines() if metric in ("accuracy", runs[0].task.spec.select[0]) else {}
    plotting.draw_baselines(ax, rules)
    found = [] if rules else [no_skill(run.task, metric, run.record.chance) for run in runs]
    what = "always the same answer" if metric.endswith("accuracy") else "chance"
    labelled = {f"{what}, {value:.3g}": value for value in found if value}
    for label, value in sorted(labelled.items(), key=lambda each: each[1]):
        ax.axhline(value, color="#888888", ls=":", lw=1, label=label)


def _common_legend(figure: Any, axes: Sequence[Any]) -> None:
    """Draw one legend below all axes, with each label once, in lines that fit into the figure."""
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    letters = int(figure.get_figwidth() / 0.069)  # a letter takes so many inches, a line .16
    labels = [textwrap.fill(label, letters - KEY) for label in handles]
    widest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    columns = max(1, min(len(axes) + 1, letters // (widest + KEY)))
    rows = [labels[k : k + columns] for k in range(0, len(labels), columns)]
    lines = sum(max(label.count("\n") + 1 for label in row) for row in rows)
    figure.set_figheight(figure.get_figheight() + 0.16 * max(0, lines - 2))
    look = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 8}
    figure.legend(handles.values(), labels, **look)
