"""Judge claims and printed values by where a 95 % confidence interval is relative to a region.

Inside the region a claim *holds* and a printed value *agrees*. Outside the region it is *refuted*, or it *differs*. If
the interval crosses an edge of the region, or if there is no interval, it is *undecided*. If runs are missing and the
others decide nothing, it is *not run*. Everything else, such as runs that failed, is a note beside the word.
docs/statistics.md states the rules on one page.
"""

from __future__ import annotations

import functools
import importlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from timescales.papers.table import FAILING, Axes, Cell, Claim, Measure, Table, expand, matches
from timescales.runs.metrics import Censored, is_steps
from timescales.runs.store import Row

if TYPE_CHECKING:  # what only lists runs needs neither NumPy nor SciPy
    import numpy as np

LEVEL = 0.95  # of every confidence interval
Region = tuple[float, float]
REGIONS = {"fails": (0.5, math.inf), "never fails": (-math.inf, 0.5), "sometimes fails": (0.0, math.inf)}
CLAIM_WORDS = {1: "holds", -1: "refuted", 0: "undecided"}
FOR, AGAINST, UNDECIDED, NOT_RUN = ("holds", "agrees"), ("refuted", "differs"), "undecided", "not run"
WORDS = (*FOR, *AGAINST, UNDECIDED, NOT_RUN)


class Interval(NamedTuple):
    """An estimate between the ends of its confidence interval. The ends are infinite where there is no interval."""

    low: float
    mid: float
    high: float

    @property
    def has_ends(self) -> bool:
        """Return whether an end of the interval is known. A single run has none."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    def place(self, low: float, high: float) -> int:
        """Compare with a region: 1 inside, -1 outside, 0 across an edge.

        An end that is within rounding of an edge counts as across.
        """
        error = 1e-9 * max(1.0, *(abs(x) for x in (*self, low, high) if math.isfinite(x)))
        if (low == -math.inf or self.low > low + error) and (high == math.inf or self.high < high - error):
            return 1
        return -1 if self.high < low - error or self.low > high + error else 0


# --- intervals ---

Values: TypeAlias = "Sequence[float] | np.ndarray"


def contrast(samples: Sequence[Values], weights: Sequence[float]) -> Interval:
    """Estimate a weighted sum of means: of one sample its mean (Student), of two their difference (Welch)."""
    import numpy as np
    from scipy import special  # scipy.stats has the same, and takes a second to import

    mid = float(sum(w * np.mean(x) for x, w in zip(samples, weights, strict=True)))
    if min(map(len, samples)) < 2:
        return Interval(-math.inf, mid, math.inf)
    errors = [w * w * np.var(x, ddof=1) / len(x) for x, w in zip(samples, weights, strict=True)]
    if sum(errors) == 0.0:
        return Interval(mid, mid, mid)
    df = sum(errors) ** 2 / sum(e * e / (len(x) - 1) for x, e in zip(samples, errors, strict=True))
    half = float(special.stdtrit(df, 0.5 + LEVEL / 2)) * math.sqrt(sum(errors))
    return Interval(mid - half, mid, mid + half)


def rate(failed: int, runs: int) -> Interval:
    """Estimate a share of runs (Wilson)."""
    from scipy import special

    z = float(special.ndtri(0.5 + LEVEL / 2))
    middle = (failed + z * z / 2) / (runs + z * z)
    half = z * math.sqrt(failed * (1 - failed / runs) + z * z / 4) / (runs + z * z)
    return Interval(middle - half if failed else 0.0, failed / runs, middle + half if failed < runs else 1.0)


def combined(parts: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """Estimate a weighted sum of independent estimates (Zou and Donner 2008); of two rates it is Newcombe's method."""
    weighted = [(w, *part) for part, w in zip(parts, weights, strict=True) if w]
    estimate = sum(w * mid for w, _, mid, _ in weighted)
    below = math.hypot(*(w * (mid - (low if w > 0 else high)) for w, low, mid, high in weighted))
    above = math.hypot(*(w * (mid - (high if w > 0 else low)) for w, low, mid, high in weighted))
    return Interval(estimate - below, estimate, estimate + above)


Time = tuple[float, float]  # the earliest and the latest time at which an event may have come


