"""What runs say of a paper's printed values, and of a whole table. A verdict is a value; its text: reports/markdown.py.

What they say of its claims is in `claims.py`. SciPy makes the tests.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from timescales.papers.table import Cell, Claim, Measure, Row, Select, Table, group, matches
from timescales.runs.metrics import Censored

ALPHA = 0.05


class Word(StrEnum):
    """The word of a verdict."""

    # Of a cell. Better and worse: significant, or beyond the tolerance; different: of a value that is no score.
    MATCH = "match"
    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    UNSTABLE = "unstable"  # more runs failed than in the paper, some never reached a threshold, or the spread is wider
    MISSING = "missing"  # no runs yet
    BLANK = "blank"  # the paper prints no value
    # Of a claim. Reversed: the other order, not significant; refuted: significantly so.
    HOLDS = "holds"
    IN_ORDER = "in order"
    REVERSED = "reversed"
    REFUTED = "refuted"
    # Of anything: the runs are of older code; or there are too few of them.
    STALE = "stale"
    OPEN = "open"
    # Of a table.
    REPRODUCED = "reproduced"
    REPRODUCED_IN_ORDER = "reproduced in order"  # all claims hold, some values are others
    NOT_REPRODUCED = "not reproduced"  # values are worse, different or unstable, and nothing is claimed
    ORDER_NOT_SIGNIFICANT = "in order, not significant"
    NOT_IN_ORDER = "not in order"
    CONTRADICTED = "contradicted"
    # Of a small-scale version.
    NO_VERSION = "no small-scale version"
    NOT_RUN = "not run"
    NO_ORDER_EXPECTED = "no order expected"
    ORDER_SHOWN = "order shown"


@dataclass(frozen=True)
class Verdict:
    """What runs say of a cell, a claim, a table, or its small-scale version."""

    word: Word
    p: float | None = None  # of the test, if there was one
    n: int = 0  # the runs of a cell; of a claim those of the side that has the fewest
    few: bool = False  # they are fewer than the table's n_min
    groups: tuple[int, int] | None = None  # of a claim: how many groups of runs were judged, and how many there will be
    # Why a cell is unstable, one of the three:
    failed: tuple[int, int] | None = None  # how many runs failed, and of how many
    censored: tuple[int, int] | None = None  # how many runs never reached the threshold, and of how many
    spreads: tuple[float, float] | None = None  # our standard deviation, which is larger than the paper's, and that one
    so_far: bool = False  # of a table: more runs may change the word
    partial: bool = False  # some runs had only a part of the data

    @property
    def preliminary(self) -> bool:
        """Whether there are fewer runs than wanted, or not all groups of a claim were judged."""
        return self.few or (self.groups is not None and self.groups[0] < self.groups[1])


@dataclass(frozen=True)
class Sample:
    """The runs of a cell, in the printed unit."""

    values: Sequence[tuple[int, float]] = ()  # seed and value of the runs that count
    mean: float | None = None  # or the best, with reduce: max
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
    """One side of a claim: the mean of its runs (or the best) in the printed unit, and how many they are."""

    mean: float
    n: int
    censored: bool  # the mean is only known to be larger


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


def judge_cell(cell: Cell, rows: Sequence[Row]) -> CellResult:
    """Judge a cell by the runs that are its own."""
    own = [row for row in rows if matches(row["axes"], cell.where)]
    stale = any(row["stale"] for row in own)
    if cell.compute:
        sample = _computed_sample(cell, own)
    else:
        own = at_best_rate(cell, own) or own
        sample = _sample(cell, own)
    verdict = _judge(cell, sample, stale)
    return CellResult(cell, sample, replace(verdict, partial=sample.mean is not None and partial(own)))


def judge_selection(result: CellResult, select: Select, rows: Sequence[Row]) -> CellResult:
    """Judge a cell again with the values of its runs selected in another way; result: by the cell's own selection."""
    other = judge_cell(result.cell.selected(select), rows)
    if other.sample.n < result.sample.n:  # some runs were committed without the other selection
        return replace(other, verdict=replace(other.verdict, few=True, n=other.sample.n))
    return other


def _computed_sample(cell: Cell, own: Sequence[Row]) -> Sample:
    """The value of a cell that an analysis computes from all runs."""
    good = [row for row in own if cell.succeeded(row)]
    sample = Sample(mean=computed(cell.compute, good), n=fewest(good))
    return _with_failures(cell, sample, own, own)


