"""A plan that cannot succeed is a fault: where all is as printed every conclusion holds, and every value agrees."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import made_row, report_of

from timescales.analysis import bins
from timescales.papers import load
from timescales.papers.table import FAILING, FAILS_MORE_OFTEN, Claim, Table, Threshold, column, expand, matches
from timescales.runs.metrics import Censored, is_steps
from timescales.runs.store import Row

Axes = Mapping[str, Any]
Node = tuple[str, str]  # a column of runs.csv, and the settings of runs but for the seed (and the learning rate)
LIMIT = 10**6  # steps of a run that never reaches a threshold


def perfect_rows(table: Table) -> list[Row]:
    """Make a row for each run of the paper's size.

    A printed value is the mean of its runs, with the printed spread (a quarter of the tolerance where none is printed).
    Anything else has a level for each setting, so that all of the paper's conclusions are true; its spread is 1 %.
    """
    runs = expand(table)
    levels, better = _levels(table, runs)
    return [_row(table, runs, axes, levels, better) for axes in runs]


def _settings(table: Table, axes: Axes) -> str:
    left_out = {"seed"} | ({"optimizer.lr"} if table.reduce != "mean" else set())
    return json.dumps({key: value for key, value in axes.items() if key not in left_out}, sort_keys=True)


def _decisive(table: Table) -> list[Claim]:
    return [claim for claim in table.claims if claim.decides]


def _pairs(table: Table, claim: Claim, runs: list[Axes]) -> Iterator[tuple[Node, Node]]:
    """The two nodes that a claim compares, in each of its groups."""
    first, second = claim.columns
    for sides in claim.groups(runs, lambda axes: axes).values():
        a, *b = ([_settings(table, axes) for axes in side] for side in sides)
        for one in dict.fromkeys(a):
            for other in dict.fromkeys(b[0]) if b else [one]:
                yield (first, one), (second, other)


def _levels(table: Table, runs: list[Axes]) -> tuple[dict[Node, int], dict[str, str]]:
    """How many steps above the worst each node is, by the conclusions; and which direction is better, by column."""
    levels: dict[Node, int] = defaultdict(int)
    better: dict[str, str] = {}
    edges = []
    for claim in (claim for claim in _decisive(table) if claim.sign not in (*FAILING, FAILS_MORE_OFTEN)):
        better |= dict.fromkeys(claim.columns, claim.better)
        edges += [(claim.sign, *pair) for pair in _pairs(table, claim, runs)]
    for _ in range(len(runs)):
        before = dict(levels)
        for sign, a, b in edges:
            if sign == ">":
                levels[a] = max(levels[a], levels[b] + 1)
            elif sign == ">=" and (">", b, a) not in edges:  # where both stand, the tolerance says by how much at most
                levels[a] = max(levels[a], levels[b])
            elif sign == "~":
                levels[a] = levels[b] = max(levels[a], levels[b])
        if levels == before:
            return levels, better
    raise AssertionError(f"{table.name}: its conclusions contradict each other")


def _row(table: Table, runs: list[Axes], axes: Axes, levels: Mapping[Node, int], better: Mapping[str, str]) -> Row:
    values, fails = {}, _thresholds(table, axes)
    for told, failing in fails.items():
        reached = [value for value in (1.0, 0.0, 1e-3) if bool(told.reached(value)) is not failing]
        values[column(told.metric, table.select)] = reached[0]
    for name in better:
        if (name, _settings(table, axes)) in levels:
            level = levels[name, _settings(table, axes)]
            values[name] = _of_level(table, name, better[name], level, _place(runs, axes))
            if is_steps(name) and any(fails.values()):
                values[name] = Censored(LIMIT)
    for cell in table.cells:
        if cell.value is not None and not cell.compute and matches(axes, cell.where):
            values[cell.column] = (cell.value + _away(cell, runs, axes)) / cell.scale
    blocks = _blocks(values) if "bins" in table.probe else None
    return made_row(values, id=str(axes), axes=axes, seed=axes["seed"], blocks=blocks)


def _thresholds(table: Table, axes: Axes) -> dict[Threshold, bool]:
    """Each threshold of success, and whether a run fails it by the conclusions."""
    found: dict[Threshold, bool] = {table.success: False} if table.success else {}
    for claim in (claim for claim in _decisive(table) if claim.success and matches(axes, claim.place)):
        assert claim.success is not None
        told = claim.sign == "fails" or claim.sign == FAILS_MORE_OFTEN
        found[claim.success] = found.get(claim.success, False) or (told and matches(axes, claim.sides[0]))
    return found


def _place(runs: list[Axes], axes: Axes) -> float:
    """A run's place among those that differ from it in the seed alone: places have mean 0 and standard deviation 1."""
    alike = [run["seed"] for run in runs if {**run, "seed": 0} == {**axes, "seed": 0}]
    if len(alike) == 1:
        return 0.0
    return (axes["seed"] - statistics.fmean(alike)) / statistics.stdev(alike)


