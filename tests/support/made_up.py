"""A made-up table, its runs, and what is judged of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from timescales.config.run import Run
from timescales.papers import judge as judging
from timescales.papers.judge import Verdict
from timescales.papers.parse import parse, parse_cell, parse_claim
from timescales.papers.table import Measure, Table, Threshold, expand
from timescales.reports.report import Report
from timescales.runs.metrics import threshold
from timescales.runs.store import Row

TABLE = {
    "name": "made_up", "title": "Made up", "source": "nobody 2021, table 0", "metric": "test/accuracy",
    "select": "last", "better": "higher", "unit": "percent", "tolerance": 0.5, "claims": [], "assumed": {},
    "runs": [{"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1, 2]}],
    "cells": [{"where": {"model": "plstm"}, "value": 90.0}],
}  # fmt: skip
# A ladder of two rungs, of three seeds each, for a table with the claim "plstm > lstm".
LADDER = {
    "over": "task.T", "claims": [{"claim": "plstm > lstm", "of": "plstm > lstm"}],
    "rungs": {f"t{T}": {"set": {"task.T": T}, "seeds": 3, "differs": f"T = {T}"} for T in (5, 20)},
}  # fmt: skip
ORIGIN = {"seconds": 6.0, "machine": "abacus", "threads": 1, "commit": "c0ffee", "partial": ""}
FAILING = {"success": "valid/accuracy > 0.5"}


def quoted(claim: str | dict[str, Any]) -> dict[str, Any]:
    """A claim of a made-up paper, as a table's file has it."""
    node = claim if isinstance(claim, dict) else {"claim": claim}
    return {"quote": "One is better.", "at": "nobody 2021, section 1", **node}


def made_row(told: Mapping[str, Any] | None = None, like: Row | None = None, **more: Any) -> Row:
    """A row of a run, like another one where nothing else is told. What is no field of `Row` is a metric's value."""
    given = {**(told or {}), **more}
    like = like or Row(id="a", status="finished", seed=0, axes={})
    stale = given.pop("stale", like.stale)
    own = {each.name: given.pop(each.name) for each in fields(Row) if each.name in given}
    made = replace(like, values={**like.values, **given}, **own)
    vars(made)["stale"] = stale  # else its golden curve says so
    return made


def rows(values, model="plstm", status="finished", stale=False, first=0, **axes):
    """Rows of runs.csv with these accuracies (fractions), of consecutive seeds."""
    found = []
    for seed, value in enumerate(values, first):
        accuracies = {"last test/accuracy": value, "last valid/accuracy": value}
        own = {"axes": {"task": "copy", "model": model, "seed": seed, **axes}, "seed": seed, "stale": stale}
        found.append(made_row(accuracies, id=f"{model}{seed}{axes}", **own, status=status))
    return found


def measure_of(table: dict[str, Any]) -> dict[str, Any]:
    """What cells and claims take from a table, whatever its runs are."""
    measure = {f.name: table.get(f.name, f.default) for f in fields(Measure)}
    told = {key: Threshold(*threshold(table[key])) for key in ("success", "chance") if table.get(key)}
    return measure | {"success": None, "chance": None} | told


def claim_of(claim, **table):
    """A claim as a table's file has it, parsed. table: changed keys of the made-up table."""
    return parse_claim("table/made_up.yaml: claims[0]", claim, measure_of(TABLE | table))


def judged_claim(claim, found: Sequence[Row], planned=None, pair=False, ratio=False, **table) -> Verdict:
    """Judge a claim of the made-up table by runs. planned: the settings of all its runs; those that there are."""
    every = [row.axes for row in found] if planned is None else planned
    return judging.judge_claim(claim_of(claim, **table), found, every, pair, ratio)


def judged_value(found: Sequence[Row], printed=None, planned=0, **table) -> Verdict:
    """Judge a printed value of the made-up table, 90 of plstm where `printed` says nothing else."""
    node = {"where": {"model": "plstm"}, "value": 90.0, **(printed or {})}
    cell = parse_cell("table/made_up.yaml: cells[0]", node, measure_of(TABLE | table))
    return judging.judge_value(replace(cell, planned=planned), found)


def report_of(table, found, planned=None, results=Path("nowhere"), **more) -> Report:
    """A report of a table, as its file has it, on rows by size; sizes that are not named have none."""
    made = table if isinstance(table, Table) else parse(table)
    there = {size: found.get(size, []) for size in made.sizes}
    every = {size: expand(made, size) for size in made.sizes} | (planned or {})
    return Report(made, there, every, results, **{"out": results} | more)


def made_record(directory, run_id, seed, model, accuracy, **changes):
    """Write a record as train.py leaves it."""
    directory.mkdir(parents=True)
    record = {
        "config": {"task": {"name": "copy"}, "model": {"name": model}, "seed": seed}, "id": run_id, "seed": seed,
        "status": "finished", "steps": 300, "diverged_at": None, "metrics": {"test/accuracy": accuracy},
        "last": {"test/accuracy": accuracy, "valid/accuracy": accuracy},
        "curve": [{"step": k, "epoch": k / 10, "valid/accuracy": accuracy * k / 300} for k in range(1, 301)],
        "seconds": 60.0, "parameters": 10, "device": "cpu", "threads": 1, "machine": "abacus", "commit": "abc",
        "golden": None, "partial": [],
    }  # fmt: skip
    (directory / "record.json").write_text(json.dumps(record | changes))


def planned_run(axes, run_id, cost_key="a kind"):
    """A run of the copy task that was asked for by these settings."""
    config = {"task": {"name": "copy"}, "model": {"name": axes["model"]}, "seed": axes["seed"]}
    run = Run(config, run_id, Path("runs") / f"copy-{axes['model']}-s{axes['seed']}-{run_id}", axes)
    vars(run)["cost_key"] = cost_key
    return run
