"""Measure how long units remember: time scales at zero input, and T_1/e on data. See docs/memory.md."""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from timescales.models.sequence import SequenceModel
from timescales.nn.rnn import RNN
from timescales.tasks import Batch, Task
from timescales.training.gates import needs_forget_gates, part, recorded
from timescales.training.interrupt import raise_if_requested

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
SEQUENCES = 200  # sequences that an analysis reads
BATCH_SIZE = 20  # sequences at once, because the gates of all their steps are in memory
STEPS = 2000  # steps of a text, whose windows are joined
SMALLEST = 1e-40  # smaller gates count as this number, because ln 0 is infinite


def timescale_quantiles(model: SequenceModel) -> list[list[float]]:
    """Return the quantiles `QUANTILES` of the units' time scales at zero input, in steps, a list for each layer."""
    return [quantiles(times) for times in unit_timescales(model)]


def unit_timescales(model: SequenceModel) -> list[Tensor]:
    """Return the units' time scales at zero input, (H,) for each layer; [] for a model that is not made of cells."""
    return model.rnn.timescales() if isinstance(model.rnn, RNN) else []


def quantiles(times: Tensor, q: Sequence[float] = QUANTILES) -> list[float]:
    """Return the quantiles q of the times of units (H,): each is one of these times. All are NaN if any time is."""
    points = torch.tensor(q, dtype=torch.float64)
    return times.cpu().double().quantile(points, interpolation="nearest").tolist()


def one_over_e_values(model: SequenceModel, task: Task, most: int | None) -> dict[str, float]:
    """Return T_1/e on the first `most` validation sequences as values to log; {} if `most` is None.

    The values are the quantiles of each layer, one_over_e/layer1/q50 and so on, and one_over_e/layer1/beyond, the share
    of units that keep more than 1/e up to the longest lag in the data. Infinite quantiles and, after a run has
    diverged, NaN are left out.
    """
    if most is None:
        return {}
    layers = one_over_e(model, task, "valid", most)
    values = named("one_over_e", map(quantiles, layers))
    values |= {f"one_over_e/layer{k}/beyond": share_beyond(t) for k, t in enumerate(layers, 1)}
    return {key: value for key, value in values.items() if math.isfinite(value)}


def share_beyond(t_1e: Tensor) -> float:
    """Return the share of units that keep more than 1/e up to the longest lag; NaN if any T_1/e is."""
    return math.nan if t_1e.isnan().any() else float(t_1e.isinf().double().mean())


def named(prefix: str, layers: Iterable[list[float]]) -> dict[str, float]:
    """Return the quantiles of each layer by the names under which they are logged: PREFIX/layer1/q50 and so on."""
    return {
        f"{prefix}/layer{k}/q{100 * q:.0f}": value
        for k, layer in enumerate(layers, 1)
        for q, value in zip(QUANTILES, layer, strict=True)
    }


