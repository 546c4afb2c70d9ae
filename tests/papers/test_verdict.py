"""Verdicts on made-up runs: of cells and of whole tables."""

import math

import numpy as np
import pytest
from made_up import TABLE, cell, judge, judged, rows
from scipy import stats

from timescales.papers import verdict
from timescales.papers.verdict import Verdict, Word
from timescales.reports import markdown
from timescales.runs import metrics


@pytest.mark.parametrize(
    ("found", "printed", "table", "word"),
    [
        ([], {}, {}, "missing"),
        (rows([0.901, 0.899, 0.902]), {}, {}, "match"),  # within the tolerance of .5
        (rows([0.91, 0.92, 0.93]), {}, {}, "better"),
        (rows([0.87, 0.88, 0.89]), {}, {}, "worse"),
        (rows([0.87, 0.88, 0.89]), {}, {"better": "lower"}, "better"),
        (rows([0.91, 0.92, 0.93]), {"better": "neither"}, {}, "different"),
        (rows([0.87, 0.88]), {"better": "neither"}, {"better": "lower"}, "different (n=2)"),
        (rows([0.901, 0.899, 0.902]), {"better": "neither"}, {}, "match"),
        (rows([0.905, 0.91, 0.908]), {"better": "neither", "sd": 2.0, "n": 5}, {}, "match"),
        (rows([0.95, 0.96, 0.97]), {"better": "neither", "sd": 1.0, "n": 5}, {}, "different"),
        (rows([0.5, 0.903, 0.7]), {"better": "neither"}, {"reduce": "max"}, "match"),
        (rows([0.95, 0.903, 0.97]), {"better": "neither"}, {"reduce": "max", "better": "lower"}, "match"),
        (rows([0.90]), {}, {}, "match (n=1)"),
        (rows([0.95, 0.96]), {}, {}, "better (n=2)"),
        (rows([0.90, 0.90, 0.90], stale=True), {}, {}, "stale"),
        (rows([0.90, 0.90, 0.90]), {"value": None}, {}, "blank"),
        (rows([0.90, 0.90]) + rows([None], status="diverged"), {}, {}, "unstable (1 of 3 failed)"),
        (rows([0.90, 0.90, 0.90]) + rows([None], status="diverged"), {"failed": 1}, {}, "match"),
        (rows([None, None], status="diverged"), {}, {}, "unstable (2 of 2 failed)"),
        (rows([0.90, 0.90]) + rows([None], status="diverged"), {"failed": 1}, {"n_min": 4}, "match (n=2)"),
        # bimodal: with the paper's success condition the failures are counted and left out of the mean, ...
        (rows([0.90, 0.901, 0.899, 0.1]), {}, {"success": "valid/accuracy > 0.5"}, "unstable (1 of 4 failed)"),
        (rows([0.90, 0.901, 0.899, 0.1]), {"failed": 1}, {"success": "valid/accuracy > 0.5"}, "match"),
        # ... without one they are part of the paper's mean and spread.
        (rows([0.99, 0.99, 0.99, 0.52, 0.99]), {"sd": 20.9, "n": 5}, {}, "match"),
        # the paper's spread decides where it is printed
        (rows([0.911, 0.909, 0.910]), {"sd": 0.1, "n": 5}, {}, "better"),
        (rows([0.92, 0.88, 0.93]), {"sd": 2.0, "n": 5}, {}, "match"),
        (rows([0.99, 0.99, 0.52, 0.52, 0.52]), {"sd": 0.8, "n": 5}, {"n_min": 5}, "unstable (sd 25.74 against 0.8)"),
        (rows([0.99, 0.99, 0.52]), {"sd": 0.0, "n": 5}, {}, "unstable (sd 27.14 against 0)"),
        (rows([0.905, 0.905, 0.905]), {}, {}, "match"),  # at the tolerance's edge
        (rows([0.91]), {"sd": 2.0, "n": 5}, {}, "match (n=1)"),
        (rows([0.80]), {"sd": 2.0, "n": 5}, {}, "worse (n=1)"),
        (rows([0.91, 0.92, 0.90]), {"se": 0.9, "n": 5}, {}, "match"),
        (rows([0.5, 0.903, 0.7]), {}, {"reduce": "max"}, "match"),
    ],
)
def test_verdict_of_a_cell(found, printed, table, word):
    assert judged(found, printed, **table).verdict == word


