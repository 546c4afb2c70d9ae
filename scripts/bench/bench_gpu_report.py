"""What bench_gpu.py writes: the rows as CSV and Markdown, and measured.csv for engine="auto"."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import torch
from bench_gpu_steps import KINDS, SEEDS, UNIT
from bench_gpu_trainings import COMPARED
from bench_variants import Config

from timescales.files import csv_text
from timescales.nn.engine.gpu import choice

COLUMNS = (
    *("part", "config", "variant", "precision", "ms", "least_ms", "most_ms", "ratio", "rounds", "peak_MiB"),
    *("floor_ms", "note"),
)
CONFIGS = {"A": Config(220, 128, 10, 128), "B": Config(784, 128, 1, 256), "B512": Config(784, 128, 1, 512)}
TINY = {"tiny": Config(8, 4, 3, 8)}
TARGETS = (  # configuration, variant, the variant it is compared with, the largest ratio of their times
    ("A", "graph PLSTMCell", UNIT, 1.0),
    ("B", "graph PLSTMCell", UNIT, 1.5),
    ("B512", "graph PLSTMCell", UNIT, 1.5),
    ("A", "graph PLSTMCell", "eager PLSTMCell", 1 / 30),
    ("A", f"graph PLSTMCell x{SEEDS}", "graph PLSTMCell", 1.5),
    (COMPARED, "plstm", "plstm eager", 1 / 30),
    (COMPARED, f"plstm x{SEEDS}", "plstm", 1.5),
)


def targets(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each target that was measured, in float32."""
    ms = {(row.get("config"), row["variant"]): row.get("ms") for row in rows if row.get("precision") == "fp32"}
    lines = []
    for config, variant, other, most in TARGETS:
        a, b = ms.get((config, variant)), ms.get((config, other))
        if a and b:
            verdict = "met" if a / b <= most else "missed"
            faster = f", {b / a:.3g} times as fast" if a < b else ""
            lines.append(f"- {config}: {variant} takes {a / b:.3g} x {other}{faster}, at most {most:.3g}: {verdict}")
    return lines


def markdown(rows: list[dict[str, Any]], machine: str, torch_version: str) -> str:
    """The targets, and a table for each part."""
    sections = [
        f"# A training step on {machine}",
        f"`python scripts/bench/bench.py --device cuda`; torch {torch_version}, "
        f"{choice.MEASURED.name} is what engine=auto goes by. Milliseconds are medians; the ratio is to nn.LSTM "
        "(cuDNN) at the same precision; the distance is the time over the floor.",
    ]
    if lines := targets(rows):
        sections.append("\n".join(["## targets", "", *lines]))
    for part in dict.fromkeys(row["part"] for row in rows):
        chosen = [row for row in rows if row["part"] == part]
        body = [f"- {row['variant']}: {row['note']}" for row in chosen] if part == "ceiling" else table(chosen)
        sections.append("\n".join([f"## {part}", "", *body]))
    return "\n\n".join(sections) + "\n"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [
        "| config | variant | precision | ms | ratio | distance | peak MiB | rounds | note |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        ms, least = row.get("ms"), row.get("floor_ms")
        numbers = ["" if v is None else f"{v:.3g}" for v in (ms, row.get("ratio"), ms and least and ms / least)]
        cells = [row.get("config", ""), row["variant"], row.get("precision", ""), *numbers]
        cells += [str(row.get(column, "")) for column in ("peak_MiB", "rounds", "note")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def slug(machine: str) -> str:
    """The name of a machine's files."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, those of a layer with the ratio of their time to that of nn.LSTM at the same size and precision."""
    units = {(row["config"], row["precision"]): row.get("ms") for row in rows if row["variant"] == UNIT}
    for row in rows:
        unit = units.get((row.get("config"), row.get("precision")))
        if unit and "ms" in row and row["part"] in ("layer", "attention"):
            row["ratio"] = row["ms"] / unit
    return rows


def write(rows: list[dict[str, Any]], base: Path, machine: str, torch_version: str = torch.__version__) -> None:
    """Write the rows to <base>.csv and <base>.md. torch_version: of the machine on which they were measured."""
    base.parent.mkdir(parents=True, exist_ok=True)
    lines = [{key: f"{v:.5g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    base.with_suffix(".csv").write_text(csv_text(lines, COLUMNS))
    base.with_suffix(".md").write_text(markdown(rows, machine, torch_version))


def update_measured(rows: list[dict[str, Any]], configs: dict[str, Config], machine: str, file: Path) -> None:
    """Write the float32 times of the engines to measured.csv. Rows that were not measured now are kept."""
    new = []
    for row in rows:
        engine, _, kind = row["variant"].partition(" ")
        is_whole = engine in choice.MEASURABLE and kind in KINDS  # neither a part of a step nor several seeds
        if row["part"] == "layer" and "ms" in row and row["precision"] == "fp32" and is_whole:
            S, B, _, H, _ = configs[row["config"]]
            new.append(choice.Row(kind, S, B, H, engine, round(row["ms"], 4), machine))
    replaced = {row._replace(ms=0.0) for row in new}
    kept = [row for row in choice.measured() if row._replace(ms=0.0) not in replaced]
    with open(file, "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(choice.Row._fields)
        writer.writerows(kept + new)
    choice.measured.cache_clear()
