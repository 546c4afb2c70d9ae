"""Do a table's claims hold if settings that the paper does not state are varied?

Each assumed setting that names other values (`try`) is changed, one at a time, in the table's small-scale version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timescales.config import identity
from timescales.config.compose import Composer
from timescales.config.overrides import OF_GROUPS
from timescales.files import write_atomic
from timescales.papers import load
from timescales.papers.claims import judge_claims
from timescales.papers.table import Grid, Row, Run, SmallTable, columns, expand, run_of
from timescales.reports import markdown
from timescales.runs import record, store


@dataclass(frozen=True)
class Variation:
    """A setting with a value that the paper does not state; without a key: all as assumed."""

    key: str = ""
    value: Any = None

    @property
    def words(self) -> str:
        """The variation for people."""
        return f"{self.key}={markdown.say(self.value)}" if self.key else "as assumed"


def variations(table: SmallTable, composer: Composer) -> list[Variation]:
    """All as assumed, then each other value to try. One that changes no run is left out."""
    base, assumed = Variation(), table.assumed.items()
    # Another `select` needs no other runs: the report has a column for it.
    tries = [Variation(key, value) for key, entry in assumed if key != "select" for value in entry.tries]
    as_assumed = [slug for _, slug in runs_of(table, composer, base)]
    return [base, *(v for v in tries if [slug for _, slug in runs_of(table, composer, v)] != as_assumed)]


def narrowed(table: SmallTable, overrides: Sequence[str], composer: Composer) -> SmallTable:
    """The table of those runs that overrides choose, with the settings that they give, which then are not varied.

    A setting is left out for a model that does not have it, as in a sweep.
    """
    parsed = [composer.parse(text) for text in overrides]
    for override in parsed:
        composer.check_choice(override)
    wanted = {o.key_or_group: composer.values(o) for o in parsed}
    grids = []
    for run in expand(table, None, wanted):
        groups = composer.groups_of(run.overrides)
        absent = [key for key in wanted if key.startswith(OF_GROUPS) and not composer.has(groups, key)]
        grids.append(Grid({key: value for key, value in run.axes.items() if key not in absent}))
    assumed = {key: entry for key, entry in table.assumed.items() if key not in wanted}
    return replace(table, runs=tuple(grids), assumed=assumed)


def runs_of(table: SmallTable, composer: Composer, variation: Variation) -> list[tuple[Run, str]]:
    """The runs under a variation, with their slugs; a model that does not have the setting stays as it is."""
    runs = []
    for run in expand(table):
        changed = run_of(table, run.axes | {variation.key: variation.value}) if variation.key else run
        cfg = load.configuration(changed, composer)
        if cfg is None:
            changed, cfg = run, composer(run.overrides)
        runs.append((changed, identity.slug(cfg)))
    return runs


def models(table: SmallTable, composer: Composer, variation: Variation) -> list[str]:
    """The models that have the setting of a variation."""
    axes = [run.axes for run, _ in runs_of(table, composer, variation)]
    return list(dict.fromkeys(str(a["model"]) for a in axes if a.get(variation.key) == variation.value))


def gather(table: SmallTable, composer: Composer, results_dir: Path, runs_dir: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of the runs under each variation, from `runs_dir` or as committed; by the variation's words."""
    kept = store.read_rows(results_dir / table.name / "sensitivity.csv")
    committed = {row["id"]: row for row in [*store.committed(results_dir).values(), *kept]}
    own = {key for run in expand(table) for key in run.axes}
    rows: dict[str, list[dict[str, Any]]] = {}
    for variation in variations(table, composer):
        rows[variation.words] = []
        for run, slug in runs_of(table, composer, variation):
            if (row := _row(table, run, runs_dir / slug, committed.get(identity.id_of(slug)))) is not None:
                # A setting that only one model has must not keep its runs from being compared with the others'.
                axes = {key: value for key, value in run.axes.items() if key in own or key != variation.key}
                rows[variation.words].append({**row, "axes": axes, "stale": store.stale(row)})
    return rows


def _row(table: SmallTable, run: Run, directory: Path, committed: Row | None) -> Row | None:
    """The row of a run that has ended."""
    found = record.read(directory)
    if found is not None and found["status"] in record.ENDED:
        return store.row(found, run.axes, "tiny", columns(table))
    return committed if committed is not None and committed["status"] in record.ENDED else None


def page(table: SmallTable, rows: Mapping[str, Sequence[Row]], own: bool = False) -> str:
    """A row for each variation, a column for each claim; own: the table lies in the user's own folder."""
    head = ["setting", "runs", *(claim.text for claim in table.claims)]
    body = [[words, len(group), *_said(table, group)] for words, group in rows.items()]
    command = f"make sensitivity TABLE={table.name}"
    if own:
        command = f"python scripts/sensitivity.py --config-dir FOLDER {table.name}"
    lines = [
        *(f"# {table.name}: settings that the paper does not state, varied", ""),
        *(f"`{command}`: the small-scale version, one assumed setting changed at a time.", ""),
    ]
    return "\n".join([*lines, *markdown.grid(head, body), ""])


def _said(table: SmallTable, rows: Sequence[Row]) -> Iterator[str]:
    for result in judge_claims(table.claims, rows):
        yield f"{markdown.text(result.verdict)}: {markdown.numbers(result)}"


def write(table: SmallTable, rows: Mapping[str, Sequence[Row]], results_dir: Path, own: bool = False) -> str:
    """Write results/<table>/sensitivity.{csv,md}; returns the page."""
    folder = results_dir / table.name
    folder.mkdir(parents=True, exist_ok=True)
    every = {row["id"]: _storable(row) for group in rows.values() for row in group}
    write_atomic(folder / "sensitivity.csv", store.rows_text(list(every.values())).encode())
    text = page(table, rows, own)
    write_atomic(folder / "sensitivity.md", text.encode())
    return text


def _storable(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "stale"} | {"axes": json.dumps(row["axes"])}
