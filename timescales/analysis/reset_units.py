"""Which units of a pLSTM keep their memory through the delay of the copy task, and how slowly units forget.

Source: Chien et al. 2021, section 5.2 and Fig. A.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_age, needs_copy
from timescales.analysis.run import Run, by_unit
from timescales.analysis.study import Study
from timescales.tasks import Batch, Copy, Task
from timescales.tasks.copy import SIGNAL
from timescales.training.model import SequenceModel

SEQUENCES = 100
FRACTIONS = (0.25, 0.5, 0.75)
PRINTED = (200, 500)  # the paper's two delays
MEAN_P, SHARE = {200: 0.41, 500: 0.19}, 0.2  # printed in section 5.2; "around 1/5 of the units"


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Mean and standard deviation of the decay factor p over the units, their number, and how many reset late.

    The paper says in words what later-reset units are: they "do not reset k_t until the reproduction of target elements
    starts". Here it is a unit whose age at the last step of the delay, averaged over 100 test sequences, is at least
    half of the delay: "units_50"; "units_25" and "units_75" show how much hangs on the half.
    """
    own = needs_copy(task)
    return _values(ages_before_signal(model, own), factors(model), own)


def _values(ages: Tensor, p: Tensor, own: Copy) -> dict[str, float]:
    late = {f"units_{100 * x:.0f}": float((ages >= x * own.T).sum()) for x in FRACTIONS}
    return {"p_mean": float(p.mean()), "p_sd": float(p.std()), "units": float(len(p))} | late


def factors(model: SequenceModel) -> Tensor:
    """The decay factor p of each unit, (units,), float64, also where it is one number for all."""
    needs_age(model)
    each = [torch.as_tensor(cell.p, dtype=torch.float64).detach().cpu() for cell in model.rnn.layers]
    return torch.cat([p.expand(cell.hidden_size) for p, cell in zip(each, model.rnn.layers, strict=True)])


def study(run: Run) -> Study:
    """How many units are later-reset ones, by where the line is drawn, and their p: section 5.2.

    Rows: one a unit, oldest first: layer, unit, p, age at the delay's last step, the same as a fraction of T.
    Values: those of `measure`, the mean p of later-reset units and of the others, and how the p of both kinds differ
    (`t` and `cohens_d`, later minus others, pooled variance).
    """
    model, task = run.model, run.task
    own = needs_copy(task)
    ages, p = ages_before_signal(model, own), factors(model)
    late = ages >= own.T / 2
    values = _values(ages, p, own)
    if 2 <= int(late.sum()) <= len(late) - 2:
        found = two_samples(p[late], p[~late])
        values |= {"later_p_mean": float(p[late].mean()), "others_p_mean": float(p[~late].mean())}
        values |= {"later_t": found["t"], "later_cohens_d": found["cohens_d"]}
    of_delay = [age / max(own.T, 1) for age in ages.tolist()]
    units = by_unit(model, {"p": p.tolist(), "age": ages.tolist(), "of_delay": of_delay})
    rows = [units[k] for k in ages.argsort(descending=True).tolist()]
    return Study("Which units keep their memory through the delay", rows, values, lambda f: draw(f, rows, own, run))


