"""What runs say of a paper's claims (`table.Claim` has their grammar).

Each claim has two p values: of what it says, and of the opposite. A conclusion `A > B` has a third: that it is too
small for the paper to have seen. The p values of one kind are one family, corrected by Benjamini and Hochberg's method:
those of the paper's claims, and apart from them those of ours. A claim holds, is refuted or too small by the first of
these that is significant. Else the means (of times the scores) say "in order" or "reversed".

- `A > B`: a one-sided test each way. `A ~ B`: two one-sided tests (TOST) of equivalence within the tolerance, and a
  test of a difference beyond it; else it is "not shown".
- Too small: the difference is smaller than what as many runs as the paper's show once in three (Simonsohn 2015).
- Means are compared by Welch's test, two metrics of the same runs by the t-test of their differences.
- Steps to a threshold are times, some of them censored: a permutation test of Gehan's scores compares them.
- Best values (reduce: max) are compared by a paired permutation test over runs with the same learning rate and seed.
- Failures of one side are counted, without a test. "A fails" holds if more than half of all planned runs failed, and is
  refuted if all have ended and none failed. "A never fails" holds if all have ended and none failed; a failure makes it
  reversed, and more than half refute it. "A sometimes fails" holds if one failed, and is reversed while none has.
- "A fails more often than B": Fisher's exact test.
- Two single runs that were measured on the same words (`bins`) are compared by a bootstrap over blocks of words, as in
  the paper. Other single runs allow no test.

Where runs differ in more than the seed, the claim must hold in each group of them: its p is the largest of the groups;
that of the opposite the smallest, times the number of groups (Bonferroni).

Runs that fail `success` are left out, unless the claim says `failures` or compares steps to a threshold. Where runs
diverged that have no value, their side cannot be shown to be the better one. A claim that no planned number of runs can
decide, or of which a side has no run that succeeded, cannot be decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from timescales.papers.cells import at_best_rate, typical
from timescales.papers.significance import (
    MIN_PAIRS,
    Alternative,
    Moments,
    Test,
    Time,
    beyond,
    detectable,
    error_of_difference,
    exactly,
    gehan,
    p_of_more_failures,
    p_of_smaller,
    paired_best,
    paired_t,
    ranks_of_times,
    rounding,
    two_one_sided,
    welch,
)
from timescales.papers.table import FAILING, OFTENER, WITHIN, Axes, Claim, Row
from timescales.papers.verdict import (
    ALPHA,
    ClaimResult,
    Comparison,
    Failures,
    Finding,
    Side,
    Verdict,
    Word,
    decide,
    partial,
)
from timescales.runs.metrics import Censored, is_steps

# Of a group of runs, without a test; the weakest first.
ORDER = (Word.REFUTED, Word.REVERSED, Word.UNDECIDED, Word.NOT_SHOWN, Word.IN_ORDER, Word.HOLDS)
Numbers = Comparison | Failures | tuple[Failures, Failures]


class Ps(NamedTuple):
    """The p values of what a claim says, of the opposite, and that it is too small for the paper to have seen."""

    p_for: float | None = None
    p_against: float | None = None
    p_small: float | None = None


class Ruling(NamedTuple):
    """What one group of runs says of a claim."""

    word: Word  # if no test decides
    ps: Ps
    numbers: Numbers
    n: int  # the fewest runs of a side, compared with n_min
    missing: bool  # whether runs, or the value of a run, are still to come


@dataclass(frozen=True)
class Values:
    """What is compared of one side of a claim."""

    ended: Sequence[Row]  # all runs of the side
    rows: list[Row]  # those that have a value
    values: list[float]  # in the printed unit, times `factor`; those of times may be `Censored`
    factor: float  # 1, but for the second side of a claim that says `times`
    typical: float  # their mean; with reduce: max the best one, of times the median
    diverged: int  # of the runs that count, those that diverged and have no value
    failed: int  # of the runs that are compared, those that failed
    without: bool  # whether some that count, and did not diverge, were committed without the value
    n: int  # its runs; with reduce: max those of all learning rates

    @property
    def side(self) -> Side:
        """The side as its runs have it, without the factor."""
        return Side(self.typical if self.factor == 1 else self.typical / self.factor, self.n)


def judge_claims(
    claims: Sequence[Claim], rows: Sequence[Row], planned: Sequence[Axes] | None = None
) -> list[ClaimResult]:
    """Judge all claims of a table by the runs that have ended.

    planned: the axes of all runs that there will be (None: no more).
    """
    expected = [row.axes for row in rows] if planned is None else planned
    found = [_finding(claim, rows, expected) for claim in claims]
    verdicts: dict[int, Verdict] = {}
    for decides in (True, False):  # what we only look at must not change what is said of the table
        numbers = [k for k, claim in enumerate(claims) if claim.decides == decides]
        verdicts |= zip(numbers, decide([found[k][0] for k in numbers]), strict=True)
    return [ClaimResult(claim, verdicts[k], found[k][1]) for k, claim in enumerate(claims)]


def _finding(claim: Claim, rows: Sequence[Row], planned: Sequence[Axes]) -> tuple[Finding, Numbers | None]:
    """What runs say of a claim, and the numbers of the group that supports it least."""
    groups = claim.groups(rows, lambda row: row.axes)
    wanted = claim.groups(planned, lambda axes: axes)
    own = [row for sides in groups.values() for side in sides for row in side]
    about = Verdict(Word.NOT_RUN, why=out_of_reach(claim, wanted), missing=True)
    about = replace(about, calibrated=claim.calibrated, under=claim.under)
    if any(row.stale for row in own):
        return Finding(replace(about, word=Word.STALE, why="")), None
    rule = _oftener if claim.sign == OFTENER else _failures if claim.sign in FAILING else _compare
    each = [rule(claim, sides, wanted.get(shared, sides)) for shared, sides in groups.items()]
    rulings = [ruling for ruling in each if ruling is not None]
    if about.why or not rulings:
        about = replace(about, why=about.why or _lost(claim, groups, wanted))
    if about.why:
        about = replace(about, word=Word.CANNOT)
    if not rulings:
        return Finding(about), None
    weakest = min(rulings, key=lambda ruling: (ORDER.index(ruling.word), -(ruling.ps.p_for or 0.0)))
    n = min(ruling.n for ruling in rulings)
    missing = len(rulings) < len(wanted) or any(ruling.missing for ruling in rulings)
    about = replace(about, n=n, few=n < claim.n_min, groups=(len(rulings), len(wanted)), missing=missing)
    word = weakest.word if about.word == Word.NOT_RUN else about.word
    if claim.sign in FAILING and word == Word.HOLDS and len(rulings) < len(wanted):
        word = Word.IN_ORDER  # it is about all planned runs
    about = replace(about, word=word, partial=partial(own))
    return Finding(about, *_over_groups(rulings, len(wanted))), weakest.numbers


def out_of_reach(claim: Claim, wanted: Mapping[str, Sequence[Sequence[Axes]]]) -> str:
    """Why no planned number of runs can decide a conclusion; "" if one can. wanted: all planned runs by group."""
    if not claim.decides or claim.sign in (*FAILING, OFTENER):
        return ""
    for sides in wanted.values():
        sizes = [len(side) for side in sides]
        if claim.reduce == "max":
            pairs = min(len({_key(axes) for axes in side}) for side in sides)
            return f"a test of best values needs {MIN_PAIRS} pairs of runs" if pairs < MIN_PAIRS else ""
        if is_steps(claim.column) and 1 / math.comb(sum(sizes), sizes[0]) >= ALPHA:
            return "no order of so few times is significant"
        if max(sizes) == 1 and not _has_blocks(claim):
            return "single runs allow no test"
    return ""


def _lost(claim: Claim, groups: Mapping[str, Sequence[Sequence[Row]]], wanted: Mapping[str, Sequence[Any]]) -> str:
    """Why there is nothing to compare though all runs have ended; "" where runs are missing."""
    for shared, sides in wanted.items():
        for ended, planned in zip(groups.get(shared, [[], []]), sides, strict=False):
            if len(ended) == len(planned) and not any(claim.succeeded(row) is not False for row in ended):
                return "no run of a side succeeded"
    return ""


def _over_groups(rulings: Sequence[Ruling], groups: int) -> Ps:
    """The p values of a claim from those of its groups, of which there will be so many.

    The claim is about all of them: before all are there none tells for it, while one can tell against it.
    """
    p_for = [ruling.ps.p_for for ruling in rulings]
    whole = len(rulings) == groups and None not in p_for
    largest = max(p for p in p_for if p is not None) if whole else None
    against, small = (_of_one([getattr(r.ps, name) for r in rulings], groups) for name in ("p_against", "p_small"))
    return Ps(largest, against, small)


def _of_one(ps: Sequence[float | None], groups: int) -> float | None:
    """p of what one group is enough to show."""
    found = [p for p in ps if p is not None]
    return min(1.0, groups * min(found)) if found else None


def _failures(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Any]]) -> Ruling | None:
    """How many of these runs failed, and what that says of "fails", "never fails" or "sometimes fails"."""
    numbers = _failed(claim, sides[0])
    if not numbers.ended:
        return None
    rule = {"fails": _fails, "never fails": _never_fails, "sometimes fails": _sometimes_fails}[claim.sign]
    return Ruling(rule(numbers, len(wanted[0])), Ps(), numbers, numbers.ended, missing=numbers.ended < len(wanted[0]))


def _failed(claim: Claim, rows: Sequence[Row]) -> Failures:
    known = [outcome for row in rows if (outcome := claim.succeeded(row)) is not None]
    return Failures(known.count(False), len(known))


def _oftener(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Any]]) -> Ruling | None:
    """Whether more of the first side's runs failed than of the second's."""
    first, second = (_failed(claim, side) for side in sides)
    n = min(first.ended, second.ended)
    if not n:
        return None
    lead = first.failed * second.ended - second.failed * first.ended
    word = Word.UNDECIDED if not lead else Word.IN_ORDER if lead > 0 else Word.REVERSED
    counts = (first.failed, first.ended), (second.failed, second.ended)
    ps = Ps(p_of_more_failures(*counts), p_of_more_failures(*counts[::-1]))
    missing = (first.ended, second.ended) != tuple(map(len, wanted))
    return Ruling(word, ps, (first, second), n, missing)


def _fails(found: Failures, planned: int) -> Word:
    """Whether more than half of the planned runs fail."""
    if 2 * found.failed > planned:
        return Word.HOLDS
    if not found.failed and found.ended == planned:
        return Word.REFUTED
    return Word.IN_ORDER if 2 * found.failed > found.ended else Word.REVERSED


def _never_fails(found: Failures, planned: int) -> Word:
    """Whether none of the planned runs fails. A single failure may be chance; more than half refute it."""
    if found.failed:
        return Word.REFUTED if 2 * found.failed > planned else Word.REVERSED
    return Word.HOLDS if found.ended == planned else Word.IN_ORDER


def _sometimes_fails(found: Failures, _: int) -> Word:
    """Whether one of the planned runs fails. None of a few may be chance, and refutes nothing."""
    return Word.HOLDS if found.failed else Word.REVERSED


def _compare(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Any]]) -> Ruling | None:
    """Whether the runs of the first side are better than, or no different from, those of the second."""
    everyone = claim.failures == "count" or is_steps(claim.column)
    if claim.failures == "count if all fail":
        everyone = any(not any(map(claim.succeeded, side)) for side in sides)
    first, second = (_values(claim, rows, k, everyone) for k, rows in enumerate(sides))
    if first is None or second is None:
        return None
    n = min(first.n, second.n)
    missing = any(len(side) < len(all_of_it) for side, all_of_it in zip(sides, wanted, strict=False))
    if claim.reduce == "max" and not missing:  # all that there will be
        n = max(n, claim.n_min)
    failed = first.failed + second.failed if claim.failures == "count if all fail" else 0
    numbers = Comparison(first.side, second.side, first.diverged + second.diverged, failed)
    word = Word.NOT_SHOWN if claim.sign in WITHIN else _order(claim, first, second)
    return Ruling(word, _ps(claim, first, second), numbers, n, missing or first.without or second.without)


def _order(claim: Claim, first: Values, second: Values) -> Word:
    """The order of two sides by their means, or of times by the sum of Gehan's scores; undecided where it is a tie."""
    by = claim.by if claim.higher else -claim.by
    lead, error = first.typical - second.typical - by, rounding(first.typical, second.typical)
    if is_steps(claim.column) and claim.reduce != "max":
        lead, error = sum(gehan([*_times(first), *_times(second)])[: len(first.values)]), 0.0
    if abs(lead) <= error:
        return Word.UNDECIDED
    return Word.IN_ORDER if (lead > 0) == claim.higher else Word.REVERSED


