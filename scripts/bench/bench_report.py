"""What scripts/bench/bench.py writes: the rows as CSV and Markdown, and a picture of growth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from timescales import plotting
from timescales.files import csv_text

COLUMNS = (
    "section", "config", "S", "B", "I", "H", "loss", "flush", "threads", "variant", "seconds", "MiB", "ratio", "rounds",
)  # fmt: skip


def write(rows: list[dict[str, Any]], base: Path, machine: str) -> None:
    base.parent.mkdir(parents=True, exist_ok=True)
    lines = [{**row, "seconds": f"{row['seconds']:.5f}"} if "seconds" in row else row for row in rows]
    base.with_suffix(".csv").write_text(csv_text(lines, COLUMNS))
    base.with_suffix(".md").write_text(markdown(rows, machine))
    if growth := [row for row in rows if row["section"] == "growth"]:
        plotting.write(lambda figure: draw(figure, growth), base, f"A training step on {machine}")


def table(rows: list[dict[str, Any]], heads: list[str], cell: Callable[[dict[str, Any]], str]) -> str:
    """Variants down, `heads` across; heads are config, loss and flush joined."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    lines = ["| |" + "|".join(heads) + "|", "|---|" + "---:|" * len(heads)]
    found = {(row["variant"], head_of(row)): cell(row) for row in rows}
    lines += [f"|{name}|" + "|".join(found.get((name, head), "") for head in heads) + "|" for name in names]
    return "\n".join(lines)


def head_of(row: dict[str, Any]) -> str:
    return row["config"] + (f", last{', flushed' if row['flush'] else ''}" if row["loss"] == "last" else "")


def markdown(rows: list[dict[str, Any]], machine: str) -> str:
    parts = [
        f"# A training step on {machine}",
        f"`make bench` (or in parts: `python scripts/bench/bench.py --only A,memory`); torch {torch.__version__}, "
        f"{rows[0]['threads']} threads. Ratios to torch.nn.LSTM in the same process, medians; below 1 is faster. "
        "In brackets: milliseconds.",
    ]
    titles = {"layer": "Forward and backward of one layer", "memory": "Peak memory of a step", "growth": "Growth",
              "training": "The training loop's step on the copy task, T = 200",
              "gates": "Every gate, each on the engine that auto picks",
              "data": "Preparing a batch, as a part of the task's whole training step with the LSTM"}  # fmt: skip
    for section in dict.fromkeys(row["section"] for row in rows):
        chosen = [row for row in rows if row["section"] == section]
        parts.append(f"## {titles.get(section, section)}")
        if section == "layer":
            shapes = {row["config"]: ", ".join(f"{axis}={row[axis]}" for axis in "SBIH") for row in chosen}
            text = "; ".join(f"{name}: {shape}" for name, shape in shapes.items())
            odd = {"F": "a tenth of the steps is missing", "P": "sequences of 15 to 125 steps, padded"}
            text += "".join(f". {k}: {odd[k]}; this package's variants have dt and a mask" for k in shapes if k in odd)
            parts.append(f"{text}.")
        heads = list(dict.fromkeys(map(head_of, chosen)))
        value = "MiB" if section == "memory" else "seconds"
        scale, unit = (1, " MiB") if section == "memory" else (1000, "")
        digits = 4 if section == "data" else 2
        for k in range(0, len(heads), 6):
            few = heads[k : k + 6]
            some = [row for row in chosen if head_of(row) in few]
            parts.append(table(some, few, lambda r: f"{r['ratio']:.{digits}f} ({r[value] * scale:.0f}{unit})"))  # noqa: B023
    return "\n\n".join(parts) + "\n"


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    """Seconds per step against S, B and H."""
    axes = plotting.panels(figure, 3, width=11, height=3.4, sharey=True)
    for one, axis in zip(axes, "SBH", strict=True):
        chosen = [row for row in rows if row["config"].startswith(axis)]
        for name in dict.fromkeys(row["variant"] for row in chosen):
            points = [(row[axis], row["seconds"]) for row in chosen if row["variant"] == name]
            one.loglog(*zip(*points, strict=True), marker="o", label=name)
        sizes = sorted({row[axis] for row in chosen})
        one.set_xticks(sizes, map(str, sizes))
        one.set_xticks([], minor=True)
        one.set_xlabel({"S": "steps S", "B": "batch B", "H": "units H"}[axis])
        one.grid(True, which="both", alpha=0.3)
    axes[0].set_ylabel("seconds per training step")
    axes[0].legend()
