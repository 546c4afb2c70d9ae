"""A paper's table as data: the runs it asks for. Plain Python on plain values; no torch, no Hydra.

The `table` node of conf/table/<name>.yaml; what is not marked optional must be there:

    name, title, source     its file's name; what is measured; where it is printed
    runs                    list of grids {key: value or list of values}; their union is the table
    metric                  a record's metric ("test/accuracy"), "steps to valid/accuracy >= 0.99" (from the curve; a
                            run that never gets there counts with all steps it might have taken), or
                            "probe/<name>/<value>" (analysis/)
    select                  best (at the best validation) or last
    better                  higher or lower: what `>` of a claim and `reduce` go by
    unit                    percent (records hold fractions) or the metric's own, for people
    reduce                  optional: over the runs of a cell: mean (default), max, or best_lr, the mean at the best
                            learning rate at which none diverged
    success                 optional: "valid/accuracy > 0.5": other runs are failures, counted, and left out of the mean
    n_min                   seeds below which a verdict carries "(n=...)"
    tolerance               in the printed unit: values this near are equal, where the paper prints no spread
    cells                   list of {value, and optionally where: {key: value} (none: of all runs), sd or se, n (with
                            either), failed (runs that failed in the paper), n_min, better (also neither: no score),
                            metric, unit, tolerance, label, compute (a function of timescales/analysis)}
    cited                   optional: list of {label, value, source, and optionally sd or se}: of others, never ours
    claims                  what the paper concludes: see `timescales/conclusion.py`
    assumed                 optional: the silence ledger, {key: {said: "...", try: [other values]}}; the report has a
                            column for each other `select`
    notes                   optional: list of sentences printed in the report (contradictions in the paper)
    needs                   optional: data sets that its runs read (names of scripts/fetch_data.py)
    probe                   optional: list of measurements made on each finished run (timescales/analysis)
    figure                  optional: {kind: cells | curves | line | probe, ...} or a list of them; FIGURE has the keys
    tiny                    optional: profile=tiny, a CPU's twin: {set: {key: value or values} or a list of such, and
                            optionally claims, minutes, success, n_min, select, metric}
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timescales.config.identity import NOT_IDENTITY, NOT_IDENTITY_LOOP, NOT_IDENTITY_TASK
from timescales.config.overrides import spell
from timescales.errors import ConfigError, nearest
from timescales.runs.metrics import condition

# What the values of each key must be: of a type, or one of several words.
NUMBER = float | int
SELECT, BETTER = ("best", "last"), ("higher", "lower")
REQUIRED = {
    "name": str, "title": str, "source": str, "runs": list, "metric": str, "select": SELECT, "better": BETTER,
    "unit": str, "n_min": int, "tolerance": NUMBER, "cells": list, "claims": list,
}  # fmt: skip
OPTIONAL = {
    "reduce": ("mean", "max", "best_lr"), "success": str | None, "cited": list, "assumed": dict, "notes": list,
    "needs": list, "probe": list, "figure": dict | list, "tiny": dict,
}  # fmt: skip
CELL = {
    "where": dict, "value": NUMBER | None, "sd": NUMBER | None, "se": NUMBER | None, "n": int | None, "failed": int,
    "n_min": int, "better": (*BETTER, "neither"), "metric": str, "unit": str, "tolerance": NUMBER, "label": str,
    "compute": str,
}  # fmt: skip
CITED = {"label": str, "value": NUMBER, "sd": NUMBER | None, "se": NUMBER | None, "source": str}
ASSUMED = {"said": str, "try": list}
TINY = {
    "set": dict | list, "minutes": NUMBER, "claims": list, "success": str | None, "n_min": int, "select": SELECT,
    "metric": str,
}  # fmt: skip
FIGURE = {
    "kind": ("cells", "curves", "line", "probe"), "metric": str, "chance": NUMBER, "probe": str, "x": str,
    "xlabel": str, "ylabel": str, "xscale": ("linear", "log"), "yscale": ("linear", "log"),
}  # fmt: skip
DRAWN = {"line": ("x",), "probe": ("probe", "xlabel", "ylabel")}  # what a kind of figure cannot do without
WORDS = {
    str: "a text", str | None: "a text, or null for none", int: "a whole number", NUMBER: "a number",
    int | None: "a whole number, or null where none is printed",
    NUMBER | None: "a number, or null where none is printed",
    list: "a list; [] where there are none", dict: "keys with their values",
    dict | list: "keys with their values, or a list of such",
}  # fmt: skip
# Below these no number means anything; times and minutes must be above theirs.
LEAST = {"sd": 0, "se": 0, "tolerance": 0, "failed": 0, "n": 1, "n_min": 1, "times": 0, "minutes": 0}
PERCENT = r"%|\bpct\b|\bper\s?cents?\b|\bpercentages?\b"  # what people write for percent


@dataclass(frozen=True)
class Run:
    """One run of a table: the grid's keys with this run's values (its seed too), and the overrides that make it."""

    axes: dict[str, Any]
    overrides: list[str]


def figures(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is to be drawn of a table: one panel for each entry."""
    asked = table.get("figure", [])
    return asked if isinstance(asked, list) else [asked]