def _of_level(table: Table, name: str, better: str, level: int, place: float) -> float:
    """A value of a level: accuracies are 7.5 points apart, all others 20 times."""
    sign = 1 if better == "higher" else -1
    if not is_steps(name) and ("accuracy" in name or name.startswith("probe/longest_pair")):
        return (0.2 if sign > 0 else 0.8) + sign * 0.075 * level + 1e-3 * place
    value = 0.17 * 20.0 ** (sign * level) * (1 + 0.01 * place)
    return round(value * LIMIT) if is_steps(name) else value


def _away(cell: Any, runs: list[Axes], axes: Axes) -> float:
    """How far a run is from the printed value, which is the best of several rates with reduce: max."""
    sd = cell.spread or cell.tolerance / 4
    own = [run for run in runs if matches(run, cell.where)]
    if cell.reduce == "max":
        best = max(run["optimizer.lr"] for run in own)
        highest = max(_place(own, run) for run in own)
        return sd * (_place(own, axes) - highest - 4 * (axes["optimizer.lr"] != best))
    apart = [json.dumps(run, sort_keys=True) for run in own]
    places = np.arange(len(apart)) - (len(apart) - 1) / 2
    spread = places.std(ddof=1) if len(apart) > 1 else 1.0
    return float(sd * places[apart.index(json.dumps(dict(axes), sort_keys=True))] / spread)


def _blocks(row: Mapping[str, float]) -> str:
    """Losses of 20 blocks of words that give the row's perplexities."""
    whole = row.get("probe/bins/all", 100.0)
    nats = [math.log(row.get(f"probe/bins/{name}", whole)) for name in bins.NAMES]
    sums = [[25 * (n + 1e-4 * (k % 3 - 1)) for n in nats] for k in range(20)]
    return bins.to_text(bins.Blocks(np.array(sums), np.full((20, 4), 25)))


NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "table").glob("*.yaml"))
# What the planned runs can never decide, and why: a value by its place in the file, a conclusion by its line.
ROUTING = "mts model.layer1_bias=eq5 (probe/routing/{}, before probe/routing/{})"
UNTIL = " (probe/length_accuracy/{})"
FIRST_LAYER = "model.layer1_timescale=null > model.layer1_timescale={} @ model.layer3_timescale=null (probe/bins/all)"
EXCEPTIONS = {
    # Three runs of each model, which are compared by ranks.
    "chien_imdb": [
        *(f"plstm > {other}" for other in ("lstm", "chrono")),
        *(f"plstm > {other}{UNTIL.format(name)}" for other in ("lstm", "chrono") for name in ("above_150", "drop")),
    ],
    "chien_table1": ["plstm never fails"],  # three runs
    "chien_reset_units": ["value 2", "value 3"],  # computed once from all runs
    # The printed spread of one side is 18 or 22 points, or two values are nearer to each other than a run spreads.
    "chien_table3": [
        *("value 1", "value 10"),
        *(f"{first} > lstm @ task.sampling=sync_01" for first in ("chrono", "plstm")),
        "task.time_input=true ~ task.time_input=false @ task.sampling=sync_1",
        *(f"plstm ~ {other} @ task.sampling=async task.time_input=true" for other in ("lstm", "chrono")),
        "lstm task.sampling=sync_1 > lstm task.sampling=sync_01",
    ],
    # Three runs.
    "gu_forgetting": ["model.gate=- fails @ loop.max_steps=10000", "model.gate=r never fails @ loop.max_steps=50000"],
    "gu_table5": [f"value {k}" for k in range(27)],  # the best of several runs
    # One run of each setting.
    "mahto_alpha": [f"model.alpha=0.56 > model.alpha={x} (probe/bins/all)" for x in (0.36, 0.8, 1.0, 1.5)],
    "mahto_layers": [
        *(FIRST_LAYER.format(steps) for steps in (20, 100)),
        "model.layer3_timescale=3 ~ model.layer3_timescale=100 @ model.layer1_timescale=null (probe/bins/all)",
    ],
    "mahto_table3": [
        *(f"value {k}" for k in range(10)),
        "mts model.layer1_bias=eq5 > lstm (probe/bins/below_100)",
        ROUTING.format("long/below_100", "long/above_10K"),
        ROUTING.format("long/below_100", "not_long/below_100"),
        ROUTING.format("medium/1K_10K", "none"),
        ROUTING.format("shortest/above_10K", "none"),
    ],
    # The printed values are nearer to each other than the printed spread.
    "mahto_table1": ["mts > lstm @ task=wt2 (probe/bins/above_10K)"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_table_whose_runs_are_as_printed_is_reproduced(name):
    table = load.table(name)
    rows = perfect_rows(table)
    found = report_of(table, {"paper": rows})
    wrong = {f"value {e.item.number}" for e in found.values if e.item.value is not None and e.word != "agrees"}
    wrong |= {each.item.text for each in found.claims if each.word != "holds"}
    assert wrong == set(EXCEPTIONS.get(name, ()))
    conclusions, values = found.counts
    assert set(conclusions + values) <= {"holds", "agrees", "undecided"}
