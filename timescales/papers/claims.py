"""What runs say of a paper's claims (`table.Claim` has their grammar).

Each claim has two p values: of what it says, and of the opposite. All the first of a table are one family of tests,
all the second another, each corrected by Holm's method. A claim holds if the first is significant, and is refuted if
the second is. Else the means (of times the scores) say "in order" or "reversed".

- `A > B`: a one-sided test each way. `A ~ B`: two one-sided tests (TOST) of equivalence within the tolerance, and a
  test of a difference beyond it; else it is "not shown".
- Means are compared by Welch's test, two metrics of the same runs by the t-test of their differences.
- Steps to a threshold are times, some of them censored: a permutation test of Gehan's scores compares them.
- Best values (reduce: max) are compared by a paired permutation test over runs with the same learning rate and seed.
- Failures are counted, without a test. "A fails" holds if more than half of all planned runs failed, and is refuted if
  all have ended and none failed. "A never fails" holds if all have ended and none failed; a failure makes it reversed,
  and more than half refute it.
- Two single runs that were measured on the same words (`bins`) are compared by a bootstrap over blocks of words, as in
  the paper. Other single runs allow no test.

Where runs differ in more than the seed, the claim must hold in each group of them: its p is the largest of the groups;
that of the opposite the smallest, times the number of groups (Bonferroni).

Runs that fail the table's `success` are left out, unless the claim says `failures: count` or compares steps to a
threshold. Where runs diverged that have no value, their side cannot be shown to be the better one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from timescales.papers.cells import at_best_rate, typical
from timescales.papers.significance import (
    Alternative,
    Moments,
    Test,
    Time,
    beyond,
    gehan,
    paired_best,
    paired_t,
    ranks_of_times,
    rounding,
    two_one_sided,
    welch,
)
from timescales.papers.table import FAILING, WITHIN, Claim, Row
from timescales.papers.verdict import (
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
ORDER = (Word.REFUTED, Word.REVERSED, Word.OPEN, Word.NOT_SHOWN, Word.IN_ORDER, Word.HOLDS)
Ps = tuple[float | None, float | None]  # of what a claim says, and of the opposite


class Ruling(NamedTuple):
    """What one group of runs says of a claim."""

    word: Word  # if no test decides
    p_for: float | None
    p_against: float | None
    numbers: Comparison | Failures
    n: int  # the fewest runs of a side, compared with n_min


@dataclass(frozen=True)
class Values:
    """What is compared of one side of a claim."""

    ended: Sequence[Row]  # all runs of the side
    rows: list[Row]  # those that have a value
    values: list[float]  # in the printed unit, times `factor`; those of times may be `Censored`
    factor: float  # 1, but for the second side of a claim that says `times`
    typical: float  # their mean; with reduce: max the best one, of times the median
    diverged: int  # of the runs that count, those that diverged and have no value
    n: int  # its runs; with reduce: max those of all learning rates

    @property
    def side(self) -> Side:
        """The side as its runs have it, without the factor."""
        return Side(self.typical if self.factor == 1 else self.typical / self.factor, self.n)


def judge_claims(
    claims: Sequence[Claim], rows: Sequence[Row], planned: Iterable[Mapping[str, Any]] | None = None
) -> list[ClaimResult]:
    """Judge all claims of a table by the runs that have ended.

    planned: the axes of all runs that there will be (None: no more).
    """
    expected = None if planned is None else [{"axes": axes} for axes in planned]
    found = [_finding(claim, rows, expected) for claim in claims]
    verdicts: dict[int, Verdict] = {}
    for decides in (True, False):  # what we only look at must not change what is said of the table
        numbers = [k for k, claim in enumerate(claims) if claim.decides == decides]
        verdicts |= zip(numbers, decide([found[k][0] for k in numbers]), strict=True)
    return [ClaimResult(claim, verdicts[k], found[k][1]) for k, claim in enumerate(claims)]


def _finding(
    claim: Claim, rows: Sequence[Row], planned: Sequence[Row] | None
) -> tuple[Finding, Comparison | Failures | None]:
    """What runs say of a claim, and the numbers of the group that supports it least."""
    groups = claim.groups(rows)
    wanted = groups if planned is None else claim.groups(planned)
    own = [row for sides in groups.values() for side in sides for row in side]
    if any(row["stale"] for row in own):
        return Finding(Verdict(Word.STALE)), None
    rule = _failures if claim.sign in FAILING else _compare
    each = [rule(claim, sides, wanted.get(shared, sides)) for shared, sides in groups.items()]
    rulings = [ruling for ruling in each if ruling is not None]
    if not rulings:
        return Finding(Verdict(Word.OPEN)), None
    weakest = min(rulings, key=lambda ruling: (ORDER.index(ruling.word), -(ruling.p_for or 0.0)))
    n = min(ruling.n for ruling in rulings)
    verdict = Verdict(weakest.word, n=n, few=n < claim.n_min, groups=(len(rulings), len(wanted)), partial=partial(own))
    if claim.sign in FAILING and weakest.word == Word.HOLDS and len(rulings) < len(wanted):
        verdict = replace(verdict, word=Word.IN_ORDER)  # it is about all planned runs
    return Finding(verdict, *_over_groups(rulings, len(wanted))), weakest.numbers


def _over_groups(rulings: Sequence[Ruling], groups: int) -> Ps:
    """The p values of a claim from those of its groups, of which there will be so many.

    The claim is about all of them: before all are there none tells for it, while one can tell against it.
    """
    p_for = [ruling.p_for for ruling in rulings]
    p_against = [ruling.p_against for ruling in rulings if ruling.p_against is not None]
    whole = len(rulings) == groups and None not in p_for
    largest = max(p for p in p_for if p is not None) if whole else None
    return largest, min(1.0, groups * min(p_against)) if p_against else None


def _failures(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]) -> Ruling | None:
    """How many of these runs failed, and what that says of "fails" or "never fails"."""
    known = [outcome for row in sides[0] if (outcome := claim.succeeded(row)) is not None]
    if not known:
        return None
    numbers = Failures(known.count(False), len(known))
    rule = _fails if claim.sign == "fails" else _never_fails
    return Ruling(rule(numbers, len(wanted[0])), None, None, numbers, numbers.ended)


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


def _compare(claim: Claim, sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]) -> Ruling | None:
    """Whether the runs of the first side are better than, or no different from, those of the second."""
    first, second = (_values(claim, rows, k) for k, rows in enumerate(sides))
    if first is None or second is None:
        return None
    n = min(first.n, second.n)
    if claim.reduce == "max" and (first.n, second.n) == tuple(map(len, wanted)):  # all that there will be
        n = max(n, claim.n_min)
    numbers = Comparison(first.side, second.side, first.diverged + second.diverged)
    word = Word.NOT_SHOWN if claim.sign in WITHIN else _order(claim, first, second)
    return Ruling(word, *_ps(claim, first, second), numbers, n)


def _order(claim: Claim, first: Values, second: Values) -> Word:
    """The order of two sides by their means, or of times by the sum of Gehan's scores; open where it is a tie."""
    lead, error = first.typical - second.typical, rounding(first.typical, second.typical)
    if is_steps(claim.column) and claim.reduce != "max":
        lead, error = sum(gehan([*_times(first), *_times(second)])[: len(first.values)]), 0.0
    if abs(lead) <= error:
        return Word.OPEN
    return Word.IN_ORDER if (lead > 0) == claim.higher else Word.REVERSED


