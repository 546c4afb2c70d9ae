"""Verdicts on made-up runs, and reports that are a function of the records alone."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from timescales import errors, paths, plotting
from timescales.analysis import bins
from timescales.config import compose, identity
from timescales.papers import load, verdict
from timescales.papers.claims import judge
from timescales.papers.table import expand
from timescales.reports import figures, markdown, report, write
from timescales.runs import cost, metrics, provenance, record, store

ROOT = Path(__file__).resolve().parents[2]
TABLE = {
    "name": "made_up", "title": "Made up", "source": "nobody 2021, table 0", "metric": "test/accuracy",
    "select": "last", "better": "higher", "unit": "percent", "n_min": 3, "tolerance": 0.5, "claims": [], "assumed": {},
    "runs": [{"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1, 2]}],
    "cells": [{"where": {"model": "plstm"}, "value": 90.0}], "tiny": {"set": {"task.T": 5}, "claims": []},
}  # fmt: skip
ASKED = {"paper": [run.axes for run in expand(TABLE)], "tiny": []}


def rows(values, model="plstm", status="finished", stale=False, **axes):
    """Rows of runs.csv with these accuracies (fractions), seeds from 0 on."""
    return [
        {"id": f"{model}{k}{axes}", "axes": {"task": "copy", "model": model, "seed": k, **axes}, "seed": k,
         "stale": stale, "status": status, "last test/accuracy": v, "last valid/accuracy": v}
        for k, v in enumerate(values)
    ]  # fmt: skip


def judged(found, printed=None, **table):
    return verdict.cell({"where": {"model": "plstm"}, "value": 90.0, **(printed or {})}, {**TABLE, **table}, found)


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
)  # fmt: skip
def test_verdict_of_a_cell(found, printed, table, word):
    assert judged(found, printed, **table).verdict == word


def test_numbers_of_a_cell():
    cell = judged(rows([0.90, 0.92, 0.10, 0.97]), success="valid/accuracy > 0.5")
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


def test_what_another_selection_would_give_stands_beside_it():
    table = {**TABLE, "assumed": {"select": {"said": "not stated", "try": ["best"]}}}
    assert verdict.metrics(table) == ["last test/accuracy", "best test/accuracy"]
    more = {"seconds": 6.0, "machine": "abacus", "threads": 1, "commit": "c0ffee", "partial": ""}
    a, b = (row | more for row in rows([0.5, 0.5]))
    runs = {"paper": [a | {"best test/accuracy": 0.902}, b], "tiny": []}  # one was committed without it
    text = markdown.table(report.Report(table, runs, ASKED))
    assert "| verdict | ours if select=best | open |" in text
    assert "| 50 (0) | 2 | 50 | 50 50 | worse (n=2) | 90.2: match (n=1) |" in text
    assert "select=" not in markdown.table(report.Report(TABLE, runs, ASKED))
    failing = {**table, "success": "valid/accuracy > 0.4"}  # a run that succeeded does so whatever is selected
    text = markdown.table(report.Report(failing, runs, ASKED))
    assert "| 50 (0) | 2 | 50 | 50 50 | worse (n=2) | 90.2: match (n=1) |" in text


def test_one_run_is_one_more_draw_from_the_papers():
    """x = 93 against mean 90, sd 2, n 5: t = 3 / (2 sqrt(1 + 1/5)) with 4 degrees of freedom."""
    t = 3 / (2 * math.sqrt(1.2))
    assert judged(rows([0.93]), {"sd": 2.0, "n": 5}).p == pytest.approx(2 * stats.t.sf(t, 4))


def test_a_cell_of_steps_says_which_runs_never_got_there():
    name, printed = "steps to valid/accuracy >= 0.99", {"where": {"model": "plstm"}, "value": 900.0}
    found = [row | {name: metrics.Over(900)} for row in rows([0.1, 0.1, 0.1])]
    table = {**TABLE, "metric": name, "better": "lower", "unit": "steps"}
    assert verdict.cell(printed, table, found).verdict == "open"
    found[1][name] = 300
    cell = verdict.cell(printed, table, found)
    assert cell.verdict == "unstable (2 of 3 never got there)"  # a mean of at least 700
    assert [verdict.number(value) for _, value in cell.values] == [">900", "300", ">900"]


def test_where_none_reaches_a_threshold_nobody_is_faster():
    """All runs count as all the steps they might have taken: two failures prove neither order nor likeness."""
    name = "steps to valid/accuracy >= 0.99"
    found = [row | {name: metrics.Over(900)} for row in rows([0.1, 0.1, 0.1]) + rows([0.1, 0.1, 0.1], model="lstm")]
    table = {**TABLE, "metric": name, "better": "lower", "unit": "steps"}
    for said in ("plstm > lstm", "plstm ~ lstm"):
        assert judge(said, table, found).verdict == "open"
    found[0][name] = 300
    claim = judge("plstm > lstm", table, found)
    assert (claim.verdict, claim.detail) == ("in order", ">700 (n=3) against >900 (n=3)")


STEPS = "steps to valid/accuracy >= 0.99"
FASTER = {**TABLE, "metric": STEPS, "better": "lower", "unit": "steps"}


def steps(values, model="plstm", status="finished"):
    return [row | {STEPS: v} for row, v in zip(rows([0.9] * len(values), model, status), values, strict=True)]


@pytest.mark.parametrize(
    ("ours", "theirs", "greater", "alike"),
    [
        ([100, 110, 120], [metrics.Over(900)] * 3, "holds", "open"),  # however long it would have taken them
        ([100, 110, 120], [800, 820, metrics.Over(900)], "holds", "reversed"),
        ([100, 110, metrics.Over(400)], [8000, 8100, 8200], "in order", "reversed"),  # it might have taken any number
        ([metrics.Over(400)] * 3, [500, 510, 520], "open", "open"),
        ([8000, 8100, 8200], [100, 110, metrics.Over(400)], "reversed", "reversed"),  # for the same reason not refuted
        ([8000, 8100, 8200], [100, 110, 120], "refuted", "refuted"),
        ([790, 800, 810], [metrics.Over(800), 799, 801], "open", "in order"),
    ],
)
def test_means_that_are_only_known_to_be_larger_decide_where_that_does_not_matter(ours, theirs, greater, alike):
    found = steps(ours) + steps(theirs, "lstm")
    assert judge("plstm > lstm", FASTER, found).verdict == greater
    assert judge({"claim": "plstm ~ lstm", "tolerance": 20}, FASTER, found).verdict == alike


def test_runs_that_diverged_are_no_hole_where_everyone_counts():
    """An LSTM of five got there first and four diverged: it is not the faster one."""
    found = steps([100, 110, 120, 130, 140]) + steps([90], "lstm")
    found += steps([metrics.Over(900)] * 4, "lstm", status="diverged")
    told = judge("plstm > lstm", FASTER, found)
    assert (told.verdict, told.detail) == ("holds", "120 (n=5) against >738 (n=5)")
    accurate = {"claim": "plstm > lstm", "failures": "count"}
    lost = rows([None] * 3, "lstm", status="diverged")  # these have no accuracy
    told = judge(accurate, TABLE, rows([0.90, 0.91, 0.92]) + rows([0.95, 0.96, 0.97], "lstm") + lost)
    assert (told.verdict, told.detail) == ("reversed", "91 (n=3) against 96 (n=3); 3 diverged")  # would be refuted
    told = judge(accurate, TABLE, rows([0.90, 0.91, 0.92]) + rows([0.80, 0.81, 0.82], "lstm") + lost)
    assert told.verdict == "holds"  # they were the worse ones anyway
    assert told.text == "plstm > lstm (failures count)"


@pytest.mark.parametrize(
    ("failed", "ended", "asked", "word"),
    [
        (3, 3, 5, "holds"),  # whatever the others do
        (1, 1, 5, "in order"),
        (1, 2, 5, "reversed"),
        (0, 2, 5, "reversed"),
        (0, 3, 5, "refuted"),
        (0, 2, 4, "refuted"),  # if the other two fail, half of them
        (1, 4, 5, "reversed"),
        (2, 4, 4, "reversed"),
        (0, 4, 4, "refuted"),
    ],
)
def test_more_than_half_is_of_all_runs_there_will_be(failed, ended, asked, word):
    table = {**TABLE, "success": "valid/accuracy > 0.5", "n_min": 1}
    found = rows([0.1] * failed + [0.9] * (ended - failed), "lstm")
    there_will_be = [row["axes"] for row in rows([0.5] * asked, "lstm")]
    assert judge("lstm fails", table, found, there_will_be).verdict == word
    assert judge("lstm never fails", table, found, there_will_be).verdict == ("refuted" if failed else "holds")


def test_failing_is_said_of_each_group_of_runs():
    """At T = 1,000 all fail, at T = 500 one of five: six of ten are more than half, but not of either."""
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    found = rows([0.1] * 5, "lstm", T=1000) + rows([0.1, 0.9, 0.9, 0.9, 0.9], "lstm", T=500)
    told = judge("lstm fails", table, found)
    assert (told.verdict, told.detail) == ("reversed", "1 of 5 runs fail; the weakest of 2 groups")
    # One that was committed without the value it is judged by is neither failed nor good.
    nobody_knows = [{k: v for k, v in row.items() if k != "last valid/accuracy"} for row in rows([0.9] * 3, "lstm")]
    assert judge("lstm never fails", table, nobody_knows).verdict == "open"
    ours = [row | {"axes": row["axes"] | {"model": "plstm"}} for row in nobody_knows]
    assert judged([*rows([0.1]), *ours], success=table["success"]).verdict == "unstable (1 of 1 failed)"
    assert judged(ours, success=table["success"]).verdict == "missing"


def test_a_claim_says_of_how_many_of_its_groups_it_is_said():
    found = rows([0.9, 0.91], T=200) + rows([0.8, 0.81], "lstm", T=200) + rows([0.9, 0.91, 0.92], T=500)
    asked = [row["axes"] for T in (200, 500, 1000) for model in ("lstm", "plstm") for row in rows([0] * 3, model, T=T)]
    assert judge("plstm > lstm", TABLE, found, asked).verdict == "holds (n=2, 1 of 3 groups)"
    found += rows([0.92], T=200)[-1:] + rows([0.82], "lstm", T=200)[-1:] + rows([0.8, 0.81, 0.82], "lstm", T=500)
    told = judge("plstm > lstm", {**TABLE, "n_min": 2}, found, asked)
    assert (told.verdict, told.detail.split("; ")[1]) == ("holds (2 of 3 groups)", "the weakest of 2 groups")
    assert verdict.whole([], [told]) == "reproduced so far"
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    assert judge("plstm never fails", table, found, asked).verdict == "holds (2 of 3 groups)"
    # The number is the fewest of a group, p that of the group which says least.
    groups = [rows(v, T=T) + rows([0.8, 0.81, 0.82][: len(v)], "lstm", T=T)
              for T, v in ((200, [0.9, 0.91, 0.93]), (500, [0.99, 0.991]))]  # fmt: skip
    each = [judge("plstm > lstm", TABLE, found) for found in groups]
    together = [row for found in groups for row in found]
    both = judge("plstm > lstm", TABLE, together)
    assert [told.verdict for told in (*each, both)] == ["holds", "holds (n=2)", "holds (n=2)"]
    assert both.p == max(told.p for told in each)
    alike = {"claim": "plstm ~ lstm", "tolerance": 50}
    assert judge(alike, TABLE, together).p == min(judge(alike, TABLE, found).p for found in groups)
    index = markdown.index([report.Report({**TABLE, "claims": ["plstm > lstm"]}, {"paper": together, "tiny": []},
                                          {"paper": asked, "tiny": []})])  # fmt: skip
    assert "| 1 holds so far |" in index


def test_a_twin_shows_no_order_before_all_its_runs_are_there():
    more = {"seconds": 6.0, "machine": "abacus", "threads": 1, "commit": "c0ffee", "partial": ""}
    twin = {"set": {"task.T": 5}, "claims": ["plstm > lstm"]}
    asked = {"paper": [], "tiny": [run.axes for run in expand({**TABLE, "tiny": twin}, "tiny")]}
    there = [row | more for row in rows([0.9, 0.91, 0.92], **{"task.T": 5}) + rows([0.1] * 3, "lstm", **{"task.T": 5})]
    shown = [
        report.Report({**TABLE, "tiny": twin}, {"paper": [], "tiny": there[:k]}, asked).shown_here() for k in (5, 6)
    ]
    assert shown == ["open", "order shown"]
    near = [row | more for row in rows([0.9, 0.91, 0.915], "lstm", **{"task.T": 5})]
    turned = {**TABLE, "tiny": {**twin, "claims": ["lstm > plstm"]}}
    found = report.Report(turned, {"paper": [], "tiny": there[:3] + near}, asked)
    assert (found.shown[0].verdict, found.shown_here()) == ("reversed", "not in order")
    failing = {**TABLE, "tiny": {**twin, "success": "valid/accuracy > 0.905"}}
    text = markdown.table(report.Report(failing, {"paper": [], "tiny": there}, asked))
    assert "| plstm | 91.5 (0.71) | 3 | 90 91 92 | 1 failed, not in the mean | 0.1 |" in text
    assert "| lstm |  | 3 | 10 10 10 | 3 failed, not in the mean | 0.1 |" in text


def test_one_run_against_runs_without_spread_is_an_order_at_most():
    same = rows([0.9, 0.9, 0.9])
    assert judge("plstm > lstm", TABLE, same + rows([0.8], "lstm")).verdict == "in order (n=1)"
    assert judge("lstm > plstm", TABLE, same + rows([0.8], "lstm")).verdict == "reversed (n=1)"
    assert verdict.welch((1.0, 0.0, 1), (2.0, 0.0, 3)) is None
    assert judged(rows([0.9001]), {"sd": 0.0, "n": 5}).verdict == "match (n=1)"  # then the tolerance decides


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


@pytest.mark.parametrize(
    ("claim", "ours", "theirs", "word"),
    [
        ("plstm > lstm", [0.9, 0.91, 0.92], [0.8, 0.81, 0.82], "holds"),
        ("plstm > lstm", [0.9, 0.5, 0.92], [0.8, 0.3, 0.82], "in order"),
        ("plstm > lstm", [0.9], [0.8], "in order"),
        ("plstm > lstm", [0.7], [0.8], "reversed"),
        ("plstm > lstm", [0.7, 0.71, 0.72], [0.8, 0.81, 0.82], "refuted"),
        ("plstm > lstm", [0.79, 0.6, 0.9], [0.8, 0.65, 0.9], "reversed"),
        ("plstm > lstm", [0.7], [], "open"),
        ("plstm ~ lstm", [0.9, 0.91, 0.92], [0.91, 0.92, 0.90], "holds"),
        ("plstm ~ lstm", [0.9, 0.91, 0.92], [0.80, 0.81, 0.82], "refuted"),
        ("plstm ~ lstm", [0.9], [0.902], "in order"),
        ("plstm ~ lstm", [0.9], [0.92], "open"),
        ("plstm ~ lstm", [0.9], [0.92, 0.88], "holds"),
        ("plstm ~ lstm", [0.9, 0.8], [0.75, 0.7], "open"),  # too few to tell is not the same: p = .15
        ("plstm > lstm", [0.8, 0.8], [0.9, 0.9], "refuted"),  # without any spread
        ("plstm > lstm", [0.9, 0.9], [0.8, 0.8], "holds"),
        ("plstm > lstm", [0.9], [0.8, 0.801, 0.802], "holds"),
        ("plstm > lstm", [0.9, 0.9, 0.9], [0.9, 0.9, 0.9], "open"),  # a tie
        ("plstm > lstm @ task=smnist", [0.9], [0.8], "open"),
        ("task=copy model=plstm > task=copy model=lstm @ seed=0", [0.9], [0.8], "in order"),
    ],
)
def test_verdict_of_a_claim(claim, ours, theirs, word):
    found = judge(claim, TABLE, rows(ours) + rows(theirs, "lstm"))
    assert verdict.word_of(found) == word
    fewest = min(len(ours), len(theirs))
    assert found.verdict == word + (f" (n={fewest})" if fewest < TABLE["n_min"] and found.detail else "")


def test_a_claim_must_hold_in_every_group():
    big, small = {"model.hidden_size": 512}, {"model.hidden_size": 256}
    good = rows([0.9, 0.91], **big) + rows([0.5, 0.51], "lstm", **big)
    bad = rows([0.4, 0.41], **small) + rows([0.5, 0.51], "lstm", **small)
    assert judge("plstm > lstm", TABLE, good).verdict == "holds (n=2)"
    assert judge("plstm > lstm", TABLE, good + bad).verdict == "refuted (n=2)"
    assert judge("plstm > lstm @ model.hidden_size=512", TABLE, good + bad).verdict == "holds (n=2)"


def test_a_claim_on_two_metrics_of_the_same_runs():
    found = rows([None] * 3)
    for row, near, far in zip(found, (0.10, 0.11, 0.12), (0.30, 0.31, 0.35), strict=True):
        row |= {"probe/near": near, "probe/far": far}
    nearer = {"claim": "plstm", "metric": "probe/near", "than": "probe/far", "better": "lower", "unit": "1"}
    told = judge(nearer, TABLE, found)
    assert told.verdict == "holds"
    assert told.p == pytest.approx(stats.ttest_rel([0.10, 0.11, 0.12], [0.30, 0.31, 0.35], alternative="less").pvalue)
    assert told.text == "plstm (probe/near, before probe/far)"
    assert told.detail == "0.11 (n=3) against 0.32 (n=3)"
    assert judge(nearer | {"better": "higher"}, TABLE, found).verdict == "refuted"
    assert judge(nearer, TABLE, found[:1]).verdict == "in order (n=1)"
    assert judge(nearer | {"claim": "lstm"}, TABLE, found).verdict == "open"
    assert verdict.metrics(TABLE | {"claims": [nearer]})[1:] == ["probe/near", "probe/far"]
    for line in ("plstm > lstm", "plstm ~ lstm", "plstm fails"):
        with pytest.raises(errors.ConfigError, match="one side alone"):
            judge(nearer | {"claim": line}, TABLE, found)


def test_claims_on_another_metric_and_on_failing():
    slow, fast = rows([0.9, 0.9], "lstm"), rows([0.9, 0.9])
    for k, row in enumerate(slow + fast):
        row["steps to valid/accuracy >= 0.9"] = 1000 + k if row["axes"]["model"] == "lstm" else 100 + k
    faster = {"claim": "plstm > lstm", "metric": "steps to valid/accuracy >= 0.9", "better": "lower", "unit": "steps"}
    found = judge(faster, TABLE, slow + fast)
    assert found.verdict == "holds (n=2)"
    assert found.text == "plstm > lstm (steps to valid/accuracy >= 0.9)"
    assert found.detail == "102.5 (n=2) against 1000 (n=2)"
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    runs = rows([0.9, 0.1], "lstm") + rows([0.9, 0.9])
    assert judge("lstm fails", table, runs).verdict == "reversed (n=2)"  # half of them
    assert judge("lstm fails", table, [*runs, *rows([0.1], "lstm")]).verdict == "holds"
    assert judge("plstm fails", table, runs).verdict == "refuted (n=2)"
    assert judge("plstm never fails", table, runs).verdict == "holds (n=2)"
    assert judge("lstm never fails", table, runs).verdict == "refuted (n=2)"
    assert judge("plstm fails @ model=ur", table, runs).verdict == "open"
    with pytest.raises(errors.ConfigError, match="cannot read the claim 'plstm wins'"):
        judge("plstm wins", TABLE, runs)


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
    found = verdict.whole(
        [verdict.Cell({}, verdict=w) for w in cells], [verdict.Judgement("", verdict=w) for w in claims]
    )  # fmt: skip
    assert found == word


def test_runs_that_fail_count_where_a_claim_says_so():
    table = {**TABLE, "success": "valid/accuracy > 0.5", "n_min": 1}
    found = rows([0.9, 0.91]) + rows([0.1, 0.11], "lstm")
    assert judge("plstm > lstm", table, found).verdict == "open"
    assert judge({"claim": "plstm > lstm", "failures": "count"}, table, found).verdict == "holds"
    for row in found:
        row["steps to valid/accuracy >= 0.9"] = 300 if row["axes"]["model"] == "lstm" else 100 + row["seed"]
    steps = {"claim": "plstm > lstm", "metric": "steps to valid/accuracy >= 0.9", "better": "lower", "unit": "steps"}
    assert judge(steps, table, found).verdict == "holds"


def test_a_claim_may_ask_for_a_factor():
    found = rows([0.9, 0.901]) + rows([0.5, 0.501], "lstm")
    assert judge({"claim": "plstm > lstm", "times": 1.5}, TABLE, found).verdict == "holds (n=2)"
    twice = judge({"claim": "plstm > lstm", "times": 2}, TABLE, found)
    assert (twice.verdict, twice.detail) == ("refuted (n=2)", "90.05 (n=2) against 50.05 (n=2)")
    low = {"claim": "lstm > plstm", "better": "lower"}
    assert judge(low | {"times": 1.5}, TABLE, found).verdict == "holds (n=2)"
    assert judge(low | {"times": 2}, TABLE, found).verdict == "refuted (n=2)"


def test_of_single_runs_on_the_same_words_the_bootstrap_decides():
    """2,000 words in 20 blocks; a tenth of a nat a word, in every block, is certain, and none is no difference."""

    def run(model, nats, **axes):
        sums = np.array([[25 * (n + 0.001 * k) for n in nats] for k in range(20)])
        text = bins.to_text(bins.Blocks(sums, np.full((20, 4), 25)))
        ppl = bins.named(bins.perplexities(bins.from_text(text)))
        row = rows([0.5], model, **axes)[0] | {"blocks": text}
        return row | {f"probe/bins/{name}": value for name, value in ppl.items()}

    table = {**TABLE, "better": "lower", "unit": "perplexity", "n_min": 1, "tolerance": 0.01, "probe": ["bins"]}
    found = [run("lstm", [2.0, 3.0, 5.1, 7.0]), run("mts", [2.0, 3.1, 5.0, 6.9], **{"model.layer1_bias": "eq5"})]
    assert bins.p_lower(found[1]["blocks"], found[0]["blocks"], "100_1K") == 0.0

    def said(text, name, **more):
        return judge({"claim": text, "metric": f"probe/bins/{name}"} | more, table, found).verdict

    assert said("mts model.layer1_bias=eq5 > lstm", "100_1K") == "holds"
    assert said("mts > lstm", "100_1K") == "open"  # they differ in the bias, which the claim does not name
    assert said("lstm > mts model.layer1_bias=eq5", "100_1K") == "reversed"  # it knows nothing of seeds
    assert said("mts model.layer1_bias=eq5 ~ lstm", "above_10K", tolerance=0.01) == "holds"
    assert said("mts model.layer1_bias=eq5 ~ lstm", "1K_10K", tolerance=0.01) == "reversed"
    shown = markdown._bootstrap(report.Report(table, {"paper": found, "tiny": []}, ASKED))
    (difference,) = (line.split("|")[3] for line in shown if f"| {bins.NAMES[2]} |" in line)
    assert float(difference) == pytest.approx(math.exp(5.1) - math.exp(5.0), rel=0.05)  # LSTM minus MTS
    two_bins = {"claim": "lstm", "metric": "probe/bins/above_10K", "than": "probe/bins/below_100"}
    assert judge(two_bins, table, found).p is None  # of one run the blocks tell nothing
    assert bins.p_lower(found[0]["blocks"], "\n".join(found[1]["blocks"].splitlines()[:9]) + "\n", "all") is None
    none = bins.to_text(bins.Blocks(np.array([[1.0, 1.0, 0.0, 0.0]] * 20), np.array([[50, 50, 0, 0]] * 20)))
    assert bins.p_lower(none, none, "below_100") is None  # a bin without words
    for row in found:
        row["blocks"] = None
    assert said("mts model.layer1_bias=eq5 > lstm", "100_1K") == "in order"


def test_single_runs_are_judged_by_the_interval_that_is_printed(monkeypatch):
    """95 % of the resamples are in it: one in forty is above."""
    for p, word in ((0.02, "holds (n=1)"), (0.03, "in order (n=1)")):
        monkeypatch.setattr("timescales.papers.claims._bootstrap", lambda ours, theirs, name, p=p: p)
        found = judge("plstm > lstm", TABLE, rows([0.9]) + rows([0.8], "lstm"))
        assert (found.verdict, found.p) == (word, p)


def test_stale_runs_say_nothing():
    old = rows([0.9, 0.91, 0.92], stale=True) + rows([0.8, 0.81, 0.82], "lstm")
    assert judge("plstm > lstm", TABLE, old).verdict == "stale"
    assert verdict.whole([], [judge("plstm > lstm", TABLE, old)]) == "open"
    new = rows([0.9, 0.91, 0.92]) + rows([0.8, 0.81, 0.82], "lstm") + rows([0.1], "chrono", stale=True)
    assert judge("plstm > lstm", TABLE, new).verdict == "holds"  # it is not about these


def test_a_table_with_missing_runs_is_open_whatever_the_others_say():
    assert verdict.whole([], [verdict.Judgement("", "holds")], complete=False) == "open"
    assert verdict.whole([], [verdict.Judgement("", "refuted")], complete=False) == "contradicted"


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
    cell = judged(found, {"value": 95.0, "failed": 2, "n_min": 12}, reduce="max")
    assert (cell.verdict, cell.failed, cell.of) == ("match", 2, 4)
    assert judged(found, {"value": 95.0}, reduce="max").verdict == "unstable (2 of 4 failed)"
    # Where less is better the best rate is another one, and the best of some that never got there is known.
    assert judged(found, {"value": 90.0, "better": "lower"}, reduce="max").verdict == "match"
    told = judge(
        "plstm > lstm", {**FASTER, "reduce": "max"}, steps([300, metrics.Over(900)]) + steps([500] * 2, "lstm")
    )
    assert (told.verdict, told.detail) == ("holds", "300 (n=2) against 500 (n=2)")


def test_no_difference_is_one_within_the_tolerance_or_not_significant():
    a, b = rows([0.9000, 0.9001, 0.9002]), rows([0.9020, 0.9021, 0.9022], "lstm")
    assert judge("plstm ~ lstm", TABLE, a + b).verdict == "holds"
    apart = {"claim": "plstm ~ lstm", "tolerance": 0.1}
    assert judge(apart, TABLE, a + b).verdict == "refuted"


def test_runs_that_failed_are_computed_with_no_more_than_they_are_averaged(monkeypatch):
    monkeypatch.setattr(verdict, "computed", lambda name, found: float(len(found)))
    found = rows([0.9, 0.1, 0.9])
    cell = judged(found, {"compute": "x.y", "value": 2.0, "failed": 1}, success="valid/accuracy > 0.5")
    assert (cell.verdict, cell.mean, cell.n) == ("match", 2.0, 2)
    told = {"compute": "x.y", "value": 2.0}
    assert judged(found, told, success="valid/accuracy > 0.5").verdict == "unstable (1 of 3 failed)"
    apart = [row | {"axes": row["axes"] | {"T": T}} for T in (200, 500) for row in rows([0.9, 0.9])]
    monkeypatch.setattr(verdict, "computed", lambda name, found: 2.0)
    assert judged(apart, told).verdict == "match (n=2)"  # as many of each setting
    monkeypatch.setattr(verdict, "computed", lambda name, found: None)
    assert judged(found[1:2], told, success="valid/accuracy > 0.5").verdict == "unstable (1 of 1 failed)"
    assert judged(found[1:2], told, success="valid/accuracy > 0.05").verdict == "missing"  # more are to come
    assert judged(rows([0.1], stale=True), told, success="valid/accuracy > 0.5").verdict == "stale"


def test_values_of_two_trainings_of_a_run_are_never_mixed(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    for name, seconds, metric in (("a", 1.0, "last x"), ("b", 2.0, "last y"), ("c", 1.0, "last z")):
        (tmp_path / name).mkdir()
        line = dict.fromkeys(store.COLUMNS) | {"id": "1", "seed": 0, "seconds": seconds, "commit": "c", metric: 0.5}
        (tmp_path / name / "runs.csv").write_text(store.rows_text([line]))
    found = store.committed()["1"]
    assert (found["last x"], found["last z"], found.get("last y")) == (0.5, 0.5, None)


def made_record(directory, run_id, seed, model, accuracy, **changes):
    """A record as train.py leaves it."""
    directory.mkdir(parents=True)
    config = {"task": {"name": "copy"}, "model": {"name": model}, "seed": seed}
    record = {
        "id": run_id, "status": "finished", "config": config, "seed": seed, "steps": 300, "diverged_at": None,
        "metrics": {"test/accuracy": accuracy}, "last": {"test/accuracy": accuracy, "valid/accuracy": accuracy},
        "curve": [{"step": k, "epoch": k / 10, "valid/accuracy": accuracy * k / 300} for k in range(1, 301)],
        "seconds": 60.0, "parameters": 10, "device": "cpu", "threads": 1, "machine": "abacus", "commit": "abc",
        "golden": None, "partial": [],
    }  # fmt: skip
    (directory / "record.json").write_text(json.dumps(record | changes))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A made-up table with six runs, and a way to report it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(provenance, "golden", lambda task, model: None)
    table = {**TABLE, "figure": {"kind": "curves"}, "claims": ["plstm > lstm"], "success": "valid/accuracy > 0.2",
             "assumed": {"batch": {"said": "not stated; 128"}}, "notes": ["The paper contradicts itself."],
             "cited": [{"label": "uRNN", "value": 1.0, "source": "somebody 2016"}],
             "tiny": {"set": {"task.T": 5, "seed": 0}, "claims": ["plstm > lstm"]}}  # fmt: skip
    asked = {}
    for profile in report.PROFILES:
        asked[profile or "paper"] = [
            (run, f"copy-{run.axes['model']}-s{run.axes['seed']}-{profile or 'paper'}{k:05}")
            for k, run in enumerate(expand(table, profile))
        ]
    for found in asked.values():
        for k, (run, slug) in enumerate(found):
            accuracy = (0.9 if run.axes["model"] == "plstm" else 0.6) + 0.001 * k
            made_record(
                tmp_path / "runs" / slug, slug.rpartition("-")[2], run.axes["seed"], run.axes["model"], accuracy
            )

    def made(local=True, own=False):
        rows, dropped = report.gather(table, asked, local)
        return report.Report(
            table, rows, {p: [run.axes for run, _ in runs] for p, runs in asked.items()}, dropped=dropped, own=own
        )

    return made


def test_report_says_what_the_records_hold(made):
    found = made()
    write.write(found)
    text = (paths.RESULTS / "made_up" / "table.md").read_text()
    assert "At paper size: **reproduced**. Shown here: **order shown**." in text
    assert "| plstm | 90.0 | 90.4 (0.1) | 3 | 90.4 | 90.3 90.4 90.5 | match |" in text
    assert "| plstm > lstm | holds |" in text
    assert "| plstm > lstm | in order (n=1) |  | 90.1 (n=1) against 60 (n=1) |" in text
    assert "- `batch`: not stated; 128" in text
    assert "- The paper contradicts itself." in text
    assert "| uRNN | 1.0 | somebody 2016 |" in text
    assert "- paper: 0.10 h on abacus, 1 thread" in text
    index = markdown.index([found])
    assert (
        "| [made_up](made_up/table.md) | nobody 2021, table 0 | reproduced | 1 match | 1 holds | order shown |  |"
        in index
    )
    assert "- At paper size: 1 reproduced.\n- Shown here: 1 order shown.\n" in index
    assert "make tiny TABLE=made_up " in text
    own = markdown.table(made(own=True))  # make knows no table of one's own
    assert "train.py --config-dir FOLDER table=made_up profile=tiny" in own
    assert "make " not in own
    lines = (paths.RESULTS / "made_up" / "curves" / "paper00000.csv").read_text().splitlines()
    assert len(lines) == report.POINTS + 1
    assert lines[1].startswith("1,0.1,")
    assert lines[-1].startswith("300,30.0,")


def test_report_is_idempotent_and_rebuilt_from_what_is_committed(made, tmp_path):
    import shutil

    found = made()
    write.write(found)
    first = {p: p.read_bytes() for p in sorted(paths.RESULTS.rglob("*")) if p.is_file()}
    write.write(made())
    assert first == {p: p.read_bytes() for p in sorted(paths.RESULTS.rglob("*")) if p.is_file()}
    shutil.rmtree(tmp_path / "runs")
    for local in (True, False):
        again = made(local)
        assert markdown.table(again) == markdown.table(found)
        assert report.curve(again.table, again.rows["paper"][0])[-1]["step"] == 300
        write.write(again)
    assert first == {p: p.read_bytes() for p in sorted(paths.RESULTS.rglob("*")) if p.is_file()}


def test_runs_on_a_part_of_the_data_are_marked_until_the_whole_is_there(made, tmp_path):
    write.write(made())
    (path,) = (tmp_path / "runs").glob("copy-plstm-s0-paper*/record.json")
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"partial": ["half of it"]}))
    found = made()  # the run is committed on the whole data
    assert (found.cells[0].verdict, found.verdict) == ("match", "reproduced")
    (paths.RESULTS / "made_up" / "runs.csv").unlink()
    found = made()
    assert (found.cells[0].verdict, found.verdict) == ("match (part of the data)", "reproduced (part of the data)")
    assert "paper: not the whole data: half of it" in markdown.table(found)
    assert all(c.verdict.endswith(" (part of the data)") for c in found.claims if "plstm" in c.text)
    write.write(found)
    assert not store.counts(store.committed()[whole["id"]], allow_partial=False)
    assert store.counts(store.committed()[whole["id"]], allow_partial=True)
    path.write_text(json.dumps(whole))
    assert made().verdict == "reproduced"


def test_an_interrupted_run_is_no_result_and_a_lost_one_stays_as_committed(made, tmp_path):
    write.write(made())
    (path,) = (tmp_path / "runs").glob("copy-plstm-s0-paper*/record.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "interrupted", "sha256": None}))
    found = made()
    assert len(found.rows["paper"]) == 6  # as committed
    (paths.RESULTS / "made_up" / "runs.csv").unlink()
    assert len(made().rows["paper"]) == 5


def test_a_run_that_broke_off_is_no_result_and_hides_none(made, tmp_path):
    """An error of ours says nothing of a model: its cell stays open, and what was committed of the run stays."""
    write.write(made())
    path = next((tmp_path / "runs").glob("*plstm-s1-paper*/record.json"))
    broken = json.loads(path.read_text()) | {"status": "failed", "error": "MemoryError: no more"}
    path.write_text(json.dumps(broken))
    found = made()
    assert [row["status"] for row in found.rows["paper"]] == ["finished"] * 6
    assert found.cells[0].n == 3
    rows_file = tmp_path / "results" / "made_up" / "runs.csv"
    lines = [line for line in rows_file.read_text().splitlines() if broken["id"] not in line]
    rows_file.write_text("\n".join(lines) + "\n")
    found = made()
    assert (len(found.rows["paper"]), found.cells[0].n, found.cells[0].failed) == (5, 2, 0)
    assert found.verdict == "open"


def test_a_tiny_run_never_fills_a_paper_cell(made, tmp_path):
    import shutil

    for directory in (tmp_path / "runs").glob("*paper*"):
        shutil.rmtree(directory)
    found = made()
    assert [c.verdict for c in found.cells] == ["missing"]
    assert found.verdict == "open"
    assert found.shown_here() == "order shown"
    found.shown = [verdict.Judgement("plstm > lstm", "refuted")]
    assert found.shown_here() == "not in order"  # a size may be the reason: a twin contradicts nobody
    found.shown = []
    assert found.shown_here() == "no order expected"


def test_a_picture_names_its_cells_and_reaches_over_decades(monkeypatch):
    from matplotlib.figure import Figure

    cells = [{"label": "frequent", "where": {"model": "plstm"}, "value": 6.8},
             {"label": "rare", "where": {"model": "plstm"}, "value": 4600.0, "metric": "test/loss"}]  # fmt: skip
    found = report.Report({**TABLE, "cells": cells}, {"paper": rows([0.9]), "tiny": []}, ASKED)
    one = Figure().subplots()
    figures._cells(one, found, "paper", found.table)
    assert [text.get_text() for text in one.get_yticklabels()] == ["frequent: plstm", "rare: plstm"]
    assert one.get_xscale() == "log"


def test_what_is_drawn_is_what_was_found():
    from matplotlib.figure import Figure

    found = [*rows([0.5, 0.7], **{"task.T": 5}), *rows([0.9], **{"task.T": 10})]
    for k, row in enumerate(found):
        row |= {"curve": [{"step": 10, "valid/accuracy": 0.25}, {"step": 20, "valid/accuracy": 0.75}],
                "probe/decay/1": k + 1.0, "probe/decay/10": k + 4.0}  # fmt: skip
    kinds = {figures._cells: {}, figures._curves: {}, figures._line: {"x": "task.T"},
             figures._probe: {"probe": "decay", "xlabel": "age", "ylabel": "kept"}}  # fmt: skip
    drawn = {}
    for kind, settings in kinds.items():
        cells = [{"where": {"model": "plstm"}, "value": 90.0, "sd": 0.5, "n": 3}]
        of = report.Report({**TABLE, "cells": cells, "figure": settings}, {"paper": found, "tiny": []}, ASKED)
        drawn[kind] = Figure().subplots()
        kind(drawn[kind], of, "paper", of.table)
    numbers = {kind: [(*line.get_xdata(), *line.get_ydata()) for line in one.lines] for kind, one in drawn.items()}
    close = pytest.approx
    (spread,) = drawn[figures._cells].containers[0].lines[2][0].get_segments()
    assert list(spread[:, 0]) == [89.5, 90.5]
    assert sorted(one[0] for one in numbers[figures._cells][-3:]) == close([50.0, 70.0, 90.0])
    assert numbers[figures._curves] == [(10, 20, 0.25, 0.75)] * 3
    assert numbers[figures._line][0] == close((5, 10, 60.0, 90.0))
    assert numbers[figures._line][1] == close((5, 5, 10, 50.0, 70.0, 90.0))
    assert numbers[figures._probe] == [close((1, 10, 1.5, 4.5)), close((1, 10, 3.0, 6.0))]
    band = drawn[figures._probe].collections[0].get_paths()[0].get_extents()  # one standard error of 1 and 2: .5
    assert (band.y0, band.y1) == close((1.0, 5.0))


def test_the_picture_is_drawn(made):
    found = made()
    write.write(found)
    curves, cells = {"kind": "curves"}, {"kind": "cells"}
    for kind in (curves, cells, {"kind": "line", "x": "task.T"}, [curves, cells]):
        found.table["figure"] = kind
        path = figures.draw(found)
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert path.stat().st_size < 200_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best test/accuracy", 0.9), ("last test/accuracy", 0.8), ("last test/loss", None), ("probe/a/b", 3.0),
        ("steps to valid/accuracy >= 0.5", 20), ("steps to valid/loss <= 0.1", 30),
        # never: all that it might have taken, not the 40 after which it ended
        ("steps to valid/accuracy >= 0.99", metrics.Over(90)),
    ],
)  # fmt: skip
def test_what_a_table_reads_from_a_record(name, value):
    curve = [{"step": 10, "valid/accuracy": 0.1, "valid/loss": 1.0},
             {"step": 20, "valid/accuracy": 0.6, "valid/loss": 0.2},
             {"step": 30, "epoch": 1.0, "valid/accuracy": 0.7, "valid/loss": 0.05}]  # fmt: skip
    record = {
        "metrics": {"test/accuracy": 0.9},
        "last": {"test/accuracy": 0.8},
        "curve": curve,
        "steps": 40,
        "probes": {"a/b": 3.0},
        "config": {"loop": {"max_epochs": 3, "max_steps": 100}},
    }
    found = metrics.metric(record, name)
    assert (found, type(found)) == (value, type(value))


def test_a_threshold_never_reached_stays_so_in_a_file(tmp_path):
    """A number for what computes, ">90" for what reads."""
    name = "steps to valid/accuracy >= 0.99"
    (tmp_path / "runs.csv").write_text(store.rows_text([{"id": "a", name: metrics.Over(90)}, {"id": "b", name: 90}]))
    assert f"{name}\na," in (tmp_path / "runs.csv").read_text().replace(",".join(store.COLUMNS) + ",", "")
    first, second = (row[name] for row in store.read_rows(tmp_path / "runs.csv"))
    assert (first, type(first), verdict.number(first)) == (90, metrics.Over, ">90")
    assert (second, type(second), verdict.number(second)) == (90, int, "90")


def test_a_run_that_diverged_before_its_first_validation_is_reported(made, tmp_path):
    path = next((tmp_path / "runs").glob("*plstm-s1-paper*/record.json"))
    lost = {"status": "diverged", "curve": [], "steps": 7, "last": {}, "metrics": {}}
    path.write_text(json.dumps(json.loads(path.read_text()) | lost))
    assert made().cells[0].verdict == "unstable (1 of 3 failed)"
    assert metrics.metric(record.read(path.parent), "steps to valid/accuracy >= 0.5") == 7


def test_status_counts_what_is_committed():
    """In a folder without runs the committed ones are seen, however many, and what is missing has its price."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "status.py"), "chien_table3"], cwd=ROOT / "tests",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    head, paper, _ = done.stdout.splitlines()[:3]
    assert head.split()[:7] == ["table", "profile", "done", "committed", "missing", "begun", "stale"]
    assert paper.split()[:2] == ["chien_table3", "paper"]
    finished, committed, missing, begun, stale = map(int, paper.split()[2:7])
    there = store.read_rows(ROOT / "results" / "chien_table3" / "runs.csv")
    assert committed + stale == sum(row["profile"] == "paper" for row in there) > 0
    assert (finished, begun) == (0, 0)
    assert committed + stale + missing == 90
    assert bool(paper.split()[8:]) == (missing > 0)  # after the failed ones


