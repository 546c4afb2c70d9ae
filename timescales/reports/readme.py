"""The README's measured parts, each between its marks: the picture, the tables with their verdicts, speed.

`scripts/report.py` writes and checks them, `scripts/bench/bench.py` the last one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales import paths, plotting
from timescales.files import csv_rows, write_atomic
from timescales.papers.table import PAPER, Cell, matches
from timescales.reports import index, markdown, wording
from timescales.reports.report import Judged, Report, by_paper, done_of_all, name_of
from timescales.runs.store import Row

README = paths.ROOT / "README.md"
PICTURE = "ours_elapsed_time"  # the table whose runs the README's picture shows
SHOWN = {  # the labels of its cells, in words; dashed: without the time between samples
    "chrono, gap as input": ("chrono, with this time as an input", "-"),
    "exponential gate, torch's bias": ("exponential gate that reads it", "-"),
    "power law": ("power law that reads it", "-"),
    "power law without the clock (dt = 1)": ("power law without it", "--"),
    "LSTM": ("LSTM without it", "--"),
}
PICTURE_TEXT = """\
[![Validation accuracy of five networks on irregularly sampled waves](results/front.png)](results/{table}/table.md)

*Is the period of an irregularly sampled sine wave between 5 and 6? Validation accuracy; a dashed line has no access to
the time since the last sample. Test accuracy, mean of {runs} runs: {values}.*"""


def parts(reports: Sequence[Report]) -> dict[str, str]:
    """What stands between each pair of marks."""
    return {"picture": picture(pictured(reports)), "tables": tables(reports), "speed": speed(paths.RESULTS)}


def pictured(reports: Sequence[Report]) -> Report:
    """The report whose runs the picture shows."""
    return next(report for report in reports if report.table.name == PICTURE)


def put(text: str, blocks: Mapping[str, str]) -> str:
    """A page with blocks put between their marks."""
    for name, block in blocks.items():
        begin, end = f"<!-- {name}: written by make report -->", f"<!-- /{name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{block}\n\n{end}{rest.split(end)[1]}"
    return text


def write(blocks: Mapping[str, str]) -> None:
    """Put blocks into the README."""
    write_atomic(README, put(README.read_text(), blocks).encode())


def cells(report: Report) -> dict[str, Judged[Cell]]:
    """The values that the picture shows and that have runs, by label."""
    found = {each.item.label: each for each in report.values if each.verdicts[0].values}
    return {label: found[label] for label in SHOWN if label in found}


def picture(report: Report) -> str:
    """The picture and the numbers in it."""
    shown = {label: each.verdicts[0].values for label, each in cells(report).items()}
    told = "; ".join(f"{SHOWN[label][0]} {statistics.fmean(own):.1f} %" for label, own in shown.items())
    runs = " or ".join(str(n) for n in sorted({len(own) for own in shown.values()}))
    return PICTURE_TEXT.format(table=PICTURE, runs=runs, values=told)


def draw(report: Report) -> Path:
    """results/front.png: the runs of the picture's cells over training."""

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure, width=7.0, height=3.8)
        for label, each in cells(report).items():
            rows = [row for row in report.rows[PAPER] if matches(row.axes, each.item.where)]
            _draw_runs(ax, label, rows[0].axes["model"], [_curve(report, row) for row in rows])
        ax.set(xlabel="epoch (thin line: one seed)", ylabel="validation accuracy (%)", xlim=(0, None), ylim=(45, 100))
        ax.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.7))

    title = "Irregular waves, with and without the time since the last sample"
    return plotting.write(fill, report.results / "front.png", title)[0]


def _curve(report: Report, row: Row) -> list[tuple[float, float]]:
    """Epochs and validation accuracy."""
    return [(point["epoch"], point["valid/accuracy"]) for point in report.curve(row)]


def _draw_runs(ax: Any, label: str, model: str, curves: Sequence[Sequence[tuple[float, float]]]) -> None:
    """A thin line for each run, and a thick one for their mean, in per cent."""
    words, dashes = SHOWN[label]

    def plot(points: Sequence[tuple[float, float]], **look: Any) -> None:
        colour = plotting.COLOURS[model]
        ax.plot([x for x, _ in points], [100 * y for _, y in points], color=colour, ls=dashes, **look)

    for curve in curves:
        plot(curve, lw=0.8, alpha=0.4)
    mean = [(points[0][0], statistics.fmean(y for _, y in points)) for points in zip(*curves, strict=False)]
    plot(mean, lw=2, label=words)


def tables(reports: Sequence[Report]) -> str:
    """Make a row for each paper, and one for our own studies: its tables, its runs, what is decided.

    A run that several tables share is counted once, as on the paper's page.
    """
    body = [
        [f"[{name_of(own)}](docs/papers/{paper}.md)", str(len(own)), done_of_all(own), *counts(own)]
        for paper, own in by_paper(reports).items()
    ]
    head = ["paper", "tables", "runs at the paper's size", "conclusions", "printed values"]
    return "\n".join(markdown.grid(head, body))


def counts(reports: Sequence[Report]) -> list[str]:
    """What is decided of the conclusions, and of the printed values, of several tables together."""
    kind = "hypotheses" if reports[0].table.paper == "ours" else "conclusions"
    return [wording.counted(index.sum_of(reports, k), kind) for k, kind in enumerate((kind, "printed values"))]


CONFIGS = ("A", "B")  # results/bench has more
LAYERS = {
    "fused coupled": "pLSTM",
    "fused separate": "pLSTM, `coupled=False`",
    "fused UR": "UR-LSTM",
    "fused LSTM": "LSTM",
    "loop LSTM": "LSTM, Python loop",
    "loop pLSTM": "pLSTM, Python loop",
}
MEASURED = {"layer": "time", "memory": "peak memory"}  # sections of a benchmark, and what each one compares
SPEED_TEXT = """\
Time or peak memory of one training step of one layer, divided by that of `torch.nn.LSTM`; below 1 is better. The layers
are the package's, with the C++ engine. With `coupled=False` the input gate is a gate of its own. A *Python loop* loops
over the time steps in Python, as most public implementations do. A processor's page has all sizes."""


def speed(results: Path) -> str:
    """Ratios of a layer's training step, and of its memory, to torch.nn.LSTM on every processor that was measured."""
    body = []
    for path in sorted((results / "bench").glob("*-threads.csv")):
        rows = [row for row in csv_rows(path) if (row["loss"], row["flush"]) == ("all", "0")]
        for config in CONFIGS:
            for section, measured in MEASURED.items():
                own = {row["variant"]: row for row in rows if (row["section"], row["config"]) == (section, config)}
                if own.keys() & LAYERS.keys():
                    sizes = [next(iter(own.values()))[key] for key in ("S", "B", "I", "H")]
                    ratios = [f"{float(own[layer]['ratio']):.2f}" if layer in own else "" for layer in LAYERS]
                    body.append([_machine(path), measured, *sizes, *ratios])
    head = ["processor", "measured", "steps", "batch", "input", "hidden", *LAYERS.values()]
    return "\n".join([SPEED_TEXT, "", *markdown.grid(head, body)])


def _machine(path: Path) -> str:
    """A link to a benchmark, with the name of its processor."""
    machine = path.with_suffix(".md").read_text().splitlines()[0].removeprefix("# A training step on ")
    return f"[{machine.replace(' 1 threads', ' 1 thread')}](results/bench/{path.stem}.md)"
