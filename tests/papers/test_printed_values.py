"""Verdicts on made-up runs: of printed values."""

import math
import statistics

import numpy as np
import pytest
from made_up import TABLE, cell, judge, judged, rows
from scipy import stats

from timescales.papers import cells
from timescales.papers.parse import parse
from timescales.papers.verdict import Word
from timescales.reports import markdown
from timescales.runs import metrics


@pytest.mark.parametrize(
    ("found", "printed", "table", "word"),
    [
        ([], {}, {}, "missing"),
        (rows([0.901, 0.899, 0.902]), {}, {}, "match"),  # 90.07 (.15), so within .5 of 90: p = .01
        (rows([0.903, 0.896, 0.902]), {}, {}, "compatible"),  # 90.03 (.38): within .5 as they stand, p = .08
        (rows([0.91, 0.92, 0.93]), {}, {}, "compatible"),  # 92 (1) is not significantly better than 90: p = .07
        (rows([0.919, 0.92, 0.921]), {}, {}, "better"),
        (rows([0.879, 0.88, 0.881]), {}, {}, "worse"),
        (rows([0.879, 0.88, 0.881]), {}, {"better": "lower"}, "better"),
        (rows([0.919, 0.92, 0.921]), {"better": "neither"}, {}, "different"),
        (rows([0.879, 0.88]), {"better": "neither"}, {"better": "lower"}, "different (n=2)"),
        (rows([0.901, 0.899, 0.902]), {"better": "neither"}, {}, "match"),
        (rows([0.9020, 0.9021, 0.9022]), {}, {}, "match"),  # .21 above, p = .0008, but shown to be within .5
        (rows([0.905, 0.905, 0.905]), {}, {}, "compatible"),  # at the margin itself: neither within it nor beyond
        # the paper's spread widens the margin, and adds its error to ours
        (rows([0.905, 0.91, 0.908]), {"sd": 2.0, "n": 5}, {}, "compatible"),
        (rows([0.95, 0.96, 0.97]), {"better": "neither", "sd": 1.0, "n": 5}, {}, "different"),
        (rows([0.911, 0.909, 0.910]), {"sd": 0.1, "n": 5}, {}, "better"),
        (rows([0.901, 0.9, 0.899]), {"sd": 0.1, "n": 5}, {}, "match"),
        (rows([0.901, 0.9, 0.899]), {"se": 0.9, "n": 5}, {}, "match"),  # sd 2.01
        (rows([0.91, 0.92, 0.90]), {"sd": 2.0, "n": None}, {}, "compatible"),  # of how many runs is not printed
        (rows([0.903, 0.896, 0.902]), {"sd": 2.0, "n": None}, {}, "match"),  # within 2
        # one run: one draw from the paper's runs, or no test
        (rows([0.91]), {"sd": 2.0, "n": 5}, {}, "compatible (n=1)"),
        (rows([0.80]), {"sd": 2.0, "n": 5}, {}, "worse (n=1)"),
        (rows([0.904]), {}, {}, "compatible (n=1)"),
        (rows([0.91]), {}, {}, "open (n=1)"),
        (rows([0.9001]), {"sd": 0.0, "n": 5}, {}, "compatible (n=1)"),
        # maxima
        (rows([0.5, 0.903, 0.7]), {}, {"reduce": "max"}, "compatible"),
        (rows([0.5, 0.95, 0.7]), {}, {"reduce": "max"}, "open"),
        (rows([0.95, 0.903, 0.97]), {"better": "neither"}, {"reduce": "max", "better": "lower"}, "compatible"),
        (rows([0.90, 0.90, 0.90], stale=True), {}, {}, "stale"),
        (rows([0.90, 0.90, 0.90]), {"value": None}, {}, "blank"),
        (rows([0.90, 0.90]) + rows([None], status="diverged"), {}, {}, "unstable (1 of 3 failed)"),
        (rows([0.90, 0.90, 0.90]) + rows([None], status="diverged"), {"failed": 1}, {}, "match"),
        (rows([None, None], status="diverged"), {}, {}, "unstable (2 of 2 failed)"),
        (rows([0.90, 0.90]) + rows([None], status="diverged"), {"failed": 1}, {"n_min": 4}, "match (n=2)"),
        # bimodal: with the paper's success condition the failures are counted and left out of the mean, ...
        (rows([0.90, 0.901, 0.899, 0.1]), {}, {"success": "valid/accuracy > 0.5"}, "unstable (1 of 4 failed)"),
        (rows([0.90, 0.901, 0.899, 0.1]), {"failed": 1}, {"success": "valid/accuracy > 0.5"}, "match"),
        # ... without one they are part of the mean and spread: of ours alone, too, which then shows nothing.
        (rows([0.99, 0.99, 0.99, 0.52, 0.99]), {"sd": 20.9, "n": 5}, {}, "compatible"),
        (rows([0.99, 0.99, 0.52, 0.52, 0.52]), {"sd": 0.8, "n": 5}, {"n_min": 5}, "compatible"),
    ],
)
def test_verdict_of_a_cell(found, printed, table, word):
    assert judged(found, printed, **table).verdict == word


