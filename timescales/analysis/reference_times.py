"""Show when each unit of a power-law model resets: reference times k_t over a test sequence, and the ages t - k_t.

Source: Chien et al. 2021, section 5.2, appendix A.3 (two sequences of different delay) and Figs. A.1C and A.4A, C.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.needs import needs_age
from timescales.analysis.observe import sequence
from timescales.analysis.reset_units import SEQUENCES
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, by_unit
from timescales.models.sequence import SequenceModel
from timescales.tasks import Batch, Copy, Task, VariableCopy
from timescales.tasks.copy import LENGTH, SIGNAL
from timescales.training.gates import recorded

LATE = 0.5  # a unit is late if its age is at least this part of the delay, or, without a delay, of the whole time
TITLE = "When units reset: reference times k_t, and ages t - k_t, over test sequences"


class Trace(NamedTuple):
    """The ages of all units over one sequence.

    time: the time t after each step that exists, (S,). ages: t - k_t, (S, units).
    end: index of the step of the signal, or the number of steps if there is no signal.
    delay: the delay, or the time of the last step. name: the name of the sequence in rows and values.
    """

    time: Tensor
    ages: Tensor
    end: int
    delay: float
    name: str

    @property
    def reference(self) -> Tensor:
        """Return the reference time k_t = t - age of each unit after every step, (S, units)."""
        return self.time.to(self.ages.dtype).unsqueeze(1) - self.ages

    @property
    def late(self) -> Tensor:
        """Return which units are at least half the delay old at its last step, (units,) bool."""
        return self.ages[self.end - 1] >= LATE * self.delay


def study(run: Trained) -> Study:
    """Study the reference times of all units over one test sequence.

    If delays differ, it reads the shortest and the longest of 100 sequences.

    Rows: one per unit: layer, unit, and for each of these sequences its age at the last step of the delay (or of the
    sequence) and its mean age. Values: `late/NAME`, the number of units whose age there is at least half the delay;
    if delays differ, `late/both`, and the numbers of `late_over_halves`.
    """
    model, task = run.model, run.task
    traces = [trace(model, task, k, name) for name, k in chosen(task).items()]
    values = {f"late/{each.name}": float(each.late.sum()) for each in traces}
    if len(traces) > 1:
        values["late/both"] = float(torch.stack([each.late for each in traces]).all(0).sum())
    if isinstance(task, VariableCopy):
        values |= late_over_halves(model, task)
    columns: dict[str, list[float]] = {}
    for each in traces:
        columns[f"{each.name}/age"] = each.ages[each.end - 1].tolist()
        columns[f"{each.name}/mean_age"] = [float(ages.mean()) for ages in each.ages.unbind(1)]
    return Study(TITLE, by_unit(model, columns), values, lambda figure: draw(figure, traces, task, run))


def late_over_halves(model: SequenceModel, task: VariableCopy) -> dict[str, float]:
    """Count the units that are late on average over halves of 100 sequences.

    `late/mean_short`: over the half with shorter delays; `late/mean_long`: over the other half; `late/mean_both`: over
    both; `late/mean_one`: over only one of them; `late/mean_neither`: over neither. Of one sequence, which has no other
    half, there is only `late/mean_short`.
    """
    ages, delays = ages_before_signals(model, task)
    short, long = (
        (ages[half] / delays[half].clamp(min=1).unsqueeze(1)).mean(0) >= LATE
        for half in delays.argsort(stable=True).tensor_split(2)
    )
    counts = {"short": short.sum()}
    if len(delays) > 1:
        counts |= {"long": long.sum(), "both": (short & long).sum()}
        counts |= {"one": (short ^ long).sum(), "neither": (~(short | long)).sum()}
    return {f"late/mean_{name}": float(n) for name, n in counts.items()}


def chosen(task: Task) -> dict[str, int]:
    """Return the test sequences to draw: their numbers by name."""
    if isinstance(task, VariableCopy):
        delays = task.delays("test")[:SEQUENCES]
        return {"short": int(delays.argmin()), "long": int(delays.argmax())}
    return {"sequence": 0}


@torch.no_grad()
def trace(model: SequenceModel, task: Task, k: int, name: str = "sequence") -> Trace:
    """Return the age of every unit after each step of test sequence k. The units of all layers are in one dimension.

    Steps that do not exist are skipped. Ages count from the first step that exists, even if the model reads padding
    before it. Raises ConfigError for a model whose units have no age.
    """
    needs_age(model)
    batch = sequence(task, k)
    ages = _ages(model, task, batch)
    exists = task.exists(batch)[:, 0].cpu()
    gaps = torch.ones(len(ages)) if batch.dt is None else batch.dt[:, 0].cpu()
    time, ages = gaps[exists].double().cumsum(0), ages[exists]
    if isinstance(task, Copy):
        signal = int((batch.x[:, 0] == SIGNAL).nonzero()[0])
        delay = int(task.delays("test")[k]) if isinstance(task, VariableCopy) else task.T
        return Trace(time, ages, signal, delay, name)
    return Trace(time, ages, len(time), float(time[-1]), name)


def _ages(model: SequenceModel, task: Task, batch: Batch) -> Tensor:
    """Return the age of every unit after each step of a single sequence, (S, units), without the steps of padding."""
    layers, _ = recorded(model, batch, read=lambda act: torch.stack([act.age[0], act.reset[0]]).cpu())
    ages, resets = torch.cat(layers, -1).unbind(1)
    first = int(task.exists(batch)[:, 0].cpu().int().argmax())
    if first and batch.mask is None:  # the model has read padding; of its age a unit keeps 1 - reset in each step
        ages[first:] -= ages[first - 1] * (1.0 - resets[first:]).cumprod(0)
    return ages


@torch.no_grad()
def ages_before_signals(model: SequenceModel, task: VariableCopy) -> tuple[Tensor, Tensor]:
    """Return the ages at the last step of each delay, (n, units), and the delays (n,). n: the first SEQUENCES.

    Raises ConfigError for a model whose units have no age.
    """
    needs_age(model)
    batch = task.batch("test", 0, 0, 0, min(SEQUENCES, task.size("test")))
    signal = (batch.x == SIGNAL).int().argmax(0)
    ages = torch.cat(recorded(model, batch, read=lambda act: act.age.float())[0], -1)
    return ages[signal - 1, torch.arange(len(signal))].cpu(), task.delays("test")[: len(signal)]


def draw(figure: Any, traces: Sequence[Trace], task: Task, run: Trained) -> None:
    """Draw k_t of every unit by t, a line each (top), and ages as a map, a row per unit, the oldest last (bottom)."""
    axes = plotting.panels(figure, len(traces), 2, width=5.0 + 3.5 * len(traces), height=7.6)
    unit = "steps" if sequence(task, 0).dt is None else "time units"
    for trace, lines, ages in zip(traces, axes[: len(traces)], axes[len(traces) :], strict=True):
        of_what = "delay" if isinstance(task, Copy) else "time"
        late_words = f"units at least half the {of_what} old"
        kinds = ((~trace.late, "#999999", 0.5, "other units"), (trace.late, run.colour, 1.1, late_words))
        for units, colour, width, words in kinds:
            for k, reference in enumerate(trace.reference[:, units].T):
                label = None if k else f"{int(units.sum())} {words}"
                lines.plot(trace.time, reference, color=colour, lw=width, alpha=0.7, label=label)
        ends = trace.time[[0, -1]]
        lines.plot(ends, ends, color="black", ls=":", lw=1, label="a reset at every step")
        last = float(trace.time[-1])
        lines.set(xlabel=f"time t ({unit})", ylabel=f"reference time k_t ({unit})")
        lines.set(xlim=(0, last), ylim=(-0.03 * last, None))
        order = trace.ages[: trace.end].mean(0).argsort()
        edges = torch.cat([torch.zeros(1, dtype=trace.time.dtype), trace.time]).numpy()
        values, rows = trace.ages[:, order].T.numpy(), range(len(order) + 1)
        image = ages.pcolormesh(edges, rows, values, cmap="viridis", rasterized=True)
        ages.invert_yaxis()
        ages.set(xlabel=f"time t ({unit})", ylabel="units, by their mean age")
        figure.colorbar(image, ax=ages, label=f"age t - k_t ({unit})", pad=0.01)
        if isinstance(task, Copy):
            for step in (LENGTH, trace.end):
                lines.axvline(step, color="black", lw=1, ls="--")
                ages.axvline(step, color="white", lw=1, ls="--")
            look = {"fontsize": 8, "transform": lines.get_xaxis_transform()}  # the names of the three parts
            lines.text(LENGTH, 1.0, "symbols ", ha="right", **look)
            lines.text(trace.end, 1.0, " answers", ha="left", **look)
            lines.text((LENGTH + trace.end) / 2, 1.0, f"delay of {trace.delay}", ha="center", **look)
        lines.legend(fontsize=8, loc="upper left", facecolor="white", edgecolor="none", framealpha=1.0)
