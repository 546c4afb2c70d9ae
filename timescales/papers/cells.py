"""What runs say of a paper's printed values.

Two numbers decide, beside the margin of the cell (`table.Cell.margin`):

- the 95 % prediction interval of the printed value: where the mean of our n runs is expected if they are like the
  paper's, by the paper's spread;
- X, the smallest margin at which two one-sided tests show that the two means are equivalent.

A value agrees inside the interval if X is within the margin, and is "consistent, imprecise" if it is not. Outside it
is close within the margin, else higher or lower. Before that a value is less stable if our runs spread more (F test),
or if more of them failed or ended at chance than in the paper: then the median is compared.

The tests of a difference are one family of tests, those of the spread another, each corrected by Benjamini and
Hochberg's method. Where no spread is printed ours stands for it. A best value (reduce: max) has the standard error that
drawing its runs again gives. A value that an analysis computes from all runs, a time, and a single printed run beside a
single run of ours allow no test: such a value cannot be decided.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

from timescales.papers.significance import (
    Error,
    Moments,
    equivalent_within,
    error_of_best,
    error_of_difference,
    error_of_next,
    exactly,
    half_width,
    p_of_difference,
    p_of_larger_spread,
    rounding,
)
from timescales.papers.table import Cell, Measure, Row, Select, group, matches
from timescales.papers.verdict import ALPHA, CellResult, Gap, P, Sample, Verdict, Word, corrected, partial
from timescales.runs import metrics
from timescales.runs.metrics import Censored, is_steps


def judge_cells(cells: Sequence[Cell], rows: Sequence[Row]) -> list[CellResult]:
    """Judge all cells of a table by its runs."""
    own = [_own(cell, rows) for cell in cells]
    samples = [_sample_of(cell, runs) for cell, runs in zip(cells, own, strict=True)]
    gaps = [_gap(*of_cell) for of_cell in zip(cells, samples, own, strict=True)]
    apart = corrected([gap.p if gap else None for gap in gaps])
    wider = corrected([gap.p_wider if gap else None for gap in gaps])
    verdicts = [_verdict(*of_cell) for of_cell in zip(cells, samples, own, gaps, apart, wider, strict=True)]
    return [CellResult(*result) for result in zip(cells, samples, verdicts, strict=True)]


def judge_selection(results: Sequence[CellResult], select: Select, rows: Sequence[Row]) -> list[CellResult]:
    """Judge cells again with the values of their runs selected in another way.

    results: by the cells' own selection. Some runs may have been committed without the other one: then n is smaller.
    """
    others = judge_cells([result.cell.selected(select) for result in results], rows)
    return [
        replace(other, verdict=replace(other.verdict, few=True, n=other.sample.n)) if other.sample.n < n else other
        for other, n in zip(others, (result.sample.n for result in results), strict=True)
    ]


def _own(cell: Cell, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if matches(row.axes, cell.where)]


def _sample_of(cell: Cell, own: Sequence[Row]) -> Sample:
    if cell.compute:
        return _computed_sample(cell, own)
    return _sample(cell, at_best_rate(cell, own) or own)


def _computed_sample(cell: Cell, own: Sequence[Row]) -> Sample:
    """The value of a cell that an analysis computes from all runs."""
    good = [row for row in own if cell.succeeded(row)]
    sample = Sample(mean=computed(cell.compute, good), n=fewest(good))
    return _with_failures(cell, sample, own, own)


def _sample(cell: Cell, own: Sequence[Row]) -> Sample:
    """The mean (or the best) of runs; of learning rates with reduce: best_lr those at the best one alone."""
    values = sorted(
        (row.seed, in_unit(cell, value))
        for row in own
        if cell.succeeded(row) and (value := row.value(cell.column)) is not None
    )
    numbers = [value for _, value in values]
    sample = Sample(values, n=len(values))
    if numbers:
        sample = replace(sample, mean=typical(cell, numbers), sd=spread(cell, numbers), median=metrics.median(numbers))
    return _with_failures(cell, sample, own, _at_rate_of_best(cell, own))


def in_unit(measure: Measure, value: float) -> float:
    """A run's value in the printed unit; a censored one stays as it is."""
    return value if isinstance(value, Censored) else value * measure.scale


def typical(measure: Measure, values: Sequence[float]) -> float:
    """The one number that stands for runs: their mean, the best one, or of steps to a threshold the median."""
    if measure.reduce == "max":
        return measure.best(values)
    return metrics.median(values) if is_steps(measure.column) else statistics.fmean(values)


