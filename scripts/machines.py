"""Compare committed small-scale runs with the same runs on this machine: `python scripts/machines.py FOLDER`.

FOLDER holds the runs of this machine, e.g. runs/ after `python train.py table=chien_copy profile=tiny` for each table.
A run is found by its id, so both have the same configuration and seed. Writes results/machines.md: both values side by
side, and how far they are apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.papers.table import SmallTable, varying  # noqa: E402
from timescales.reports.markdown import grid, number, settings  # noqa: E402
from timescales.runs import record, store  # noqa: E402
from timescales.runs.metrics import Censored  # noqa: E402

HEAD = ["run", "seed", "committed on", "committed", "here", "difference", "steps (committed, here)"]


@dataclass(frozen=True)
class Pair:
    """A run as it was committed, and the same run on this machine: rows with the same columns."""

    committed: dict[str, Any]
    here: dict[str, Any]
    column: str  # of the table's metric
    unit: str
    scale: float

    def value(self, row: dict[str, Any]) -> Any:
        """The table's metric in the printed unit; None without a value."""
        value = row[self.column]
        return value if value is None or isinstance(value, Censored) else value * self.scale

    @property
    def same_machine(self) -> bool:
        """Whether both were measured on the same kind of processor with as many threads."""
        return all(self.committed[key] == self.here[key] for key in ("machine", "threads"))

    @property
    def equal(self) -> bool:
        """Whether the outcome is the same to the last digit."""
        keys = ("status", "steps", self.column)
        return all(str(self.committed[key]) == str(self.here[key]) for key in keys)  # ">1106" is not 1106

    @property
    def difference(self) -> float | None:
        """The value here minus the committed one; None if one is missing or censored."""
        values = [self.value(self.committed), self.value(self.here)]
        if any(value is None or isinstance(value, Censored) for value in values):
            return None
        return float(values[1] - values[0])

    @property
    def other_fate(self) -> bool:
        """Whether one run ended otherwise: it diverged, or never reached the threshold."""
        first, second = self.committed, self.here
        censored = [isinstance(row[self.column], Censored) for row in (first, second)]
        return first["status"] != second["status"] or censored[0] != censored[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the runs of this machine")
    folder = parser.parse_args().folder
    found = {run["id"]: run for path in sorted(folder.glob("*/record.json")) if (run := record.read(path.parent))}
    files = sorted(paths.RESULTS.glob("*/runs.csv"))
    tables = {path.parent.name: list(pairs(path, found)) for path in files}
    tables = {name: both for name, both in tables.items() if both}
    committed = {row["id"] for path in files for row in store.read_rows(path) if row["profile"] == "tiny"}
    if not tables:
        sys.exit(f"error: {folder} has no run of a small-scale version that is committed; train one with profile=tiny")
    path = paths.RESULTS / "machines.md"
    path.write_text(page(tables, len(committed)))
    print(path)


def pairs(path: Path, found: dict[str, dict[str, Any]]) -> Iterator[Pair]:
    """The small-scale runs of a runs.csv that have ended here, too, and have the table's metric if that one has it."""
    small = load.table(path.parent.name).tiny
    for row in store.read_rows(path):
        run = found.get(row["id"])
        if small and row["profile"] == "tiny" and run is not None and run["status"] in record.ENDED:
            both = pair(small, row, run)
            if (both.committed[both.column] is None) == (both.here[both.column] is None):
                yield both


def pair(small: SmallTable, row: dict[str, Any], run: dict[str, Any]) -> Pair:
    """A committed row and the record of the same run."""
    here = store.row(run, {}, "tiny", [small.column])
    return Pair({**dict.fromkeys(here), **row}, here, small.column, small.unit, small.scale)


def page(tables: dict[str, list[Pair]], committed: int) -> str:
    """results/machines.md; committed: how many small-scale runs are committed, of all tables."""
    every = [pair for both in tables.values() for pair in both]
    lines = ["# The same runs on two machines", "", *_introduction(every, committed), ""]
    body = [_summary(name, both) for name, both in tables.items()]
    lines += [*grid(["table", "runs", "equal", "largest difference", "unit", "other fate"], body), ""]
    for name, both in tables.items():
        lines += [f"## {name}", "", f"{both[0].column}, {both[0].unit}", "", *grid(HEAD, rows(both)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _introduction(every: list[Pair], committed: int) -> list[str]:
    unique = {pair.here["id"]: pair for pair in every}.values()
    same = [pair for pair in unique if pair.same_machine]
    other = [pair for pair in unique if not pair.same_machine]
    here = sorted({f"{pair.here['machine']}, {pair.here['threads']} thread" for pair in unique})
    commits = sorted({pair.here["commit"][:10] for pair in unique})
    return [
        f"Written by `python scripts/machines.py FOLDER`. Of the {committed} committed runs of small-scale versions",
        f"{len(unique)} were trained once more on {'; '.join(here)} (code of {', '.join(commits)}), with the same",
        "configuration and the same seed. *Committed* is what `results/` had when this page was written; a table may",
        "have newer values now.",
        "A run is *equal* if its status, its steps and the metric of its table are the same to the last digit. It has",
        "*another fate* if only one of the two diverged, or only one reached the threshold. A run that two tables",
        "share stands in both.",
        "",
        f"- Committed on the same kind of processor: {_equal(same)}.",
        f"- Committed on another processor: {_equal(other)}.",
    ]


def _equal(both: list[Pair]) -> str:
    equal, fates = sum(pair.equal for pair in both), sum(pair.other_fate for pair in both)
    return f"{equal} of {len(both)} runs are equal, {fates} have another fate"


def _summary(name: str, both: list[Pair]) -> list[Any]:
    differences = [pair.difference for pair in both if pair.difference is not None]
    largest = number(max(differences, key=abs)) if differences else ""
    fates = sum(pair.other_fate for pair in both)
    return [f"[{name}](#{name})", len(both), sum(pair.equal for pair in both), largest, both[0].unit, fates or ""]


def rows(both: list[Pair]) -> list[list[Any]]:
    """A row for each run, with the settings in which the table's runs differ."""
    axes = [json.loads(pair.committed["axes"]) for pair in both]
    keys = varying(axes)
    return [_row(pair, {key: own[key] for key in keys if key in own}) for pair, own in zip(both, axes, strict=True)]


def _row(pair: Pair, axes: dict[str, Any]) -> list[Any]:
    values = [pair.value(row) for row in (pair.committed, pair.here)]
    steps = [str(row["steps"]) for row in (pair.committed, pair.here)]
    difference = "0" if pair.equal else "" if pair.difference is None else f"{pair.difference:+.3g}"
    return [
        settings(axes),
        pair.committed["seed"],
        f"{pair.committed['machine']}, {pair.committed['threads']} thread",
        *("" if value is None else number(value) for value in values),
        difference,
        steps[0] if steps[0] == steps[1] else ", ".join(steps),
    ]


if __name__ == "__main__":
    main()
