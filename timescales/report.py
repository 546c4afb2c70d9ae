"""From records to results/<table>/: runs.csv, curves/, blocks/, table.md (its words: markdown.py). Never trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timescales import compose, conclusion, cost, errors, record, store, tables, verdict
from timescales.config import identity
from timescales.files import csv_rows
from timescales.papers import load
from timescales.paths import RESULTS, RUNS

POINTS = 200  # of a committed curve
PROFILES = (None, "tiny")


@dataclass
class Report:
    """A table, its runs as far as there are any, and what they say."""

    table: Mapping[str, Any]
    rows: dict[str, list[dict[str, Any]]]  # by profile: "paper", "tiny"
    asked: dict[str, list[dict[str, Any]]]  # the axes of all its runs, by profile
    missing: list[str] = field(default_factory=list)  # why some runs cannot be composed here
    left: list[tuple[dict[str, Any], float | None]] = field(default_factory=list)  # open runs: axes, seconds if known
    dropped: int = 0  # committed runs that the table does not ask for any more
    kinds: set[str] = field(default_factory=set)  # of all its runs, see `schema.kind`
    own: bool = False  # a table in a folder of one's own, which make does not know
    unread: list[str] = field(default_factory=list)  # what the table reads and no run here has, a line each

    def __post_init__(self) -> None:
        tiny = tables.twin(self.table)
        self.cells = [verdict.cell(c, self.table, self.rows["paper"]) for c in self.table["cells"]]
        self.claims, self.shown = (
            [conclusion.judge(c, part, self.rows[size], self.asked[size]) for c in part["claims"]]
            for part, size in ((self.table, "paper"), (tiny, "tiny"))
        )
        self.verdict = verdict.whole(self.cells, self.claims, self.complete("paper"))
        self.verdict += verdict.partial(self.rows["paper"]) if self.verdict != "open" else ""

    def complete(self, profile: str) -> bool:
        """Whether all of its runs of the "paper" size, or the "tiny" one, have ended."""
        return len(self.rows[profile]) >= len(self.asked[profile])

    def shown_here(self) -> str:
        """The tiny twin in a word: does the order that the paper concludes appear at 1/n of its size?

        If it does not, nothing is contradicted: the size may be the reason.
        """
        said = {verdict.word_of(c) for c in self.shown}
        if not self.table.get("tiny"):
            return "no twin"
        if not self.rows["tiny"]:
            return "not run"
        if not self.shown:
            return "no order expected"
        if {"open", "stale"} & said or not self.complete("tiny"):
            return "open"
        word = "not in order" if {"refuted", "reversed"} & said else "order shown"
        return word + verdict.partial(self.rows["tiny"])

    def price(self, where: Mapping[str, Any]) -> str:
        """What the open runs with these settings will take on a machine like those that were timed."""
        mine = [seconds for axes, seconds in self.left if tables.matches(axes, where)]
        known = [seconds for seconds in mine if seconds is not None]
        minutes = sum(known) / 60
        spent = f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.{1 if minutes < 600 else 0}f} h"
        words = [f"{_runs(len(known))}: {spent}"] * bool(known)
        words += [f"{_runs(len(mine) - len(known))} not timed"] * (len(known) < len(mine))
        return ", ".join(words)


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def make(name: str, composer: compose.Composer, local: bool = True, own: bool = False) -> Report:
    """The report of the table of this name, with the time its open runs will take; `local`: count what is in runs/.

    Runs that cannot be composed (a task that is not there) are named in it. Raises ConfigError if there is no table.
    """
    table = load.table(name)
    asked: dict[str, list[tuple[tables.Run, str]]] = {}
    axes: dict[str, list[dict[str, Any]]] = {}
    kinds: dict[str, str] = {}
    missing: list[str] = []
    for profile in PROFILES:
        runs, wrong = load.runs(table, profile, composer)
        mine = asked[profile or "paper"] = [(run, identity.slug(cfg)) for run, cfg in runs]
        kinds |= {identity.id_of(slug): identity.kind(cfg) for (_, slug), (_, cfg) in zip(mine, runs, strict=True)}
        axes[profile or "paper"] = [run.axes for run in tables.expand(table, profile)]
        missing += wrong
    rows, dropped = gather(table, asked, local)
    left = open_runs(asked["paper"], kinds, rows["paper"])
    why = list(dict.fromkeys(missing))
    lacking: dict[str, None] = {}
    for size, part in (("paper", table), ("tiny", tables.twin(table))):
        records = [found for _, slug in asked[size] if local and (found := record.read(RUNS / slug))]
        lacking |= dict.fromkeys(unread(part, records) if len(records) == len(axes[size]) else [])
    return Report(table, rows, axes, why, left, dropped, set(kinds.values()), own, list(lacking))


def unread(table: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each metric that the table reads and none of its runs has (all are here): perhaps a typing error."""
    have = {key for found in records for values in (found["metrics"], found["last"], *found["curve"]) for key in values}
    names = [name.removeprefix("steps to ").removeprefix("best ").removeprefix("last ").split()[0]
             for name in verdict.metrics(table) if not name.startswith("probe/")]  # fmt: skip
    lacking = [name for name in dict.fromkeys(names) if records and name not in have]
    return [f"none of its {len(records)} runs here has {name}{errors.nearest(name, have)}" for name in lacking]


