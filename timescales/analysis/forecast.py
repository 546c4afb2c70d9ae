"""Show forecasts of a model on your own series (`task=series`), beside the truth and simple rules.

No figure of a paper: it shows what a model has learned from your data, and whether it is better than a simple rule.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import torch

from timescales import plotting
from timescales.analysis.needs import needs_forecast
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.models.sequence import SequenceModel
from timescales.tasks import Series
from timescales.training.progress import progress

TITLE = "Forecasts on the test part"
DRAWN = 200  # rows of each series that is drawn
RULE = "#888888"  # the colour of simple rules
TRUTH = "#0057ff"  # no model has a colour like it; the LSTM, for example, is grey
ABOVE = {"frameon": False, "fontsize": 8, "loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 4}  # the axes


class Panel(NamedTuple):
    """The test windows of a series that are drawn, by number. Their forecasts do not overlap."""

    series: int
    windows: list[int]


def study(run: Trained) -> Study:
    """Study the forecasts of the test windows.

    Rows: one per drawn forecast: series, time, rows ahead, truth, the model's forecast, those of the rules.

    Values, over the whole test part and in the unit of the data: mae and rmse, rmse of each rule ("rmse/last_value"),
    and `skill`, the share by which the rmse is below that of the best rule (no value if that makes no error).
    Raises ConfigError for a task other than forecasts of series.
    """
    task = needs_forecast(run.task)
    begin = task.begins["test"]
    found = {run.config["model"]["name"]: forecasts(run.model, task), **task.rules(begin)}
    truth = task.series.target[asked(task, begin)]
    by_step = {name: rmse(values - truth, 0) for name, values in found.items()}
    totals = {name: float(rmse(values - truth, None)) for name, values in found.items()}
    model, *rules = totals
    best = min(rules, key=totals.__getitem__)
    values = {"mae": float(np.nanmean(np.abs(found[model] - truth))), "rmse": totals[model]}
    values |= {f"rmse/{rule.replace(' ', '_')}": totals[rule] for rule in rules}
    if totals[best] > 0:
        values["skill"] = 1.0 - totals[model] / totals[best]
    panels = chosen(task)
    rows = [row for panel in panels for row in table(task, panel, found)]
    drawn = {name: found[name] for name in (model, best)}
    return Study(TITLE, rows, values, lambda figure: draw(figure, task, panels, drawn, by_step, run.colour))


@torch.no_grad()
def forecasts(model: SequenceModel, task: Series) -> np.ndarray:
    """Return the model's forecasts for all test windows, (N, horizon), in the unit of the data."""
    batches = progress(task.batches("test"), "forecasts", task.n_batches("test"))
    scaled = torch.cat([model(batch).logits[-task.horizon :, :, 0].T.double().cpu() for batch in batches])
    return (scaled * task.deviation + task.mean).numpy()


def asked(task: Series, begin: np.ndarray) -> np.ndarray:
    """Return the rows to be forecast by windows that begin at these rows (N,), (N, horizon)."""
    return begin[:, None] + task.window + np.arange(task.horizon)


def rmse(errors: np.ndarray, axis: int | None) -> np.ndarray:
    """Return the root of the mean squared error, over the errors that are numbers."""
    n = np.isfinite(errors).sum(axis)
    return np.sqrt(np.nansum(errors**2, axis) / np.where(n > 0, n, 1))


def chosen(task: Series) -> list[Panel]:
    """Return the first three series with test windows, each with the windows to draw."""
    begin = task.begins["test"]
    of_window = np.searchsorted(task.series.begins, begin, side="right") - 1
    panels = []
    for series in list(dict.fromkeys(of_window.tolist()))[:3]:
        windows: list[int] = []
        for k in np.flatnonzero(of_window == series).tolist():
            if (not windows or begin[k] >= begin[windows[-1]] + task.horizon) and len(windows) * task.horizon < DRAWN:
                windows.append(k)
        panels.append(Panel(series, windows))
    return panels


