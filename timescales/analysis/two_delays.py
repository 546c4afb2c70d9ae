"""Compare how slowly the units of power-law models forget that were trained to copy over two delays.

Source: Chien et al. 2021, Fig. A.4. Tables compute these numbers from the values of `reset_units`. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from timescales.runs.store import Row

if TYPE_CHECKING:
    from torch import Tensor

PRINTED = (200, 500)  # the two delays of the paper


class Units(NamedTuple):
    """The mean and standard deviation of p over the units of a run, and their number."""

    mean: float
    sd: float
    n: float

    @classmethod
    def of(cls, p: Tensor) -> Units:
        """Return those of p (units,)."""
        return cls(float(p.mean()), float(p.std()), len(p))


def two_samples(a: Units, b: Units) -> dict[str, float]:
    """Compare two groups of units by Student's two-sample test with pooled variance.

    Returns: t, its two-sided p_value and Cohen's d.
    """
    from scipy import stats

    test = stats.ttest_ind_from_stats(*a, *b)
    d = float(test.statistic) * math.sqrt(1.0 / a.n + 1.0 / b.n)
    return {"t": float(test.statistic), "p_value": float(test.pvalue), "cohens_d": d}


def t(rows: Sequence[Row]) -> float | None:
    """Return Student's t of the decay factors p at the shorter delay against those at the longer one (pooled variance).

    As the paper's numbers imply (t = d sqrt(128 / 2)), the test is over the units of one model per delay: the models
    with the smallest seed that both delays have. The delays are T = 200 and 500 or, if these are missing, the shortest
    and the longest one. None without such a pair.

    rows: of several runs, as tables compute from them, with the values of `reset_units.measure`.
    """
    pair = _pair(rows)
    return None if pair is None else two_samples(*pair)["t"]


def cohens_d(rows: Sequence[Row]) -> float | None:
    """Return Cohen's d of the same comparison: the difference of means over the pooled standard deviation."""
    pair = _pair(rows)
    return None if pair is None else two_samples(*pair)["cohens_d"]


def _pair(rows: Sequence[Row]) -> tuple[Units, Units] | None:
    """Return the units at the shorter and at the longer delay, of one seed."""
    by_delay: dict[int, dict[int, Units]] = {}
    for row in rows:
        mean, sd, n = (row.value(f"probe/reset_units/{key}") for key in ("p_mean", "p_sd", "units"))
        if mean is not None and sd is not None and n is not None and "task.T" in row.axes:
            by_delay.setdefault(row.axes["task.T"], {})[row.seed] = Units(mean, sd, n)
    if len(by_delay) < 2:
        return None
    short, long = PRINTED if set(PRINTED) <= set(by_delay) else (min(by_delay), max(by_delay))
    seeds = by_delay[short].keys() & by_delay[long].keys()
    return (by_delay[short][min(seeds)], by_delay[long][min(seeds)]) if seeds else None
