"""Make a `Table` of the `table` node of a table's file. An error is one line that names the key.

The keys, their types and their defaults are the fields of the classes in `table.py`. This module checks what types
cannot express.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, get_args, get_type_hints

from timescales.config import values as plain
from timescales.config.schema import is_of_identity
from timescales.config.values import read_yaml
from timescales.errors import ConfigError, nearest
from timescales.papers import assumptions
from timescales.papers.table import (
    FAILING,
    FAILS_MORE_OFTEN,
    FIRST_SEED,
    PAPER,
    RATES,
    WITHIN,
    Assumption,
    Cell,
    Cited,
    Claim,
    Competence,
    Figure,
    Grid,
    Ladder,
    Layout,
    Measure,
    Number,
    Question,
    Rung,
    Select,
    Table,
    Threshold,
    Where,
    expand,
    matches,
    printed_pairs,
)
from timescales.runs.metrics import STEPS_TO, is_steps, threshold

Node = Mapping[str, Any]  # a part of a table's file
PERCENT = r"%|\bpct\b|\bper\s?cents?\b|\bpercentages?\b"  # what people write for percent
MINIMUM = {"sd": 0, "se": 0, "tolerance": 0, "n": 1}
ABOVE = {"times": 0, "by": 0, "at": 0, "steps": 0, "share": 0, "seeds": 0}
DOCUMENTATION = "timescales/papers/table.py"
hints_of: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)  # as slow as all else in `checked`


def parse(node: Node) -> Table:
    """Make a table of its node. Raises ConfigError for a table that cannot be judged or reported."""
    file = f"table/{node.get('name', '?')}.yaml"
    where = f"{file}: table"
    values = checked(Table, node, where)
    ladder, measure = values.pop("ladder", None), _inherited(values)
    values |= {
        "runs": _each(_grid, f"{where}.runs", values["runs"]),
        "cells": _each(parse_cell, f"{where}.cells", values["cells"], measure),
        "claims": _each(parse_claim, f"{where}.claims", values["claims"], measure),
        "data": _each(_of_data, f"{where}.data", values.get("data", []), measure),
        "cited": _each(lambda at, node: Cited(**checked(Cited, node, at)), f"{where}.cited", values.get("cited", [])),
        "figure": _each(_figure, f"{where}.figure", _listed(values.get("figure", []))),
        "assumed": {
            key: Assumption(**checked(Assumption, entry, f"{where}.assumed.{key}"))
            for key, entry in values.get("assumed", {}).items()
        },
    }
    for key, kind in (("question", Question), ("layout", Layout)):
        if key in values:
            values[key] = kind(**checked(kind, values[key], f"{where}.{key}"))
    for key in ("notes", "needs", "probe"):
        if wrong := [text for text in values.get(key, ()) if not isinstance(text, str)]:
            raise ConfigError(f"{where}.{key}: {wrong[0]!r} is not a string: put quotes around text with a colon")
    table = Table(**values)
    if not set(table.other_selections()) <= set(get_args(Select)):
        raise ConfigError(f"{where}.assumed.select.try must be a list of best or last, not {table.other_selections()}")
    runs = expand(table)
    _check_runs(file, table, runs)
    chosen = any(item.calibrated for part in (table.cells, table.claims) for item in part)
    if chosen and not any(assumption.calibrated for assumption in table.assumed.values()):
        fix = "add it to the setting of assumed that was chosen by it"
        raise ConfigError(f"{file}: a cell or a claim has calibrated: true: {fix}")
    table = assumptions.under_views(table, runs)
    table = replace(table, cells=_planned(table, runs))
    if ladder is not None:
        table = replace(table, ladder=_ladder(f"{where}.ladder", ladder, table, measure))
    _check_claims(file, table)
    return table


RUNG_KEYS = ("claims", "metric", "select", "success", "chance", "tolerance", "competence")  # keys that rungs inherit


def _ladder(where: str, node: Any, table: Table, measure: Node) -> Ladder:
    """Parse the ladder of a table. Raises ConfigError for rungs that cannot be put in an order."""
    values = checked(Ladder, {key: value for key, value in node.items() if key not in RUNG_KEYS}, where)
    if values.get("none"):
        if len(node) > 1:
            raise ConfigError(f"{where}.none says why it has no rungs: leave out {', '.join(node.keys() - {'none'})}")
        return Ladder(**values)
    shared = {key: node[key] for key in RUNG_KEYS if key in node}
    if not values.get("rungs") or not values.get("over"):
        raise ConfigError(f"{where} needs over (what grows) and rungs, each with a name; or none: why it has no rungs")
    if wrong := {PAPER, RATES, "small", "tiny"} & values["rungs"].keys():
        raise ConfigError(f"{where}.rungs.{wrong.pop()}: this name is reserved; choose another one")
    for name, part in values["rungs"].items():
        if not isinstance(name, str):
            raise ConfigError(f"{where}.rungs.{name}: the name of a rung must be a string: write '{name}'")
        plain.require(f"{where}.rungs.{name}", part, dict)
    base = values.get("shared", {})
    rungs = {
        name: _rung(f"{where}.rungs.{name}", {**shared, **part}, table, measure, values["over"], base)
        for name, part in values["rungs"].items()
    }
    sizes = [rung.at or 0 for rung in rungs.values()]
    if sizes != sorted(set(sizes)):
        raise ConfigError(f"{where}.rungs must be in the order of their sizes, `at`, without equal ones; not {sizes}")
    kinds: dict[str, tuple[Any, ...]] = {}
    for claim in (claim for rung in rungs.values() for claim in rung.claims):
        kind = (claim.unit, is_steps(claim.column), "fails" in claim.sign)
        if kind != kinds.setdefault(claim.of or claim.text, kind):
            raise ConfigError(f"{where}: the claim {claim.claim!r} is in another unit at another rung: use one")
    if "rates" in values:
        values["rates"] = _rung(f"{where}.rates", {**values["rates"], "claims": []}, table, measure, "", base)
        if not all("optimizer.lr" in grid.settings for grid in values["rates"].runs):
            raise ConfigError(f"{where}.rates.set has no optimizer.lr: give the learning rates that are compared")
    return Ladder(**values | {"rungs": rungs})


def _rung(where: str, node: Any, table: Table, measure: Node, over: str, base: Node) -> Rung:
    """Parse a rung.

    Args:
        over: the setting whose value is the size of the rung, if the rung does not set `at`.
        base: settings that all rungs share.
    """
    values = checked(Rung, node, where, measure)
    if seeds := values.get("seeds"):
        base = {**base, "seed": [FIRST_SEED + k for k in range(seeds)]}
    sets = tuple(_grid(f"{where}.set", base) | _grid(f"{where}.set", part) for part in _listed(values["sets"]))
    for part in sets:
        if not any(grid.has_model_of(part) for grid in table.runs):
            raise ConfigError(f"{where}.set names model {part.settings['model']}, which no run has")
    values |= {
        "runs": tuple(grid | part for part in sets for grid in table.runs if grid.has_model_of(part)),
        "cells": (),
        "ladder": None,
        "claims": _each(parse_claim, f"{where}.claims", values.get("claims", []), _inherited(values)),
        "sets": sets,
    }
    if "competence" in values:
        values["competence"] = Competence(**checked(Competence, values["competence"], f"{where}.competence"))
    rung = Rung(**vars(table) | values)
    if over and rung.at is None:
        size, *others = (grid.settings.get(over) for grid in rung.runs)
        size = size if all(other == size for other in others) else None
        if not isinstance(size, Number):
            raise ConfigError(f"{where}.at is missing: the size of this rung, a number")
        rung = replace(rung, at=size)
    for claim in rung.claims:
        if claim.of and stands_for(table.claims, claim.of) is None:
            known = {text for each in table.claims for text in (each.claim, each.text)}
            raise ConfigError(f"{where}: of: {claim.of!r} is not one claim of the table{nearest(claim.of, known)}")
        if is_steps(claim.column) and (claim.sign in WITHIN or claim.by or claim.than):
            fix = "leave out than, which is a difference" if claim.than else "use times" if claim.by else "use >"
            raise ConfigError(f"{where}: the claim {claim.claim!r}: times of a rung are compared as ratios: {fix}")
    return rung


def stands_for(claims: Sequence[Claim], of: str) -> Claim | None:
    """Find the paper's claim with this line or, where several have it, with this line and its metrics in brackets."""
    found = {each.number: each for each in reversed(claims) if of == each.text} or {
        each.number: each for each in reversed(claims) if of == each.claim
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _inherited(values: Node) -> Node:
    """Return the values of a table that its cells and claims inherit."""
    return {f.name: values[f.name] for f in fields(Measure) if f.name in values}


def _each(build: Callable[..., Any], where: str, nodes: Sequence[Any], *more: Any) -> tuple[Any, ...]:
    """Call `build` with each node of a list and its place in the file."""
    return tuple(build(f"{where}[{k}]", node, *more) for k, node in enumerate(nodes))


def checked(kind: type[Any], node: Any, where: str, inherited: Node | None = None) -> dict[str, Any]:
    """Return a node's values by field of the class `kind`, each of the field's type, with those that it inherits.

    Raises ConfigError for a key that is unknown, or missing and not inherited; for a value of a wrong type or out of
    the range of its key; and for a unit, a threshold or a spread by which verdicts would be wrong.
    """
    plain.require(where, node, Mapping)
    known = {key: f for f in fields(kind) if (key := f.metadata.get("key", f.name))}
    known = {key: known[key] for key in getattr(kind, "KEYS", known)}
    needed = [key for key, f in known.items() if f.default is f.default_factory is MISSING]
    if missing := [f"{where}.{key}" for key in needed if key not in node and key not in (inherited or {})]:
        verb = "is missing" if len(missing) == 1 else "are missing"
        keys = ", ".join([missing[0], *(key.partition(": ")[2] for key in missing[1:])])
        raise ConfigError(f"{keys} {verb}; see {DOCUMENTATION}")
    hints, values = hints_of(kind), dict(inherited or {})
    for key, value in node.items():
        place = f"{where}.{key}"
        if key not in known:
            raise ConfigError(f"{place}: no such key{nearest(key, known)}")
        hint = hints[known[key].name]
        plain.require(place, value, known[key].metadata.get("yaml", hint))
        if isinstance(value, Number):
            if not math.isfinite(value):
                raise ConfigError(f"{place} must be a finite number, not {value}")
            if value < MINIMUM.get(key, -math.inf):
                raise ConfigError(f"{place} must be at least {MINIMUM[key]}, not {value}")
            if value <= ABOVE.get(key, -math.inf):
                raise ConfigError(f"{place} must be above {ABOVE[key]}, not {value}")
        if key == "unit" and value != "percent" and re.search(PERCENT, value, re.IGNORECASE):
            raise ConfigError(f"{place}: {value!r} shows a fraction unchanged; to show it times 100 write percent")
        if key in ("metric", "than") and is_steps(value):
            _threshold(place, value.removeprefix(STEPS_TO))
        if isinstance(value, str) and Threshold in (hint, *get_args(hint)):
            value = _threshold(place, value)
        values[known[key].name] = tuple(value) if isinstance(value, list) else value
    if None not in (values.get("sd"), values.get("se")):
        raise ConfigError(f"{where} has both sd and se: give one")
    return values


def _threshold(where: str, text: str) -> Threshold:
    try:
        return Threshold(*threshold(text))
    except (ValueError, KeyError):
        raise ConfigError(f"{where}: cannot read {text!r}; write it like valid/accuracy >= 0.99") from None


def _listed(node: Any) -> list[Any]:
    """Return the nodes of a key that has a list of them, or a single one."""
    return list(node) if isinstance(node, list | tuple) else [node]


def parse_cell(where: str, node: Any, measure: Node) -> Cell:
    """Make a cell of its mapping. measure: what it inherits from its table. Raises ConfigError."""
    values = checked(Cell, node, where, measure)
    if spread := next((key for key in ("sd", "se") if values.get(key) is not None), None):
        if "n" not in values:
            raise ConfigError(f"{where}.n is missing: the number of runs behind {spread}; null if not printed")
        if values["n"] == 1:
            raise ConfigError(f"{where}.n: one run has no {spread}")
    return Cell(**values)


def _of_data(where: str, node: Any, measure: Node) -> Cell | Claim:
    """Make a claim or a value that is only about the data."""
    parsed = (parse_cell if isinstance(node, Mapping) and "claim" not in node else parse_claim)(where, node, measure)
    if not parsed.metric.startswith("data/"):
        raise ConfigError(f"{where}.metric must begin with data/, not {parsed.metric!r}: no runs are read for it")
    return parsed


def _planned(table: Table, runs: Sequence[Where]) -> tuple[Cell, ...]:
    """Give printed cells their numbers of runs, and the smallest gap by which the paper calls one value better."""
    printed = {id(cell): float(cell.value) for cell in table.cells if cell.value is not None}
    gaps: dict[int, list[float]] = {key: [] for key in printed}
    for claim in (claim for claim in table.claims if claim.quote and claim.sign == ">"):
        for first, second in printed_pairs(claim, table.cells, runs):
            for cell in (first, second):
                gaps[id(cell)].append(abs(printed[id(first)] - printed[id(second)]))
    found = []
    for cell in table.cells:
        of_cell = sum(matches(axes, cell.where) for axes in runs) if id(cell) in printed else 0
        found.append(replace(cell, gap=min(gaps.get(id(cell), ()), default=None), planned=of_cell))
    return tuple(found)


def _figure(where: str, node: Any) -> Figure:
    figure = Figure(**checked(Figure, node, where))
    needed = {"line": ("x",), "probe": ("probe", "xlabel", "ylabel")}
    if missing := [key for key in needed.get(figure.kind, ()) if not getattr(figure, key)]:
        raise ConfigError(f"{where}.{missing[0]} is missing; see {DOCUMENTATION}")
    if figure.trivial_baselines and figure.kind != "curves":
        raise ConfigError(f"{where}.trivial_baselines: only kind: curves can draw them; leave it out")
    return figure


def _grid(where: str, node: Any) -> Grid:
    """Make a grid. Raises ConfigError for several values of a key that is not part of a run's identity."""
    plain.require(where, node, Mapping)
    for name, value in node.items():
        key = str(name).lstrip("+~")
        several = isinstance(value, list) and len(value) > 1
        if key == "seeds" or (several and not is_of_identity(key)):
            fix = "write seed: [0, 1, 2]" if key == "seeds" else "give it on the command line"
            raise ConfigError(f"{where}.{key}: runs that only differ in it are one run; {fix}")
    return Grid(dict(node))


def _check_runs(file: str, table: Table, runs: Sequence[Where]) -> None:
    """Raise ConfigError for a cell that no run can fill, or a figure that shows no run."""
    for key, assumption in table.assumed.items():
        for value, words in assumption.shown.items():
            plain.require(f"{file}: table.assumed.{key}.shown.{value}", words, str)
            if not any(axes.get(key) == value for axes in runs):
                raise ConfigError(f"{file}: assumed.{key}.shown: no run has {key}={value}; add it to runs")
    if table.reduce == "best_lr" and not all("optimizer.lr" in axes for axes in runs):
        raise ConfigError(f"{file}: reduce: best_lr needs optimizer.lr in each of the table's runs")
    for cell in table.cells:
        if not any(matches(axes, cell.where) for axes in runs):
            raise ConfigError(f"{file}: no run fills the cell {dict(cell.where)}")
    for figure in table.figure:
        if not any(matches(axes, figure.where) for axes in runs):
            raise ConfigError(f"{file}: no run is in the figure with where: {dict(figure.where)}")


def _check_claims(file: str, table: Table) -> None:
    """Raise ConfigError for a claim that no run can decide or, at the paper's size, one without a source."""
    for line in table.question.by if table.question else ():
        if stands_for(table.claims, line) is None:
            raise ConfigError(f"{file}: question.by: {line!r} must be the line of exactly one claim of the table")
    for size, part in table.sizes.items():
        runs = expand(table, size)
        for claim in part.claims:
            groups = claim.groups(runs, lambda axes: axes).values()
            if not groups or any(axes in other for first, *others in groups for other in others for axes in first):
                what = "runs are on both sides of" if groups else "no runs decide"
                text = f"{what} the claim {claim.claim!r}: name every setting in which its sides differ"
                raise ConfigError(f"{file}: {text}")
            if part is table and not (claim.decides or claim.ours):
                text = f"the claim {claim.claim!r} has no source: give quote and at, hypothesis and dated, or ours"
                raise ConfigError(f"{file}: {text}")


def parse_claim(where: str, node: Any, measure: Node) -> Claim:
    """Make a claim of its line or its mapping. measure: what it inherits from its table. Raises ConfigError."""
    keys = {"claim": node} if isinstance(node, str) else node
    values = checked(Claim, keys, where, measure)
    values |= {"text": _text(keys), **_read(where, keys["claim"], "than" in keys)}
    claim = Claim(**values)
    if wrong := _wrong(claim, keys):
        raise ConfigError(f"{where}: the claim {claim.claim!r} {wrong}")
    return claim


def _text(keys: Node) -> str:
    """Return a claim's line with its other keys in words."""
    more = {"metric": "{}", "than": "before {}", "times": "{} times", "by": "by {}", "success": "success: {}"}
    words = [form.format(keys[key]) for key, form in more.items() if key in keys]
    return keys["claim"] + (f" ({', '.join(words)})" if words else "")


def _read(where: str, line: str, two_metrics: bool) -> dict[str, Any]:
    """Read sides, sign and place from a claim's line. Raises ConfigError for a line that is not a claim."""
    text, _, place = line.partition("@")
    failing = re.fullmatch(r"\s*(.+?)\s+((?:never |sometimes )?fails)\s*", text)
    parts = re.split(rf"\s(>=|[>~]|{FAILS_MORE_OFTEN})\s", text)
    sign, sides = ">", [text]
    if two_metrics:
        if failing or len(parts) > 1:
            raise ConfigError(f"{where}: cannot read the claim {line!r}: with `than`, name one side")
    elif failing:
        sign, sides = failing[2], [failing[1]]
    elif len(parts) == 3:
        sign, sides = parts[1], [parts[0], parts[2]]
    else:
        raise ConfigError(f"{where}: cannot read the claim {line!r}: write it as A > B @ key=value")
    return {"sign": sign, "sides": tuple(_settings(where, side) for side in sides), "place": _settings(where, place)}


def _settings(where: str, text: str) -> Where:
    """Read settings: "plstm task.T=200" becomes {"model": "plstm", "task.T": 200}. Raises ConfigError for one twice."""
    pairs = [(part if "=" in part else f"model={part}").split("=", 1) for part in text.split()]
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"{where}: {text.strip()!r} has {twice[0]} twice; several values are {twice[0]}=[a,b]")
    return {key: read_yaml(value) for key, value in pairs}