def _values(claim: Claim, rows: Sequence[Row], k: int, everyone: bool) -> Values | None:
    """What is compared of the runs of a claim's first side, k = 0, or of its second; None if there are no values.

    everyone: whether runs that failed count. (One that never reaches a threshold has a value, too: the last step that
    it took, censored.)
    """
    counted = [row for row in at_best_rate(claim, rows) if everyone or claim.succeeded(row)]
    kept = [row for row in counted if None not in map(row.value, claim.columns)]
    if not kept:
        return None
    diverged = sum(row.status != "finished" and row not in kept for row in counted)
    factor = 1.0
    if k == 1:  # the first side must be better than this many times the second
        factor = claim.times if claim.higher else 1.0 / claim.times
    given = [value for row in kept if (value := row.value(claim.columns[k])) is not None]
    values = [_scaled(value, claim.scale * factor) for value in given]
    return Values(
        ended=rows,
        rows=kept,
        values=values,
        factor=factor,
        typical=typical(claim, values),
        diverged=diverged,
        failed=sum(claim.succeeded(row) is False for row in kept),
        without=len(kept) + diverged < len(counted),
        n=len(rows) if claim.reduce == "max" else len(values),
    )


def _scaled(value: float, factor: float) -> float:
    scaled = value * factor
    # A censored time is cut to a whole number: 49 / 49 may be .99999999, and must not become 0.
    return Censored(scaled + rounding(scaled)) if isinstance(value, Censored) else scaled


