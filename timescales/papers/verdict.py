"""Verdicts as values: their words, when a test decides, and what follows for a whole table.

`cells.py` judges printed values and `claims.py` claims, by the tests in `significance.py`. The text of a verdict is
made in reports/wording.py. docs/statistics.md derives the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeVar

from timescales.papers.significance import false_discovery
from timescales.papers.table import Cell, Claim, Row, Table

ALPHA = 0.05


class Word(StrEnum):
    """The word of a verdict. "Significant": its p, corrected for the table's other tests, is below ALPHA."""

    # Of a cell (cells.py). Inside, outside: of the prediction interval of the printed value.
    AGREES = "agrees"  # inside, and shown to be within the margin
    IMPRECISE = "consistent, imprecise"  # inside, and not shown to be within the margin
    CLOSE_HIGHER = "close, but higher"  # outside, and shown to be within the margin
    CLOSE_LOWER = "close, but lower"
    HIGHER = "higher"  # outside, and not shown to be within the margin
    LOWER = "lower"
    LESS_STABLE = "less stable"  # the runs spread more than the paper's, or more of them failed or ended at chance
    BLANK = "blank"  # the paper prints no value
    # Of a claim (claims.py).
    HOLDS = "holds"  # as claimed, significant
    IN_ORDER = "in order"  # as claimed, not significant
    REVERSED = "reversed"  # the opposite, not significant
    REFUTED = "refuted"  # the opposite, significant
    TOO_SMALL = "too small"  # for the paper to have seen it, significant
    NOT_SHOWN = "not shown"  # "no different from": neither equivalence nor a difference is significant
    # Of anything.
    NOT_RUN = "not run"
    UNDECIDED = "undecided"  # run, and no test decides
    CANNOT = "cannot be decided"  # by no number of runs that are planned
    STALE = "stale"  # the runs are of older code
    # Of a table (judge_table).
    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    MIXED = "mixed"
    PARTLY_DECIDED = "partly decided"
    UNFINISHED = "unfinished"
    # Of a small-scale version (judge_small).
    NO_VERSION = "no small-scale version"
    NO_ORDER_EXPECTED = "no order expected"
    ORDER_SHOWN = "order shown"
    NOT_IN_ORDER = "not in order"


class Outcome(StrEnum):
    """What a conclusion, or a printed value, counts as."""

    HOLD = "hold"
    AGREE = "agree"
    CLOSE = "close"
    REFUTED = "refuted"  # by as many runs as the paper has
    TOO_SMALL = "too small"
    DIFFER = "differ"
    DEPENDS = "depend on a setting"  # under one of its values this, under another that
    UNDECIDED = "undecided"
    NOT_RUN = "not run"  # some of the runs that it is about are missing
    CANNOT = "cannot be decided"
    CALIBRATED = "calibrated"  # shown, and not counted


FOR = (Outcome.HOLD, Outcome.AGREE, Outcome.CLOSE)
AGAINST = (Outcome.REFUTED, Outcome.TOO_SMALL, Outcome.DIFFER)
WAITING = (Outcome.NOT_RUN, Outcome.CANNOT, Outcome.CALIBRATED)  # nothing was said yet, or nothing counts
OF_VALUES = {
    Word.AGREES: Outcome.AGREE,
    Word.CLOSE_HIGHER: Outcome.CLOSE,
    Word.CLOSE_LOWER: Outcome.CLOSE,
    Word.HIGHER: Outcome.DIFFER,
    Word.LOWER: Outcome.DIFFER,
    Word.LESS_STABLE: Outcome.DIFFER,
    Word.NOT_RUN: Outcome.NOT_RUN,
    Word.STALE: Outcome.NOT_RUN,
    Word.CANNOT: Outcome.CANNOT,
}


class P(NamedTuple):
    """The p value of a test, as it is and corrected for the other tests of its family (Benjamini-Hochberg)."""

    raw: float
    corrected: float

    @property
    def significant(self) -> bool:
        """Whether it is, corrected."""
        return self.corrected < ALPHA


def corrected(ps: Sequence[float | None]) -> list[P | None]:
    """The p values of one family; None where there is no test, which is no part of it."""
    found = iter(false_discovery([p for p in ps if p is not None]))
    return [None if p is None else P(p, next(found)) for p in ps]


@dataclass(frozen=True)
class Counts:
    """How many of a table's conclusions, and of its printed values, count as what.

    In a study of our own the conclusions are its hypotheses.
    """

    conclusions: Counter[Outcome] = field(default_factory=Counter)
    values: Counter[Outcome] = field(default_factory=Counter)
    hypotheses: bool = False

    def __add__(self, other: Counts) -> Counts:
        """The counts of two tables together."""
        both = self.conclusions + other.conclusions, self.values + other.values
        return Counts(*both, hypotheses=self.hypotheses or other.hypotheses)


def sum_of(counts: Sequence[Counts]) -> Counts:
    """The counts of several tables of one paper together."""
    return sum(counts, Counts())


