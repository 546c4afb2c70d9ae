"""What runs say of a paper's printed values.

A value is compared within the cell's margin: its tolerance, or the printed standard deviation where that is larger.

- match: two one-sided tests show that our mean is within the margin of the printed value (equivalence).
- better, worse, different: a test shows that they differ by more than the margin.
- compatible: neither is shown.

With a printed spread and number of runs Welch's test compares the two means. Without, the printed value counts as
exact (one-sample t-test). All tests of equivalence of a table are one family, all tests of a difference another, each
corrected by Holm's method. No test is possible for a single run without a printed spread, a maximum, a value that an
analysis computes from all runs, or steps to a threshold: such a value is compatible within the margin, else open.
"""

from __future__ import annotations

import importlib
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from timescales.papers.significance import Moments, Test, beyond, rounding, two_one_sided, welch
from timescales.papers.table import Cell, Measure, Row, Select, group, matches
from timescales.papers.verdict import CellResult, Finding, Sample, Verdict, Word, decide, partial
from timescales.runs import metrics
from timescales.runs.metrics import Censored, is_steps


def judge_cells(cells: Sequence[Cell], rows: Sequence[Row]) -> list[CellResult]:
    """Judge all cells of a table by its runs."""
    samples = [_sample_of(cell, _own(cell, rows)) for cell in cells]
    findings = [_finding(cell, sample, _own(cell, rows)) for cell, sample in zip(cells, samples, strict=True)]
    return [CellResult(*result) for result in zip(cells, samples, decide(findings), strict=True)]


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
    return [row for row in rows if matches(row["axes"], cell.where)]


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
        (row["seed"], in_unit(cell, row[cell.column]))
        for row in own
        if cell.succeeded(row) and row.get(cell.column) is not None
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
    failed = known.count(False)
    ended = sample.n + failed
    if cell.reduce == "max":  # the best value is one of all learning rates
        ended = sum(cell.succeeded(row) is not None for row in own)
    return replace(sample, failed=failed, of=len(known) - known.count(None), ended=ended)


def fewest(rows: Sequence[Row]) -> int:
    """How many runs the setting has that has the fewest; 0 without any runs."""
    return min(Counter(group(row["axes"]) for row in rows).values(), default=0)


def _finding(cell: Cell, sample: Sample, own: Sequence[Row]) -> Finding:
    """What a cell's runs say; own: all of them."""
    if cell.value is None:
        return Finding(Verdict(Word.BLANK))
    if sample.mean is None and not sample.failed:
        return Finding(Verdict(Word.MISSING))
    if any(row["stale"] for row in own):
        return Finding(Verdict(Word.STALE))
    about = Verdict(Word.UNSTABLE, partial=sample.mean is not None and partial(at_best_rate(cell, own) or own))
    if sample.failed > cell.failed or sample.mean is None:
        return Finding(replace(about, failed=(sample.failed, sample.of)))
    if censored := sum(isinstance(value, Censored) for _, value in sample.values):
        if censored == sample.n:
            return Finding(replace(about, word=Word.OPEN))
        return Finding(replace(about, censored=(censored, sample.n)))
    about = replace(about, n=sample.n, few=sample.ended < cell.n_min)
    return _compared(cell, cell.value, sample, sample.mean, about)


def _compared(cell: Cell, value: float, sample: Sample, mean: float, about: Verdict) -> Finding:
    """A printed value compared with our mean; about: the verdict but for its word."""
    test = _test(cell, value, sample)
    equal = two_one_sided(test, cell.margin) if test else None
    different = beyond(test, cell.margin) if test else None
    near = different is not None or abs(mean - value) <= cell.margin + rounding(mean, value)
    undecided = replace(about, word=Word.COMPATIBLE if near else Word.OPEN)
    apart = Word.BETTER if (mean > value) == cell.higher else Word.WORSE
    return Finding(undecided, equal, different, Word.MATCH, apart if cell.score else Word.DIFFERENT)


def _test(cell: Cell, value: float, sample: Sample) -> Test | None:
    """The test of our mean against the printed value, if there is one."""
    if cell.reduce == "max" or cell.compute or is_steps(cell.column):
        return None
    printed = Moments.exact(value)
    if cell.spread is not None and cell.n is not None:
        printed = Moments(value, cell.spread, cell.n)
    return welch(Moments.of([number for _, number in sample.values]), printed)


def at_best_rate(measure: Measure, rows: Sequence[Row]) -> list[Row]:
    """With reduce: best_lr the runs at the learning rate with the best mean (the first of equal ones); otherwise all.

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
    if not means:
        return []
    best = measure.best(means.values())
    return next(rates[rate] for rate, mean in means.items() if abs(mean - best) <= rounding(mean, best))


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