def _ps(claim: Claim, first: Values, second: Values) -> Ps:
    """The p values of a claim for two sides."""
    test = _test(claim, first, second)
    if test is None:
        return Ps()
    better: Alternative = "greater" if claim.higher else "less"
    worse: Alternative = "less" if claim.higher else "greater"
    if claim.sign == "~":
        p_for, p_against = two_one_sided(test, claim.tolerance), beyond(test, claim.tolerance)
        unsure = first.diverged + second.diverged, first.diverged + second.diverged
    else:
        margin = claim.tolerance if claim.sign == ">=" else -claim.by
        shift = margin if claim.higher else -margin
        p_for, p_against = test(shift, better), test(shift, worse)
        unsure = first.diverged, second.diverged
    if single_runs(first, second):  # they know nothing of seeds
        p_against = None
    p_small = None if any(unsure) else _p_small(claim, first, second)
    return Ps(None if unsure[0] else p_for, None if unsure[1] else p_against, p_small)


def _p_small(claim: Claim, first: Values, second: Values) -> float | None:
    """p that a difference of means is smaller than as many runs as the paper's show once in three; None without one."""
    effect = detectable(claim.n_min, samples=1 if claim.than else 2)
    plain = claim.quote and claim.sign == ">" and claim.times == 1 and not claim.by
    if not plain or effect is None or claim.reduce == "max" or is_steps(claim.column):
        return None
    ours, others = Moments.of(first.values), Moments.of(second.values)
    if claim.than:
        differences = [x - y for x, y in zip(first.values, second.values, strict=True)]
        ours, others = Moments.of(differences), Moments.exact(0.0)
    if min(ours.n, others.n) < 2:
        return None
    lead = exactly(first.typical - second.typical, first.typical, second.typical)
    error = error_of_difference(ours, others)
    return p_of_smaller(lead if claim.higher else -lead, error, 1 / ours.n + 1 / others.n, effect)


