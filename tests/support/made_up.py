"""A made-up table, its runs, and what is said of them in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from timescales.config.run import Run
from timescales.papers import cells, claims, verdict
from timescales.papers.parse import parse, parse_cell, parse_claim
from timescales.papers.table import Measure, Table, Threshold, expand
from timescales.reports import wording
from timescales.reports.report import Report
from timescales.runs.metrics import threshold
from timescales.runs.store import Row

TABLE = {
    "name": "made_up",
    "title": "Made up",
    "source": "nobody 2021, table 0",
    "metric": "test/accuracy",
    "select": "last",
    "better": "higher",
    "unit": "percent",
    "n_min": 3,
    "tolerance": 0.5,
    "claims": [],
    "assumed": {},
    "runs": [{"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1, 2]}],
    "cells": [{"where": {"model": "plstm"}, "value": 90.0}],
    "tiny": {"set": {"task.T": 5}, "claims": []},
}
PLANNED = {"paper": expand(parse(TABLE)), "tiny": []}
ORIGIN = {"seconds": 6.0, "machine": "abacus", "threads": 1, "commit": "c0ffee", "partial": ""}


def quoted(claim: str | dict[str, Any]) -> dict[str, Any]:
    """A claim of a made-up paper, as it stands in a file."""
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


def rows(values, model="plstm", status="finished", stale=False, **axes):
    """Rows of runs.csv with these accuracies (fractions), seeds from 0 on."""
    return [
        made_row(
            {"last test/accuracy": value, "last valid/accuracy": value},
            id=f"{model}{k}{axes}",
            axes={"task": "copy", "model": model, "seed": k, **axes},
            seed=k,
            stale=stale,
            status=status,
        )
        for k, value in enumerate(values)
    ]


def measure_of(table: dict[str, Any]) -> dict[str, Any]:
    """What cells and claims take from a table, whatever its runs are."""
    measure = {f.name: table.get(f.name, f.default) for f in fields(Measure)}
    told = {key: Threshold(*threshold(table[key])) for key in ("success", "chance") if table.get(key)}
    return measure | {"success": None, "chance": None} | told


class Said(NamedTuple):
    """A claim's verdict in the words of a report, with the p of what it says, its numbers, and the verdict itself."""

    verdict: str
    p: float | None
    detail: str
    text: str
    value: verdict.Verdict


def raw(p: verdict.P | None) -> float | None:
    """A p value without the correction."""
    return None if p is None else p.raw


def judge(claim, table, found, planned=None) -> Said:
    """Judge a claim of a table, as it stands in a file; it is the only one, so that nothing is corrected."""
    parsed = parse_claim("table/made_up.yaml: claims[0]", claim, measure_of(table))
    (result,) = claims.judge_claims([parsed], found, planned)
    about, numbers = result.verdict, wording.numbers(result)
    return Said(wording.text(about), raw(about.p_for), numbers, result.claim.text, about)


class Judged(NamedTuple):
    """A cell's verdict in words, what it agrees to within, its p of a difference, its sample, the verdict itself."""

    verdict: str
    within: float | None
    different: float | None
    sample: verdict.Sample
    value: verdict.Verdict


def cell(printed, table, found) -> Judged:
    """Judge a cell of a table, as it stands in a file; it is the only one, so that nothing is corrected."""
    parsed = parse_cell("table/made_up.yaml: cells[0]", printed, measure_of(table))
    (result,) = cells.judge_cells([parsed], found)
    about = result.verdict
    within = None if about.gap is None else about.gap.within
    return Judged(wording.text(about), within, raw(about.p_against), result.sample, about)


def judged(found, printed=None, **table) -> Judged:
    """Judge the made-up table's cell, changed."""
    return cell({"where": {"model": "plstm"}, "value": 90.0, **(printed or {})}, {**TABLE, **table}, found)


def report_of(table, found, planned=PLANNED, results=Path("nowhere"), **more) -> Report:
    """A report of a table, as it stands in a file, on rows by size."""
    return Report(table if isinstance(table, Table) else parse(table), found, planned, results, **more)


def made_record(directory, run_id, seed, model, accuracy, **changes):
    """Write a record as train.py leaves it."""
    directory.mkdir(parents=True)
    record = {
        "id": run_id,
        "status": "finished",
        "config": {"task": {"name": "copy"}, "model": {"name": model}, "seed": seed},
        "seed": seed,
        "steps": 300,
        "diverged_at": None,
        "metrics": {"test/accuracy": accuracy},
        "last": {"test/accuracy": accuracy, "valid/accuracy": accuracy},
        "curve": [{"step": k, "epoch": k / 10, "valid/accuracy": accuracy * k / 300} for k in range(1, 301)],
        "seconds": 60.0,
        "parameters": 10,
        "device": "cpu",
        "threads": 1,
        "machine": "abacus",
        "commit": "abc",
        "golden": None,
        "partial": [],
    }
    (directory / "record.json").write_text(json.dumps(record | changes))


def planned_run(axes, run_id, cost_key="a kind"):
    """A run of the copy task that was asked for by these settings."""
    config = {"task": {"name": "copy"}, "model": {"name": axes["model"]}, "seed": axes["seed"]}
    run = Run(config, run_id, Path("runs") / f"copy-{axes['model']}-s{axes['seed']}-{run_id}", axes)
    vars(run)["cost_key"] = cost_key
    return run
