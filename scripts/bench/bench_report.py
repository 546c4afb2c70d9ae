"""Write the rows of bench.py as CSV and Markdown."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from timescales.files import csv_text

COLUMNS = ("section", "config", *"SBIH", "loss", "flush", "threads", "variant", "seconds", "MiB", "ratio", "rounds")
TITLES = {
    "layer": "Forward and backward of one layer",
    "small": "Small layers, and a training step beside its layer: CPU time",
    "large": "Small batches in large layers, S=1000, I=64",
    "memory": "Peak memory of a step",
    "growth": "Growth with the size",
    "training": "The training loop's step on the copy task, T = 200",
    "gates": "Every gate, each on the engine that auto picks",
    "peers": "Beside other libraries",
    "scan": "Cells without recurrent weights",
    "data": "Preparing a batch, as a part of the task's whole training step with the LSTM",
}
IRREGULAR = {"F": "a tenth of the steps is missing", "P": "sequences of 15 to 125 steps, padded"}
COLUMNS_PER_TABLE = 6


def write(rows: list[dict[str, Any]], base: Path, machine: str) -> None:
    """Write the rows to <base>.csv and <base>.md."""
    base.parent.mkdir(parents=True, exist_ok=True)
    lines = [{**row, "seconds": f"{row['seconds']:.5f}"} if "seconds" in row else row for row in rows]
    base.with_suffix(".csv").write_text(csv_text(lines, COLUMNS))
    base.with_suffix(".md").write_text(markdown(rows, machine))


def markdown(rows: list[dict[str, Any]], machine: str) -> str:
    """Write the whole page."""
    parts = [
        f"# A training step on {machine}",
        f"`make bench` (or in parts: `python scripts/bench/bench.py --only A,memory`); torch {torch.__version__}, "
        f"{rows[0]['threads']} threads. Ratios to torch.nn.LSTM in the same process, medians; below 1 is faster. "
        "In brackets: milliseconds.",
    ]
    for section in dict.fromkeys(row["section"] for row in rows):
        chosen = [row for row in rows if row["section"] == section]
        parts.append(f"## {TITLES.get(section, section)}")
        if section == "layer":
            parts.append(shapes(chosen))
        heads = list(dict.fromkeys(map(column_of, chosen)))
        for k in range(0, len(heads), COLUMNS_PER_TABLE):
            few = heads[k : k + COLUMNS_PER_TABLE]
            parts.append(table([row for row in chosen if column_of(row) in few], few, cell_text(section)))
    return "\n\n".join(parts) + "\n"


def shapes(rows: list[dict[str, Any]]) -> str:
    """Describe the shapes of the configurations in a sentence."""
    by_config = {row["config"]: ", ".join(f"{axis}={row[axis]}" for axis in "SBIH") for row in rows}
    text = "; ".join(f"{name}: {shape}" for name, shape in by_config.items())
    for name in by_config:
        if name in IRREGULAR:
            text += f". {name}: {IRREGULAR[name]}; this package's variants have dt and a mask"
    return f"{text}."


def cell_text(section: str) -> Callable[[dict[str, Any]], str]:
    """Return the text of a table cell for a row of this section: the ratio, and the time or the memory."""
    digits, places = 4 if section == "data" else 2, 1 if section == "small" else 0
    if section == "memory":
        return lambda row: f"{row['ratio']:.{digits}f} ({row['MiB']:.0f} MiB)"
    return lambda row: f"{row['ratio']:.{digits}f} ({row['seconds'] * 1000:.{places}f})"


def table(rows: list[dict[str, Any]], heads: list[str], cell: Callable[[dict[str, Any]], str]) -> str:
    """Write a Markdown table with a line for each variant and a column for each of `heads` (see `column_of`)."""
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    cells = {(row["variant"], column_of(row)): cell(row) for row in rows}
    lines = ["| |" + "|".join(heads) + "|", "|---|" + "---:|" * len(heads)]
    lines += [f"|{name}|" + "|".join(cells.get((name, head), "") for head in heads) + "|" for name in variants]
    return "\n".join(lines)


def column_of(row: dict[str, Any]) -> str:
    """Return the column of a row: configuration, loss and flush."""
    if row["loss"] != "last":
        return row["config"]
    return f"{row['config']}, last, flushed" if row["flush"] else f"{row['config']}, last"