def single_runs(first: Values, second: Values) -> bool:
    """Whether each side has a single run."""
    return len(first.values) == len(second.values) == 1


def _test(claim: Claim, first: Values, second: Values) -> Test | None:
    """The test of two sides, if they allow one."""
    if claim.reduce == "max":
        return _test_of_best(claim, first, second)
    if single_runs(first, second):
        return _bootstrap(claim, first, second)
    if claim.than:
        return paired_t(first.values, second.values)
    if is_steps(claim.column):
        return ranks_of_times(_times(first), _times(second))
    return welch(Moments.of(first.values), Moments.of(second.values))


def _times(side: Values) -> list[Time]:
    return [Time(value, isinstance(value, Censored)) for value in side.values]


def _test_of_best(claim: Claim, first: Values, second: Values) -> Test:
    """The paired test of the best values: a pair has the same learning rate and seed.

    A run that failed has no value; in its pair it counts as the worst of all runs, so that it is never the best one.
    """
    every = [*first.values, *second.values]
    lost = min(every) if claim.higher else max(every)
    runs = sorted({_key(row.axes) for row in first.ended} & {_key(row.axes) for row in second.ended}, key=str)
    values = [dict(zip([_key(row.axes) for row in side.rows], side.values, strict=True)) for side in (first, second)]
    pairs = [[of_side.get(run, lost) for run in runs] for of_side in values]
    return paired_best(pairs[0], pairs[1], largest=claim.higher)


def _key(axes: Axes) -> tuple[Any, Any]:
    return axes.get("optimizer.lr"), axes["seed"]


def _has_blocks(claim: Claim) -> bool:
    """Whether two single runs can be compared word by word."""
    plain = not claim.than and claim.times == 1
    return plain and claim.column.startswith("probe/bins/") and "/train/" not in claim.column


def _bootstrap(claim: Claim, first: Values, second: Values) -> Test | None:
    """The bootstrap over blocks of the same words, for the perplexities of two runs; None where there are no blocks.

    Its p is twice the share of resamples that say otherwise: it is below .05 if the interval of 95 % that a report
    prints says so.
    """
    name = claim.column
    if not _has_blocks(claim):
        return None
    blocks = [side.rows[0].blocks or "" for side in (first, second)]
    if not all(blocks):
        return None
    from timescales.analysis import bins

    def test(shift: float, alternative: Alternative) -> float | None:
        (lower, higher), shifted = blocks, shift
        if alternative == "greater":
            (higher, lower), shifted = blocks, -shift
        error = rounding(*first.values, *second.values, shift)
        share = bins.p_lower(lower, higher, name.rpartition("/")[2], shifted + error)
        return None if share is None else min(1.0, 2.0 * share)

    return test
