"""The rows of a table's runs: from runs/, else as committed under results/. Never trains; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timescales import errors
from timescales.config import identity
from timescales.config.compose import Composer
from timescales.files import csv_rows
from timescales.papers import load
from timescales.papers.table import PROFILES, Row, Run, Table, columns, expand
from timescales.runs import cost, record, store


@dataclass(frozen=True)
class Asked:
    """A run that a table asks for: its settings, the name of its directory, and its kind (runs of equal cost)."""

    axes: dict[str, Any]
    slug: str
    kind: str

    @property
    def id(self) -> str:
        """The run's identity."""
        return identity.id_of(self.slug)


def asked_runs(table: Table, composer: Composer) -> tuple[dict[str, list[Asked]], list[str]]:
    """The runs that a table asks for, by size ("paper", "tiny"), and a line for each that cannot be composed here."""
    asked: dict[str, list[Asked]] = {}
    missing: list[str] = []
    for profile in PROFILES:
        runs, wrong = load.runs(table, profile, composer)
        asked[profile or "paper"] = [_asked(run, cfg) for run, cfg in runs]
        missing += wrong
    return asked, list(dict.fromkeys(missing))


def _asked(run: Run, cfg: Any) -> Asked:
    return Asked(run.axes, identity.slug(cfg), identity.kind(cfg))


def gather(
    table: Table, asked: Mapping[str, Sequence[Asked]], results: Path, runs: Path | None
) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """The rows of those runs that have ended, by size, and how many committed ones the table does not ask for.

    A run counts by its id: as it lies in `runs` (None: nowhere), else as it was committed under `results`. One that
    goes on or broke off with an error has no result yet: it is open.
    """
    own = {row["id"]: row for row in store.read_rows(results / table.name / "runs.csv")}
    committed = store.committed(results) | own
    rows: dict[str, list[dict[str, Any]]] = {}
    for size, of_size in asked.items():
        rows[size] = []
        for run in of_size:
            found = _local(run, committed.get(run.id), runs)
            row = _row(table, run, size, found, committed.get(run.id))
            if row is not None and row["status"] in record.ENDED:
                folder = results / table.name / "blocks"
                blocks = (
                    folder / f"{row['id']}.csv" if runs is None or found is None else runs / run.slug / "blocks.csv"
                )
                row["blocks"] = blocks.read_text() if blocks.is_file() else None
                rows[size].append(row)
    return rows, len(set(own) - {run.id for of_size in asked.values() for run in of_size})


def _local(run: Asked, committed: Row | None, runs: Path | None) -> dict[str, Any] | None:
    """The record of a run that has ended in `runs`; not of one that is committed on more data."""
    found = record.read(runs / run.slug) if runs else None
    if found is None or found["status"] not in record.ENDED:
        return None
    return None if committed is not None and found["partial"] and not committed["partial"] else found


def _row(
    table: Table, run: Asked, size: str, found: Mapping[str, Any] | None, committed: Row | None
) -> dict[str, Any] | None:
    """A run's row from its record, else from what was committed: the values that this table reads, and no others."""
    names = columns(table)
    prefixes = tuple(f"probe/{name}/" for name in table.probe)
    if found is not None:
        names += [f"probe/{key}" for key in found.get("probes", {}) if f"probe/{key}".startswith(prefixes)]
        row = store.row(found, run.axes, size, dict.fromkeys(names)) | {"curve": found["curve"]}
    elif committed is not None:
        names += [key for key in committed if key.startswith(prefixes)]
        row = {key: committed.get(key) for key in (*store.COLUMNS, *dict.fromkeys(names))}
    else:
        return None
    return row | {"axes": run.axes, "profile": size, "stale": store.stale(row)}


def open_runs(asked: Sequence[Asked], rows: Sequence[Row], results: Path) -> list[tuple[dict[str, Any], float | None]]:
    """Those of the runs asked for that are open: axes, and the seconds they will take if known (`cost.prices`).

    Args:
        rows: of those that have ended.
    """
    kinds = {run.id: run.kind for run in asked}
    ended = {row["id"] for row in rows if row["status"] in record.ENDED and not row["stale"]}
    seconds = cost.prices(((kinds[row["id"]], row) for row in rows), results)
    return [(run.axes, seconds.get(run.kind)) for run in asked if run.id not in ended]


def unread(table: Table, asked: Mapping[str, Sequence[Asked]], runs: Path) -> list[str]:
    """A line for each metric that a table reads and none of its runs has: perhaps a typing error.

    Nothing is said of a size of which not all runs are in `runs`.
    """
    lines: dict[str, None] = {}
    for profile, part in ((None, table), ("tiny", table.tiny)):
        if part is not None:
            records = [found for run in asked[profile or "paper"] if (found := record.read(runs / run.slug))]
            complete = len(records) == len(expand(table, profile))
            lines |= dict.fromkeys(_unread(part, records) if complete and records else [])
    return list(lines)


def _unread(table: Table, records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    have = {key for found in records for values in (found["metrics"], found["last"], *found["curve"]) for key in values}
    columns_of_records = [name for name in columns(table) if not name.startswith("probe/")]
    for name in dict.fromkeys(map(_metric, columns_of_records)):
        if name not in have:
            yield f"none of its {len(records)} runs here has {name}{errors.nearest(name, have)}"


def _metric(column: str) -> str:
    """The metric of a record that a column of runs.csv is made of."""
    return column.removeprefix("steps to ").removeprefix("best ").removeprefix("last ").split()[0]


def curve(table: Table, row: Row, results: Path) -> list[dict[str, float]]:
    """A run's curve: from its record, or as committed with any table."""
    if row.get("curve"):
        return list(row["curve"])
    own = results / table.name / "curves" / f"{row['id']}.csv"
    paths = [own, *sorted(results.glob(f"*/curves/{row['id']}.csv"))]
    path = next((p for p in paths if p.is_file()), own)
    return [{k: float(v) for k, v in line.items() if v} for line in csv_rows(path)]


def thinned(points: Sequence[Any], most: int) -> Sequence[Any]:
    """At most so many of a curve's points, evenly, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(k * (len(points) - 1) / (most - 1))] for k in range(most)]