class Gap(NamedTuple):
    """How far our mean is from a printed one."""

    difference: float
    p: float  # that our mean differs, by the prediction interval
    half_width: float  # of that interval, at 95 %
    within: float  # the smallest margin at which equivalence is shown
    p_wider: float | None  # that our runs spread more
    median: Word  # agrees (inside the interval of a median), higher, lower


@dataclass(frozen=True)
class Verdict:
    """What runs say of a cell, a claim, a table, or its small-scale version."""

    word: Word
    p_for: P | None = None  # of a claim: of what it says
    p_against: P | None = None  # of a cell: of a difference; of a claim: of the opposite
    p_small: P | None = None  # of a claim: that it is too small for the paper to have seen
    n: int = 0  # the runs of a cell; of a claim those of the side that has the fewest
    few: bool = False  # they are fewer than the table's n_min
    groups: tuple[int, int] | None = None  # of a claim: how many groups of runs were judged, and how many there will be
    missing: bool = False  # of a claim: whether runs are missing that it is about
    gap: Gap | None = None  # of a cell
    p_wider: P | None = None  # of a cell: that our runs spread more than the paper's
    # Why a cell is less stable, if it is not the spread.
    failed: tuple[int, int] | None = None  # how many runs failed, and of how many
    at_chance: tuple[int, int] | None = None  # how many ended at chance, and of how many
    censored: tuple[int, int] | None = None  # how many runs never reached the threshold, and of how many
    why: str = ""  # it cannot be decided
    counts: Counts | None = None  # of a table
    partial: bool = False  # some runs had only a part of the data
    calibrated: bool = False  # a setting was chosen by looking at what it is about
    under: str = ""  # the values of unstated settings that it was judged under, where there are several (see under.py)


@dataclass(frozen=True)
class Finding:
    """A verdict before the correction: its word is the one that stays if none of its tests is significant."""

    verdict: Verdict
    p_for: float | None = None
    p_against: float | None = None
    p_small: float | None = None


def decide(findings: Sequence[Finding]) -> list[Verdict]:
    """The verdicts on all claims of the paper, or on all our own claims of a table.

    All `p_for` are one family of tests, all `p_against` another, all `p_small` a third.
    """
    families = (corrected([getattr(f, name) for f in findings]) for name in ("p_for", "p_against", "p_small"))
    return [_decided(finding, *ps) for finding, *ps in zip(findings, *families, strict=True)]


def _decided(finding: Finding, p_for: P | None, p_against: P | None, p_small: P | None) -> Verdict:
    word, tests = finding.verdict.word, {Word.HOLDS: p_for, Word.REFUTED: p_against, Word.TOO_SMALL: p_small}
    if word != Word.CANNOT:
        word = next((said for said, p in tests.items() if p is not None and p.significant), word)
    return replace(finding.verdict, word=word, p_for=p_for, p_against=p_against, p_small=p_small)


@dataclass(frozen=True)
class Sample:
    """The runs of a cell, in the printed unit."""

    values: Sequence[tuple[int, float]] = ()  # seed and value of the runs that count
    mean: float | None = None  # or the best, with reduce: max; of steps to a threshold the median
    sd: float | None = None
    median: float | None = None
    n: int = 0  # runs that count; of a cell that is computed from several settings, those of the setting with fewest
    failed: int = 0  # runs that failed; with reduce: max only those at the learning rate of the best value
    at_chance: int = 0  # runs that count, and ended at chance
    of: int = 0  # the runs among which `failed` and `at_chance` were counted
    ended: int = 0  # runs that count or failed; it is compared with n_min


@dataclass(frozen=True)
class CellResult:
    """A printed value and what our runs say of it."""

    cell: Cell
    sample: Sample
    verdict: Verdict

    @property
    def number(self) -> int:
        """The place of the value in the table's file."""
        return self.cell.number

    @property
    def outcome(self) -> Outcome:
        """What it counts as."""
        if self.cell.calibrated:
            return Outcome.CALIBRATED
        return OF_VALUES.get(self.verdict.word, Outcome.UNDECIDED)


@dataclass(frozen=True)
class Side:
    """One side of a claim: the mean of its runs (the best, the median of times) in the printed unit, and their number.

    A median that is only known to be larger is `Censored`.
    """

    value: float
    n: int


@dataclass(frozen=True)
class Comparison:
    """The two sides of a claim."""

    first: Side
    second: Side
    diverged: int  # runs that have no value, since they diverged
    failed: int = 0  # runs that are compared though they failed, since all of their side did


@dataclass(frozen=True)
class Failures:
    """How many of the ended runs of a claim's side failed."""

    failed: int
    ended: int