def test_status_knows_a_folder_of_ones_own(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "status.py"), "--config-dir", str(ROOT / "docs" / "tutorial")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split()[:5] for line in done.stdout.splitlines()[1:3]]
    assert lines == [["decay_waves", "paper", "0", "0", "9"], ["decay_waves", "tiny", "0", "0", "4"]]


def test_status_adds_up_what_is_left(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import status

    monkeypatch.setenv("TIMESCALES_DATA", str(tmp_path))
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(provenance, "golden", lambda task, model: None)
    monkeypatch.setattr(load, "table", lambda name: TABLE | {"name": name, "needs": ["ptb"]})
    states = {"finished": 3600.0, "diverged": 60.0, "failed": 60.0, "interrupted": 60.0}  # three of lstm, one of plstm
    unknown = {}
    with compose.composing() as composer:
        runs, _ = load.runs(load.table("chien_copy"), None, composer)
        for (run, cfg), (state, seconds) in zip(runs, states.items(), strict=False):
            slug = identity.slug(cfg)
            axes = (run.axes["seed"], run.axes["model"], 0.9)
            made_record(tmp_path / "runs" / slug, identity.id_of(slug), *axes, status=state, seconds=seconds)
        paper, tiny = status.status("chien_copy", composer, unknown)
        kinds = [identity.kind(cfg) for _, cfg in runs]
    fetch = "python scripts/fetch_data.py ptb"
    assert paper == ["chien_copy", "paper", 1, 0, 2, 1, 0, 2, "1.0 h + 3 runs not measured", fetch]
    assert tiny == ["chien_copy", "tiny", 0, 0, 6, 0, 0, 0, "6 runs not measured", fetch]
    assert (kinds[0] in unknown, kinds[5] in unknown) == (False, True)


def test_a_check_names_what_the_committed_runs_do_not_give(made, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import report as reporting

    found = made()
    write.write(found)
    reporting.check([found], whole=False)
    assert capsys.readouterr().out == "1 reports are what their runs give\n"
    (tmp_path / "results" / "made_up" / "table.md").write_text("90.0")
    with pytest.raises(SystemExit, match=r"not what the committed runs give: .*made_up/table\.md"):
        reporting.check([found], whole=False)
    monkeypatch.setattr(cost, "rows", lambda: [{"kind": "of no table"}])
    with pytest.raises(SystemExit, match=r"1 kinds of runs in results/speed\.csv are of no table"):
        reporting.check([], whole=True)


def test_the_front_picture_is_the_cells_in_percent(monkeypatch):
    from matplotlib.figure import Figure

    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import front

    cells = [{"where": {**front.WHERE, "model": "plstm"}, "value": 95.0}]
    found = report.Report({**TABLE, "cells": cells}, {"paper": rows([0.9, 0.94], **front.WHERE), "tiny": []}, ASKED)
    for row in found.rows["paper"]:
        last = row["last valid/accuracy"]
        row["curve"] = [{"epoch": 1.0, "valid/accuracy": 0.5}, {"epoch": 2.0, "valid/accuracy": last}]
    figure = Figure()
    monkeypatch.setattr(plotting, "write", lambda fill, path, title: (fill(figure), [path])[1])
    front.draw(found)
    drawn = [(*line.get_xdata(), *line.get_ydata()) for line in figure.axes[0].lines]
    each, mean = [(1, 2, 50, 90), (1, 2, 50, 94)], (1, 2, 50, 92)
    assert drawn == [pytest.approx(numbers) for numbers in (*each, mean, (2.06, 95))]
    assert "means of\n2 runs " in front.picture(found)
    assert "power-law LSTM 92 % (95.0 %)" in front.picture(found)


def test_verdicts_are_rows_for_elsewhere():
    found = report.Report(TABLE | {"claims": ["plstm > lstm"]}, {"paper": rows([0.901] * 3), "tiny": []}, ASKED)
    head, body = markdown.verdicts(found)
    assert head == ["what", "paper", "ours", "n", "verdict", "p"]
    assert body == [["model=plstm", "90.0", "90.1 (0)", 3, "match", None], ["plstm > lstm", "", "", "", "open", None]]


def test_a_claim_on_a_part_of_the_runs_holds_so_far():
    table = TABLE | {"claims": ["plstm > lstm"]}
    found = rows([0.9, 0.91, 0.92]) + rows([0.5, 0.51, 0.52], "lstm")
    for there, words in ((found[:5], "1 holds so far |"), (found, "1 holds |")):
        assert words in markdown.index([report.Report(table, {"paper": there, "tiny": []}, ASKED)])


def test_the_price_of_what_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    head = ",".join(report.cost.COLUMNS)
    slow, fast = ("u,copy/lstm,abacus,1,9,1,1,90000", "u,copy/lstm,loom,1,9,1,1,36000")
    (tmp_path / "speed.csv").write_text(f"{head}\n{fast}\n{slow}\n")
    origin = {"seconds": 600.0, "machine": "abacus", "threads": 1, "commit": "c0ffee", "partial": ""}
    there = [row | origin for row in rows([0.9, 0.91])]
    there += [{**there[0], "id": "5", "status": "failed", "seconds": 1e6}, {**there[0], "id": "4", "seconds": 3.0}]
    asked = [(run, f"copy-{run.axes['model']}-{k}") for k, run in enumerate(expand(TABLE))]
    kinds = {str(k): run.axes["model"][0] for k, (run, _) in enumerate(asked)}  # "l", "p": by model
    there[0]["id"], there[1]["id"] = "3", "4"
    there_are = {"paper": there[:2], "tiny": []}
    # Of the others one has failed: it is open; of two that ended the longer one counts.
    found = report.Report(TABLE, there_are, ASKED, left=report.open_runs(asked, kinds, there))
    assert found.price({"model": "plstm"}) == "1 run: 10 min"  # as long as those that have ended
    assert found.price({"model": "lstm"}) == "3 runs not timed"
    assert found.price({}) == "1 run: 10 min, 3 runs not timed"
    old = report.open_runs(asked, kinds, [there[0] | {"stale": True}, *there[1:]])
    assert [axes["seed"] for axes, _ in old if axes["model"] == "plstm"] == [0, 2]  # of older code: open again
    kinds = {k: {"l": "u"}.get(kind, kind) for k, kind in kinds.items()}  # by the fastest machine
    found = report.Report(TABLE, there_are, ASKED, left=report.open_runs(asked, kinds, there))
    assert found.price({}) == "4 runs: 30 h"
    assert found.price({"model": "lstm", "seed": 1}) == "1 run: 10 h"
    assert "| plstm | 90.0 | 90.5 (0.71) | 2 | 90.5 | 90 91 | match (n=2) | 1 run: 10 min |" in markdown.table(found)
    assert markdown.index([found]).rstrip().endswith("| not run | 4 runs: 30 h |")


def test_the_longest_whole_run_of_a_kind_is_its_price(monkeypatch):
    monkeypatch.setattr(cost, "rows", list)
    row = {"status": "finished", "partial": "", "seconds": 30.0}
    others = [("b", row | {"partial": "MNIST subset"}), ("c", row | {"status": "diverged"})]
    assert cost.prices([("a", row), ("a", row | {"seconds": 20.0}), *others]) == {"a": 30.0}


def test_a_committed_run_counts_if_it_ended_on_data_that_will_do():
    rows = [{"status": state, "partial": part} for part in ("", "a part") for state in ("diverged", "failed")]
    assert [store.counts(row, allow_partial=False) for row in rows] == [True, False, False, False]
    assert [store.counts(row, allow_partial=True) for row in rows] == [True, False, True, False]


def test_a_kind_is_timed_once_on_each_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    row = dict(zip(cost.COLUMNS, ("u", "copy/lstm", "abacus", 1, 9, 1, 1, 90), strict=True))
    cost.write([row])
    cost.write([row | {"machine": "loom"}, row | {"seconds": 80}])
    assert [(row["machine"], row["seconds"]) for row in cost.rows()] == [("abacus", "80"), ("loom", "90")]
    for here, seconds in (("abacus", 80.0), ("loom", 90.0)):
        monkeypatch.setattr(provenance, "processor", lambda here=here: here)
        assert cost.known() == {"u": seconds}


def test_pictures_that_committed_reports_show_are_there():
    pages = [path for path in (ROOT / "results").glob("*/table.md") if "(figure.png)" in path.read_text()]
    assert len(pages) >= 20
    assert [path.parent.name for path in pages if not (path.parent / "figure.png").is_file()] == []


def test_committed_reports_are_what_their_runs_give():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "report.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