def test_a_mean_that_does_not_differ_is_no_match():
    """chien_table3, LSTM at sync-0.1 without time: 52.6 against 71.7 (22.2)."""
    ours = [49.32, 51.32, 51.84, 50.84, 59.42]
    found = judged(rows([x / 100 for x in ours]), {"value": 71.7, "sd": 22.2, "n": 5}, n_min=5)
    assert found.verdict == "compatible"
    a, b = statistics.variance(ours) / 5, 22.2**2 / 5
    df = (a + b) ** 2 / (a**2 / 4 + b**2 / 4)
    gap = statistics.fmean(ours) - 71.7
    assert found.equal == pytest.approx(stats.t.sf((gap + 22.2) / math.sqrt(a + b), df))
    assert stats.t.cdf((gap + 22.2) / math.sqrt(a + b), df) > 0.5  # it does not even lie beyond the margin
    assert (found.equal, found.different) == pytest.approx((0.388, 1.0), abs=1e-3)


def test_the_cells_of_a_table_are_two_families_of_tests():
    """Ten cells of which each alone would match: the smallest p must be below .005."""
    printed = [{"where": {"model": "plstm"}, "value": 90.0, "label": str(k)} for k in range(10)]
    found = rows([0.902, 0.899, 0.898])
    (one,), ten = (cells.judge_cells(parse(TABLE | {"cells": printed[:k]}).cells, found) for k in (1, 10))
    p_for, p_against = one.verdict.p_for, one.verdict.p_against
    assert one.verdict.word == Word.MATCH
    assert p_for.raw == p_for.corrected
    assert 0.005 < p_for.raw < 0.05
    assert {result.verdict.word for result in ten} == {Word.COMPATIBLE}
    assert [result.verdict.p_for for result in ten] == [(p_for.raw, pytest.approx(10 * p_for.raw))] * 10
    assert [result.verdict.p_against for result in ten] == [(p_against.raw, 1.0)] * 10
    # A cell without a test takes no part in either family.
    missing = {"where": {"model": "lstm"}, "value": 90.0}
    assert cells.judge_cells(parse(TABLE | {"cells": [printed[0], missing]}).cells, found)[0].verdict.p_for == p_for


def test_the_margin_is_the_larger_of_tolerance_and_printed_spread():
    printed = [{}, {"sd": 0.1, "n": 5}, {"sd": 2.0, "n": None}, {"se": 0.5, "n": 16}, {"se": 0.1, "n": 4}]
    table = parse(TABLE | {"cells": [{"where": {"model": "plstm"}, "value": 90.0, **more} for more in printed]})
    assert [cell.margin for cell in table.cells] == [0.5, 0.5, 2.0, 2.0, 0.5]


def test_numbers_of_a_cell():
    cell = judged(rows([0.90, 0.92, 0.10, 0.97]), success="valid/accuracy > 0.5").sample
    assert cell.values == [(0, 90.0), (1, 92.0), (3, 97.0)]
    assert (cell.n, cell.failed) == (3, 1)
    assert cell.mean == pytest.approx(93.0)
    assert cell.median == pytest.approx(92.0)
    assert cell.sd == pytest.approx(np.std([90, 92, 97], ddof=1))


def test_a_cell_of_steps_says_which_runs_never_got_there():
    name, printed = "steps to valid/accuracy >= 0.99", {"where": {"model": "plstm"}, "value": 900.0}
    found = [row | {name: metrics.Censored(900)} for row in rows([0.1, 0.1, 0.1])]
    table = {**TABLE, "metric": name, "better": "lower", "unit": "steps"}
    assert cell(printed, table, found).verdict == "open"
    found[1][name] = 300
    result = cell(printed, table, found)
    assert result.verdict == "unstable (2 of 3 never reached the threshold)"  # a mean of at least 700
    assert [markdown.number(value) for _, value in result.sample.values] == [">900", "300", ">900"]