def one_over_e(model: SequenceModel, task: Task, split: str = "test", most: int = SEQUENCES) -> list[Tensor]:
    """Return T_1/e of every unit: how long it takes until 1/e of what it has written is left. (H,) for each layer.

    Let f be the share of its memory that a unit keeps in one step. For a lag L, add up ln f over the L steps after a
    write, and average this sum over all steps as the write. T_1/e is the lag at which the average crosses -1. It is
    infinite for a unit that keeps more than 1/e up to the longest lag in the data. It is in steps or, if the task has
    dt, in units of dt; float64, on the CPU.

    The gates are computed in float64, because a gate near 1 loses its digits in float32. A copy of the model computes
    them in evaluation mode, so neither the model nor the random generators change.

    split, most: the first `most` sequences of the split are read.

    Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model.rnn)
    model = copy.deepcopy(model).double().eval()
    sums = [torch.zeros(0, cell.hidden_size, dtype=torch.float64) for cell in model.rnn.layers]
    gaps, writes = torch.zeros(0, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64)
    for log_gates, dt in sequences(model, task, split, most):
        sums = [added(total, by_lag(log_f[1:])) for total, log_f in zip(sums, log_gates, strict=True)]
        gaps = added(gaps, by_lag(dt[1:].unsqueeze(1)))
        writes = added(writes, torch.arange(len(dt) - 1, 0, -1, dtype=torch.float64).unsqueeze(1))
    return [crossing(total / writes, gaps / writes) for total in sums]


def by_lag(values: Tensor) -> Tensor:
    """Return for each lag L = 1, ..., S the sum of values[k : k + L], added up over all k: (S, H) from (S, H)."""
    zero = values.new_zeros(1, *values.shape[1:])
    total = torch.cat([zero, values.cumsum(0)])  # row k: the sum of the first k values
    totals = torch.cat([zero, total.cumsum(0)])  # row k: the sum of the first k of these sums
    n = len(values)
    lags = torch.arange(1, n + 1)
    return (totals[-1] - totals[lags]) - totals[n + 1 - lags]


def added(total: Tensor, more: Tensor) -> Tensor:
    """Add two tables with a row for each lag. One of them may have more rows."""
    longer, shorter = (total, more) if len(total) > len(more) else (more, total)
    return torch.cat([longer[: len(shorter)] + shorter, longer[len(shorter) :]])


def crossing(mean_log: Tensor, lag: Tensor) -> Tensor:
    """Return the lag (H,) at which mean_log (L, H) reaches -1, by a straight line between the lags (L, 1) around it."""
    if not len(lag):
        return mean_log.new_full(mean_log.shape[1:], torch.inf)
    zero = mean_log.new_zeros(1, 1)
    mean_log, lag = torch.cat([zero.expand(1, mean_log.shape[1]), mean_log]), torch.cat([zero, lag]).squeeze(1)
    crossed = mean_log <= -1.0
    k = crossed.int().argmax(0).clamp(min=1)  # the first lag at -1 or below
    after, before = (mean_log.gather(0, index.unsqueeze(0)).squeeze(0) for index in (k, k - 1))
    times = lag[k - 1] + (lag[k] - lag[k - 1]) * (before + 1.0) / (before - after)
    times = torch.where(crossed.any(0), times, torch.inf)
    return torch.where(mean_log.isnan().any(0), torch.nan, times)  # NaN: the run has diverged


@torch.no_grad()
def sequences(model: SequenceModel, task: Task, split: str, most: int) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield for each sequence ln f at all steps that exist, (S, H) for each layer, and dt (S,); float64, on the CPU.

    If the state is carried from batch to batch, the windows of a stream are one sequence of about STEPS steps.
    """
    for batches in segments(task, split, most):
        state, log_gates, exists, gaps = None, [], [], []
        for batch in batches:
            raise_if_requested("in the measurement of T_1/e")
            gates, state = recorded(model, batch, state)
            log_gates.append([forget.clamp(min=SMALLEST).log().cpu() for forget in gates])
            exists.append(task.exists(batch).cpu())
            gaps.append(torch.ones(batch.x.shape[:2]) if batch.dt is None else batch.dt.cpu())
        layers = [torch.cat(parts) for parts in zip(*log_gates, strict=True)]
        keep, dt = torch.cat(exists), torch.cat(gaps).double()
        for b in range(keep.shape[1]):
            yield [log_f[keep[:, b], b] for log_f in layers], dt[keep[:, b], b]


def segments(task: Task, split: str, most: int, size: int = BATCH_SIZE) -> Iterator[list[Batch]]:
    """Yield lists of batches of at most `size` of the first `most` sequences of a split.

    A list has one batch or, if the state is carried, windows of the same streams, together of about STEPS steps.
    """
    if task.spec.carried:
        windows: list[Batch] = []
        for batch in task.batches(split):
            windows.append(part(batch, slice(0, min(most, size))))
            if sum(len(window.x) for window in windows) >= STEPS:
                break
        yield windows
        return
    left = most
    for batch in task.batches(split):
        for first in range(0, min(left, batch.x.shape[1]), size):
            yield [part(batch, slice(first, min(first + size, left)))]
        left -= batch.x.shape[1]
        if left <= 0:
            return
