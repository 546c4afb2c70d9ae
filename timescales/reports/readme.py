"""The README's measured parts, each between its marks: the picture, the tables with their verdicts, speed.

`scripts/report.py` writes and checks them, `scripts/bench.py` the last one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales import paths, plotting
from timescales.files import csv_rows, write_atomic
from timescales.papers.table import Row
from timescales.papers.verdict import CellResult, sum_of
from timescales.reports import markdown
from timescales.reports.report import Report, by_paper, name_of

README = paths.ROOT / "README.md"
PICTURE = "chien_table3"  # the table whose runs the README's picture shows
SHOWN = {"lstm": "LSTM", "chrono": "LSTM with chrono initialisation", "plstm": "power-law LSTM"}
WHERE = {"task.sampling": "async", "task.time_input": False}
PICTURE_TEXT = """\
[![Validation accuracy of three networks on irregularly sampled waves](results/front.png)](results/{table}/table.md)

*Task: is the period of an irregularly sampled sine wave between 5 and 6 (frequency discrimination)? The networks do
not receive the sampling times as inputs; only the forget gate of the power-law LSTM uses the time between samples.
The curves show the validation accuracy. Test accuracy at the paper's size, with the data of the
released generator ([deviations](docs/deviations.md)), mean of {runs} runs (in brackets: the value in table 3 of Chien
et al. 2021): {values}.*"""


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


def cells(report: Report) -> dict[str, CellResult]:
    """The cells that the picture shows, by model."""
    shown = {}
    for result in report.cells:
        where = dict(result.cell.where)
        model = where.pop("model")
        if where == WHERE and model in SHOWN and result.sample.mean is not None:
            shown[model] = result
    return shown


def picture(report: Report) -> str:
    """The picture and the numbers in it, ours and the paper's."""
    shown = cells(report)
    values = [
        f"{SHOWN[model]} {markdown.number(result.sample.mean or 0.0)} % ({result.cell.value} %)"
        for model, result in shown.items()
    ]
    runs = " or ".join(str(n) for n in sorted({result.sample.n for result in shown.values()}))
    return PICTURE_TEXT.format(table=PICTURE, runs=runs, values="; ".join(values))


def draw(report: Report) -> Path:
    """results/front.png: the runs of the picture's cells over training, and the printed values."""

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure, width=7.0, height=3.8)
        for model, result in cells(report).items():
            rows = [row for row in report.rows["paper"] if row["axes"].items() >= {**WHERE, "model": model}.items()]
            _draw_model(ax, model, [_curve(report, row) for row in rows], result)
        ax.set(
            xlabel="epoch (thin line: one seed; diamond: test accuracy in the paper)", ylabel="validation accuracy (%)"
        )
        ax.set(xlim=(0, None), ylim=(45, 100))
        ax.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(0.97, 0.66))

    title = "Irregularly sampled sine waves: is the period between 5 and 6?"
    return plotting.write(fill, report.results / "front.png", title)[0]


def _curve(report: Report, row: Row) -> list[tuple[float, float]]:
    """Epochs and validation accuracy."""
    return [(point["epoch"], point["valid/accuracy"]) for point in report.curve(row)]


def _draw_model(ax: Any, model: str, curves: Sequence[Sequence[tuple[float, float]]], result: CellResult) -> None:
    """A thin line for each run, a thick one for their mean, and the printed value as a diamond; in per cent."""
    colour = plotting.COLOURS[model]

    def plot(points: Sequence[tuple[float, float]], **look: Any) -> None:
        ax.plot([x for x, _ in points], [100 * y for _, y in points], color=colour, **look)

    for curve in curves:
        plot(curve, lw=0.8, alpha=0.5)
    mean = [(points[0][0], statistics.fmean(y for _, y in points)) for points in zip(*curves, strict=False)]
    plot(mean, lw=2, label=SHOWN[model])
    last = max(epoch for curve in curves for epoch, _ in curve)
    ax.plot(1.03 * last, result.cell.value, "D", color=colour, mfc="white", clip_on=False)


def tables(reports: Sequence[Report]) -> str:
    """A row for each paper, and one for our own studies: its tables with their verdicts, in how many runs."""
    body = [
        [
            f"[{name_of(own)}](docs/papers/{paper}.md): {', '.join(map(_link, own))}",
            f"{sum(len(report.rows['paper']) for report in own)} of {sum(len(r.planned['paper']) for r in own)}",
            markdown.counts(sum_of([report.verdict.counts for report in own if report.verdict.counts])),
            *verdicts(own),
        ]
        for paper, own in by_paper(reports).items()
    ]
    return "\n".join(markdown.grid(["tables", "runs", "conclusions and values", "at paper size", "small-scale"], body))


def _link(report: Report) -> str:
    name = report.table.name
    return f"[{name}](results/{name}/table.md)" if report.all_rows else name


def verdicts(reports: Sequence[Report]) -> list[str]:
    """How many tables have each verdict, at paper size and of their small-scale versions, the most frequent first."""
    small = [report.small_verdict for report in reports if report.table.tiny]
    return [markdown.most_common([report.verdict for report in reports]), markdown.most_common(small)]


CONFIGS = ("A", "B", "B512", "C", "D", "F")
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
Time or peak memory of one training step of one layer (forward and backward), divided by that of `torch.nn.LSTM` in
the same benchmark run; below 1 is better. pLSTM, UR-LSTM and LSTM are the package's layers with the C++ engine. With
`coupled=False` the input gate is a separate gate, otherwise it is 1 minus the forget gate. A *Python loop* loops over
the time steps in Python, as most public implementations do."""


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
