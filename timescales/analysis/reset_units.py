"""Which units of a pLSTM keep their memory through the delay of the copy task, and how slowly units forget.

Source: Chien et al. 2021, section 5.2, appendix A.4 and Fig. A.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales.analysis.activations import watched
from timescales.analysis.generalisation import copying
from timescales.model import SequenceModel
from timescales.schema import ConfigError
from timescales.tasks import Batch, Copy, Task
from timescales.tasks.copy import SIGNAL

SEQUENCES = 100
FRACTIONS = (0.25, 0.5, 0.75)
PRINTED = (200, 500)  # the paper's two delays


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Mean and standard deviation of the decay factor p over the units, their number, and how many reset late.

    The paper says in words what a later-reset unit is: it "does not reset k_t until the reproduction starts". Here it
    is one whose age at the last step of the delay, averaged over 100 test sequences, is at least half of the delay:
    "units_50"; "units_25" and "units_75" show how much hangs on the half.
    """
    own = copying(task)
    ages = ages_before_signal(model, own)
    p = torch.cat([_factors(cell) for cell in model.rnn.layers])
    late = {f"units_{100 * x:.0f}": float((ages >= x * own.T).sum()) for x in FRACTIONS}
    return {"p_mean": float(p.mean()), "p_sd": float(p.std()), "units": float(len(p))} | late


def _factors(cell: Any) -> Tensor:
    """The decay factor of each unit, (H,), also where it is one number for all."""
    return torch.as_tensor(cell.p, dtype=torch.float64).detach().cpu().expand(cell.hidden_size)


@torch.no_grad()
def ages_before_signal(model: SequenceModel, task: Copy) -> Tensor:
    """Steps since each unit's last reset, t - k_t, at the last step of the delay: the mean over sequences, (units,).

    Raises ConfigError for a model whose units have no age.
    """
    _has_age(model)
    batch = task.batch("test", 0, 0, 0, min(SEQUENCES, task.size("test")))
    signal = int((task.blank == SIGNAL).nonzero()[0])
    state = model(Batch(batch.x[:signal], batch.target[:signal])).state
    return torch.cat([layer.age.mean(0) for layer in state]).cpu()


def later_reset(model: SequenceModel, task: Copy, fraction: float = 0.5) -> Tensor:
    """Which units are later-reset units, (units,) of bool; see `measure`."""
    return ages_before_signal(model, task) >= fraction * task.T


@torch.no_grad()
def reference_times(model: SequenceModel, task: Task, sequence: int = 0) -> Tensor:
    """The reference time k_t = t - age of each unit after steps t = 1..S of a test sequence, (S, units): Fig. A.4.

    Units of several layers stand side by side. Raises ConfigError for a model whose units have no age.
    """
    _has_age(model)
    ages: list[list[Tensor]] = [[] for _ in model.rnn.layers]
    with watched(model, lambda layer, act: ages[layer].append(act.age[0])):
        model(task.batch("test", 0, 0, sequence, sequence + 1))
    found = torch.cat([torch.stack(steps) for steps in ages], -1).cpu()
    return torch.arange(1, len(found) + 1).unsqueeze(1) - found


def _has_age(model: SequenceModel) -> None:
    for cell in model.rnn.layers:
        if "age" not in cell.State._fields:
            raise ConfigError(f"{type(cell).__name__} has no reference time: this probe is for power-law models")


def t(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Student's t of the decay factors p at the shorter delay against those at the longer one (pooled variance).

    As the paper's numbers imply (t = d sqrt(128 / 2)), the test is over the units of one model per delay: those of the
    smallest seed that is there for both. The delays are T = 200 and 500, or, where these are not, the shortest and
    the longest there are. None without such a pair.
    """
    pair = _pair(rows)
    if pair is None:
        return None
    return _d(*pair) / math.sqrt(1.0 / pair[0][2] + 1.0 / pair[1][2])


def cohens_d(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Cohen's d of the same comparison: the difference of means over the pooled standard deviation."""
    pair = _pair(rows)
    return None if pair is None else _d(*pair)


Units = tuple[float, float, float]  # mean and standard deviation of p, number of units


def _d(a: Units, b: Units) -> float:
    pooled = ((a[2] - 1) * a[1] ** 2 + (b[2] - 1) * b[1] ** 2) / (a[2] + b[2] - 2)
    return (a[0] - b[0]) / math.sqrt(pooled)


def _pair(rows: Sequence[Mapping[str, Any]]) -> tuple[Units, Units] | None:
    found: dict[int, dict[int, Units]] = {}
    for row in rows:
        values = tuple(row.get(f"probe/reset_units/{key}") for key in ("p_mean", "p_sd", "units"))
        if None not in values and "task.T" in row["axes"]:
            found.setdefault(row["axes"]["task.T"], {})[row["seed"]] = values  # type: ignore[assignment]
    short, long = PRINTED if set(PRINTED) <= set(found) else (min(found, default=0), max(found, default=0))
    both = found.get(short, {}).keys() & found.get(long, {}).keys()
    return (found[short][min(both)], found[long][min(both)]) if both and short != long else None