def draw(figure: Any, rows: Sequence[Mapping[str, float]], task: Copy, run: Run) -> None:
    """Left: the number of later-reset units by the line that makes a unit one. Right: p of each unit by its age."""
    left, right = plotting.panels(figure, 2, width=12.0)
    of_delay = [row["of_delay"] for row in rows]
    left.plot(range(1, len(rows) + 1), of_delay, drawstyle="steps-pre", color=run.colour, lw=2)
    for fraction in FRACTIONS:
        count = sum(value >= fraction for value in of_delay)
        left.plot([0, count], [fraction, fraction], color="#999999", lw=1, ls=":")
        left.plot(count, fraction, "o", color=run.colour, ms=6 if fraction == 0.5 else 4)
        look = {"fontsize": 9, "weight": "bold" if fraction == 0.5 else None, "textcoords": "offset points"}
        left.annotate(f"{count} of {len(rows)} at {fraction:g} T", (count, fraction), (8, 4), **look)
    left.axvline(SHARE * len(rows), color="black", ls="--", lw=1)
    at_top = {"transform": left.get_xaxis_transform(), "va": "top", "fontsize": 8}
    left.text(SHARE * len(rows), 1.0, " paper: around 1/5 of the units", **at_top)
    left.set(xlabel="units that are at least so old", xlim=(0, None), ylim=(0, None))
    left.set_ylabel(f"age at the delay's end (times T = {task.T} steps)")
    for late, colour, words in ((False, "#aaaaaa", "other units"), (True, run.colour, "later-reset units")):
        chosen = [row for row in rows if (row["of_delay"] >= 0.5) is late]
        ages, p = [row["of_delay"] for row in chosen], [row["p"] for row in chosen]
        mean = f", mean p {sum(p) / len(p):.2f}" if p else ""
        right.plot(ages, p, "o", color=colour, ms=5, alpha=0.8, label=f"{len(chosen)} {words}{mean}")
    if task.T in MEAN_P:
        words = f"paper: mean p {MEAN_P[task.T]} of all units"
        right.axhline(MEAN_P[task.T], color="black", ls="--", lw=1, label=words)
    right.axvline(0.5, color="#999999", ls=":", lw=1)
    right.set(xlabel=f"age at the delay's end (times T = {task.T} steps)", ylabel="decay factor p", ylim=(-0.02, None))
    right.set_ylim(top=max(1.02, *right.get_ylim()))
    right.legend(frameon=False, fontsize=8)


def two_samples(a: Tensor, b: Tensor) -> dict[str, float]:
    """Student's two-sample test of a (n,) against b (m,), pooled variance: t, its two-sided p_value and Cohen's d."""
    return _two_samples(*((float(p.mean()), float(p.std()), len(p)) for p in (a, b)))


Units = tuple[float, float, float]  # mean and standard deviation of p, number of units


def _two_samples(a: Units, b: Units) -> dict[str, float]:
    from scipy import stats

    found = stats.ttest_ind_from_stats(*a, *b)
    d = float(found.statistic) * math.sqrt(1.0 / a[2] + 1.0 / b[2])
    return {"t": float(found.statistic), "p_value": float(found.pvalue), "cohens_d": d}


@torch.no_grad()
def ages_before_signal(model: SequenceModel, task: Copy) -> Tensor:
    """Steps since each unit's last reset, t - k_t, at the last step of the delay: the mean over sequences, (units,).

    Raises ConfigError for a model whose units have no age.
    """
    needs_age(model)
    batch = task.batch("test", 0, 0, 0, min(SEQUENCES, task.size("test")))
    signal = int((task.blank == SIGNAL).nonzero()[0])
    state = model(Batch(batch.x[:signal], batch.target[:signal])).state
    return torch.cat([layer.age.mean(0) for layer in state]).cpu()


def later_reset(model: SequenceModel, task: Copy) -> Tensor:
    """Which units are later-reset units, (units,) of bool; see `measure`."""
    return ages_before_signal(model, task) >= task.T / 2


def t(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Student's t of the decay factors p at the shorter delay against those at the longer one (pooled variance).

    As the paper's numbers imply (t = d sqrt(128 / 2)), the test is over the units of one model per delay: those of the
    smallest seed that is there for both. The delays are T = 200 and 500, or, where these are not, the shortest and
    the longest there are. None without such a pair.
    """
    pair = _pair(rows)
    return None if pair is None else _two_samples(*pair)["t"]


def cohens_d(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Cohen's d of the same comparison: the difference of means over the pooled standard deviation."""
    pair = _pair(rows)
    return None if pair is None else _two_samples(*pair)["cohens_d"]


def _pair(rows: Sequence[Mapping[str, Any]]) -> tuple[Units, Units] | None:
    found: dict[int, dict[int, Units]] = {}
    for row in rows:
        values = tuple(row.get(f"probe/reset_units/{key}") for key in ("p_mean", "p_sd", "units"))
        if None not in values and "task.T" in row["axes"]:
            found.setdefault(row["axes"]["task.T"], {})[row["seed"]] = values  # type: ignore[assignment]
    short, long = PRINTED if set(PRINTED) <= set(found) else (min(found, default=0), max(found, default=0))
    both = found.get(short, {}).keys() & found.get(long, {}).keys()
    return (found[short][min(both)], found[long][min(both)]) if both and short != long else None