def spread(measure: Measure, values: Sequence[float]) -> float | None:
    """The standard deviation that stands beside `typical`; None for one value, and for steps to a threshold."""
    return None if len(values) < 2 or is_steps(measure.column) else statistics.stdev(values)


def _with_failures(cell: Cell, sample: Sample, own: Sequence[Row], rated: Sequence[Row]) -> Sample:
    """A sample with its failures counted among the runs `rated`; own: all of the cell's runs."""
    known = [cell.succeeded(row) for row in rated]
    failed, at_chance = known.count(False), sum(map(cell.at_chance, rated))
    ended = sample.n + failed
    if cell.reduce == "max":  # the best value is one of all learning rates
        ended = sum(cell.succeeded(row) is not None for row in own)
    return replace(sample, failed=failed, at_chance=at_chance, of=len(known) - known.count(None), ended=ended)


def fewest(rows: Sequence[Row]) -> int:
    """How many runs the setting has that has the fewest; 0 without any runs."""
    return min(Counter(group(row.axes) for row in rows).values(), default=0)


def _gap(cell: Cell, sample: Sample, own: Sequence[Row]) -> Gap | None:
    """How far our mean is from the printed one; None where there is no test."""
    if cell.value is None or sample.mean is None or sample.median is None:
        return None
    errors = _errors(cell, cell.value, sample, own)
    if errors is None:
        return None
    next_mean, next_median, both = errors
    difference, of_median = (exactly(ours - cell.value, ours) for ours in (sample.mean, sample.median))
    return Gap(
        difference=difference,
        p=p_of_difference(difference, next_mean),
        half_width=half_width(next_mean),
        within=equivalent_within(difference, both),
        p_wider=p_of_larger_spread(_moments(sample), _printed(cell)) if cell.spread and cell.reduce != "max" else None,
        median=_place(of_median, outside=p_of_difference(of_median, next_median) < ALPHA),
    )


def _errors(cell: Cell, value: float, sample: Sample, own: Sequence[Row]) -> tuple[Error, Error, Error] | None:
    """The errors of our mean and our median about the printed value, and that of the difference of the two means."""
    if cell.compute or is_steps(cell.column):
        return None
    if cell.reduce == "max":
        rates: dict[Any, list[float]] = {}
        for row in own:
            rates.setdefault(row.axes.get("optimizer.lr"), []).extend(_values(cell, [row]))
        best = error_of_best([[cell.scale * x for x in values] for values in rates.values() if values], cell.higher)
        return None if best is None else (both := Error(best.se * math.sqrt(2), best.df), both, both)
    ours = _moments(sample)
    if cell.spread is not None and _printed(cell).n > 1:
        printed = _printed(cell)
        next_errors = error_of_next(printed, ours), error_of_next(printed, ours, of_median=True)
        return *next_errors, error_of_difference(ours, printed)
    if ours.n < 2:
        return None
    alike = Moments(value, ours.sd, _printed(cell).n)  # no spread is printed: ours stands for it
    mean, median = (error_of_next(alike, ours, of_median)._replace(df=ours.n - 1) for of_median in (False, True))
    return mean, median, mean


def _moments(sample: Sample) -> Moments:
    found = Moments.of([number for _, number in sample.values])
    return found._replace(sd=0.0) if found.sd <= rounding(found.mean) else found


def _printed(cell: Cell) -> Moments:
    """The paper's sample: where the number of its runs is not printed, of as many as the table takes it to have."""
    return Moments(cell.value or 0.0, cell.spread or 0.0, cell.n or cell.n_min)


def out_of_reach(cell: Cell) -> str:
    """Why no planned number of runs can show that a value agrees; "" if one can."""
    if cell.compute:
        return "it is computed once from all runs, and has no standard error"
    if is_steps(cell.column):
        return "a time is printed without a spread"
    printed, planned = _printed(cell), cell.planned or cell.n_min
    if planned == 1 and not (cell.spread and printed.n > 1):
        return "single runs allow no test"
    if cell.spread and printed.n > 1 and cell.reduce == "mean":
        best = equivalent_within(0.0, error_of_difference(printed._replace(n=planned), printed))
        if best > cell.margin:
            return f"so wide a spread shows agreement to within {best:.3g} at best"
    return ""