def table(task: Series, panel: Panel, found: Mapping[str, np.ndarray]) -> list[TableRow]:
    """Return the rows of `study` for a series."""
    rows = asked(task, task.begins["test"][panel.windows])
    times = moments(task, rows.flatten())
    return [
        {"series": task.series.names[panel.series], "time": time, "ahead": k % task.horizon + 1}
        | {"truth": float(task.series.target[row])}
        | {name: float(values[panel.windows].flatten()[k]) for name, values in found.items()}
        for k, (row, time) in enumerate(zip(rows.flatten(), times, strict=True))
    ]


def moments(task: Series, rows: np.ndarray) -> list[Any]:
    """Return the times of rows: dates, or numbers."""
    times = task.series.time[rows].tolist()
    return [datetime.fromtimestamp(time, UTC).replace(tzinfo=None) for time in times] if task.series.dates else times


def draw(
    figure: Any,
    task: Series,
    panels: Sequence[Panel],
    found: Mapping[str, np.ndarray],
    by_step: Mapping[str, np.ndarray],
    colour: str,
) -> None:
    """Draw a panel per series with forecasts of the model and the best rule, and below the error by rows ahead."""
    more = int(task.horizon > 1)
    axes = plotting.panels(figure, 1, len(panels) + more, 9.0, 2.3 * (len(panels) + more) + 0.6)
    looks = dict(zip(found, ({"color": colour, "lw": 1.6}, {"color": RULE, "lw": 1.0, "ls": "--"}), strict=True))
    for ax, panel in zip(axes, panels, strict=False):
        draw_series(ax, task, panel, found, looks)
    axes[0].legend(**ABOVE)
    axes[len(panels) - 1].set_xlabel(plotting.literal(task.time_name or "row"))
    if more:
        steps = np.arange(1, task.horizon + 1)
        for name, values, dashes in zip(by_step, by_step.values(), itertools.cycle(plotting.STYLES), strict=False):
            look = looks.get(name, {"color": RULE, "lw": 1.0}) | {"ls": dashes}
            axes[-1].plot(steps, values, marker="o", ms=3, label=name, **look)
        axes[-1].set(xlabel="rows ahead", ylabel=f"rmse of {plotting.literal(task.target_name)}", ylim=(0, None))
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        axes[-1].legend(**ABOVE)


def draw_series(
    ax: Any, task: Series, panel: Panel, found: Mapping[str, np.ndarray], looks: Mapping[str, plotting.Look]
) -> None:
    """Draw the truth with half a window before the first forecast, and the forecasts."""
    rows = asked(task, task.begins["test"][panel.windows])
    first = rows[0, 0] - task.window // 2
    seen = np.arange(max(first, task.series.begins[panel.series]), rows[-1, -1] + 1)
    marker = {} if task.regular and len(seen) > 100 else {"marker": ".", "ms": 4}
    ax.plot(moments(task, seen), task.series.target[seen], color=TRUTH, lw=1.0, label="truth", **marker)
    ax.axvline(moments(task, rows[0, :1])[0], color="#bbbbbb", ls=":", lw=1)
    times = moments(task, rows.flatten())
    for name, values in found.items():
        x, y = times, values[panel.windows].flatten().tolist()
        if task.horizon > 1:  # a line of its own for each window
            x, y = separated(x, task.horizon, x[-1]), separated(y, task.horizon, math.nan)
        ax.plot(x, y, label=name, **looks[name])
    if len(task.series.names) > 1:
        ax.set_title(plotting.literal(task.series.names[panel.series]), fontsize=8, loc="left")
    ax.set_ylabel(plotting.literal(task.target_name))


def separated(values: list[Any], size: int, between: Any) -> list[Any]:
    """Insert a value after each `size` values."""
    return [v for k in range(0, len(values), size) for v in (*values[k : k + size], between)]