def tiny_sets(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the tiny twin sets: one set of keys, or several, each of which makes grids of its own."""
    asked = table.get("tiny", {}).get("set", [])
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
        sets = [{k: v if isinstance(v, list) else [v] for k, v in part.items()} for part in tiny_sets(table)]
        grids = [grid | part for part in sets for grid in grids]
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


def twin(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table as its tiny twin is judged: with the twin's own claims, success condition, metric."""
    own = {key: value for key, value in table.get("tiny", {}).items() if key not in ("set", "minutes")}
    return {**table, "claims": [], **own}


def group(axes: Mapping[str, Any]) -> str:
    """A key that is the same for runs that differ in the seed alone."""
    return json.dumps({k: v for k, v in axes.items() if k != "seed"}, sort_keys=True)


def varying(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys, except the seed, in which runs differ; runs: the axes of each."""
    keys = dict.fromkeys(key for axes in runs for key in axes if key != "seed")
    return [key for key in keys if len({json.dumps(axes.get(key)) for axes in runs}) > 1]


def check(table: Mapping[str, Any]) -> None:
    """Raise ConfigError for a table that cannot be reported: keys missing or unknown, cells that no run can fill."""
    file = f"table/{table.get('name', '?')}.yaml"
    if missing := [f"table.{key}" for key in sorted(REQUIRED.keys() - table)]:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        raise ConfigError(f"{file}: {what}; timescales/tables.py says what each is")
    tiny = table.get("tiny", {"set": []})
    parts: list[tuple[str, Any, dict[str, Any], tuple[str, ...]]] = [
        ("table", table, REQUIRED | OPTIONAL, ()), ("table.tiny", tiny, TINY, ("set",))
    ]  # fmt: skip
    for at, part, known, needed in parts:
        check_keys(f"{file}: {at}", part, known, needed)
        check_printed(f"{file}: {at}", part)
        entries = [part, *part.get("cells", []), *part.get("claims", [])]
        told = [str(e[key]) for e in entries if isinstance(e, Mapping) for key in ("metric", "than") if key in e]
        conditions = [part.get("success"), *(said for name in told for said in re.findall("^steps to (.*)", name))]
        for said in filter(None, conditions):
            try:
                condition(said)
            except (ValueError, KeyError):
                raise ConfigError(f"{file}: cannot read {said!r}; write it like valid/accuracy >= 0.99") from None
        for key in ("notes", "needs", "probe"):
            if wrong := [text for text in part.get(key, []) if not isinstance(text, str)]:
                raise ConfigError(f"{file}: {at}.{key}: quote what has a colon; {wrong[0]!r} is no text")
    nodes = (
        ("cells", table["cells"], CELL, ("value",)),
        ("cited", table.get("cited", []), CITED, ("label", "value", "source")),
        ("figure", figures(table), FIGURE, ("kind",)),
    )
    for key, entries, known, needed in nodes:
        for k, entry in enumerate(entries):
            check_keys(f"{file}: table.{key}[{k}]", entry, known, needed)
            check_printed(f"{file}: table.{key}[{k}]", entry, of_runs=key == "cells")
            if key == "figure":
                check_keys(f"{file}: table.{key}[{k}]", entry, known, DRAWN.get(entry["kind"], ()))
    for key, entry in table.get("assumed", {}).items():
        check_keys(f"{file}: table.assumed.{key}", entry, ASSUMED, ("said",))
    others = table.get("assumed", {}).get("select", {}).get("try", [])
    if not all(other in SELECT for other in others):
        raise ConfigError(f"{file}: table.assumed.select.try must be a list of best or last, not {others}")
    for k, grid in enumerate(table["runs"]):
        _check_grid(f"{file}: table.runs[{k}]", grid)
    for part in tiny_sets(table):
        _check_grid(f"{file}: table.tiny.set", part)
    runs = expand(table)
    if table.get("reduce") == "best_lr" and not all("optimizer.lr" in run.axes for run in runs):
        raise ConfigError(f"{file}: reduce: best_lr asks for optimizer.lr in each of the table's runs")
    for cell in table["cells"]:
        if not any(matches(run.axes, cell.get("where", {})) for run in runs):
            raise ConfigError(f"{file}: no run fills the cell {cell.get('where', {})}")


def check_keys(where: str, node: Any, known: Mapping[str, Any], needed: Iterable[str] = ()) -> None:
    """Raise ConfigError for a node of a table with an unknown key, a missing one, or one with a value of no use."""
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where} must be {WORDS[dict]}, not {node!r}")
    for key in needed:
        if key not in node:
            raise ConfigError(f"{where}.{key} is missing; timescales/tables.py says what it is")
    for key, value in node.items():
        if key not in known:
            raise ConfigError(f"{where}.{key}: no such key{nearest(key, known)}")
        kind = known[key]
        if isinstance(kind, tuple):
            if value not in kind:
                choices = " or ".join(filter(None, (", ".join(kind[:-1]), kind[-1])))
                raise ConfigError(f"{where}.{key} must be {choices}, not {value}")
        elif not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{where}.{key} must be {WORDS[kind]}; not {value!r}")
        elif isinstance(value, NUMBER):
            _check_number(f"{where}.{key}", key, value)


def check_printed(where: str, node: Mapping[str, Any], of_runs: bool = True) -> None:
    """Raise ConfigError for a unit or a spread that would decide verdicts wrongly; of_runs: a spread needs an n."""
    if (unit := node.get("unit", "percent")) != "percent" and re.search(PERCENT, unit, re.IGNORECASE):
        raise ConfigError(f"{where}.unit: with {unit!r} a fraction is shown as it is; percent shows 100 times it")
    spreads = [key for key in ("sd", "se") if node.get(key) is not None]
    if len(spreads) > 1:
        raise ConfigError(f"{where} has sd and se: give one")
    if spreads and of_runs:
        if "n" not in node:
            raise ConfigError(f"{where}.n is missing: of how many runs {spreads[0]} is; null where that is not printed")
        if node["n"] == 1:
            raise ConfigError(f"{where}.n: one run has no {spreads[0]}")


def _check_number(where: str, key: str, value: float) -> None:
    """Raise ConfigError for a number that cannot be what its key says."""
    least, above = LEAST.get(key, -math.inf), key in ("times", "minutes")
    if not math.isfinite(value):
        raise ConfigError(f"{where} must be a finite number, not {value}")
    if value < least or (above and value == least):
        raise ConfigError(f"{where} must be {'above' if above else 'at least'} {least}, not {value}")


def _check_grid(where: str, grid: Any) -> None:
    """Raise ConfigError for a grid with several values of a key that is no part of a run's identity."""
    if not isinstance(grid, Mapping):
        raise ConfigError(f"{where} must be {WORDS[dict]}, not {grid!r}")
    alike = [*(f"loop.{key}" for key in NOT_IDENTITY_LOOP), *(f"task.{key}" for key in NOT_IDENTITY_TASK)]
    for name, value in grid.items():
        key = str(name).lstrip("+~")
        several = isinstance(value, list) and len(value) > 1
        if key == "seeds" or (several and (key in alike or key.partition(".")[0] in NOT_IDENTITY)):
            mend = "write seed: [0, 1, 2]" if key == "seeds" else "give it on the command line"
            raise ConfigError(f"{where}.{key}: runs that differ in it alone are one run; {mend}")


def matches(axes: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a run has all the values that a cell or a claim names; a list means any of them."""
    return all(
        key in axes and (axes[key] in value if isinstance(value, list) else axes[key] == value)
        for key, value in where.items()
    )
