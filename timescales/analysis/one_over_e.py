"""T_1/e: how long does a unit keep what it has written, on real inputs? Beside its characteristic time at zero input.

T_1/e is the lag at which the mean of the sum of ln f over the steps since a write crosses -1. f is what a unit keeps of
its memory in one step. The mean is over every step of the test sequences as the write. docs/memory.md explains it.
No paper shows it; it puts models with any forget gate on one axis: where steps are irregular, T_1/e is in units of dt
for every model. The time at zero input is in steps, which are units of dt only for a gate that reads dt: a constant
gate that does not has a T_1/e of about its time at zero input times the mean dt.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.characteristic_times import times
from timescales.analysis.groups import groups
from timescales.analysis.needs import needs_forget_gates
from timescales.analysis.observe import part, watched
from timescales.analysis.run import Run
from timescales.analysis.study import Study, by_unit
from timescales.tasks import Batch, Task
from timescales.training.model import SequenceModel

TITLE = "How long units keep what they have written: on test data ($T_{1/e}$), and at zero input"
SEQUENCES = 200  # of the test split
IN_PARALLEL = 20  # sequences, whose gates of all steps are in memory
STEPS = 2000  # of a text, whose windows are joined
QUANTILES = {"q10": 0.1, "median": 0.5, "q90": 0.9}
SMALLEST = 1e-40  # a gate below counts as this: ln 0 would end the sums


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Quantiles of T_1/e over all units, the share of units beyond the longest lag, and the median at zero input."""
    return values_of(*both(model, task))


def study(run: Run) -> Study:
    """Rows: one per unit: layer, unit, time at zero input (steps), T_1/e (units of dt). Values: those of `measure`."""
    zero_input, t_1e = both(run.model, run.task)
    rows = rows_of(run, zero_input, t_1e)
    return Study(TITLE, rows, values_of(zero_input, t_1e), lambda figure: draw(figure, [run], [rows]))


def compare(runs: Sequence[Run]) -> Study:
    """The same of several runs. Values: "1/median" is that of the first run."""
    found = [both(run.model, run.task) for run in runs]
    of_runs = [rows_of(run, *pair) for run, pair in zip(runs, found, strict=True)]
    named = [{"run": run.directory.name, "model": run.config["model"]["name"]} for run in runs]
    rows = [name | row for name, own in zip(named, of_runs, strict=True) for row in own]
    values = {f"{k}/{key}": value for k, pair in enumerate(found, 1) for key, value in values_of(*pair).items()}
    title = f"{TITLE}\n{runs[0].config['task']['name']}"
    return Study(title, rows, values, lambda figure: draw(figure, runs, of_runs))


def both(model: SequenceModel, task: Task) -> tuple[Tensor, Tensor]:
    """The characteristic times at zero input, in steps, and T_1/e of the units of all layers, (units,) float64 each."""
    return times(model), torch.cat(measured_times(model, task))


def rows_of(run: Run, zero_input: Tensor, t_1e: Tensor) -> list[dict[str, Any]]:
    """The rows of `study`."""
    return by_unit(run.model, {"zero_input": zero_input.tolist(), "t_1e": t_1e.tolist()})


def values_of(zero_input: Tensor, t_1e: Tensor) -> dict[str, float]:
    """The values of `measure`. A quantile beyond the longest lag is infinite."""
    q = torch.tensor(list(QUANTILES.values()), dtype=torch.float64)
    quantiles = dict(zip(QUANTILES, t_1e.quantile(q, interpolation="nearest").tolist(), strict=True))
    return quantiles | {
        "beyond": float(t_1e.isinf().double().mean()),
        "zero_input/median": float(zero_input.quantile(0.5, interpolation="nearest")),
    }


