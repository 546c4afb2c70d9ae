"""A made-up table with trained runs, and a way to report it."""

import pytest
from made_up import LADDER, TABLE, made_record, planned_run

from timescales.papers.parse import parse
from timescales.papers.table import expand
from timescales.reports import gather
from timescales.reports.report import Report
from timescales.runs import provenance

MADE = TABLE | {
    "figure": {"kind": "curves"},
    "tolerance": 1.0,
    "cells": [{"where": {"model": "plstm"}, "value": 90.4}],
    "claims": [
        {"claim": "plstm > lstm", "quote": "The power law wins", "at": "nobody 2021, section 1"},
        {"claim": "lstm never fails", "ours": "to see it"},
    ],
    "success": "valid/accuracy > 0.2",
    "assumed": {"batch": {"said": "not stated; 128"}},
    "notes": ["The paper contradicts itself."],
    "cited": [{"label": "uRNN", "value": 1.0, "source": "somebody 2016"}],
    "ladder": LADDER,
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """made() reports a made-up table with 18 runs; its records lie in runs/, its report in results/.

    By seed, in per cent: plstm 90.3, 90.4, 90.5 and lstm 60, 60.1, 60.2, at each size.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance, "golden", lambda task, model: None)
    runs, results = tmp_path / "runs", tmp_path / "results"
    planned = {}
    for size in parse(MADE).sizes:
        planned[size] = []
        for k, axes in enumerate(expand(parse(MADE), size)):
            run = planned_run(axes, f"{size}{k:05}")
            planned[size].append(run)
            accuracy = (0.9 if axes["model"] == "plstm" else 0.6) + 0.001 * k
            made_record(runs / run.name, run.id, axes["seed"], axes["model"], accuracy)

    def made(local=True, own=False, out=None, **changes):
        table = parse(MADE | changes)
        here = {size: planned[size] for size in table.sizes}
        rows, dropped = gather.gather(table, here, results, runs if local else None, out)
        axes = {size: [run.axes for run in of_size] for size, of_size in here.items()}
        return Report(table, rows, axes, results, out or results, dropped=dropped, own=own)

    return made