def shift(first: Sequence[Time], second: Sequence[Time]) -> Interval:
    """Estimate how much larger the first values are (Hodges and Lehmann, ends by the ranks of Mann and Whitney).

    A time that is known only as "later than x" is (x, infinity).
    """
    lows = sorted(x[0] - y[1] for x in first for y in second)
    highs = sorted(x[1] - y[0] for x in first for y in second)
    mid = float(statistics.median(x[0] - y[0] for x in first for y in second))
    k = _rank(len(first), len(second))
    return Interval(lows[k - 1], mid, highs[-k]) if k else Interval(-math.inf, mid, math.inf)


@functools.cache
def _rank(n: int, m: int) -> int:
    """Find the largest k with 2 P(U < k) <= 1 - LEVEL: the k-th difference from either end bounds a shift. 0: none."""
    allowed, k = (1 - LEVEL) / 2 * math.comb(n + m, n), 0
    while sum(_orders(n, m, u) for u in range(k + 1)) <= allowed:
        k += 1
    return k


@functools.cache
def _orders(n: int, m: int, u: int) -> int:
    """Count the orders of n and m values whose U (Mann and Whitney) is u."""
    if u < 0:
        return 0
    return int(u == 0) if 0 in (n, m) else _orders(n - 1, m, u - m) + _orders(n, m - 1, u)


def contrast_of(first: Values, second: Values) -> Interval:
    """Estimate the difference of two means (Welch)."""
    return contrast([first, second], (1, -1))


def ranks_of(first: Values, second: Values) -> Interval:
    """Estimate the difference of two groups of values by ranks."""
    return shift([(x, x) for x in first], [(x, x) for x in second])


# --- claims ---


@dataclass(frozen=True)
class Verdict:
    """The word for a claim or a printed value, the interval that decided it, and notes.

    interval: the interval of the claim; of several groups of runs that of the group which supports the claim least.
    n: number of runs of the smaller side. values: for a printed value, the value of every run.
    """

    word: str
    interval: Interval | None = None
    region: Region = (-math.inf, math.inf)
    n: int = 0
    notes: Sequence[str] = ()
    values: Sequence[float] = ()


def region_of(claim: Claim, ratio: bool = False) -> Region:
    """Return the region in which the effect of a claim must be.

    ratio: whether the effect compares times, which are compared as powers of 2.
    """
    if claim.sign in REGIONS:
        return REGIONS[claim.sign]
    if claim.sign == "~":
        return -claim.tolerance, claim.tolerance
    if claim.sign == ">=":
        return -claim.tolerance, math.inf
    return (0.0 if ratio else float(claim.by)), math.inf


def judge_claim(
    claim: Claim, rows: Sequence[Row], planned: Sequence[Axes], pair: bool = False, ratio: bool = False
) -> Verdict:
    """Judge a claim by all runs that ended. It must hold in each group of runs; one group is enough to refute it.

    Failed runs count too: a model must not look better because its failures are left out.

    Args:
        planned: the settings of all planned runs of the claim's size.
        pair, ratio: as for `effect`.
    """
    groups, wanted = claim.groups(rows, lambda row: row.axes), claim.groups(planned, lambda axes: axes)
    low, high = region_of(claim, ratio)
    found = {shared: interval for shared, sides in groups.items() if (interval := effect(claim, sides, pair, ratio))}
    every = [side for sides in groups.values() for side in sides]
    ran = sum(_analysed(row, claim.columns) for side in every for row in side)
    plan = sum(len(side) for sides in wanted.values() for side in sides)
    failed = [sum(claim.succeeded(row) is False for row in side) for side in every]
    shares = ", ".join(f"{number} of {len(side)}" for number, side in zip(failed, every, strict=True))
    failures = [f"failed: {shares}"] if any(failed) else []
    if not found:
        return Verdict(NOT_RUN if ran < plan else UNDECIDED, notes=failures)
    places = [estimated.place(low, high) for estimated in found.values()]
    word = CLAIM_WORDS[min(places) if -1 in places or len(found) == len(wanted) else 0]
    weakest = min(found, key=lambda k: (found[k].place(low, high), min(found[k].mid - low, high - found[k].mid)))
    notes = [f"{ran} of {plan} runs"] * (ran < plan)
    if ran < plan:  # testing after every run, and stopping at a pleasing word, would decide too often
        word = NOT_RUN
    if len(found) > 1 and len(set(places)) > 1:
        refuted = f", refuted in {places.count(-1)}" if -1 in places else ""
        notes.append(f"holds in {places.count(1)}{refuted} of {len(found)} groups")
    notes += failures if claim.sign not in FAILING else []
    notes += ["part of the data"] * any(row.partial for side in every for row in side)
    measured: dict[str, list[int]] = {}  # by group the runs of each side that have a value
    for shared in found:
        at_all_rates = "fails" in claim.sign or claim.than  # as in `effect`
        sides = groups[shared] if at_all_rates else [at_best_rate(claim, side) for side in groups[shared]]
        measured[shared] = [sum(_has_value(claim, row) for row in side) for side in sides]
    fewest = min(map(min, measured.values()))
    if fewest > 1 and not found[weakest].has_ends:
        if pair and not is_steps(claim.column):
            notes.append("one seed in common")
        elif claim.than:
            notes.append("runs never got there")
        elif _rank(*measured[weakest]):
            notes.append("runs of both sides never got there")
        else:
            notes.append(f"{fewest} runs are too few for ranks")
    lacking = sum(not _has_value(claim, row) for shared in found for side in groups[shared] for row in side)
    notes += _without_value(lacking)
    return Verdict(word, found[weakest], (low, high), fewest, notes)