@dataclass(frozen=True)
class ClaimResult:
    """A claim and what our runs say of it; numbers: of the group of runs that supports it least."""

    claim: Claim
    verdict: Verdict
    numbers: Comparison | Failures | tuple[Failures, Failures] | None = None

    @property
    def number(self) -> int:
        """The place of the claim in the table's file."""
        return self.claim.number

    @property
    def outcome(self) -> Outcome:
        """What it counts as; against the paper only by as many runs as the paper has."""
        word, few = self.verdict.word, self.verdict.few
        if self.claim.calibrated:
            return Outcome.CALIBRATED
        if word == Word.HOLDS:
            return Outcome.HOLD
        if word in (Word.REFUTED, Word.TOO_SMALL) and not few:
            return Outcome.REFUTED if word == Word.REFUTED else Outcome.TOO_SMALL
        if word == Word.CANNOT:
            return Outcome.CANNOT
        return Outcome.NOT_RUN if self.verdict.missing or word in (Word.NOT_RUN, Word.STALE) else Outcome.UNDECIDED


Result = TypeVar("Result", CellResult, ClaimResult)


def partial(rows: Sequence[Row]) -> bool:
    """Whether some of these runs had only a part of the data."""
    return any(row.partial for row in rows)


def judge_table(
    cells: Sequence[CellResult], claims: Sequence[ClaimResult], rows: Sequence[Row] = (), complete: bool = True
) -> Verdict:
    """A table's verdict, by its conclusions: the paper's, or the hypotheses of our own study. Its values stand beside.

    Where the paper concludes nothing, by the printed values: one that agrees or is close holds, one that differs does
    not. What cannot be decided is left out, and what was calibrated is not decided. The word is the first whose
    condition is true:

    - cannot be decided: nothing is left
    - reproduced, not reproduced: all hold, or all are refuted or too small
    - mixed: all are decided, some in one way and some in the other
    - partly decided: some are
    - not run, unfinished: there are no runs, or not all
    - undecided: none of these

    Args:
        rows: its runs, some of which may have had only a part of the data.
        complete: whether all of its runs have ended.
    """
    counts = Counts(
        Counter(outcome for outcome, _ in items([result for result in claims if result.claim.decides])),
        Counter(outcome for outcome, _ in items([result for result in cells if result.verdict.word != Word.BLANK])),
        hypotheses=any(result.claim.hypothesis for result in claims),
    )
    word = _word(counts.conclusions or counts.values, bool(rows), complete)
    calibrated = any(result.outcome == Outcome.CALIBRATED for results in (cells, claims) for result in results)
    return Verdict(word, counts=counts, partial=partial(rows), calibrated=calibrated)


def items(results: Sequence[Result]) -> list[tuple[Outcome, list[Result]]]:
    """Each printed value, or each claim, with what it counts as: once, also where several settings are judged."""
    found: dict[int, list[Result]] = {}
    for result in results:
        found.setdefault(result.number, []).append(result)
    return [(_together({result.outcome for result in of_one}), of_one) for of_one in found.values()]


def _together(outcomes: set[Outcome]) -> Outcome:
    if len(outcomes) == 1:
        return next(iter(outcomes))
    return Outcome.NOT_RUN if Outcome.NOT_RUN in outcomes else Outcome.DEPENDS


def _word(found: Counter[Outcome], begun: bool, complete: bool) -> Word:
    open_ones = found[Outcome.UNDECIDED] + found[Outcome.NOT_RUN] + found[Outcome.DEPENDS]
    hold, fall = (sum(found[outcome] for outcome in outcomes) for outcomes in (FOR, AGAINST))
    if not open_ones + hold + fall:
        return Word.CANNOT
    if hold + fall and open_ones + found[Outcome.CALIBRATED]:
        return Word.PARTLY_DECIDED
    if hold + fall:
        return Word.MIXED if hold and fall else Word.REPRODUCED if hold else Word.NOT_REPRODUCED
    if not complete or found[Outcome.NOT_RUN]:
        return Word.UNFINISHED if begun else Word.NOT_RUN
    return Word.UNDECIDED


def judge_small(table: Table, claims: Sequence[Verdict], rows: Sequence[Row], complete: bool) -> Verdict:
    """The verdict of a small-scale version: does the order that the paper concludes appear?

    "order shown" if all of its claims hold, "in order" if all hold or are in order, "not in order" if one is reversed
    or refuted, else "not shown". It says nothing against the paper: the size may be the reason.
    """
    said = {verdict.word for verdict in claims}
    if table.tiny is None:
        return Verdict(Word.NO_VERSION)
    if not rows:
        return Verdict(Word.NOT_RUN)
    if not said:
        return Verdict(Word.NO_ORDER_EXPECTED)
    if {Word.NOT_RUN, Word.STALE} & said or not complete:
        return Verdict(Word.UNFINISHED)
    return Verdict(_order(said), partial=partial(rows))


def _order(said: set[Word]) -> Word:
    if said == {Word.HOLDS}:
        return Word.ORDER_SHOWN
    if {Word.REFUTED, Word.REVERSED} & said:
        return Word.NOT_IN_ORDER
    return Word.IN_ORDER if said <= {Word.HOLDS, Word.IN_ORDER} else Word.NOT_SHOWN
