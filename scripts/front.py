"""The README's measured parts, each between its marks: the picture, the tables with their verdicts, speed.

`scripts/report.py` writes and checks them, `scripts/bench.py` the last one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timescales import markdown, paths, plotting, report
from timescales.files import csv_rows, write_atomic
from timescales.verdict import number

README = Path(__file__).resolve().parents[1] / "README.md"
PICTURE = "chien_table3"  # the table whose runs the README's picture shows
SHOWN = {"lstm": "LSTM", "chrono": "LSTM with chrono initialisation", "plstm": "power-law LSTM"}
WHERE = {"task.sampling": "async", "task.time_input": False}


def parts(reports: Sequence[report.Report]) -> dict[str, str]:
    """What stands between each pair of marks."""
    (found,) = (r for r in reports if r.table["name"] == PICTURE)
    return {"picture": picture(found), "tables": tables(reports), "speed": speed()}


def put(text: str, blocks: dict[str, str]) -> str:
    """A page with blocks put between their marks."""
    for name, block in blocks.items():
        begin, end = f"<!-- {name}: written by make report -->", f"<!-- /{name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{block}\n\n{end}{rest.split(end)[1]}"
    return text


def write(blocks: dict[str, str]) -> None:
    """Put blocks into the README."""
    write_atomic(README, put(README.read_text(), blocks).encode())


def cells(found: report.Report) -> dict[str, Any]:
    """The cells that the picture shows, by model."""
    shown = {}
    for cell in found.cells:
        where = dict(cell.printed["where"])
        model = where.pop("model")
        if where == WHERE and model in SHOWN and cell.mean is not None:
            shown[model] = cell
    return shown


def picture(found: report.Report) -> str:
    """The picture and the numbers in it, ours and the paper's."""
    values = [f"{SHOWN[model]} {number(cell.mean)} % ({cell.printed['value']} %)"
              for model, cell in cells(found).items()]  # fmt: skip
    runs = " or ".join(str(n) for n in sorted({cell.n for cell in cells(found).values()}))
    return (
        f"[![Validation accuracy of three networks on irregularly sampled waves](results/front.png)]"
        f"(results/{PICTURE}/table.md)\n\n"
        "*Is the period of a wave, seen at irregular moments, between 5 and 6? None of the three has the time as an\n"
        "input; only the power-law gate uses the gaps between the points. Test accuracy at the paper's size, means of\n"
        f"{runs} runs (in brackets as printed by Chien et al. 2021, table 3, of 5):\n"
        f"{'; '.join(values)}.*"
    )


def draw(found: report.Report) -> Path:
    """results/front.png: the runs of the picture's cells over training, and the printed values."""
    path = paths.RESULTS / "front.png"

    def fill(figure: Any) -> None:
        (one,) = plotting.panels(figure, width=7.0, height=3.8)
        for model, cell in cells(found).items():
            rows = [row for row in found.rows["paper"] if row["axes"].items() >= {**WHERE, "model": model}.items()]
            curves = [report.curve(found.table, row) for row in rows]
            for curve in curves:
                points = [(point["epoch"], 100 * point["valid/accuracy"]) for point in curve]
                one.plot(*zip(*points, strict=True), color=plotting.COLOURS[model], lw=0.8, alpha=0.5)
            middle = [(points[0]["epoch"], 100 * statistics.fmean(point["valid/accuracy"] for point in points))
                      for points in zip(*curves, strict=False)]  # fmt: skip
            one.plot(*zip(*middle, strict=True), color=plotting.COLOURS[model], lw=2, label=SHOWN[model])
            last = max(point["epoch"] for curve in curves for point in curve)
            one.plot(1.03 * last, cell.printed["value"], "D", color=plotting.COLOURS[model], mfc="white", clip_on=False)
        one.set(xlabel="epoch (thin: one seed; diamonds: test accuracy as printed)", ylabel="validation accuracy (%)")
        one.set(xlim=(0, None), ylim=(45, 100))
        one.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(0.97, 0.66))

    return plotting.write(fill, path, "Irregularly sampled waves: is the period between 5 and 6?")[0]


def tables(reports: Sequence[report.Report]) -> str:
    """Every table with its two verdicts."""
    body = []
    for found in reports:
        name, rows = found.table["name"], found.rows
        here = f"[{name}](results/{name}/table.md)" if any(rows.values()) else name
        paper = f"{found.verdict}, {len(rows['paper'])} of {len(found.asked['paper'])} runs"
        body.append([here, found.table["title"], paper, found.shown_here()])
    grid = markdown.grid(["table or figure", "what", "paper size", "shown here"], body)
    _, _, *sizes = markdown.outcome(reports)
    return "\n".join([" ".join(size.removeprefix("- ") for size in sizes), "", *grid])


CONFIGS = ("A", "B", "B512", "C", "D", "F")
NAMES = {
    "fused coupled": "pLSTM", "fused separate": "pLSTM, own input gate", "fused UR": "UR-LSTM", "fused LSTM": "LSTM",
    "loop LSTM": "*loop*, LSTM", "loop pLSTM": "*loop*, pLSTM",
}  # fmt: skip


def speed() -> str:
    """Ratios of a layer's training step, and of its memory, to torch.nn.LSTM on every processor that was measured."""
    ratios: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    shapes: dict[str, str] = {}
    machines = []
    for path in sorted((paths.RESULTS / "bench").glob("*-threads.csv")):
        machine = path.with_suffix(".md").read_text().splitlines()[0].removeprefix("# A training step on ")
        machine = machine.replace(" 1 threads", " 1 thread")
        machines.append(f"[{machine}](results/bench/{path.stem}.md)")
        rows = [row for row in csv_rows(path) if row["config"] in CONFIGS and row["variant"] in NAMES]
        for config in CONFIGS:
            for section, unit in (("layer", ""), ("memory", ", memory")):
                for row in rows:
                    if (row["section"], row["config"], row["loss"], row["flush"]) == (section, config, "all", "0"):
                        head = f"{config}{unit}" + (f" ({len(machines)})" if len(machines) > 1 else "")
                        ratios[row["variant"]][head] = f"{float(row['ratio']):.2f}"
                        shapes[config] = f"{config} {row['S']}x{row['B']}x{row['I']}x{row['H']}"
    heads = list(dict.fromkeys(head for found in ratios.values() for head in found))
    body = [[NAMES[name], *(found.get(head, "") for head in heads)] for name, found in ratios.items() if found]
    said = ", ".join(f"({k}) {machine}" if k > 1 else machine for k, machine in enumerate(machines, 1))
    return "\n".join([
        "A training step of one layer as a ratio to `torch.nn.LSTM` in the same run: below 1 is faster.",
        f"*loop* is a time loop in Python, the usual public code. {said}.",
        f"Steps x batch x input x units: {', '.join(shapes.values())}.", "", *markdown.grid(["", *heads], body),
    ])  # fmt: skip
