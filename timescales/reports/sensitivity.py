"""Test whether a table's claims hold if settings that the paper does not state are varied.

Each assumed setting that lists other values (`try`) is changed, one at a time, at the first rung of the table's ladder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timescales.config import values
from timescales.config.compose import WRONG_INPUT, Composer, parse
from timescales.config.run import Axes, Run, run_of
from timescales.experiment.plan import GROUP_PREFIXES
from timescales.files import write_atomic
from timescales.papers import load
from timescales.papers.judge import judge_claim
from timescales.papers.ladder import RUNG_WORDS
from timescales.papers.table import Grid, Rung, columns, expand
from timescales.reports import markdown, wording
from timescales.runs import found, store
from timescales.runs.metrics import is_steps
from timescales.runs.record import Record
from timescales.runs.store import Row


@dataclass(frozen=True)
class Variation:
    """A value for a setting that the paper does not state. Without a key: all settings as assumed."""

    key: str = ""
    value: Any = None

    @property
    def words(self) -> str:
        """The variation in words."""
        return f"{self.key}={wording.say(self.value)}" if self.key else "as assumed"


def variations(table: Rung, composer: Composer) -> list[Variation]:
    """Return all settings as assumed, then each other value to try. Values that change no run are skipped."""
    base, assumed = Variation(), table.assumed.items()
    # Another `select` needs no other runs: the report has a column for it.
    tries = [Variation(key, value) for key, entry in assumed if key != "select" for value in entry.tries]
    as_assumed = ids(runs_of(table, composer, base))
    return [base, *(v for v in tries if ids(runs_of(table, composer, v)) != as_assumed)]


def ids(runs: Sequence[Run]) -> list[str]:
    """Return the ids of runs."""
    return [run.id for run in runs]


def narrowed(table: Rung, overrides: Sequence[str], composer: Composer) -> Rung:
    """Restrict a table to the runs that overrides choose. Settings of the overrides replace its own and are not varied.

    A setting is skipped for a model that does not have it, as in a sweep.
    """
    wanted: dict[str, list[Any]] = {}
    for override in (parse(choice) for text in overrides for choice in composer.each_value(text)):
        if composer.chooses(override):
            composer.of_files([str(override.input_line)])  # raises an error for a name that is not there
        wanted.setdefault(override.key_or_group, []).append(override.value())
    grids = []
    for axes in expand(table, narrow=wanted):
        given = {key: value for key, value in axes.items() if not key.startswith(GROUP_PREFIXES)}
        known = dict(values.dotted(composer.of_files(load.request(given))))
        absent = [key for key in wanted if key.startswith(GROUP_PREFIXES) and key not in known]
        grids.append(Grid({key: value for key, value in axes.items() if key not in absent}))
    assumed = {key: entry for key, entry in table.assumed.items() if key not in wanted}
    return replace(table, runs=tuple(grids), assumed=assumed)


def runs_of(table: Rung, composer: Composer, variation: Variation) -> list[Run]:
    """Return the runs under a variation. Runs of models without the setting do not change."""
    return [_varied(table, axes, composer, variation) for axes in expand(table)]


def _varied(table: Rung, axes: Axes, composer: Composer, variation: Variation) -> Run:
    changed = {**axes, variation.key: variation.value} if variation.key else axes
    try:
        cfg = composer(load.request(changed))
    except WRONG_INPUT:  # this model or task does not have the setting
        if not variation.key:
            raise
        changed, cfg = axes, composer(load.request(axes))
    return replace(run_of(cfg), axes=changed)


def gather(table: Rung, composer: Composer, results_dir: Path, runs_dir: Path) -> dict[str, list[Row]]:
    """Read the rows of the runs under each variation, from `runs_dir` or as committed, by the variation's words."""
    saved = store.read_rows(results_dir / table.name / "sensitivity.csv")
    committed = {row.id: row for row in [*store.committed(results_dir).values(), *saved]}
    own = {key for axes in expand(table) for key in axes}
    rows: dict[str, list[Row]] = {}
    for variation in variations(table, composer):
        rows[variation.words] = []
        for run in runs_of(table, composer, variation):
            state = found.look(runs_dir / run.name, committed.get(run.id))
            if (outcome := state.outcome) is not None:
                row = store.row(outcome, run.axes, "small", columns(table)) if isinstance(outcome, Record) else outcome
                # A setting that only one model has must not keep its runs from being compared with the others'.
                axes = {key: value for key, value in run.axes.items() if key in own or key != variation.key}
                rows[variation.words].append(replace(row, axes=axes))
    return rows


def page(table: Rung, rows: Mapping[str, Sequence[Row]], own: bool = False) -> str:
    """Write a table with a row for each variation and a column for each claim. own: the user's own table."""
    head = ["setting", "runs", *(claim.text for claim in table.claims)]
    body = [[words, len(group), *_verdicts(table, group)] for words, group in rows.items()]
    command = f"make sensitivity TABLE={table.name}"
    if own:
        command = f"python scripts/sensitivity.py --config-dir FOLDER {table.name}"
    lines = [
        *(f"# {table.name}: settings that the paper does not state, varied", ""),
        *(f"`{command}`: the first rung, one assumed setting changed at a time.", ""),
    ]
    return "\n".join([*lines, *markdown.grid(head, body), ""])


def _verdicts(table: Rung, rows: Sequence[Row]) -> Iterator[str]:
    for claim in table.claims:
        ratio = is_steps(claim.column) and "fails" not in claim.sign
        found = judge_claim(claim, rows, [row.axes for row in rows], ratio=ratio)
        yield f"{RUNG_WORDS[found.word]}: {wording.effect(claim, found.interval, ratio)}"


def write(table: Rung, rows: Mapping[str, Sequence[Row]], results_dir: Path, own: bool = False) -> str:
    """Write results/<table>/sensitivity.{csv,md}. Return the page."""
    folder = results_dir / table.name
    folder.mkdir(parents=True, exist_ok=True)
    every = {row.id: row for group in rows.values() for row in group}
    write_atomic(folder / "sensitivity.csv", store.rows_text(list(every.values()), seed_in_axes=True).encode())
    text = page(table, rows, own)
    write_atomic(folder / "sensitivity.md", text.encode())
    return text