def _sample(cell: Cell, own: Sequence[Row]) -> Sample:
    """The mean (or the best) of runs; of learning rates with reduce: best_lr those at the best one alone."""
    values = sorted(
        (row["seed"], in_unit(cell, row[cell.column]))
        for row in own
        if cell.succeeded(row) and row.get(cell.column) is not None
    )
    numbers = [value for _, value in values]
    sample = Sample(values, n=len(values))
    if numbers:
        mean = cell.best(numbers) if cell.reduce == "max" else statistics.fmean(numbers)
        sd = statistics.stdev(numbers) if len(numbers) > 1 else None
        sample = replace(sample, mean=mean, sd=sd, median=statistics.median(numbers))
    return _with_failures(cell, sample, own, _at_rate_of_best(cell, own))


def in_unit(measure: Measure, value: float) -> float:
    """A run's value in the printed unit; a censored one stays as it is."""
    return value if isinstance(value, Censored) else value * measure.scale


def _with_failures(cell: Cell, sample: Sample, own: Sequence[Row], rated: Sequence[Row]) -> Sample:
    """A sample with its failures counted among the runs `rated`; own: all of the cell's runs."""
    known = [cell.succeeded(row) for row in rated]
    failed = known.count(False)
    ended = sample.n + failed
    if cell.reduce == "max":  # the best value is one of all learning rates
        ended = sum(cell.succeeded(row) is not None for row in own)
    return replace(sample, failed=failed, of=len(known) - known.count(None), ended=ended)


def fewest(rows: Sequence[Row]) -> int:
    """How many runs the setting has that has the fewest; 0 without any runs."""
    return min(Counter(group(row["axes"]) for row in rows).values(), default=0)


def partial(rows: Sequence[Row]) -> bool:
    """Whether some of these runs had only a part of the data."""
    return any(row.get("partial") for row in rows)


def _judge(cell: Cell, sample: Sample, stale: bool) -> Verdict:
    if cell.value is None:
        return Verdict(Word.BLANK)
    if sample.mean is None and not sample.failed:
        return Verdict(Word.MISSING)
    if stale:
        return Verdict(Word.STALE)
    if sample.failed > cell.failed or sample.mean is None:
        return Verdict(Word.UNSTABLE, failed=(sample.failed, sample.of))
    if censored := sum(isinstance(value, Censored) for _, value in sample.values):
        if censored == sample.n:
            return Verdict(Word.OPEN)
        return Verdict(Word.UNSTABLE, censored=(censored, sample.n))
    verdict = _compared(cell, cell.value, sample, sample.mean)
    if verdict.word == Word.UNSTABLE:
        return verdict
    return replace(verdict, n=sample.n, few=sample.ended < cell.n_min)


def _compared(cell: Cell, value: float, sample: Sample, mean: float) -> Verdict:
    """A printed value compared with our mean: by Welch's test where a spread is printed, else by the tolerance."""
    sd, p = cell.sd, None
    if cell.se is not None and cell.n is not None:
        sd = cell.se * math.sqrt(cell.n)
    same = cell.near(mean, value)
    if sd is not None and cell.n is not None and cell.reduce == "mean" and not cell.compute:
        # One run of ours is compared as one more draw from the paper's.
        p = welch((mean, sample.sd or 0.0, sample.n), (value, sd, cell.n))
        far, same = not same, same if p is None else p >= ALPHA
        if same and far and sample.sd and wider(sample.sd, sample.n, sd, cell.n):  # our spread must not make a match
            return Verdict(Word.UNSTABLE, p, spreads=(sample.sd, sd))
    if same or not cell.score:
        return Verdict(Word.MATCH if same else Word.DIFFERENT, p)
    return Verdict(Word.BETTER if (mean > value) == cell.higher else Word.WORSE, p)


def welch(
    ours: tuple[float, float, int], theirs: tuple[float, float, int], alternative: str = "two-sided"
) -> float | None:
    """p of Welch's t-test from (mean, sd, n) twice; one run on a side is one draw against the other side's spread.

    None for one run where the other side has no spread: nothing says how far apart two draws are.
    """
    from scipy import stats

    equal = ours[2] == 1 or theirs[2] == 1
    if ours[1] == theirs[1] == 0.0:
        if equal:
            return None
        right_way = {"two-sided": True, "greater": ours[0] > theirs[0], "less": ours[0] < theirs[0]}[alternative]
        return 0.0 if right_way and ours[0] != theirs[0] else 1.0
    return float(stats.ttest_ind_from_stats(*ours, *theirs, equal_var=equal, alternative=alternative).pvalue)