def gather(
    table: Mapping[str, Any], runs: Mapping[str, Sequence[tuple[tables.Run, str]]], local: bool
) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """The rows of those runs that have ended, by profile, and how many committed ones the table does not ask for.

    runs: by profile, each with its slug. A run counts by its id: as it lies in runs/ (if `local`), else as it was
    committed under results/. One that goes on or broke off with an error has no result yet: it is open.
    """
    own = {row["id"]: row for row in store.read_rows(RESULTS / table["name"] / "runs.csv")}
    committed = store.committed() | own
    found: dict[str, list[dict[str, Any]]] = {}
    for profile, asked in runs.items():
        found[profile] = []
        for run, slug in asked:
            mine = record.read(RUNS / slug) if local else None
            known = committed.get(identity.id_of(slug))
            if mine is not None and mine["status"] not in record.ENDED:
                mine = None
            if mine is not None and known is not None and mine["partial"] and not known["partial"]:
                mine = None  # the same run is committed on the whole data
            row = _row(table, run, profile, mine, known)
            if row is not None and row["status"] in record.ENDED:
                folder = RESULTS / table["name"] / "blocks"
                blocks = RUNS / slug / "blocks.csv" if mine is not None else folder / f"{row['id']}.csv"
                row["blocks"] = blocks.read_text() if blocks.is_file() else None
                found[profile].append(row)
    return found, len(set(own) - {identity.id_of(slug) for asked in runs.values() for _, slug in asked})


def open_runs(
    asked: Sequence[tuple[tables.Run, str]], kinds: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[dict[str, Any], float | None]]:
    """Those of the runs asked for that are open: axes, and the seconds they will take if known (`cost.prices`).

    asked: each with its slug; kinds: by a run's id (`schema.kind`); rows: of those that have ended.
    """
    ended = {row["id"] for row in rows if row["status"] in record.ENDED and not row["stale"]}
    seconds = cost.prices((kinds[row["id"]], row) for row in rows)
    ids = [(run.axes, identity.id_of(slug)) for run, slug in asked]
    return [(axes, seconds.get(kinds[run_id])) for axes, run_id in ids if run_id not in ended]


def _row(
    table: Mapping[str, Any], run: tables.Run, profile: str, mine: dict[str, Any] | None, known: dict[str, Any] | None
) -> dict[str, Any] | None:
    """A run's row from its record, else from what was committed: the values that this table reads, and no others."""
    names = verdict.metrics(table)
    probes = tuple(f"probe/{name}/" for name in table.get("probe", []))
    if mine is not None:
        names += [f"probe/{key}" for key in mine.get("probes", {}) if f"probe/{key}".startswith(probes)]
        row = store.row(mine, run.axes, profile, dict.fromkeys(names)) | {"curve": mine["curve"]}
    elif known is not None:
        names += [key for key in known if key.startswith(probes)]
        row = {key: known.get(key) for key in (*store.COLUMNS, *dict.fromkeys(names))}
    else:
        return None
    return row | {"axes": run.axes, "profile": profile, "stale": store.stale(row)}


def thinned(points: Sequence[Any], most: int) -> Sequence[Any]:
    """At most so many of a curve's points, evenly, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(k * (len(points) - 1) / (most - 1))] for k in range(most)]


def curve(table: Mapping[str, Any], row: Mapping[str, Any]) -> list[dict[str, float]]:
    """A run's curve: from its record, or as committed with any table."""
    if row.get("curve"):
        return list(row["curve"])
    own = RESULTS / table["name"] / "curves" / f"{row['id']}.csv"
    paths = [own, *sorted(RESULTS.glob(f"*/curves/{row['id']}.csv"))]
    path = next((p for p in paths if p.is_file()), own)
    return [{k: float(v) for k, v in line.items() if v} for line in csv_rows(path)]
