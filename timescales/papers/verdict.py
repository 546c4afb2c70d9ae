"""Verdicts as values: their words, when a test decides, and what follows for a whole table.

`cells.py` judges printed values and `claims.py` claims, by the tests in `significance.py`. The text of a verdict is
made in reports/markdown.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import NamedTuple

from timescales.papers.significance import holm
from timescales.papers.table import Cell, Claim, Row, Table

ALPHA = 0.05


class Word(StrEnum):
    """The word of a verdict. "Significant": its p, corrected for the table's other tests, is below ALPHA."""

    # Of a cell (cells.py).
    MATCH = "match"  # equivalence is significant
    COMPATIBLE = "compatible"  # neither equivalence nor a difference is
    BETTER = "better"  # the difference is significant
    WORSE = "worse"
    DIFFERENT = "different"  # the same, of a value that is no score
    UNSTABLE = "unstable"  # more runs failed than in the paper, or some never reached a threshold
    MISSING = "missing"  # no runs yet
    BLANK = "blank"  # the paper prints no value
    # Of a claim (claims.py).
    HOLDS = "holds"  # as claimed, significant
    IN_ORDER = "in order"  # as claimed, not significant
    REVERSED = "reversed"  # the opposite, not significant
    REFUTED = "refuted"  # the opposite, significant
    NOT_SHOWN = "not shown"  # "no different from": neither equivalence nor a difference is significant
    # Of anything: the runs are of older code; or there are too few of them.
    STALE = "stale"
    OPEN = "open"
    # Of a table (judge_table).
    REPRODUCED = "reproduced"
    CONCLUSIONS_HOLD = "conclusions hold"
    PARTLY_REPRODUCED = "partly reproduced"
    VALUES_DIFFER = "values differ"
    CONTRADICTED = "contradicted"
    # Of a small-scale version (judge_small).
    NO_VERSION = "no small-scale version"
    NOT_RUN = "not run"
    NO_ORDER_EXPECTED = "no order expected"
    ORDER_SHOWN = "order shown"
    NOT_IN_ORDER = "not in order"


AGREE = (Word.MATCH,)
DIFFER = (Word.WORSE, Word.DIFFERENT, Word.UNSTABLE)


class Outcome(StrEnum):
    """What a claim counts as."""

    HOLD = "hold"
    REFUTED = "refuted"  # by as many runs as the paper has
    UNDECIDED = "undecided"


class P(NamedTuple):
    """The p value of a test, as it is and corrected by Holm for the other tests of its family."""

    raw: float
    corrected: float


@dataclass(frozen=True)
class Counts:
    """How many of a table's conclusions hold and are refuted, and of its printed values agree, are better, differ.

    In a study of our own the conclusions are its hypotheses.

    The others are undecided.
    """

    conclusions: int
    hold: int
    refuted: int  # by as many runs as the paper has
    values: int
    agree: int
    better: int
    differ: int
    hypotheses: bool = False  # whether the conclusions are hypotheses

    @property
    def undecided(self) -> int:
        """How many conclusions neither hold nor are refuted."""
        return self.conclusions - self.hold - self.refuted

    @property
    def undecided_values(self) -> int:
        """How many values neither agree nor are better nor differ."""
        return self.values - self.agree - self.better - self.differ


def sum_of(counts: Sequence[Counts]) -> Counts:
    """The counts of several tables of one paper together."""
    names = [field.name for field in fields(Counts) if field.name != "hypotheses"]
    sums = {name: sum(getattr(each, name) for each in counts) for name in names}
    return Counts(**sums, hypotheses=any(each.hypotheses for each in counts))


@dataclass(frozen=True)
class Verdict:
    """What runs say of a cell, a claim, a table, or its small-scale version."""

    word: Word
    p_for: P | None = None  # of a cell: of equivalence; of a claim: of what it says
    p_against: P | None = None  # of a cell: of a difference; of a claim: of the opposite
    n: int = 0  # the runs of a cell; of a claim those of the side that has the fewest
    few: bool = False  # they are fewer than the table's n_min
    groups: tuple[int, int] | None = None  # of a claim: how many groups of runs were judged, and how many there will be
    # Why a cell is unstable, one of the two:
    failed: tuple[int, int] | None = None  # how many runs failed, and of how many
    censored: tuple[int, int] | None = None  # how many runs never reached the threshold, and of how many
    counts: Counts | None = None  # of a table
    partial: bool = False  # some runs had only a part of the data


@dataclass(frozen=True)
class Finding:
    """A verdict before the correction: its word is the one that stays if neither of its tests is significant."""

    verdict: Verdict
    p_for: float | None = None
    p_against: float | None = None
    confirmed: Word = Word.HOLDS  # the word if p_for is significant, whatever p_against is
    denied: Word = Word.REFUTED  # the word if p_against is significant


def decide(findings: Sequence[Finding]) -> list[Verdict]:
    """The verdicts on all cells, on all claims of the paper, or on all our own claims of a table.

    All `p_for` are one family of tests, all `p_against` another; each is corrected by Holm's method.
    """
    families = zip(_family([f.p_for for f in findings]), _family([f.p_against for f in findings]), strict=True)
    return [_decided(finding, *ps) for finding, ps in zip(findings, families, strict=True)]


def _family(ps: Sequence[float | None]) -> list[P | None]:
    corrected = iter(holm([p for p in ps if p is not None]))
    return [None if p is None else P(p, next(corrected)) for p in ps]


