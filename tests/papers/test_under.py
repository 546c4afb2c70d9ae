"""Printed values and claims under each value of a setting that the paper does not state."""

import pytest
from made_up import TABLE, quoted, rows

from timescales.errors import ConfigError
from timescales.papers import judge
from timescales.papers.parse import parse

SEEDS = [0, 1, 2]
OPEN = {"task.unit": {"said": "no unit is stated", "shown": {"raw": "raw t", "longest": "t/125"}}}
# The time as an input, in two units; and runs without this input, which have no unit.
MADE = TABLE | {
    "runs": [
        {"task": "copy", "model": ["lstm", "plstm"], "time": True, "task.unit": ["raw", "longest"], "seed": SEEDS},
        {"task": "copy", "model": ["lstm", "plstm"], "time": False, "seed": SEEDS},
    ],
    "cells": [
        {"where": {"model": "plstm", "time": True}, "value": 90.0},
        {"where": {"model": "plstm", "time": False}, "value": 80.0},
    ],
    "claims": [
        quoted("plstm > lstm @ time=true"),
        quoted("plstm time=true > plstm time=false"),
        quoted("plstm > lstm"),
    ],
    "assumed": OPEN,
}


def test_what_depends_on_a_shown_setting_is_judged_under_each_of_its_values():
    table = parse(MADE)
    assert [(cell.number, cell.under, cell.where.get("task.unit")) for cell in table.cells] == [
        (0, "raw t", "raw"),
        (0, "t/125", "longest"),
        (1, "", None),
    ]
    assert [(claim.number, claim.under) for claim in table.claims] == [
        *((0, "raw t"), (0, "t/125")),
        *((1, "raw t"), (1, "t/125")),
        *((2, "raw t"), (2, "t/125")),
    ]


def test_a_claim_compares_the_runs_of_its_view_alone():
    unit, half = {"time": True, "task.unit": "raw"}, {"time": True, "task.unit": "longest"}
    found = [
        *rows([0.60, 0.61, 0.62], "plstm", **unit),
        *rows([0.90, 0.91, 0.92], "plstm", **half),
        *rows([0.80, 0.81, 0.82], "plstm", time=False),
        *rows([0.70, 0.71, 0.72], "lstm", **unit),
        *rows([0.70, 0.71, 0.72], "lstm", **half),
        *rows([0.10, 0.11, 0.12], "lstm", time=False),
    ]
    table = parse(MADE)
    claims, values = judge.judge(table, found)
    means = [(cell.under, round(told.interval.mid, 6)) for cell, told in zip(table.cells, values, strict=True)]
    assert means == [("raw t", 61.0), ("t/125", 91.0), ("", 81.0)]
    words = [(claim.number, claim.under, told.word) for claim, told in zip(table.claims, claims, strict=True)]
    assert words == [
        *((0, "raw t", "refuted"), (0, "t/125", "holds")),
        *((1, "raw t", "refuted"), (1, "t/125", "holds")),
        *((2, "raw t", "refuted"), (2, "t/125", "holds")),
    ]
    assert [len(told.each) for told in claims] == [1, 1, 1, 1, 2, 2]


def test_a_claim_that_has_fewer_groups_under_another_value_is_not_judged_there():
    runs = [*MADE["runs"], {"task": "copy", "model": "plstm", "time": True, "task.unit": "half", "seed": SEEDS}]
    shown = {"task.unit": {"said": "", "shown": {"raw": "raw t", "half": "t/2"}}}
    table = parse(MADE | {"runs": runs, "assumed": shown})
    assert [cell.under for cell in table.cells] == ["raw t", "t/2", ""]
    assert [(claim.number, claim.under) for claim in table.claims] == [(0, ""), (1, "raw t"), (1, "t/2"), (2, "")]


def test_without_shown_settings_nothing_is_repeated():
    table = parse(TABLE)
    assert [(cell.number, cell.under, cell.where) for cell in table.cells] == [(0, "", {"model": "plstm"})]


def test_a_shown_value_without_a_run_is_refused():
    shown = {"task.unit": {"said": "", "shown": {"raw": "raw t", "none": "nothing"}}}
    with pytest.raises(ConfigError, match=r"task\.unit\.shown: no run has task\.unit=none"):
        parse(MADE | {"assumed": shown})