def test_numbers_of_a_cell():
    cell = judged(rows([0.90, 0.92, 0.10, 0.97]), success="valid/accuracy > 0.5").sample
    assert cell.values == [(0, 90.0), (1, 92.0), (3, 97.0)]
    assert (cell.n, cell.failed) == (3, 1)
    assert cell.mean == pytest.approx(93.0)
    assert cell.median == pytest.approx(92.0)
    assert cell.sd == pytest.approx(np.std([90, 92, 97], ddof=1))


def test_welch_is_scipys_on_samples_of_that_spread():
    ours = np.array([90.1, 91.4, 88.9, 92.0])
    theirs = np.array([86.0, 95.0, 89.0, 91.5, 93.7])
    expected = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    found = verdict.welch((ours.mean(), ours.std(ddof=1), 4), (theirs.mean(), theirs.std(ddof=1), 5))
    assert found == pytest.approx(expected, rel=1e-12)


def test_one_run_is_one_more_draw_from_the_papers():
    """x = 93 against mean 90, sd 2, n 5: t = 3 / (2 sqrt(1 + 1/5)) with 4 degrees of freedom."""
    t = 3 / (2 * math.sqrt(1.2))
    assert judged(rows([0.93]), {"sd": 2.0, "n": 5}).p == pytest.approx(2 * stats.t.sf(t, 4))


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
    assert judged(found, {"value": 90.3}, **table).verdict == "match"
    found += rows([None], status="diverged", **{"optimizer.lr": 1e-2})  # higher, but one run diverged
    assert judged(found, {"value": 71.0}, **table).verdict == "match"
    for row in found:
        row["probe/loss"] = {1e-3: 2.0, 1e-2: 0.1}[row["axes"]["optimizer.lr"]]
    stable = [row for row in found if row["status"] == "finished"]
    loss = {"metric": "probe/loss", "unit": "nats", "value": 0.1, "tolerance": 0.01}
    assert judged(stable, loss | {"better": "lower"}, **table).verdict == "match"  # the rate that is best for this cell
    assert judged(stable, loss | {"value": 2.0}, **table).verdict == "match"
    lost = rows([None], "lstm", status="diverged", **{"optimizer.lr": 1e-2})
    assert judge("plstm > lstm", {**TABLE, **table, "reduce": "best_lr"}, stable + lost).verdict == "open"
    assert judged(lost, {"where": {"model": "lstm"}}, **table).verdict == "unstable (1 of 1 failed)"


def value_of(text):
    """A verdict that reads like this."""
    word, _, remark = text.partition(" (")
    return Verdict(Word(word), few="n=" in remark, groups=(1, 3) if "groups" in remark else (3, 3))


@pytest.mark.parametrize(
    ("cells", "claims", "word"),
    [
        (["match", "better", "blank"], ["holds"], "reproduced"),
        (["match", "worse"], ["holds"], "reproduced in order"),
        (["match", "different"], ["holds"], "reproduced in order"),
        (["match", "unstable (1 of 3 failed)"], ["holds"], "reproduced in order"),
        (["match"], ["holds", "in order"], "in order, not significant"),
        (["match (n=2)"], ["holds"], "reproduced so far"),
        (["worse"], ["holds (n=1)"], "reproduced in order so far"),
        (["match", "missing"], ["holds"], "open"),
        (["match", "stale"], ["holds"], "open"),
        (["match"], ["open"], "open"),
        (["missing"], ["refuted"], "contradicted"),
        (["missing"], ["refuted (n=1)", "holds"], "contradicted so far"),
        (["missing"], ["refuted (n=1)", "refuted (1 of 3 groups)"], "contradicted"),
        (["match"], ["reversed"], "not in order"),
        (["match", "missing"], ["reversed"], "open"),
        ([], [], "open"),
        (["match"], [], "reproduced"),
        (["match", "worse"], [], "not reproduced"),
        (["different"], [], "not reproduced"),
        (["different"], ["holds"], "reproduced in order"),
        (["unstable (n=1)"], [], "not reproduced so far"),
    ],
)
def test_verdict_of_a_table(cells, claims, word):
    found = verdict.judge_table(list(map(value_of, cells)), list(map(value_of, claims)))
    assert markdown.text(found) == word


