"""When does each unit of a power-law model reset? Reference times k_t over a test sequence, and the ages t - k_t.

Source: Chien et al. 2021, section 5.2, appendix A.3 (two sequences of different delay) and Figs. A.1C and A.4A, C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_age, sequence, watched
from timescales.analysis.reset_units import SEQUENCES
from timescales.analysis.run import Run, by_unit
from timescales.analysis.study import Study
from timescales.tasks import Copy, Task, VariableCopy
from timescales.tasks.copy import LENGTH, SIGNAL
from timescales.training.model import SequenceModel

LATE = 0.5  # a unit is late if its age is at least this part of the delay, or, without a delay, of the time gone by


class Trace(NamedTuple):
    """One sequence: the time t after each step that exists (S,), ages t - k_t (S, units), the number of the step before
    which the signal to answer stands (the last step where there is none), the delay in its place, and what it is."""

    time: Tensor
    ages: Tensor
    end: int
    delay: float
    name: str

    @property
    def reference(self) -> Tensor:
        """The reference time k_t = t - age of each unit after every step, (S, units)."""
        return self.time.to(self.ages.dtype).unsqueeze(1) - self.ages


def study(run: Run) -> Study:
    """Reference times of all units over one test sequence, or over the shortest and the longest of 100 where delays
    differ from sequence to sequence. Rows: one a unit: layer, unit, and for each sequence drawn its age at the delay's
    last step (or the last of all) and its mean age. Values: `late/NAME`, the units whose age there is at least half of
    the delay; where delays differ also `late/both`, and `late/mean_short` and `late/mean_long`, counted by the mean
    over the shorter and over the longer half of 100 sequences, with `late/mean_both`: whether the same units serve.
    """
    model, task = run.model, run.task
    found = [trace(model, task, k, name) for name, k in chosen(task).items()]
    late = {one.name: one.ages[one.end - 1] >= LATE * one.delay for one in found}
    values = {f"late/{name}": float(which.sum()) for name, which in late.items()}
    if len(found) > 1:
        values["late/both"] = float(torch.stack(list(late.values())).all(0).sum())
    if isinstance(task, VariableCopy):
        ages, delays = ages_before_signals(model, task)
        order = delays.argsort(stable=True)
        halves = [(ages[k] / delays[k].clamp(min=1).unsqueeze(1)).mean(0) >= LATE for k in order.chunk(2)]
        counts = (*(half.sum() for half in halves), torch.stack(halves).all(0).sum())
        names = ("late/mean_short", "late/mean_long", "late/mean_both")
        values |= {name: float(n) for name, n in zip(names, counts, strict=True)}
    columns: dict[str, list[float]] = {}
    for one in found:
        columns[f"{one.name}/age"] = one.ages[one.end - 1].tolist()
        columns[f"{one.name}/mean_age"] = [float(ages.mean()) for ages in one.ages.unbind(1)]
    rows = by_unit(model, columns)
    title = "When units reset: reference times k_t, and ages t - k_t, over test sequences"
    return Study(title, rows, values, lambda figure: draw(figure, found, late, task, run))


def chosen(task: Task) -> dict[str, int]:
    """The test sequences to draw, by name."""
    if isinstance(task, VariableCopy):
        delays = task.delays("test")[:SEQUENCES]
        return {"short": int(delays.argmin()), "long": int(delays.argmax())}
    return {"sequence": 0}


@torch.no_grad()
def trace(model: SequenceModel, task: Task, k: int, name: str = "sequence") -> Trace:
    """Every unit's age after each step of test sequence k; units of several layers stand side by side.

    Steps that do not exist are left out, and ages count from the first that does, also where the model reads padding
    before it. Raises ConfigError for a model whose units have no age.
    """
    needs_age(model)
    batch = sequence(task, k)
    ages: list[list[Tensor]] = [[] for _ in model.rnn.layers]
    kept: list[list[Tensor]] = [[] for _ in model.rnn.layers]  # the share of its age that each step leaves a unit

    def read(layer: int, act: Any) -> None:
        ages[layer].append(act.age[0].cpu())
        kept[layer].append(1.0 - act.reset[0].cpu())

    with watched(model, read):
        model(batch)
    found, left = (torch.cat([torch.stack(steps) for steps in layers], -1) for layers in (ages, kept))
    exists = task.exists(batch)[:, 0].cpu()
    if (first := int(exists.int().argmax())) and batch.mask is None:
        found[first:] -= found[first - 1] * left[first:].cumprod(0)  # what is left of the padding's age
    gaps = torch.ones(len(found)) if batch.dt is None else batch.dt[:, 0].cpu()
    time, found = gaps[exists].double().cumsum(0), found[exists]
    if isinstance(task, Copy):
        end = int((batch.x[:, 0] == SIGNAL).nonzero()[0])
        return Trace(time, found, end, _delays(task, k + 1)[k].item(), name)
    return Trace(time, found, len(time), float(time[-1]), name)


def _delays(task: Copy, n: int) -> Tensor:
    return task.delays("test")[:n] if isinstance(task, VariableCopy) else torch.full((n,), task.T)


@torch.no_grad()
def ages_before_signals(model: SequenceModel, task: Copy) -> tuple[Tensor, Tensor]:
    """Ages at the last step of each sequence's own delay, (n, units), and the delays (n,), of the first SEQUENCES.

    Raises ConfigError for a model whose units have no age.
    """
    needs_age(model)
    batch = task.batch("test", 0, 0, 0, min(SEQUENCES, task.size("test")))
    signal = (batch.x == SIGNAL).int().argmax(0)
    found = [torch.zeros(batch.x.shape[1], cell.hidden_size, device=task.device) for cell in model.rnn.layers]
    step = [0] * len(found)

    def read(layer: int, act: Any) -> None:
        step[layer] += 1
        rows = signal == step[layer]
        found[layer][rows] = act.age[rows].float()

    with watched(model, read):
        model(batch)
    return torch.cat(found, -1).cpu(), _delays(task, len(signal))


def draw(figure: Any, found: list[Trace], late: dict[str, Tensor], task: Task, run: Run) -> None:
    """Above: k_t of every unit over t, a line each. Below: ages as a map, a row a unit, the oldest below."""
    axes = plotting.panels(figure, len(found), 2, width=5.0 + 3.5 * len(found), height=7.6)
    lines, maps = axes[: len(found)], axes[len(found) :]
    unit = "steps" if sequence(task, 0).dt is None else "time units"
    for one, upper, lower in zip(found, lines, maps, strict=True):
        k_t = one.reference
        which = late[one.name]
        old = f"units at least half {'the delay' if isinstance(task, Copy) else 'the time'} old"
        for units, colour, width, words in ((~which, "#999999", 0.5, "other units"), (which, run.colour, 1.1, old)):
            for j, values in enumerate(k_t[:, units].T):
                label = f"{int(units.sum())} {words}" if j == 0 else None
                upper.plot(one.time, values, color=colour, lw=width, alpha=0.7, label=label)
        upper.plot(one.time[[0, -1]], one.time[[0, -1]], color="black", ls=":", lw=1, label="a reset at every step")
        upper.set(xlabel=f"time t ({unit})", ylabel=f"reference time k_t ({unit})", xlim=(0, one.time[-1]),
                  ylim=(-0.03 * float(one.time[-1]), None))  # fmt: skip
        order = one.ages[: one.end].mean(0).argsort()
        edges = torch.cat([torch.zeros(1, dtype=one.time.dtype), one.time])
        ages, places = one.ages[:, order].T.numpy(), range(len(order) + 1)
        picture = lower.pcolormesh(edges.numpy(), places, ages, cmap="viridis", rasterized=True)
        lower.invert_yaxis()
        lower.set(xlabel=f"time t ({unit})", ylabel="units, by their mean age")
        figure.colorbar(picture, ax=lower, label=f"age t - k_t ({unit})", pad=0.01)
        if isinstance(task, Copy):
            for axis, colour in ((upper, "black"), (lower, "white")):
                for at in (LENGTH, one.end):
                    axis.axvline(at, color=colour, lw=1, ls="--")
            for at, words, side in ((LENGTH, "symbols ", "right"), (one.end, " answers", "left")):
                upper.text(at, 1.0, words, fontsize=8, transform=upper.get_xaxis_transform(), ha=side)
            upper.text((LENGTH + one.end) / 2, 1.0, f"delay of {one.delay}", fontsize=8, ha="center",
                       transform=upper.get_xaxis_transform())  # fmt: skip
        upper.legend(fontsize=8, loc="upper left", facecolor="white", edgecolor="none", framealpha=1.0)