def wider(ours: float, n_ours: int, theirs: float, n_theirs: int) -> bool:
    """Whether our spread is larger than the paper's by more than chance (F-test of two variances)."""
    from scipy import stats

    if theirs == 0.0:
        return True
    return n_theirs > 1 and bool(stats.f.sf((ours / theirs) ** 2, n_ours - 1, n_theirs - 1) < ALPHA)


def at_best_rate(measure: Measure, rows: Sequence[Row]) -> list[Row]:
    """With reduce: best_lr the runs at the learning rate with the best mean; otherwise all runs.

    Only learning rates count at which all runs succeeded and have a value; without any there are no runs.
    """
    if measure.reduce != "best_lr":
        return list(rows)
    rates: dict[Any, list[Row]] = {}
    for row in rows:
        rates.setdefault(row["axes"]["optimizer.lr"], []).append(row)
    means = {}
    for rate, at_rate in rates.items():
        values = _values(measure, at_rate)
        if len(values) == len(at_rate):
            means[rate] = statistics.fmean(values)
    return rates[measure.best(means, key=means.__getitem__)] if means else []


def _values(measure: Measure, rows: Sequence[Row]) -> list[float]:
    """The values of the runs that succeeded, in a record's unit."""
    column = measure.column
    return [row[column] for row in rows if measure.succeeded(row) and row.get(column) is not None]


def _at_rate_of_best(measure: Measure, rows: Sequence[Row]) -> Sequence[Row]:
    """With reduce: max the runs at the learning rate of the best value (papers count its failures); otherwise all."""
    good = [row for row in rows if measure.succeeded(row) and row.get(measure.column) is not None]
    if measure.reduce != "max" or not good or "optimizer.lr" not in good[0]["axes"]:
        return rows
    best = measure.best(good, key=lambda row: row[measure.column])
    return [row for row in rows if row["axes"]["optimizer.lr"] == best["axes"]["optimizer.lr"]]


def computed(name: str, rows: Sequence[Row]) -> float | None:
    """The value of a function of timescales/analysis on rows: "reset_units.t"; None if they do not suffice."""
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"timescales.analysis.{module}"), function)(rows)


def judge_table(
    cells: Sequence[Verdict], claims: Sequence[Verdict], rows: Sequence[Row] = (), complete: bool = True
) -> Verdict:
    """A table's verdict from those of its cells and claims.

    Args:
        rows: its runs, some of which may have had only a part of the data.
        complete: whether all of its runs have ended.
    """
    verdict = _judge_results(cells, claims, complete)
    return replace(verdict, partial=verdict.word != Word.OPEN and partial(rows))


def _judge_results(cells: Sequence[Verdict], claims: Sequence[Verdict], complete: bool) -> Verdict:
    words = {verdict.word for verdict in cells} - {Word.BLANK}
    said = {verdict.word for verdict in claims}
    if Word.REFUTED in said:
        return Verdict(Word.CONTRADICTED, so_far=all(v.few for v in claims if v.word == Word.REFUTED))
    if not complete or (not words and not said) or {Word.OPEN, Word.MISSING, Word.STALE} & (words | said):
        return Verdict(Word.OPEN)
    if Word.REVERSED in said:
        return Verdict(Word.NOT_IN_ORDER)
    if Word.IN_ORDER in said:
        return Verdict(Word.ORDER_NOT_SIGNIFICANT)
    so_far = any(verdict.preliminary for verdict in (*cells, *claims))
    if not {Word.WORSE, Word.DIFFERENT, Word.UNSTABLE} & words:
        return Verdict(Word.REPRODUCED, so_far=so_far)
    return Verdict(Word.REPRODUCED_IN_ORDER if said else Word.NOT_REPRODUCED, so_far=so_far)


def judge_small(table: Table, claims: Sequence[Verdict], rows: Sequence[Row], complete: bool) -> Verdict:
    """The verdict of a small-scale version: does the order that the paper concludes appear?

    If it does not, nothing is contradicted: the size may be the reason.
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
    word = Word.NOT_IN_ORDER if {Word.REFUTED, Word.REVERSED} & said else Word.ORDER_SHOWN
    return Verdict(word, partial=partial(rows))
