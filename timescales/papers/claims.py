"""What runs say of a paper's claims (`table.Claim` has their grammar).

In comparisons runs that fail the table's `success` are left out, unless the claim says `failures: count` or compares
steps to a threshold (`Censored`). Where runs differ in more than the seed, the claim must hold in each group of them.
Runs that diverged, or never reached the threshold, leave a comparison uncertain: what a test says is then "in order"
instead of "holds", "reversed" instead of "refuted".

Two single runs that were measured on the same words (`bins`) are compared by a bootstrap over blocks of words, as in
the paper. It knows nothing of seeds, so it refutes nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timescales.papers.table import FAILING, Claim, Row
from timescales.papers.verdict import (
    ALPHA,
    ClaimResult,
    Comparison,
    Failures,
    Side,
    Verdict,
    Word,
    at_best_rate,
    partial,
    welch,
)
from timescales.runs.metrics import Censored

ORDER = (Word.REFUTED, Word.REVERSED, Word.OPEN, Word.IN_ORDER, Word.HOLDS)  # the weakest first


@dataclass(frozen=True)
class Ruling:
    """What one group of runs says of a claim; n: the fewest runs of a side, compared with n_min."""

    word: Word
    p: float | None
    numbers: Comparison | Failures
    n: int


@dataclass(frozen=True)
class Values:
    """What is compared of one side of a claim."""

    rows: list[Row]
    values: list[float]  # in the printed unit, the second side's times what the claim asks for
    times: float  # what they were multiplied with
    mean: float  # or the best
    censored: list[bool]  # of each value, or the best, whether it is only known to be larger
    diverged: int  # runs that diverged, count, and have no value
    n: int  # its runs; with reduce: max those of all learning rates

    @property
    def side(self) -> Side:
        """The side as its runs have it, without the factor."""
        return Side(self.mean / self.times, self.n, any(self.censored))


def judge(claim: Claim, rows: Sequence[Row], planned: Iterable[Mapping[str, Any]] | None = None) -> ClaimResult:
    """Judge a claim by the runs that have ended; planned: the axes of all that there will be (None: no more)."""
    groups = claim.groups(rows)
    wanted = groups if planned is None else claim.groups({"axes": axes} for axes in planned)
    own = [row for sides in groups.values() for side in sides for row in side]
    if any(row["stale"] for row in own):
        return ClaimResult(claim, Verdict(Word.STALE))
    rule = _failures if claim.sign in FAILING else _compare
    each = [rule(claim, sides, wanted.get(shared, sides)) for shared, sides in groups.items()]
    rulings = [ruling for ruling in each if ruling is not None]
    if not rulings:
        return ClaimResult(claim, Verdict(Word.OPEN))
    # The smallest p speaks against "no different", the largest against "better".
    sign = 1.0 if claim.sign == "~" else -1.0
    weakest = min(rulings, key=lambda ruling: (ORDER.index(ruling.word), sign * (ruling.p or 0.0)))
    n = min(ruling.n for ruling in rulings)
    verdict = Verdict(weakest.word, weakest.p, n, n < claim.n_min, (len(rulings), len(wanted)), partial=partial(own))
    return ClaimResult(claim, verdict, weakest.numbers)


def _failures(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]) -> Ruling | None:
    """Whether these runs "fails", more than half of all that there will be, or "never fails"."""
    known = [outcome for row in sides[0] if (outcome := claim.succeeded(row)) is not None]
    failed, ended, in_all = known.count(False), len(known), len(wanted[0])
    if not ended:
        return None
    if claim.sign == "never fails":
        word = Word.REFUTED if failed else Word.HOLDS
    elif 2 * failed > in_all:
        word = Word.HOLDS
    elif 2 * (failed + in_all - ended) <= in_all:  # also if all that are to come should fail
        word = Word.REVERSED if failed else Word.REFUTED
    else:
        word = Word.IN_ORDER if 2 * failed > ended else Word.REVERSED
    return Ruling(word, None, Failures(failed, ended), ended)


def _compare(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]) -> Ruling | None:
    """Whether the runs of the first side are better than, or no different from, those of the second."""
    ours, theirs = (_values(claim, rows, k) for k, rows in enumerate(sides))
    if ours is None or theirs is None:
        return None
    n = min(ours.n, theirs.n)
    if claim.reduce == "max" and (ours.n, theirs.n) == tuple(map(len, wanted)):  # all that there will be
        n = max(n, claim.n_min)
    numbers = Comparison(ours.side, theirs.side, ours.diverged + theirs.diverged)
    if _nobody_knows(claim, ours, theirs):
        return Ruling(Word.OPEN, None, numbers, n)
    word, p = (_by_maxima if claim.reduce == "max" else _by_test)(claim, ours, theirs)
    better = [ours if _right_way(claim, ours, theirs) else theirs] if claim.sign == ">" else [ours, theirs]
    if any(_censored(claim, ours, theirs)) or any(side.diverged for side in better):
        word = {Word.HOLDS: Word.IN_ORDER, Word.REFUTED: Word.REVERSED}.get(word, word)
    return Ruling(word, p, numbers, n)


def _right_way(claim: Claim, ours: Values, theirs: Values) -> bool:
    """Whether the first side's mean is the better one."""
    return ours.mean > theirs.mean if claim.higher else ours.mean < theirs.mean