def _without_value(runs: int) -> list[str]:
    """Return the note on a number of runs without a value; none if there are no such runs."""
    return [f"{runs} run{'s' * (runs > 1)} without a value"] * (runs > 0)


def _has_value(claim: Claim, row: Row) -> bool:
    """Return whether a run has what a claim is about: its values, or whether it failed."""
    if "fails" in claim.sign:
        return claim.succeeded(row) is not None
    return all(row.value(column) is not None for column in claim.columns)


def effect(claim: Claim, sides: Sequence[Sequence[Row]], pair: bool = False, ratio: bool = False) -> Interval | None:
    """Estimate by how much the first side is better. For a claim "fails", estimate the share of runs that fail.

    Args:
        sides: the runs of each side, including failed ones.
        pair: compare runs of the same seed with each other.
        ratio: for times, estimate how many times as fast the first side is, as a power of 2.

    Returns: the estimate, or None without values.
    """
    if "fails" in claim.sign:
        known = [[not good for row in side if (good := claim.succeeded(row)) is not None] for side in sides]
        shares = [rate(sum(side), len(side)) for side in known if side]
        if len(shares) < len(sides):
            return None
        return combined(shares, (1, -1)) if len(sides) == 2 else shares[0]
    a, b = claim.weights
    if claim.than:
        columns = [[row.value(column) for row in sides[0]] for column in claim.columns]
        pairs = [(x, y) for x, y in zip(*columns, strict=True) if x is not None and y is not None]
        if not pairs:
            return None
        low, mid, high = contrast([[claim.scale * (a * x + b * y) for x, y in pairs]], [1])
        # A time that is only known as later has no end on the side to which its weight moves the mean.
        late = [w for pair in pairs for w, x in zip((a, b), pair, strict=True) if isinstance(x, Censored)]
        low = -math.inf if any(w < 0 for w in late) else low
        high = math.inf if any(w > 0 for w in late) else high
        return Interval(low, mid, high)
    rated = [at_best_rate(claim, side) for side in sides]
    values = [[(row.seed, x) for row in side if (x := claim.read(row)) is not None] for side in rated]
    if not all(values):
        return None
    if is_steps(claim.column):
        return _of_times(claim, [[x for _, x in side] for side in values], ratio)
    # A run that diverged without a value counts as the worst of all.
    worst = a * min(a * x for side in values for _, x in side)
    lost = [[(r.seed, worst) for r in side if r.status != "finished" and claim.read(r) is None] for side in rated]
    first, second = (x + y for x, y in zip(values, lost, strict=True))
    if pair:
        # A side may have several settings: the values of each seed are averaged.
        means = [{seed: statistics.fmean(x for s, x in own if s == seed) for seed, _ in own} for own in (first, second)]
        same = [a * x + b * means[1][seed] for seed, x in means[0].items() if seed in means[1]]
        return contrast([same], [1]) if same else None
    signed = [a * x for _, x in first], [-b * x for _, x in second]
    # If a table names chance, some runs learn and some stay at chance. Then tests of means lose power, ranks do not.
    return ranks_of(*signed) if claim.chance is not None else contrast_of(*signed)


def _analysed(row: Row, columns: Sequence[str]) -> bool:
    """Return whether the analyses "probe/NAME/..." of some columns have run. A run that diverged is not analysed."""
    if row.status != "finished":
        return True
    names = {"/".join(column.split("/")[:2]) for column in columns if column.startswith("probe/")}
    return all(any(x is not None and key.startswith(f"{name}/") for key, x in row.values.items()) for name in names)