def test_a_table_with_missing_runs_is_open_whatever_the_others_say():
    assert verdict.judge_table([], [Verdict(Word.HOLDS)], complete=False).word == "open"
    assert verdict.judge_table([], [Verdict(Word.REFUTED)], complete=False).word == "contradicted"


def test_maxima_are_judged_by_the_tolerance_and_fail_at_the_best_rate_alone():
    """Gu et al., table 5: the best score over learning rates and seeds; asterisks count the best rate's failures."""
    table = {**TABLE, "reduce": "max"}
    found = rows([0.93, 0.90], **{"optimizer.lr": 1e-3}) + rows(
        [None, None], status="diverged", **{"optimizer.lr": 1e-2}
    )
    assert judged(found, {"value": 93.2, "n_min": 2}, reduce="max").verdict == "match"
    other = rows([0.91, 0.929], "lstm", **{"optimizer.lr": 1e-3})
    table["n_min"] = 2
    assert judge("plstm > lstm", table, found + other).verdict == "in order"  # .1 is within the tolerance
    assert judge("plstm ~ lstm", table, found + other).verdict == "holds"
    told = judge("plstm > lstm", table, found + other[:1], [row["axes"] for row in found + other])
    assert (told.verdict, told.detail) == ("holds (n=1)", "93 (n=4) against 91 (n=1)")
    # Of 12 runs at three rates three diverged, two of those at the best: all are there, and it is the paper's failures.
    found = [row for rate in (1e-3, 5e-4, 2e-4) for row in rows([0.90, 0.91, 0.92, 0.93], **{"optimizer.lr": rate})]
    found[3]["last test/accuracy"] = 0.95
    for k in (0, 1, 4):
        found[k] |= {"status": "diverged", "last test/accuracy": None}
    best = judged(found, {"value": 95.0, "failed": 2, "n_min": 12}, reduce="max")
    assert (best.verdict, best.sample.failed, best.sample.of) == ("match", 2, 4)
    assert judged(found, {"value": 95.0}, reduce="max").verdict == "unstable (2 of 4 failed)"
    # Where less is better the best rate is another one, and the best of some that never got there is known.
    assert judged(found, {"value": 90.0, "better": "lower"}, reduce="max").verdict == "match"
    faster = {**table, "metric": "steps to valid/accuracy >= 0.99", "better": "lower", "unit": "steps"}
    found = rows([0.9, 0.9]) + rows([0.9, 0.9], "lstm")
    for row, value in zip(found, (300, metrics.Censored(900), 500, 500), strict=True):
        row[faster["metric"]] = value
    told = judge("plstm > lstm", faster, found)
    assert (told.verdict, told.detail) == ("holds", "300 (n=2) against 500 (n=2)")


def test_runs_that_failed_are_computed_with_no_more_than_they_are_averaged(monkeypatch):
    monkeypatch.setattr(verdict, "computed", lambda name, found: float(len(found)))
    found = rows([0.9, 0.1, 0.9])
    mean = judged(found, {"compute": "x.y", "value": 2.0, "failed": 1}, success="valid/accuracy > 0.5")
    assert (mean.verdict, mean.sample.mean, mean.sample.n) == ("match", 2.0, 2)
    told = {"compute": "x.y", "value": 2.0}
    assert judged(found, told, success="valid/accuracy > 0.5").verdict == "unstable (1 of 3 failed)"
    apart = [row | {"axes": row["axes"] | {"T": T}} for T in (200, 500) for row in rows([0.9, 0.9])]
    monkeypatch.setattr(verdict, "computed", lambda name, found: 2.0)
    assert judged(apart, told).verdict == "match (n=2)"  # as many of each setting
    monkeypatch.setattr(verdict, "computed", lambda name, found: None)
    assert judged(found[1:2], told, success="valid/accuracy > 0.5").verdict == "unstable (1 of 1 failed)"
    assert judged(found[1:2], told, success="valid/accuracy > 0.05").verdict == "missing"  # more are to come
    assert judged(rows([0.1], stale=True), told, success="valid/accuracy > 0.5").verdict == "stale"