def test_best_stable_learning_rate():
    found = rows([0.7, 0.72, 0.71], **{"optimizer.lr": 1e-3}) + rows([0.9, 0.9, 0.91], **{"optimizer.lr": 1e-2})
    table = {"reduce": "best_lr", "metric": "test/accuracy"}
    assert judged(found, {"value": 90.3}, **table).verdict == "compatible"
    found += rows([None], status="diverged", **{"optimizer.lr": 1e-2})  # higher, but one run diverged
    assert judged(found, {"value": 71.0}, **table).verdict == "compatible"
    for row in found:
        row["probe/loss"] = {1e-3: 2.0, 1e-2: 0.1}[row["axes"]["optimizer.lr"]]
    stable = [row for row in found if row["status"] == "finished"]
    loss = {"metric": "probe/loss", "unit": "nats", "value": 0.1, "tolerance": 0.01}
    assert judged(stable, loss | {"better": "lower"}, **table).verdict == "match"  # the rate that is best for this cell
    assert judged(stable, loss | {"value": 2.0}, **table).verdict == "match"
    lost = rows([None], "lstm", status="diverged", **{"optimizer.lr": 1e-2})
    assert judge("plstm > lstm", {**TABLE, **table, "reduce": "best_lr"}, stable + lost).verdict == "open"
    assert judged(lost, {"where": {"model": "lstm"}}, **table).verdict == "unstable (1 of 1 failed)"


def test_a_maximum_is_judged_by_its_tolerance_and_fails_at_the_best_rate_alone():
    """Gu et al., table 5: the best score over learning rates and seeds; asterisks count the best rate's failures."""
    found = rows([0.93, 0.90], **{"optimizer.lr": 1e-3})
    found += rows([None, None], status="diverged", **{"optimizer.lr": 1e-2})
    assert judged(found, {"value": 93.2, "n_min": 2}, reduce="max").verdict == "compatible"
    # Of 12 runs at three rates three diverged, two of those at the best: all are there, and it is the paper's failures.
    found = [row for rate in (1e-3, 5e-4, 2e-4) for row in rows([0.90, 0.91, 0.92, 0.93], **{"optimizer.lr": rate})]
    found[3]["last test/accuracy"] = 0.95
    for k in (0, 1, 4):
        found[k] |= {"status": "diverged", "last test/accuracy": None}
    best = judged(found, {"value": 95.0, "failed": 2, "n_min": 12}, reduce="max")
    assert (best.verdict, best.sample.failed, best.sample.of) == ("compatible", 2, 4)
    assert judged(found, {"value": 95.0}, reduce="max").verdict == "unstable (2 of 4 failed)"
    # Where less is better the best rate is another one.
    assert judged(found, {"value": 90.0, "better": "lower"}, reduce="max").verdict == "compatible"


def test_runs_that_failed_are_computed_with_no_more_than_they_are_averaged(monkeypatch):
    monkeypatch.setattr(cells, "computed", lambda name, found: float(len(found)))
    found = rows([0.9, 0.1, 0.9])
    mean = judged(found, {"compute": "x.y", "value": 2.0, "failed": 1}, success="valid/accuracy > 0.5")
    assert (mean.verdict, mean.sample.mean, mean.sample.n) == ("compatible", 2.0, 2)
    told = {"compute": "x.y", "value": 2.0}
    assert judged(found, told, success="valid/accuracy > 0.5").verdict == "unstable (1 of 3 failed)"
    apart = [row | {"axes": row["axes"] | {"T": T}} for T in (200, 500) for row in rows([0.9, 0.9])]
    monkeypatch.setattr(cells, "computed", lambda name, found: 2.0)
    assert judged(apart, told).verdict == "compatible (n=2)"  # as many of each setting
    monkeypatch.setattr(cells, "computed", lambda name, found: None)
    assert judged(found[1:2], told, success="valid/accuracy > 0.5").verdict == "unstable (1 of 1 failed)"
    assert judged(found[1:2], told, success="valid/accuracy > 0.05").verdict == "missing"  # more are to come
    assert judged(rows([0.1], stale=True), told, success="valid/accuracy > 0.5").verdict == "stale"
