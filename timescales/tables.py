"""A paper's table as data: the runs it asks for. Plain Python on plain values; no torch, no Hydra.

The `table` node of conf/table/<name>.yaml; what is not marked optional must be there:

    name, title, source     its file's name; what is measured; where it is printed
    runs                    list of grids {key: value or list of values}; their union is the table
    metric                  a record's metric ("test/accuracy"), "steps to valid/accuracy >= 0.99" (from the curve; a
                            run that never gets there counts with all steps it might have taken), or
                            "probe/<name>/<value>" (analysis/)
    select                  best (at the best validation) or last
    better                  higher or lower
    unit                    percent (records hold fractions) or the metric's own, for people
    reduce                  optional: over the runs of a cell: mean (default), max, or best_lr, the mean at the best
                            learning rate at which none diverged
    success                 optional: "valid/accuracy > 0.5": other runs are failures, counted, and left out of the mean
    n_min                   seeds below which a verdict carries "(n=...)"
    tolerance               in the printed unit: values this near are equal, where the paper prints no spread
    cells                   list of {where: {key: value}, value, and optionally sd, n, failed (runs that failed in the
                            paper), better, metric, unit, tolerance, label, compute (a function of timescales/analysis)}
    cited                   optional: list of {label, value, source}: other people's, never ours
    claims                  what the paper concludes: see `timescales/conclusion.py`
    assumed                 optional: the silence ledger, {key: {said: "...", try: [other values]}}; the report has a
                            column for each other `select`
    notes                   optional: list of sentences printed in the report (contradictions in the paper)
    needs                   optional: data sets that its runs read (names of scripts/fetch_data.py)
    probe                   optional: list of measurements made on each finished run (timescales/analysis)
    figure                  optional: {kind: cells | curves | line | probe, ...} or a list of them (timescales/plots.py)
    tiny                    optional: profile=tiny, a CPU's twin: {set: {key: value or values}, claims, and optionally
                            minutes, success, n_min, select, metric}
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timescales.schema import ConfigError, nearest

REQUIRED = {
    "name", "title", "source", "runs", "metric", "select", "better", "unit", "n_min", "tolerance", "cells", "claims",
}  # fmt: skip
OPTIONAL = {"reduce", "success", "cited", "assumed", "notes", "needs", "probe", "figure", "tiny"}
CHOICES = {"select": ("best", "last"), "better": ("higher", "lower"), "reduce": ("mean", "max", "best_lr")}
TINY = {"set", "minutes", "claims", "success", "n_min", "select", "metric"}


@dataclass(frozen=True)
class Run:
    """One run of a table: the grid's keys with this run's values (its seed too), and the overrides that make it."""

    axes: dict[str, Any]
    overrides: list[str]


def figures(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is to be drawn of a table: one panel for each entry."""
    asked = table.get("figure", [])
    return asked if isinstance(asked, list) else [asked]


def expand(
    table: Mapping[str, Any], profile: str | None = None, narrow: Mapping[str, list[Any]] | None = None
) -> list[Run]:
    """The runs of a table, each once; `narrow` maps keys to the only values wanted.

    A grid that knows the key keeps those of its values that are wanted, and is dropped if it has none. Wanted values
    that no grid has go to all grids that know the key, a key that none knows to all: such runs are beyond the table.
    A table without a tiny twin has no runs of that profile.
    """
    grids = [{k: v if isinstance(v, list) else [v] for k, v in grid.items()} for grid in table["runs"]]
    if profile == "tiny":
        if not table.get("tiny"):
            return []
        changes = {k: v if isinstance(v, list) else [v] for k, v in table["tiny"]["set"].items()}
        grids = [grid | changes for grid in grids]
    elif profile is not None:
        raise ConfigError(f"profile={profile}: there is tiny, and null for the paper's size")
    for key, wanted in (narrow or {}).items():
        beyond = [v for v in wanted if not any(v in grid.get(key, []) for grid in grids)]
        known = [grid | {key: [v for v in wanted if v in grid[key] or v in beyond]} for grid in grids if key in grid]
        grids = [grid for grid in known if grid[key]] or [grid | {key: beyond} for grid in grids]
    runs: dict[str, Run] = {}
    for grid in grids:
        for values in itertools.product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            overrides = [f"table={table['name']}", *(f"{key}={spell(value)}" for key, value in axes.items())]
            runs.setdefault(json.dumps(axes, sort_keys=True), Run(axes, overrides))
    return list(runs.values())