def _values(claim: Claim, rows: Sequence[Row], k: int) -> Values | None:
    """What is compared of the runs of a claim's first side, k = 0, or of its second; None if there are no values."""
    # Steps to a threshold: a run that never reaches it has a value, too, the last step that it took (censored).
    everyone = claim.failures or is_steps(claim.column)
    counted = [row for row in at_best_rate(claim, rows) if everyone or claim.succeeded(row)]
    kept = [row for row in counted if None not in map(row.get, claim.columns)]
    if not kept:
        return None
    diverged = sum(row["status"] != "finished" and None in map(row.get, claim.columns) for row in counted)
    factor = 1.0
    if k == 1:  # the first side must be better than this many times the second
        factor = claim.times if claim.higher else 1.0 / claim.times
    values = [_scaled(row[claim.columns[k]], claim.scale * factor) for row in kept]
    n = len(rows) if claim.reduce == "max" else len(values)
    return Values(rows, kept, values, factor, typical(claim, values), diverged, n)


def _scaled(value: float, factor: float) -> float:
    scaled = value * factor
    # A censored time is cut to a whole number: 49 / 49 may be .99999999, and must not become 0.
    return Censored(scaled + rounding(scaled)) if isinstance(value, Censored) else scaled


def _ps(claim: Claim, first: Values, second: Values) -> Ps:
    """The p values of a claim for two sides."""
    test = _test(claim, first, second)
    if test is None:
        return None, None
    better: Alternative = "greater" if claim.higher else "less"
    worse: Alternative = "less" if claim.higher else "greater"
    if claim.sign == "~":
        p_for, p_against = two_one_sided(test, claim.tolerance), beyond(test, claim.tolerance)
        unsure = first.diverged + second.diverged, first.diverged + second.diverged
    else:
        margin = claim.tolerance if claim.sign == ">=" else 0.0
        shift = margin if claim.higher else -margin
        p_for, p_against = test(shift, better), test(shift, worse)
        unsure = first.diverged, second.diverged
    if single_runs(first, second):  # they know nothing of seeds
        p_against = None
    return None if unsure[0] else p_for, None if unsure[1] else p_against


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
    runs = sorted({_key(row) for row in first.ended} & {_key(row) for row in second.ended}, key=str)
    values = [dict(zip(map(_key, side.rows), side.values, strict=True)) for side in (first, second)]
    pairs = [[of_side.get(run, lost) for run in runs] for of_side in values]
    return paired_best(pairs[0], pairs[1], largest=claim.higher)


def _key(row: Row) -> tuple[Any, Any]:
    return row["axes"].get("optimizer.lr"), row["seed"]


def _bootstrap(claim: Claim, first: Values, second: Values) -> Test | None:
    """The bootstrap over blocks of the same words, for the perplexities of two runs; None where there are no blocks.

    Its p is twice the share of resamples that say otherwise: it is below .05 if the interval of 95 % that a report
    prints says so.
    """
    name = claim.column
    if claim.than or claim.times != 1 or not name.startswith("probe/bins/") or "/train/" in name:
        return None
    blocks = [side.rows[0].get("blocks", "") for side in (first, second)]
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
