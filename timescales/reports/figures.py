"""Draw results/<table>/figure.png: a panel for each figure and size of a table, with the paper's values."""

import re
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from timescales.config.run import Axes
from timescales.files import write_atomic
from timescales.papers.table import PAPER, RATES, Figure, Row, Table, column, group, matches, metric_of, varying
from timescales.plotting import (
    STYLES,
    Look,
    band,
    colour,
    draw_baselines,
    empty_figure,
    fixed_style,
    literal,
    panels,
    small_png,
)
from timescales.reports.report import Report
from timescales.reports.wording import full_size, setting_value
from timescales.runs import metrics
from timescales.runs.metrics import STEPS_TO, Censored, is_steps


class Panel(NamedTuple):
    """A panel's content: the runs of a table at one size."""

    report: Report
    size: str
    table: Table  # the table at this size
    figure: Figure

    @property
    def rows(self) -> Sequence[Row]:
        """Return the runs that the panel shows."""
        return [row for row in self.report.rows[self.size] if matches(row.axes, self.figure.where)]


def draw(report: Report) -> Any:
    """Draw the panels of a table. Return the figure, or None if there is nothing to draw."""
    shown = list(_panels(report))
    if not shown:
        return None
    picture = empty_figure()
    below = len({panel.size for panel in shown}) if len(report.table.figure) > 1 else 1  # as many rows as sizes
    if len(shown) > 3 * below:
        below = -(-len(shown) // 2)
    across = -(-len(shown) // below)
    axes = panels(picture, across, below, 7.0 * across, _height(report, shown) * below)
    parts: dict[Any, Any] = {}  # panels with parts of the runs share the range of values
    for panel, ax in zip(shown, axes, strict=False):
        shown_as = (panel.figure.kind, panel.figure.metric or panel.table.metric)
        if panel.figure.where and parts.setdefault(shown_as, ax) is not ax and panel.figure.kind != "times":
            ax.sharey(parts[shown_as])
        KINDS[panel.figure.kind](ax, panel)
        ax.set_title(_title(panel), loc="left", fontsize=10)
    for ax in axes[len(shown) :]:
        ax.remove()
    return picture


@fixed_style()
def draw_times(reports: Sequence[Report], path: Path) -> None:
    """Draw T_1/e of the runs of several tables, side by side over one range of steps."""
    picture = empty_figure()
    shown = [Panel(report, "paper", report.table, Figure(kind="times")) for report in reports]
    height = max(_height(panel.report, [panel]) for panel in shown)
    for panel, ax in zip(shown, panels(picture, len(shown), 1, 7.0 * len(shown), height, sharex=True), strict=True):
        KINDS["times"](ax, panel)
        ax.set_title(panel.table.name, loc="left", fontsize=10)
    write_atomic(path, small_png(picture))


def _panels(report: Report) -> Iterator[Panel]:
    """Yield the panels of the paper's size and of the largest rung, if they have runs."""
    rungs = [size for size in report.rows if size not in (PAPER, RATES) and report.rows[size]]
    for size in (PAPER, *rungs[-1:]):
        table = report.table.sizes[size]
        of_size = (Panel(report, size, table, figure) for figure in table.figure)
        yield from (panel for panel in of_size if panel.rows)


def _height(report: Report, shown: Sequence[Panel]) -> float:
    """Return the height of a panel in inches. It depends on the number of lines of text beside the panel."""
    sizes = {panel.size for panel in shown if panel.figure.kind == "times"}
    return 0.26 * max(len({group(row.axes) for row in report.rows[size]}) for size in sizes) + 1.8 if sizes else 4.2


def _title(panel: Panel) -> str:
    metric = panel.table.metric
    other = f": {metric}" if is_steps(metric) and metric != panel.report.table.metric else ""
    size = full_size(panel.report) if panel.size == PAPER else f"rung {panel.size}{other}"
    if panel.figure.kind == "times":
        return f"How long units keep what they have written\n{size}"
    shown = "".join(f", {_name({key: value}, [key])}" for key, value in panel.figure.where.items())
    return f"{literal(textwrap.fill(panel.report.table.title, 72))}\n{size}{shown}"


def _name(axes: Axes, keys: Sequence[str]) -> str:
    words = {key: literal(setting_value(axes[key])) for key in keys if key in axes}
    return ", ".join(word if k in ("model", "task") else f"{k.split('.')[-1]}={word}" for k, word in words.items())


def _varying(rows: Sequence[Row]) -> list[str]:
    """Return the settings in which runs differ, without those that follow from another one, as a size from a model."""
    axes = [row.axes for row in rows]
    keys = varying(axes)
    independent: list[str] = []
    for key in sorted(keys, key=lambda key: key != "model"):
        pairs = [{(str(each.get(other)), str(each.get(key))) for each in axes} for other in independent]
        # It follows from another one if every value of that one goes with one value of it.
        if not any(len(of_other) == len({value for value, _ in of_other}) for of_other in pairs):
            independent.append(key)
    return [key for key in keys if key in independent] or ["model"]


def _by_name(rows: Sequence[Row], keys: Sequence[str]) -> dict[str, list[Row]]:
    """Group runs by their settings of these keys, in words."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_name(row.axes, keys), []).append(row)
    return groups


def _style(rows: Sequence[Row], every: Sequence[Row] = ()) -> Callable[[Row], str]:
    """Return a function that gives the style of a run's line. The style shows settings; the colour shows the model.

    every: all runs of the picture, if it has other panels, so that a setting has the same style in each panel.
    """
    keys = [k for k in _varying(rows) if k != "model"]
    names = list(_by_name(every or rows, keys))
    return lambda row: STYLES[names.index(_name(row.axes, keys)) % len(STYLES)]


def _legend(ax: Any) -> None:
    """Draw the legend in the panel, or beside the panel if the legend is long."""
    lines = len(ax.get_legend_handles_labels()[1])
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if lines > 8 else {}
    if lines:
        ax.legend(frameon=False, fontsize=8, **beside)


def _curves(ax: Any, panel: Panel) -> None:
    """Draw each run's curve over training, with a colour for each group."""
    keys, style = _varying(panel.rows), _style(panel.rows, panel.report.rows[panel.size])
    metric = panel.figure.metric or metric_of(panel.table.metric).replace("test/", "valid/")
    for label, rows in _by_name(panel.rows, keys).items():
        for k, row in enumerate(rows):
            points = [point for point in panel.report.curve(row) if point.get(metric) is not None]
            steps, values = [point["step"] for point in points], [point[metric] for point in points]
            look: Look = {"color": colour(row.axes), "lw": 1.5, "alpha": 0.8}
            ax.plot(steps, values, style(row), **look, label=None if k else label)
    if panel.figure.chance is not None and panel.size == "paper":
        ax.axhline(panel.figure.chance, color="#bbbbbb", ls=":", lw=1, label="chance")
    if panel.figure.trivial_baselines:
        draw_baselines(ax, panel.report.trivial_baselines(panel.rows[0]))
    if counted := re.match(rf"{STEPS_TO}{re.escape(metric)} [<>]=? (\S+)", panel.table.metric):
        ax.axhline(float(counted[1]), color="#555555", ls=":", lw=1, label=f"threshold {counted[1]}")
    ax.set(xlabel="training steps", ylabel=metric, yscale=panel.figure.yscale, xlim=(0, None))
    _legend(ax)


def _line(ax: Any, panel: Panel) -> None:
    """Draw the metric over one setting of the table: means (medians for times), and a dot for every seed.

    If a value of the setting is no number, as null, the values stand side by side in the order of the runs.
    """
    figure, table = panel.figure, panel.table
    values = [row.axes[figure.x] for row in panel.rows if figure.x in row.axes]
    numbers = all(isinstance(value, int | float) for value in values)
    places = sorted(set(values)) if numbers else list(dict.fromkeys(map(setting_value, values)))
    name = column(figure.metric or table.metric, table.select)
    read = table.read if name == table.column else lambda row: row.value(name)
    keys = [k for k in _varying(panel.rows) if k != figure.x] or ["model"]
    style = _style([replace(row, axes={k: v for k, v in row.axes.items() if k != figure.x}) for row in panel.rows])
    for label, rows in _by_name(panel.rows, keys).items():
        known = [(row.axes[figure.x], y) for row in rows if (y := read(row)) is not None and figure.x in row.axes]
        points = [(x if numbers else places.index(setting_value(x)), y) for x, y in known]
        if not points:
            continue
        xs = sorted({x for x, _ in points})
        average = metrics.median if is_steps(name) else statistics.fmean
        means = [average([y for x, y in points if x == at]) for at in xs]
        shade = colour(rows[0].axes)
        ax.plot(xs, means, style(rows[0]), color=shade, lw=1.5, label=label)
        for late in sorted({isinstance(y, Censored) for _, y in points}):  # those that never reached the threshold
            dots = [(x, y) for x, y in points if isinstance(y, Censored) is late]
            ax.plot(*zip(*dots, strict=True), "o", fillstyle="none" if late else "full", color=shade, ms=4, alpha=0.6)
    empty = any(isinstance(row.value(name), Censored) for row in panel.rows)
    below = "\nempty dots: runs that never reached the threshold, at their last step" * empty
    ax.set(xlabel=(figure.xlabel or figure.x) + below, ylabel=name, yscale=figure.yscale)
    if not numbers:
        ax.set_xticks(range(len(places)), map(literal, places))
    elif figure.xscale == "log":
        ax.set_xscale("log")
        ax.set_xticks(places, [f"{place:g}" for place in places])
        ax.set_xticks([], minor=True)
    _legend(ax)


def _probe(ax: Any, panel: Panel) -> None:
    """Draw values "probe/<name>/<x>" over x: the mean of each group, with its standard error as a band."""
    prefix = f"probe/{panel.figure.probe}/"
    keys, style = _varying(panel.rows), _style(panel.rows)
    for label, rows in _by_name(panel.rows, keys).items():
        found: dict[float, list[float]] = {}
        for key, value in ((key, value) for row in rows for key, value in row.values.items()):
            x = key.removeprefix(prefix)  # values such as "mean" have no place on the axis
            if value is not None and key.startswith(prefix) and x.replace(".", "", 1).isdigit():
                found.setdefault(float(x), []).append(value)
        if not found:
            continue
        xs, values = zip(*sorted(found.items()), strict=True)
        means = [statistics.fmean(v) for v in values]
        errors = [statistics.stdev(v) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values]
        look: Look = {"ls": style(rows[0]), "ms": 3, "lw": 1.5, "label": f"{label} (n={max(map(len, values))})"}
        band(ax, xs, means, errors, colour(rows[0].axes), **look)
    ax.set(xlabel=panel.figure.xlabel, ylabel=panel.figure.ylabel, xscale=panel.figure.xscale)
    _legend(ax)


def _times(ax: Any, panel: Panel) -> None:
    """Draw T_1/e of each run's units: the median as a dot, a line from the 10 % to the 90 % quantile."""
    prefix = "probe/one_over_e/"
    labels: list[str] = []
    for label, rows in _by_name(panel.rows, _varying(panel.rows)).items():
        measured = [row for row in rows if row.value(f"{prefix}zero_input/median") is not None]
        if not measured:
            continue
        for k, row in enumerate(measured):
            y = len(labels) + 0.6 * ((k + 0.5) / len(measured) - 0.5)
            shade = colour(row.axes)
            low, median, high = (row.value(f"{prefix}{name}") for name in ("q10", "median", "q90"))
            # A quantile beyond the longest lag in the data is not in the record: the line ends in an arrow.
            known = [value for value in (low, median, high) if value is not None]
            ax.plot([*known[:1], *known[-1:]], [y] * min(2, 2 * len(known)), "-", color=shade, lw=1.5)
            if known and high is None:
                ax.plot(known[-1], y, ">", color=shade, ms=5)
            if median is not None:
                ax.plot(median, y, "o", color=shade, ms=4)
            ax.plot(row.value(f"{prefix}zero_input/median"), y, "d", mfc="white", color=shade, ms=4, zorder=3)
        labels.append(label)
    ax.set_yticks(range(len(labels)), labels, fontsize=8)
    ax.set(xscale="log", ylim=(len(labels) - 0.4, -0.6))
    ax.set_xlabel(
        "$T_{1/e}$ of a run's units (steps, or units of dt)\ndots: median; lines: 10 % to 90 % quantile\n"
        "arrow: beyond the longest lag in the data\nopen diamonds: the median at zero input",
        fontsize=9,
    )
    ax.grid(axis="y", color="#eeeeee")


KINDS: dict[str, Callable[[Any, Panel], None]] = {"curves": _curves, "line": _line, "probe": _probe, "times": _times}