def measured_times(model: SequenceModel, task: Task) -> list[Tensor]:
    """T_1/e of every unit, per layer (H,), float64 on the CPU: in steps, or in units of dt where the task has it.

    Infinite for a unit that keeps more than 1/e up to the longest lag in the data. The gates are computed in float64,
    since one near 1 loses its digits in float32. Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model)
    model = copy.deepcopy(model).double()
    sums = [torch.zeros(0, cell.hidden_size, dtype=torch.float64) for cell in model.rnn.layers]
    gaps, writes = torch.zeros(0, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64)
    for log_gates, dt in sequences(model, task):
        sums = [added(total, by_lag(log_f[1:])) for total, log_f in zip(sums, log_gates, strict=True)]
        gaps = added(gaps, by_lag(dt[1:].unsqueeze(1)))
        writes = added(writes, torch.arange(len(dt) - 1, 0, -1, dtype=torch.float64).unsqueeze(1))
    return [crossing(total / writes, gaps / writes) for total in sums]


def by_lag(values: Tensor) -> Tensor:
    """For each lag L = 1, ..., S the sum of values[k : k + L] over all k, added up: (S, H) from values (S, H)."""
    zero = values.new_zeros(1, *values.shape[1:])
    total = torch.cat([zero, values.cumsum(0)])  # of the first k values
    totals = torch.cat([zero, total.cumsum(0)])  # of the first k of these
    n = len(values)
    lags = torch.arange(1, n + 1)
    return (totals[-1] - totals[lags]) - totals[n + 1 - lags]


def added(total: Tensor, more: Tensor) -> Tensor:
    """The sum of two tables by lag, of which one may be longer."""
    longer, shorter = (total, more) if len(total) > len(more) else (more, total)
    return torch.cat([longer[: len(shorter)] + shorter, longer[len(shorter) :]])


def crossing(mean_log: Tensor, lag: Tensor) -> Tensor:
    """The lag (H,) at which mean_log (L, H) first is -1 or less, between two lags (L, 1) by a straight line."""
    if not len(lag):
        return mean_log.new_full(mean_log.shape[1:], torch.inf)
    zero = mean_log.new_zeros(1, 1)
    mean_log, lag = torch.cat([zero.expand(1, mean_log.shape[1]), mean_log]), torch.cat([zero, lag]).squeeze(1)
    crossed = mean_log <= -1.0
    k = crossed.int().argmax(0).clamp(min=1)  # the first of them
    after, before = (mean_log.gather(0, index.unsqueeze(0)).squeeze(0) for index in (k, k - 1))
    times = lag[k - 1] + (lag[k] - lag[k - 1]) * (before + 1.0) / (before - after)
    return torch.where(crossed.any(0), times, torch.inf)


@torch.no_grad()
def sequences(model: SequenceModel, task: Task) -> Iterator[tuple[list[Tensor], Tensor]]:
    """For each test sequence ln f of every step that exists, by layer (S, H), and dt (S,); float64, on the CPU.

    Where the state is carried from batch to batch, the windows of a stream are one sequence of about STEPS steps.
    """
    for batches in segments(task):
        state, log_gates, exists, gaps = None, [], [], []
        for batch in batches:
            gates: list[list[Tensor]] = [[] for _ in model.rnn.layers]
            with watched(model, lambda layer, act, gates=gates: gates[layer].append(act.forget)):  # type: ignore[misc]
                state = model(batch, state).state
            log_gates.append([torch.stack(steps).clamp(min=SMALLEST).log().cpu() for steps in gates])
            exists.append(task.exists(batch).cpu())
            gaps.append(torch.ones(batch.x.shape[:2]) if batch.dt is None else batch.dt.cpu())
        layers = [torch.cat(parts) for parts in zip(*log_gates, strict=True)]
        keep, dt = torch.cat(exists), torch.cat(gaps).double()
        for b in range(keep.shape[1]):
            yield [log_f[keep[:, b], b] for log_f in layers], dt[keep[:, b], b]


def segments(task: Task) -> Iterator[list[Batch]]:
    """Batches of IN_PARALLEL sequences: lists of one, or of the windows of the same streams."""
    if task.spec.carried:
        windows: list[Batch] = []
        for batch in task.batches("test"):
            windows.append(part(batch, slice(0, IN_PARALLEL)))
            if sum(len(window.x) for window in windows) >= STEPS:
                break
        yield windows
        return
    left = SEQUENCES
    for batch in task.batches("test"):
        for first in range(0, min(left, batch.x.shape[1]), IN_PARALLEL):
            yield [part(batch, slice(first, min(first + IN_PARALLEL, left)))]
        left -= batch.x.shape[1]
        if left <= 0:
            return


def draw(figure: Any, runs: Sequence[Run], rows: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Time by the share of units with a longer time: T_1/e thick, at zero input thin. Longer ones are not drawn."""
    (ax,) = plotting.panels(figure, width=8.0, height=5.0)
    of_run = {run.directory.resolve(): own for run, own in zip(runs, rows, strict=True)}
    for group in groups(runs):
        for k, run in enumerate(group.runs):
            look = {"ls": group.style, "color": group.colour}
            for key, width in (("zero_input", 0.8), ("t_1e", 1.8)):
                ordered = sorted((row[key] for row in of_run[run.directory.resolve()]), reverse=True)
                share = [(k + 0.5) / len(ordered) for k in range(len(ordered))]
                finite = [value if 0 < value < float("inf") else float("nan") for value in ordered]
                ax.plot(share, finite, lw=width, label=None if k or key == "zero_input" else group.label, **look)
    ax.plot([], [], "-", color="#444444", lw=0.8, label="thin: at zero input, in steps")
    unit = "units of dt" if next(runs[0].task.batches("test")).dt is not None else "steps"
    ax.set(yscale="log", xlabel="share of units with a longer time", ylabel=f"$T_{{1/e}}$ ({unit})", xlim=(0, 1))
    plotting.plain_ticks(ax)
    plotting.legend_at_right(ax)