def _wrong(claim: Claim, keys: Node) -> str | None:
    """Return what is wrong with the keys of a claim, or None."""
    if len(sources := [key for key in ("quote", "hypothesis", "ours") if getattr(claim, key)]) > 1:
        return f"has {' and '.join(sources)}: leave out one"
    if bool(claim.quote) != bool(claim.at):
        return "needs both quote (the words of the paper) and at (where the paper has them)"
    if bool(claim.hypothesis) != bool(re.fullmatch(r"\d{4}-\d\d-\d\d", claim.dated)):
        return 'needs both hypothesis (what we expect and why) and dated (when it was written): "2026-11-25"'
    if claim.sign in FAILING and claim.success is None:
        return 'needs success: "valid/accuracy > 0.5" or similar: it decides which runs fail'
    source = {"claim", "quote", "at", "hypothesis", "dated", "ours", "of", "words"}
    by_failures = claim.sign in (*FAILING, FAILS_MORE_OFTEN)
    if by_failures and (more := sorted(keys.keys() - source - {"success", "calibrated"})):
        return f"is decided by success: leave out {', '.join(more)}"
    if claim.sign in WITHIN and (more := sorted(keys.keys() & {"times", "by"})):
        return f"is decided by its tolerance: leave out {more[0]}"
    if claim.sign == ">" and "tolerance" in keys:
        return "is decided by a test: leave out tolerance"
    if claim.sign in WITHIN and "metric" in keys and "tolerance" not in keys:
        return "has its own metric: give, in its unit, the largest difference that counts as none: tolerance: ..."
    return None