def _decided(finding: Finding, p_for: P | None, p_against: P | None) -> Verdict:
    word = finding.verdict.word
    if p_for is not None and p_for.corrected < ALPHA:
        word = finding.confirmed
    elif p_against is not None and p_against.corrected < ALPHA:
        word = finding.denied
    return replace(finding.verdict, word=word, p_for=p_for, p_against=p_against)


@dataclass(frozen=True)
class Sample:
    """The runs of a cell, in the printed unit."""

    values: Sequence[tuple[int, float]] = ()  # seed and value of the runs that count
    mean: float | None = None  # or the best, with reduce: max; of steps to a threshold the median
    sd: float | None = None
    median: float | None = None
    n: int = 0  # runs that count; of a cell that is computed from several settings, those of the setting with fewest
    failed: int = 0  # runs that failed; with reduce: max only those at the learning rate of the best value
    of: int = 0  # the runs among which `failed` were counted
    ended: int = 0  # runs that count or failed; it is compared with n_min


@dataclass(frozen=True)
class CellResult:
    """A printed value and what our runs say of it."""

    cell: Cell
    sample: Sample
    verdict: Verdict


@dataclass(frozen=True)
class Side:
    """One side of a claim: the mean of its runs (the best, the median of times) in the printed unit, and their number.

    A median that is only known to be larger is `Censored`.
    """

    value: float
    n: int


@dataclass(frozen=True)
class Comparison:
    """The two sides of a claim, and how many runs diverged that have no value."""

    first: Side
    second: Side
    diverged: int


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
    numbers: Comparison | Failures | None = None

    @property
    def outcome(self) -> Outcome:
        """What it counts as; refuted by fewer runs than the paper has, it is undecided."""
        if self.verdict.word == Word.REFUTED and not self.verdict.few:
            return Outcome.REFUTED
        return Outcome.HOLD if self.verdict.word == Word.HOLDS else Outcome.UNDECIDED


def partial(rows: Sequence[Row]) -> bool:
    """Whether some of these runs had only a part of the data."""
    return any(row.get("partial") for row in rows)


def judge_table(
    cells: Sequence[CellResult], claims: Sequence[ClaimResult], rows: Sequence[Row] = (), complete: bool = True
) -> Verdict:
    """A table's verdict: the first word whose condition is true. Claims that we only look at decide nothing.

    A conclusion is one of the paper, or a hypothesis of our own study.

    - contradicted: a conclusion is refuted by at least `n_min` runs a side
    - open: runs are missing or stale, or there is nothing to judge
    - reproduced: all conclusions hold, and all printed values match or are better
    - conclusions hold: all conclusions hold
    - partly reproduced: some conclusion holds; or, where the paper concludes nothing, some value matches
    - values differ: the paper concludes nothing, and some value differs
    - not shown: none of these

    Args:
        rows: its runs, some of which may have had only a part of the data.
        complete: whether all of its runs have ended.
    """
    printed = [result.verdict for result in cells if result.verdict.word != Word.BLANK]
    concluded = [result.outcome for result in claims if result.claim.decides]
    counts = replace(_counts(printed, concluded), hypotheses=any(result.claim.hypothesis for result in claims))
    stale = any(result.verdict.word == Word.STALE for results in (cells, claims) for result in results)
    word = _word(counts, complete and not stale)
    return Verdict(word, counts=counts, partial=word != Word.OPEN and partial(rows))


def _counts(values: Sequence[Verdict], conclusions: Sequence[Outcome]) -> Counts:
    return Counts(
        conclusions=len(conclusions),
        hold=conclusions.count(Outcome.HOLD),
        refuted=conclusions.count(Outcome.REFUTED),
        values=len(values),
        agree=sum(verdict.word in AGREE for verdict in values),
        better=sum(verdict.word == Word.BETTER for verdict in values),
        differ=sum(verdict.word in DIFFER for verdict in values),
    )


def _word(counts: Counts, complete: bool) -> Word:
    if counts.refuted:
        return Word.CONTRADICTED
    if not complete or not (counts.conclusions or counts.values):
        return Word.OPEN
    if counts.hold == counts.conclusions and counts.agree + counts.better == counts.values:
        return Word.REPRODUCED
    if counts.conclusions and counts.hold == counts.conclusions:
        return Word.CONCLUSIONS_HOLD
    if counts.hold or (not counts.conclusions and counts.agree):
        return Word.PARTLY_REPRODUCED
    if not counts.conclusions and counts.differ:
        return Word.VALUES_DIFFER
    return Word.NOT_SHOWN


def judge_small(table: Table, claims: Sequence[Verdict], rows: Sequence[Row], complete: bool) -> Verdict:
    """The verdict of a small-scale version: does the order that the paper concludes appear?

    "order shown" if all of its claims hold, "in order" if all hold or are in order, "not in order" if one is reversed
    or refuted, else "not shown". It contradicts nothing: the size may be the reason.
    """
    said = {verdict.word for verdict in claims}
    if table.tiny is None:
        return Verdict(Word.NO_VERSION)
    if not rows:
        return Verdict(Word.NOT_RUN)
    if not said:
        return Verdict(Word.NO_ORDER_EXPECTED)
    if {Word.OPEN, Word.STALE} & said or not complete:
        return Verdict(Word.OPEN)
    return Verdict(_order(said), partial=partial(rows))


def _order(said: set[Word]) -> Word:
    if said == {Word.HOLDS}:
        return Word.ORDER_SHOWN
    if {Word.REFUTED, Word.REVERSED} & said:
        return Word.NOT_IN_ORDER
    return Word.NOT_SHOWN if Word.NOT_SHOWN in said else Word.IN_ORDER
