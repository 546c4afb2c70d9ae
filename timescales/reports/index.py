"""The index of all tables, results/README.md."""

from __future__ import annotations

from collections.abc import Sequence

from timescales.reports import markdown, wording
from timescales.reports.report import Report

INDEX = """\
Written by `make report` from the records.
At *paper size*, runs use the paper's settings. The *small-scale version* of a table runs on a CPU in minutes. Its
verdict is about the ranking of the models alone, and it has its own claims, often fewer than the paper has.
[docs/statistics.md](../docs/statistics.md) defines the verdicts.
The column *missing runs* gives the hours that the missing runs at paper size need. They are estimated from finished
runs of the same kind, otherwise from a few steps on the fastest machine that was timed ([speed.csv](speed.csv)). They
are upper bounds, since tasks may stop early. A run that several tables share is counted in each of them.
*Conclusions* are claims that the paper makes: they hold, are refuted or too small for the paper to have seen (by at
least the paper's number of runs), or are undecided. In a study of our own (`ours_...`) they are hypotheses, written
before most of their runs ([what was known before](../docs/papers/ours.md)). *Values* are printed ones: they agree, are
close, differ or are undecided. Counts are of what was run. Each p is corrected for the other tests of its table
(Benjamini-Hochberg): of the differences that a table calls significant, 5 % are expected to be false. *Calibrated*: a
setting was chosen by looking at this result; it is shown, and not counted.
What published models and data say without a training is in [reanalysed](reanalysed/README.md).
[LOG.md](LOG.md) has dated notes, also on what went wrong. [bench](bench) has the speed measurements.
"""


def index(reports: Sequence[Report]) -> str:
    """results/README.md: every table with its verdicts."""
    head = ["table", "source", "paper size", "conclusions and values", "small-scale version", "missing runs"]
    body = [_index_row(report) for report in reports]
    return "\n".join(["# Results", "", *outcome(reports), "", INDEX, *markdown.grid(head, body), ""])


def _index_row(report: Report) -> list[str]:
    name = report.table.name
    link = f"[{name}]({name}/table.md)" if report.all_rows else name
    verdict = report.verdict
    verdicts = [wording.text(verdict), wording.counts(verdict.counts), wording.text(report.small_verdict)]
    return [link, report.table.source, *verdicts, wording.price(report.price_of({}))]


def outcome(reports: Sequence[Report]) -> list[str]:
    """What became of all tables, in a line for each size; the verdicts' remarks are left out."""
    return [f"Of {len(reports)} tables and figures:", "", *(f"- {line}" for line in outcome_lines(reports))]


def outcome_lines(reports: Sequence[Report]) -> list[str]:
    """The lines of `outcome`: how many tables have which verdict at each size."""
    sizes = {
        "At paper size": [report.verdict for report in reports],
        "Small-scale version": [report.small_verdict for report in reports],
    }
    return [f"{size}: {wording.most_common(verdicts)}." for size, verdicts in sizes.items()]
