"""Measure T_1/e, how long a unit keeps what it has written, on real inputs, beside its time at zero input.

`training.memory.one_over_e` computes T_1/e, here on 200 test sequences, or on 2,000 steps of 20 streams of a text;
docs/memory.md explains it. No paper shows it. It puts models with any forget gate on one axis. If steps are
irregular, T_1/e is in units of dt for every model. The time at zero input is in steps, which are units of dt only for a
gate that reads dt: a constant gate that does not read dt has a T_1/e of about its time at zero input times the mean dt.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.characteristic_times import named_quantiles, times
from timescales.analysis.groups import groups
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, by_unit, joined
from timescales.models.sequence import SequenceModel
from timescales.tasks import Task
from timescales.training.memory import one_over_e, share_beyond

TITLE = "How long units keep what they have written: on test data ($T_{1/e}$), and at zero input"


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return quantiles of T_1/e over all units, the share beyond the longest lag, and the median at zero input."""
    return values_of(times(model), torch.cat(one_over_e(model, task)))


def study(run: Trained) -> Study:
    """Study one run. Rows: one per unit: layer, unit, time at zero input (steps), T_1/e. Values: those of `measure`."""
    zero_input, t_1e = times(run.model), torch.cat(one_over_e(run.model, run.task))
    rows = by_unit(run.model, {"zero_input": zero_input.tolist(), "t_1e": t_1e.tolist()})
    return Study(TITLE, rows, values_of(zero_input, t_1e), lambda figure: draw(figure, [run], [rows]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare several runs. Values: "1/median" is that of the first run."""
    studies = [study(run) for run in runs]
    heads: list[TableRow] = [{"run": run.directory.name, "model": run.config["model"]["name"]} for run in runs]
    rows, values = joined([(found.rows, found.values) for found in studies], heads)
    title = f"{TITLE}\n{runs[0].config['task']['name']}"
    return Study(title, rows, values, lambda figure: draw(figure, runs, [own.rows for own in studies]))


def values_of(zero_input: Tensor, t_1e: Tensor) -> dict[str, float]:
    """Return the values of `measure`. A quantile beyond the longest lag is infinite; all are NaN if any time is."""
    zero_input_median = named_quantiles(zero_input)["median"]
    return named_quantiles(t_1e) | {"beyond": share_beyond(t_1e), "zero_input/median": zero_input_median}


def draw(figure: Any, runs: Sequence[Trained], rows: Sequence[Sequence[TableRow]]) -> None:
    """Draw each time over the share of units with a longer time: T_1/e thick, at zero input thin."""
    (ax,) = plotting.panels(figure, width=8.0, height=5.0)
    of_run = {run.directory.resolve(): own for run, own in zip(runs, rows, strict=True)}
    for group in groups(runs):
        for k, run in enumerate(group.runs):
            look = {"ls": group.style, "color": group.colour}
            for key, width in (("zero_input", 0.8), ("t_1e", 1.8)):
                known = [row[key] for row in of_run[run.directory.resolve()] if not math.isnan(row[key])]
                label = None if k or key == "zero_input" else group.label
                plotting.by_rank(ax, known, lw=width, label=label, **look)
    ax.plot([], [], "-", color="#444444", lw=0.8, label="thin: at zero input, in steps")
    gaps = [next(run.task.batches("test")).dt for run in runs]
    units = " or ".join(dict.fromkeys("steps" if dt is None else "units of dt" for dt in gaps))
    ax.set(yscale="log", xlabel="share of units with a longer time", ylabel=f"$T_{{1/e}}$ ({units})", xlim=(0, 1))
    plotting.plain_ticks(ax)
    plotting.legend_at_right(ax)
