"""Write the measured parts of README.md, each between its marks: a picture, and the number of decided conclusions.

`scripts/report.py` writes and checks them.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timescales import paths, plotting
from timescales.papers import judge
from timescales.papers.table import PAPER, Cell, matches
from timescales.reports import wording
from timescales.reports.report import Judged, Report

README = paths.ROOT / "README.md"
CELL_WORDS = {  # the labels of its cells, in words; dashed: without the time between samples
    "chrono, gap as input": ("chrono, with this time as an input", "-"),
    "exponential gate, torch's bias": ("exponential gate that reads it", "-"),
    "power law": ("power law that reads it", "-"),
    "power law without the clock (dt = 1)": ("power law without it", "--"),
    "LSTM": ("LSTM without it", "--"),
}


def blocks(reports: Sequence[Report]) -> dict[str, str]:
    """Return the text for each pair of marks in README.md."""
    return {"picture": picture(pictured(reports)), "state": state(reports)}


def pictured(reports: Sequence[Report]) -> Report:
    """Return the report whose runs the picture shows."""
    return next(report for report in reports if report.table.name == "ours_elapsed_time")


def cells(report: Report) -> dict[str, Judged[Cell]]:
    """Return the values that the picture shows and that have runs, by label."""
    found = {each.item.label: each for each in report.values if each.verdicts[0].values}
    return {label: found[label] for label in CELL_WORDS if label in found}


def picture(report: Report) -> str:
    """Write the test accuracies of the networks in the picture."""
    shown = {label: each.verdicts[0].values for label, each in cells(report).items()}
    numbers = "; ".join(f"{CELL_WORDS[label][0]} {statistics.fmean(own):.1f} %" for label, own in shown.items())
    runs = " or ".join(str(n) for n in sorted({len(own) for own in shown.values()}))
    return f"*Test accuracy, mean of {runs} runs: {numbers}.*"


def draw(report: Report) -> Path:
    """Draw results/front.png: a thin line for the learning curve of each run, a thick one for the mean of its kind."""

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure, width=7.0, height=3.8)
        for label, each in cells(report).items():
            rows = [row for row in report.rows[PAPER] if matches(row.axes, each.item.where)]
            curves = [[(p["epoch"], p["valid/accuracy"]) for p in report.curve(row)] for row in rows]
            look = {"color": plotting.COLOURS[rows[0].axes["model"]], "ls": CELL_WORDS[label][1]}
            for curve in curves:
                ax.plot([x for x, _ in curve], [100 * y for _, y in curve], lw=0.8, alpha=0.4, **look)
            mean = [(points[0][0], statistics.fmean(y for _, y in points)) for points in zip(*curves, strict=False)]
            ax.plot([x for x, _ in mean], [100 * y for _, y in mean], lw=2, label=CELL_WORDS[label][0], **look)
        ax.set(xlabel="epoch (thin line: one seed)", ylabel="validation accuracy (%)", xlim=(0, None), ylim=(45, 100))
        ax.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.7))

    title = "Irregular waves, with and without the time since the last sample"
    return plotting.write(fill, report.results / "front.png", title)[0]


def state(reports: Sequence[Report]) -> str:
    """Write how many conclusions of the papers are decided at the papers' sizes, and how many at smaller ones."""
    papers = [report for report in reports if report.table.paper != "ours"]
    ladder_claims = [judged for report in papers for judged in report.ladder_claims]
    last = [next((s for s in reversed(judged.steps) if s.word != judge.NOT_RUN), None) for judged in ladder_claims]
    words = Counter("too small to tell" if step.short else step.word for step in last if step)
    smaller = ", ".join(f"{count} {word}" for word, count in words.most_common())
    return f"""\
- **Most conclusions of the papers are not tested yet**, since runs at the papers' sizes take years of CPU time. There
  {wording.counts(papers)[0]}.
  Of {sum(words.values())} comparisons that have run at smaller sizes: {smaller} ([what these words
  mean](#reproduce), [all answers](results/README.md))."""