def _verdict(
    cell: Cell, sample: Sample, own: Sequence[Row], gap: Gap | None, apart: P | None, wider: P | None
) -> Verdict:
    """What a cell's runs say; own: all of them."""
    if cell.value is None:
        return Verdict(Word.BLANK)
    if any(row.stale for row in own):
        return Verdict(Word.STALE)
    why = out_of_reach(cell)
    kind = Word.CANNOT if why else Word.NOT_RUN
    about = Verdict(kind, why=why, calibrated=cell.calibrated, under=cell.under)
    if sample.mean is None and not sample.failed:
        return about
    few = sample.mean is not None and sample.ended < cell.n_min
    about = replace(about, n=sample.n, few=few, gap=gap, p_against=apart, p_wider=wider)
    about = replace(about, partial=sample.mean is not None and partial(at_best_rate(cell, own) or own))
    failures = _failures(cell, sample)
    if failures or sample.mean is None or (wider is not None and wider.significant):
        return replace(about, word=Word.LESS_STABLE, why="", **failures)
    if gap is None or apart is None:
        return replace(about, word=Word.CANNOT if why else Word.UNDECIDED)
    word = _word(gap, outside=apart.significant, near=gap.within <= cell.margin + rounding(cell.value))
    if word == Word.IMPRECISE and why:
        return replace(about, word=Word.CANNOT)
    return replace(about, word=word, why="")


class Failures(TypedDict, total=False):
    """Fields of a verdict: how many of how many runs."""

    failed: tuple[int, int]
    at_chance: tuple[int, int]
    censored: tuple[int, int]


def _failures(cell: Cell, sample: Sample) -> Failures:
    """How many runs failed, ended at chance or never got there, as fields of a verdict; {} if as in the paper."""
    found = Failures()
    if sample.failed + sample.at_chance > cell.failed or sample.mean is None:
        if sample.failed:
            found["failed"] = (sample.failed, sample.of)
        if sample.at_chance:
            found["at_chance"] = (sample.at_chance, sample.of)
    if censored := sum(isinstance(value, Censored) for _, value in sample.values):
        found["censored"] = (censored, sample.n)
    return found


def _place(difference: float, outside: bool) -> Word:
    return Word.AGREES if not outside else Word.HIGHER if difference > 0 else Word.LOWER


def _word(gap: Gap, outside: bool, near: bool) -> Word:
    place = _place(gap.difference, outside)
    if place == Word.AGREES:
        return Word.AGREES if near else Word.IMPRECISE
    return {Word.HIGHER: Word.CLOSE_HIGHER, Word.LOWER: Word.CLOSE_LOWER}[place] if near else place


def at_best_rate(measure: Measure, rows: Sequence[Row]) -> list[Row]:
    """With reduce: best_lr the runs at the learning rate with the best mean (the first of equal ones); otherwise all.

    Only learning rates count at which all runs succeeded and have a value; without any there are no runs.
    """
    if measure.reduce != "best_lr":
        return list(rows)
    rates: dict[Any, list[Row]] = {}
    for row in rows:
        rates.setdefault(row.axes["optimizer.lr"], []).append(row)
    means = {}
    for rate, at_rate in rates.items():
        values = _values(measure, at_rate)
        if len(values) == len(at_rate):
            means[rate] = statistics.fmean(values)
    if not means:
        return []
    best = measure.best(means.values())
    return next(rates[rate] for rate, mean in means.items() if abs(mean - best) <= rounding(mean, best))


def _values(measure: Measure, rows: Sequence[Row]) -> list[float]:
    """The values of the runs that succeeded, in a record's unit."""
    column = measure.column
    return [value for row in rows if measure.succeeded(row) and (value := row.value(column)) is not None]


def _at_rate_of_best(measure: Measure, rows: Sequence[Row]) -> Sequence[Row]:
    """With reduce: max the runs at the learning rate of the best value (papers count its failures); otherwise all."""
    good = [row for row in rows if measure.succeeded(row) and row.value(measure.column) is not None]
    if measure.reduce != "max" or not good or "optimizer.lr" not in good[0].axes:
        return rows
    best = measure.best(good, key=lambda row: row.values[measure.column])
    return [row for row in rows if row.axes["optimizer.lr"] == best.axes["optimizer.lr"]]


def computed(name: str, rows: Sequence[Row]) -> float | None:
    """The value of a function of timescales/analysis on rows: "reset_units.t"; None if they do not suffice."""
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"timescales.analysis.{module}"), function)(rows)
