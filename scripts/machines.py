"""Compare small-scale runs that were trained twice: `python scripts/machines.py EARLIER`.

EARLIER is the folder results/ of an earlier commit, e.g. of `git worktree add /tmp/earlier COMMIT`. Runs with the same
id have the same configuration and seed. Writes results/machines.md: both values side by side, and their difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.papers.table import varying  # noqa: E402
from timescales.reports.markdown import grid  # noqa: E402
from timescales.reports.wording import number, settings  # noqa: E402
from timescales.runs import store  # noqa: E402
from timescales.runs.metrics import Censored  # noqa: E402
from timescales.runs.store import Row  # noqa: E402

HEAD = ["run", "seed", "earlier on", "earlier", "now", "difference", "steps (earlier, now)"]


@dataclass(frozen=True)
class Pair:
    """A run as it was committed earlier, and as it is committed now: rows with the same columns."""

    earlier: Row
    now: Row
    column: str  # of the table's metric
    unit: str
    scale: float

    def value(self, row: Row) -> Any:
        """The table's metric in the printed unit; None without a value."""
        value = row.value(self.column)
        return value if value is None or isinstance(value, Censored) else value * self.scale

    @property
    def same_machine(self) -> bool:
        """Whether both were measured on the same kind of processor with as many threads."""
        return all(getattr(self.earlier, key) == getattr(self.now, key) for key in ("machine", "threads"))

    @property
    def equal(self) -> bool:
        """Whether the outcome is the same to the last digit."""
        first, second = ((row.status, row.steps, str(row.value(self.column))) for row in (self.earlier, self.now))
        return first == second  # ">1106" is not 1106

    @property
    def difference(self) -> float | None:
        """The value now minus the earlier one; None if one is missing or censored."""
        values = [self.value(self.earlier), self.value(self.now)]
        if any(value is None or isinstance(value, Censored) for value in values):
            return None
        return float(values[1] - values[0])

    @property
    def other_fate(self) -> bool:
        """Whether one run ended otherwise: it diverged, or never reached the threshold."""
        first, second = self.earlier, self.now
        censored = [isinstance(row.value(self.column), Censored) for row in (first, second)]
        return first.status != second.status or censored[0] != censored[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("earlier", type=Path, help="the results folder of an earlier commit")
    earlier = parser.parse_args().earlier
    tables: dict[str, list[Pair]] = {}
    small: set[str] = set()
    for path in sorted(paths.RESULTS.glob("*/runs.csv")):
        rows = [row for row in store.read_rows(path) if row.profile == "tiny"]
        small |= {row.id for row in rows}
        if both := list(pairs(path.parent.name, earlier, rows)):
            tables[path.parent.name] = both
    if not tables:
        sys.exit(
            f"error: no small-scale run of {earlier} was trained again since; give the results of an earlier commit"
        )
    path = paths.RESULTS / "machines.md"
    path.write_text(page(tables, len(small)))
    print(path)


def pairs(name: str, earlier: Path, rows: list[Row]) -> Iterator[Pair]:
    """The runs of a table that were trained again, if both rows have the table's metric or neither has it."""
    table = load.table(name).tiny
    before = {row.id: row for row in store.read_rows(earlier / name / "runs.csv")}
    for row in rows:
        first = before.get(row.id)
        if table and first is not None and (first.commit, first.seconds) != (row.commit, row.seconds):
            both = Pair(first, row, table.column, table.unit, table.scale)
            if (first.value(both.column) is None) == (row.value(both.column) is None):
                yield both


def page(tables: dict[str, list[Pair]], small: int) -> str:
    """results/machines.md; small: how many small-scale runs are committed, of all tables."""
    every = [pair for both in tables.values() for pair in both]
    lines = ["# The same runs, trained twice", "", *_introduction(every, small), ""]
    body = [_summary(name, both) for name, both in tables.items()]
    lines += [*grid(["table", "runs", "equal", "largest difference", "unit", "other fate"], body), ""]
    for name, both in tables.items():
        lines += [f"## {name}", "", f"{both[0].column}, {both[0].unit}", "", *grid(HEAD, rows(both)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _introduction(every: list[Pair], small: int) -> list[str]:
    unique = {pair.now.id: pair for pair in every}.values()
    same = [pair for pair in unique if pair.same_machine]
    other = [pair for pair in unique if not pair.same_machine]
    now = sorted({f"{pair.now.machine}, {pair.now.threads} thread" for pair in unique})
    commits = sorted({str(pair.now.commit) for pair in unique})
    return [
        f"Written by `python scripts/machines.py EARLIER`, EARLIER the results of an earlier commit. Of the {small}",
        f"small-scale runs {len(unique)} were trained again since, with the same configuration and the same seed, on",
        f"{'; '.join(now)} (code of {', '.join(commits)}).",
        "A run is *equal* if its status, its steps and the metric of its table are the same to the last digit. It has",
        "*another fate* if only one of the two diverged, or only one reached the threshold. A run that two tables",
        "share stands in both.",
        "",
        f"- Earlier on the same kind of processor: {_equal(same)}.",
        f"- Earlier on another processor: {_equal(other)}.",
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
    axes = [pair.earlier.axes for pair in both]
    keys = varying(axes)
    return [_row(pair, {key: own[key] for key in keys if key in own}) for pair, own in zip(both, axes, strict=True)]


def _row(pair: Pair, axes: dict[str, Any]) -> list[Any]:
    values = [pair.value(row) for row in (pair.earlier, pair.now)]
    steps = [str(row.steps) for row in (pair.earlier, pair.now)]
    difference = "0" if pair.equal else "" if pair.difference is None else f"{pair.difference:+.3g}"
    return [
        settings(axes),
        pair.earlier.seed,
        f"{pair.earlier.machine}, {pair.earlier.threads} thread",
        *("" if value is None else number(value) for value in values),
        difference,
        steps[0] if steps[0] == steps[1] else ", ".join(steps),
    ]


if __name__ == "__main__":
    main()