def spell(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ",".join(spell(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{spell(v)}" for k, v in value.items()) + "}"
    text = str(value)
    if isinstance(value, str) and (
        not re.fullmatch(r"[A-Za-z_][\w./]*", text) or text.lower() in ("null", "true", "false")
    ):
        # A backslash stands for itself unless a quote follows.
        return "'" + re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), text) + "'"
    return text


def twin(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table as its tiny twin judges: with its own claims, success condition, metric."""
    own = {key: value for key, value in table.get("tiny", {}).items() if key not in ("set", "minutes")}
    return {**table, "claims": [], **own}


def group(axes: Mapping[str, Any]) -> str:
    """What runs share that differ in the seed alone, as a key."""
    return json.dumps({k: v for k, v in axes.items() if k != "seed"}, sort_keys=True)


def varying(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys, but for the seed, in which runs differ; of each run its axes."""
    keys = dict.fromkeys(key for axes in runs for key in axes if key != "seed")
    return [key for key in keys if len({json.dumps(axes.get(key)) for axes in runs}) > 1]


def check(table: Mapping[str, Any]) -> None:
    """Raise ConfigError for a table that cannot be reported: keys missing or unknown, cells that no run can fill."""
    name = table.get("name", "?")
    if missing := [f"table.{key}" for key in sorted(REQUIRED - set(table))]:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        raise ConfigError(f"table/{name}.yaml: {what}; timescales/tables.py says what each is")
    if unknown := set(table) - REQUIRED - OPTIONAL:
        raise ConfigError(
            f"table/{name}.yaml: table.{min(unknown)}: no such key{nearest(min(unknown), REQUIRED | OPTIONAL)}"
        )
    for key in ("runs", "cells", "claims"):
        if not isinstance(table[key], list):
            raise ConfigError(f"table/{name}.yaml: table.{key} must be a list; [] where there are none")
    assumed = table.get("assumed", {})
    if not isinstance(assumed, Mapping) or not all(isinstance(e, Mapping) and "said" in e for e in assumed.values()):
        raise ConfigError(f"table/{name}.yaml: table.assumed must be {{key: {{said: ..., try: [other values]}}}}")
    others = assumed.get("select", {}).get("try", [])
    if not isinstance(others, list) or not all(other in CHOICES["select"] for other in others):
        raise ConfigError(f"table/{name}.yaml: table.assumed.select.try must be a list of best or last, not {others}")
    tiny = table.get("tiny", {"set": {}})
    if not isinstance(tiny, Mapping) or not isinstance(tiny.get("set"), Mapping):
        raise ConfigError(f"table/{name}.yaml: table.tiny.set must have the keys that make it small")
    if unknown := set(tiny) - TINY:
        raise ConfigError(f"table/{name}.yaml: table.tiny.{min(unknown)}: no such key{nearest(min(unknown), TINY)}")
    for part, where in ((table, "table"), (tiny, "table.tiny")):
        for key, words in CHOICES.items():
            if key in part and part[key] not in words:
                choices = f"{', '.join(words[:-1])} or {words[-1]}"
                raise ConfigError(f"table/{name}.yaml: {where}.{key} must be {choices}, not {part[key]}")
        conditions = [part.get("success"), *re.findall("^steps to (.*)", part.get("metric", ""))]
        for condition in filter(None, conditions):
            if not re.fullmatch(r"\S+ (<|>|<=|>=) [\d.e+-]+", condition):
                raise ConfigError(f"table/{name}.yaml: cannot read {condition!r}; write it like valid/accuracy >= 0.99")
    runs = expand(table)
    for cell in table["cells"]:
        if not any(matches(run.axes, cell.get("where", {})) for run in runs):
            raise ConfigError(f"table/{name}.yaml: no run fills the cell {cell['where']}")


def matches(axes: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a run has all the values that a cell or a claim names; a list means any of them."""
    return all(
        key in axes and (axes[key] in value if isinstance(value, list) else axes[key] == value)
        for key, value in where.items()
    )
