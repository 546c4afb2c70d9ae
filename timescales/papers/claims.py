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
from timescales.runs.metrics import Censored, is_steps

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
    values: list[float]  # in the printed unit, times `factor`
    factor: float  # 1, but for the second side of a claim that says `times`
    mean: float  # of the values; with reduce: max the best one
    censored: list[bool]  # whether each value (with reduce: max only the best) is only known to be larger
    diverged: int  # of the runs that count, those that diverged and have no value
    n: int  # its runs; with reduce: max those of all learning rates

    @property
    def side(self) -> Side:
        """The side as its runs have it, without the factor."""
        return Side(self.mean / self.factor, self.n, any(self.censored))


def judge_claim(claim: Claim, rows: Sequence[Row], planned: Iterable[Mapping[str, Any]] | None = None) -> ClaimResult:
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
    # Of equal words the weakest is, for "no different", that with the smallest p; for "better", that with the largest.
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
    elif 2 * (failed + in_all - ended) <= in_all:  # no majority fails, even if all runs that are still open do
        word = Word.REVERSED if failed else Word.REFUTED
    else:
        word = Word.IN_ORDER if 2 * failed > ended else Word.REVERSED
    return Ruling(word, None, Failures(failed, ended), ended)


def _compare(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]) -> Ruling | None:
    """Whether the runs of the first side are better than, or no different from, those of the second."""
    first, second = (_values(claim, rows, k) for k, rows in enumerate(sides))
    if first is None or second is None:
        return None
    n = min(first.n, second.n)
    if claim.reduce == "max" and (first.n, second.n) == tuple(map(len, wanted)):  # all that there will be
        n = max(n, claim.n_min)
    numbers = Comparison(first.side, second.side, first.diverged + second.diverged)
    if _nobody_knows(claim, first, second):
        return Ruling(Word.OPEN, None, numbers, n)
    word, p = (_by_maxima if claim.reduce == "max" else _by_test)(claim, first, second)
    better = [first if _right_way(claim, first, second) else second] if claim.sign == ">" else [first, second]
    if any(_censored(claim, first, second)) or any(side.diverged for side in better):
        word = {Word.HOLDS: Word.IN_ORDER, Word.REFUTED: Word.REVERSED}.get(word, word)
    return Ruling(word, p, numbers, n)


def _right_way(claim: Claim, first: Values, second: Values) -> bool:
    """Whether the first side's mean is the better one."""
    return first.mean > second.mean if claim.higher else first.mean < second.mean


def _censored(claim: Claim, first: Values, second: Values) -> list[bool]:
    """Whether each value is censored, of the side whose true values could change the verdict.

    A censored value is only known to be larger. So for an order that is the side with the smaller mean: its true mean
    may be the larger one. For "no different from" it is both sides.
    """
    if claim.sign == ">":
        return (second if first.mean > second.mean else first).censored
    return [*first.censored, *second.censored]


def _nobody_knows(claim: Claim, first: Values, second: Values) -> bool:
    """Whether the values say nothing of the claim."""
    if all(_censored(claim, first, second)):
        return True
    if claim.sign == ">":
        return first.mean == second.mean  # a tie says nothing of an order
    return all(first.censored) or all(second.censored)


def _values(claim: Claim, rows: Sequence[Row], k: int) -> Values | None:
    """What is compared of the runs of a claim's first side, k = 0, or of its second; None if there are no values."""
    # Steps to a threshold: a run that never reaches it has a value, too, all steps that it might have taken (censored).
    everyone = claim.failures or is_steps(claim.column)
    counted = [row for row in at_best_rate(claim, rows) if everyone or claim.succeeded(row)]
    kept = [row for row in counted if None not in map(row.get, claim.columns)]
    if not kept:
        return None
    diverged = sum(row["status"] != "finished" and None in map(row.get, claim.columns) for row in counted)
    column, factor = claim.columns[k], 1.0
    if k == 1:  # the first side must be better than this many times the second
        factor = claim.times if claim.higher else 1.0 / claim.times
    values = [row[column] * claim.scale * factor for row in kept]
    censored = [isinstance(row[column], Censored) for row in kept]
    if claim.reduce != "max":
        return Values(kept, values, factor, statistics.fmean(values), censored, diverged, len(values))
    best = claim.best(values)
    return Values(kept, values, factor, best, [censored[values.index(best)]], diverged, len(rows))


def _by_maxima(claim: Claim, first: Values, second: Values) -> tuple[Word, None]:
    """Maxima have no spread: the tolerance decides."""
    alike = claim.near(first.mean, second.mean)
    if claim.sign == "~":
        return (Word.HOLDS if alike else Word.REVERSED), None
    if not _right_way(claim, first, second):
        return Word.REVERSED, None
    return (Word.IN_ORDER if alike else Word.HOLDS), None


def _by_test(claim: Claim, first: Values, second: Values) -> tuple[Word, float | None]:
    """The word for two sides' values, all of them known, and p of its test if there is one."""
    single = len(first.values) == len(second.values) == 1  # else a single run is one draw against the other's spread
    p = _p_of_single_runs(claim, first, second) if single else _p(claim, first, second)
    # Of single runs the interval of 95 % that a report prints beside it decides, and nothing is refuted.
    alpha, against = (ALPHA / 2, Word.REVERSED) if single else (ALPHA, Word.REFUTED)
    if claim.sign == "~":
        if claim.near(first.mean, second.mean):
            return (Word.IN_ORDER if p is None else Word.HOLDS), p
        return (against if p is not None and p < ALPHA else Word.OPEN), p
    if p is not None and p < alpha:
        return Word.HOLDS, p
    if _right_way(claim, first, second):
        return Word.IN_ORDER, p
    # p is one-sided: near 1 it says that the other order is significant.
    return (Word.REVERSED if p is None or p < 1 - alpha else against), p


def _p(claim: Claim, first: Values, second: Values) -> float | None:
    """p of a t-test of the two sides; of two metrics of the same runs that of their differences."""
    way = "two-sided" if claim.sign == "~" else "greater" if claim.higher else "less"
    if claim.than:
        # Paired: Welch's test of the differences against as many zeros, which have no spread.
        differences = [x - y for x, y in zip(first.values, second.values, strict=True)]
        return welch(_moments(differences), (0.0, 0.0, len(differences)), way)
    return welch(_moments(first.values), _moments(second.values), way)


def _p_of_single_runs(claim: Claim, first: Values, second: Values) -> float | None:
    """p of a bootstrap over blocks of the same words; None where there are none."""
    if claim.than or claim.times != 1:
        return None
    p = _bootstrap(first.rows[0], second.rows[0], claim.column)
    return 2.0 * min(p, 1.0 - p) if p is not None and claim.sign == "~" else p


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, standard deviation and number of values."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values)


def _bootstrap(first: Row, second: Row, name: str) -> float | None:
    """p that a run's perplexity is not lower than another's, block by block of the same words; None without blocks."""
    if not name.startswith("probe/bins/") or "/train/" in name or not (first.get("blocks") and second.get("blocks")):
        return None
    from timescales.analysis import bins

    return bins.p_lower(first["blocks"], second["blocks"], name.rpartition("/")[2])