def _of_times(claim: Claim, sides: Sequence[Sequence[float]], ratio: bool) -> Interval:
    """Estimate how much earlier the first side is; of powers of 2 if `ratio`."""
    of = math.log2 if ratio else float
    first, second = (
        [(of(abs(weight) * x), math.inf if isinstance(x, Censored) else of(abs(weight) * x)) for x in side]
        for side, weight in zip(sides, claim.weights, strict=True)
    )
    return shift(first, second) if claim.higher else shift(second, first)


def at_best_rate(measure: Measure, rows: Sequence[Row]) -> Sequence[Row]:
    """Select the runs at the best learning rate: the one with the best mean, among those at which no run failed.

    Without several learning rates, or if the measure does not choose one, all runs are returned.
    """
    if measure.reduce == "mean":
        return rows
    rates: dict[Any, list[Row]] = {}
    for row in rows:
        rates.setdefault(row.axes.get("optimizer.lr"), []).append(row)
    if len(rates) == 1:
        return rows  # nothing to choose from
    usable = [x for x in rates.values() if all(measure.succeeded(r) and r.value(measure.column) is not None for r in x)]
    if not usable:
        return []
    return (max if measure.higher else min)(usable, key=lambda own: statistics.fmean(_values(measure, own)))


def _values(measure: Measure, rows: Sequence[Row]) -> list[float]:
    """Return the values of runs in the printed unit."""
    return [x for row in rows if (x := measure.read(row)) is not None]


# --- printed values ---


def judge_value(cell: Cell, rows: Sequence[Row]) -> Verdict:
    """Compare the interval of our mean with the printed value, give or take its margin."""
    own = [row for row in rows if matches(row.axes, cell.where)]
    if cell.value is None or not own:
        return Verdict(NOT_RUN if cell.value is not None else "", values=_values(cell, own))
    region = (cell.value - cell.margin, cell.value + cell.margin)
    good = [row for row in (own if cell.reduce == "max" else at_best_rate(cell, own)) if cell.succeeded(row)]
    lost = sum(cell.succeeded(row) is False for row in own)
    notes = [f"{lost} of {len(own)} failed"] * (lost > 0)
    if chance := sum(bool(cell.chance and cell.succeeded(row) and cell.meets(cell.chance, row)) for row in own):
        notes.append(f"{chance} of {len(own)} at chance")
    notes += ["part of the data"] * any(row.partial for row in own)
    estimated, values = estimate(cell, good), _values(cell, good)
    known = lost + sum(bool(cell.succeeded(row)) and cell.read(row) is not None for row in own)
    notes += [] if cell.compute else _without_value(len(own) - known)
    word = {1: "agrees", -1: "differs", 0: UNDECIDED}[0 if estimated is None else estimated.place(*region)]
    if len(own) < cell.planned:
        word, notes = NOT_RUN, [f"{len(own)} of {cell.planned} runs", *notes]
    return Verdict(word, estimated, region, n=len(good if cell.compute else values), notes=notes, values=values)


def estimate(cell: Cell, rows: Sequence[Row]) -> Interval | None:
    """Estimate the value of a cell from its successful runs.

    There is no interval if the value is a single number from all runs: computed by an analysis, a median time, the
    best.
    """
    values = _values(cell, rows)
    if not values and not cell.compute:
        return None
    if cell.compute:
        module, _, function = cell.compute.partition(".")
        single = getattr(importlib.import_module(f"timescales.analysis.{module}"), function)(rows)
    elif is_steps(cell.column):
        single = float(statistics.median(values))
    elif cell.reduce == "max":
        single = float(max(values) if cell.higher else min(values))
    else:
        return mean_of(cell, values)
    return None if single is None else Interval(-math.inf, single, math.inf)


def mean_of(measure: Measure, values: Sequence[float]) -> Interval:
    """Estimate a mean (Student). The ends of percentages that are all from 0 to 100, such as accuracies, are too."""
    mean = contrast([values], [1])
    if measure.unit == "percent" and math.isfinite(mean.low) and min(values) >= 0 and max(values) <= 100:
        return Interval(max(mean.low, 0.0), mean.mid, min(mean.high, 100.0))
    return mean


def judge(table: Table, rows: Sequence[Row]) -> tuple[list[Verdict], list[Verdict]]:
    """Judge all claims and all printed values of a table at the paper's size, in its order."""
    planned = expand(table)
    return [judge_claim(claim, rows, planned) for claim in table.claims], [judge_value(c, rows) for c in table.cells]