def _censored(claim: Claim, ours: Values, theirs: Values) -> list[bool]:
    """Of the values that may decide otherwise whether they are only known to be larger.

    Of two means the smaller one may be larger, nobody knows by how much.
    """
    if claim.sign == ">":
        return (theirs if ours.mean > theirs.mean else ours).censored
    return [*ours.censored, *theirs.censored]


def _nobody_knows(claim: Claim, ours: Values, theirs: Values) -> bool:
    """Whether the values say nothing of the claim."""
    if all(_censored(claim, ours, theirs)):
        return True
    if claim.sign == ">":
        return ours.mean == theirs.mean  # a tie says nothing of an order
    return all(ours.censored) or all(theirs.censored)


def _values(claim: Claim, rows: Sequence[Row], k: int) -> Values | None:
    """What is compared of the runs of a claim's first side, k = 0, or of its second; None if there are no values."""
    # A run that never reaches a threshold counts as all that it might have taken: no hole in such a comparison.
    everyone = claim.failures or claim.column.startswith("steps to ")
    counted = [row for row in at_best_rate(claim, rows) if everyone or claim.succeeded(row)]
    kept = [row for row in counted if None not in map(row.get, claim.columns)]
    if not kept:
        return None
    diverged = sum(row["status"] != "finished" and None in map(row.get, claim.columns) for row in counted)
    column, times = claim.columns[k], (claim.times if claim.higher else 1.0 / claim.times) if k else 1.0
    values = [row[column] * claim.scale * times for row in kept]
    censored = [isinstance(row[column], Censored) for row in kept]
    if claim.reduce != "max":
        return Values(kept, values, times, statistics.fmean(values), censored, diverged, len(values))
    best = claim.best(values)
    return Values(kept, values, times, best, [censored[values.index(best)]], diverged, len(rows))


def _by_maxima(claim: Claim, ours: Values, theirs: Values) -> tuple[Word, None]:
    """Maxima have no spread: the tolerance decides."""
    alike = claim.near(ours.mean, theirs.mean)
    if claim.sign == "~":
        return (Word.HOLDS if alike else Word.REVERSED), None
    if not _right_way(claim, ours, theirs):
        return Word.REVERSED, None
    return (Word.IN_ORDER if alike else Word.HOLDS), None


def _by_test(claim: Claim, ours: Values, theirs: Values) -> tuple[Word, float | None]:
    """The word for two sides' values, all of them known, and p of its test if there is one."""
    single = len(ours.values) == len(theirs.values) == 1  # else a single run is one draw against the other's spread
    p = _p_of_single_runs(claim, ours, theirs) if single else _p(claim, ours, theirs)
    # Of single runs the interval of 95 % that a report prints beside it decides, and nothing is refuted.
    alpha, against = (ALPHA / 2, Word.REVERSED) if single else (ALPHA, Word.REFUTED)
    if claim.sign == "~":
        if claim.near(ours.mean, theirs.mean):
            return (Word.IN_ORDER if p is None else Word.HOLDS), p
        return (against if p is not None and p < ALPHA else Word.OPEN), p
    if p is not None and p < alpha:
        return Word.HOLDS, p
    if _right_way(claim, ours, theirs):
        return Word.IN_ORDER, p
    return (Word.REVERSED if p is None or p < 1 - alpha else against), p


def _p(claim: Claim, ours: Values, theirs: Values) -> float | None:
    """p of a t-test of the two sides; of two metrics of the same runs that of their differences."""
    way = "two-sided" if claim.sign == "~" else "greater" if claim.higher else "less"
    if claim.than:
        differences = [x - y for x, y in zip(ours.values, theirs.values, strict=True)]
        return welch(_moments(differences), (0.0, 0.0, len(differences)), way)
    return welch(_moments(ours.values), _moments(theirs.values), way)


def _p_of_single_runs(claim: Claim, ours: Values, theirs: Values) -> float | None:
    if claim.than or claim.times != 1:
        return None
    p = _bootstrap(ours.rows[0], theirs.rows[0], claim.column)
    return 2.0 * min(p, 1.0 - p) if p is not None and claim.sign == "~" else p


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, standard deviation and number of values."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values)


def _bootstrap(ours: Row, theirs: Row, name: str) -> float | None:
    """p that a run's perplexity is not lower than another's, block by block of the same words; None without blocks."""
    if not name.startswith("probe/bins/") or "/train/" in name or not (ours.get("blocks") and theirs.get("blocks")):
        return None
    from timescales.analysis import bins

    return bins.p_lower(ours["blocks"], theirs["blocks"], name.rpartition("/")[2])
