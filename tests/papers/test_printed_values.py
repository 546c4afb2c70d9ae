"""Verdicts on made-up runs: of printed values."""

import math
import statistics

import numpy as np
import pytest
from made_up import TABLE, cell, judge, judged, made_row, quoted, rows
from scipy import stats

from timescales.papers import cells
from timescales.papers.parse import parse
from timescales.papers.verdict import Word
from timescales.reports import wording
from timescales.runs import metrics

PRINTED = {"sd": 2.0, "n": 5}  # 90 (2): the mean of three runs is expected within 2.776 * 2 sqrt(1/5 + 1/3) = 4.05
FAILING = {"success": "valid/accuracy > 0.5"}
CHANCE = {"chance": "valid/accuracy < 0.55"}


@pytest.mark.parametrize(
    ("found", "printed", "table", "word"),
    [
        ([], {}, {}, "not run"),
        # Without a printed spread ours stands for it, of as many runs as n_min says: 3.
        (rows([0.901, 0.899, 0.902]), {}, {}, "agrees"),  # .07 + 2.92 * .153 sqrt(2/3) = .43, of .5
        (rows([0.903, 0.896, 0.902]), {}, {}, "consistent, imprecise"),  # .03 + 2.92 * .379 sqrt(2/3) = .94
        (rows([0.91, 0.92, 0.93]), {}, {}, "consistent, imprecise"),  # 2 is within 4.303 sqrt(2/3) = 3.5
        (rows([0.919, 0.92, 0.921]), {}, {}, "higher"),
        (rows([0.879, 0.88, 0.881]), {}, {}, "lower"),
        (rows([0.879, 0.88, 0.881]), {}, {"better": "lower"}, "lower"),  # whatever is better
        (rows([0.9020, 0.9021, 0.9022]), {}, {}, "close, but higher"),  # .21 above, outside, and within .24 of it
        (rows([0.8980, 0.8979, 0.8978]), {}, {}, "close, but lower"),
        (rows([0.9001]), {}, {}, "undecided (n=1)"),
        # The paper's spread: the margin is two of them.
        (rows([0.905, 0.91, 0.908]), PRINTED, {}, "agrees"),
        (rows([0.92, 0.93, 0.94]), PRINTED, {}, "consistent, imprecise"),  # 3 + 2.06 * 1.06
        (rows([0.95, 0.96, 0.97]), PRINTED, {}, "higher"),
        (rows([0.911, 0.909, 0.910]), {"sd": 0.1, "n": 5}, {}, "higher"),
        (rows([0.903, 0.904, 0.9035]), {"sd": 0.1, "n": 5}, {}, "close, but higher"),  # the tolerance is .5
        (rows([0.901, 0.9, 0.899]), {"se": 0.9, "n": 5}, {}, "agrees"),  # sd 2.01
        (rows([0.901, 0.9, 0.899]), {"sd": 2.0, "n": None}, {}, "agrees"),  # of n_min runs
        (rows([0.91]), PRINTED, {}, "consistent, imprecise (n=1)"),
        (rows([0.80]), PRINTED, {}, "lower (n=1)"),
        # A run that collapses widens no interval.
        (rows([0.99, 0.99, 0.99, 0.52, 0.99]), PRINTED, {}, "less stable (larger spread, median higher)"),
        (rows([0.90, 0.90, 0.90, 0.52, 0.90]), PRINTED, {}, "less stable (larger spread, median inside)"),
        (rows([0.90, 0.52, 0.53, 0.52, 0.54]), PRINTED, {}, "less stable (larger spread, median lower)"),
        (
            rows([0.90, 0.90, 0.90]) + rows([None], status="diverged"),
            {},
            {},
            "less stable (1 of 4 failed, median inside)",
        ),
        (rows([0.90, 0.90, 0.90]) + rows([None], status="diverged"), {"failed": 1}, {}, "agrees"),
        (rows([None, None], status="diverged"), {}, {}, "less stable (2 of 2 failed)"),
        (rows([None, None], status="diverged"), {"failed": 2}, {}, "less stable (2 of 2 failed)"),
        (rows([0.90, 0.90]) + rows([None], status="diverged"), {"failed": 1}, {"n_min": 4}, "agrees (n=2)"),
        # With a success condition failures are counted and left out; runs at chance are counted and stay.
        (rows([0.90, 0.901, 0.899, 0.1]), {}, FAILING, "less stable (1 of 4 failed, median inside)"),
        (rows([0.90, 0.901, 0.899, 0.1]), {"failed": 1}, FAILING, "agrees"),
        (rows([0.90, 0.52, 0.53]), {}, CHANCE, "less stable (2 of 3 at chance, median inside)"),
        (rows([0.90, 0.52, 0.90]), {"sd": 22.0, "n": 5, "failed": 1}, CHANCE, "consistent, imprecise"),
        (
            rows([0.90, 0.52, 0.53]),
            {"sd": 22.0, "n": 5, "failed": 1},
            CHANCE,
            "less stable (2 of 3 at chance, median inside)",
        ),
        (rows([0.90, 0.90, 0.90], stale=True), {}, {}, "stale"),
        (rows([0.90, 0.90, 0.90]), {"value": None}, {}, "blank"),
        (rows([0.901, 0.899, 0.902]), {"calibrated": True}, {}, "agrees (calibrated)"),
    ],
)
def test_verdict_of_a_cell(found, printed, table, word):
    assert judged(found, printed, **table).verdict == word


def test_the_interval_is_by_the_papers_spread_and_what_it_agrees_to_by_both():
    """chien_table3, pLSTM with time, asynchronous: 92.5 (.7) beside 84.64 (2.1)."""
    ours = [92.1, 91.5, 92.9, 93.28, 92.74]
    told = judged(rows([x / 100 for x in ours]), {"value": 84.64, "sd": 2.1, "n": 5}, n_min=5)
    gap = statistics.fmean(ours) - 84.64
    assert told.verdict == "higher"
    assert told.value.gap.half_width == pytest.approx(stats.t.ppf(0.975, 4) * 2.1 * math.sqrt(2 / 5))
    assert told.different == pytest.approx(2 * stats.t.sf(gap / (2.1 * math.sqrt(2 / 5)), 4))
    a, b = statistics.variance(ours) / 5, 2.1**2 / 5
    df = (a + b) ** 2 / (a**2 / 4 + b**2 / 4)
    assert told.within == pytest.approx(gap + stats.t.ppf(0.95, df) * math.sqrt(a + b))


def test_differences_are_corrected_for_the_other_values_and_agreement_is_not():
    """Of ten values of which one differs with p = .03 it is none; all ten agree as one does."""
    printed = [{"where": {"model": "plstm"}, "value": 90.0, "label": str(k)} for k in range(10)]
    found = rows([0.901, 0.899, 0.902])
    (one,), ten = (cells.judge_cells(parse(TABLE | {"cells": printed[:k]}).cells, found) for k in (1, 10))
    assert {result.verdict.word for result in (one, *ten)} == {Word.AGREES}
    away = [{**printed[0], "value": 89.37}]
    (alone,) = cells.judge_cells(parse(TABLE | {"cells": away}).cells, found)
    beside, *_ = cells.judge_cells(parse(TABLE | {"cells": away + printed[1:5]}).cells, found)
    assert (alone.verdict.word, beside.verdict.word) == (Word.HIGHER, Word.IMPRECISE)
    p = alone.verdict.p_against.raw
    assert 0.01 < p < 0.05
    assert beside.verdict.p_against == (p, pytest.approx(5 * p))
    # A value without a test takes no part.
    missing = {"where": {"model": "lstm"}, "value": 90.0}
    again, _ = cells.judge_cells(parse(TABLE | {"cells": [*away, missing]}).cells, found)
    assert again.verdict.p_against == alone.verdict.p_against


def test_the_margin_is_two_spreads_but_no_more_than_half_the_gap_that_the_paper_concludes_from():
    printed = [{}, {"sd": 0.1, "n": 5}, {"sd": 2.0, "n": None}, {"se": 0.5, "n": 16}, {"se": 0.1, "n": 4}]
    table = parse(TABLE | {"cells": [{"where": {"model": "plstm"}, "value": 90.0, **more} for more in printed]})
    assert [cell.margin for cell in table.cells] == [0.5, 0.5, 4.0, 4.0, 0.5]
    both = [
        {"where": {"model": "plstm"}, "value": 90.0, **PRINTED},
        {"where": {"model": "lstm"}, "value": 87.0, **PRINTED},
    ]

    def margins(claim):
        return [cell.margin for cell in parse(TABLE | {"cells": both, "claims": [claim]}).cells]

    assert margins(quoted("plstm > lstm")) == [1.5, 1.5]
    assert margins(quoted("lstm > plstm @ task=copy")) == [1.5, 1.5]
    assert margins(quoted("plstm ~ lstm")) == [4.0, 4.0]  # from likeness no gap is concluded
    assert margins({"claim": "plstm > lstm", "ours": "to see"}) == [4.0, 4.0]
    other = {"metric": "valid/accuracy", "claim": "plstm > lstm"}
    assert margins(quoted(other)) == [4.0, 4.0]  # another metric
    both[1]["value"] = 89.9
    assert margins(quoted("plstm > lstm")) == [0.5, 0.5]  # the tolerance


def test_what_no_planned_number_of_runs_can_decide_says_so_before_they_are_run():
    """71.7 (22.2) of five runs: five more with the same mean agree to within 1.86 * 22.2 sqrt(2/5) = 26.1."""
    wide = {"value": 71.7, "sd": 22.2, "n": 5}
    table = {**TABLE, "runs": [{"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1, 2, 3, 4]}], "n_min": 5}
    lstm = {"where": {"model": "lstm"}, "value": 99.0, "sd": 0.5, "n": 5}
    node = table | {"cells": [{"where": {"model": "plstm"}, **wide}, lstm], "claims": [quoted("lstm > plstm")]}
    cell, other = parse(node).cells
    assert (cell.margin, other.margin) == (pytest.approx(13.65), 1.0)
    for found, words in (
        ([], ["cannot be decided", "not run"]),
        (rows([0.7, 0.71, 0.69]), ["cannot be decided", "not run"]),
    ):
        verdicts = [result.verdict for result in cells.judge_cells((cell, other), found)]
        assert [verdict.word for verdict in verdicts] == words
        assert "26.1" in verdicts[0].why
    assert cells.judge_cells((cell,), rows([0.1, 0.11, 0.12]))[0].verdict.word == "lower"  # a difference can be seen
    single = parse(TABLE | {"runs": [{"task": "copy", "model": "plstm", "seed": 0}]}).cells
    assert cells.judge_cells(single, [])[0].verdict.why == "single runs allow no test"


def test_numbers_of_a_cell():
    cell = judged(rows([0.90, 0.92, 0.10, 0.97]), success="valid/accuracy > 0.5").sample
    assert cell.values == [(0, 90.0), (1, 92.0), (3, 97.0)]
    assert (cell.n, cell.failed) == (3, 1)
    assert cell.mean == pytest.approx(93.0)
    assert cell.median == pytest.approx(92.0)
    assert cell.sd == pytest.approx(np.std([90, 92, 97], ddof=1))


def test_a_cell_of_steps_says_which_runs_never_got_there():
    name, printed = "steps to valid/accuracy >= 0.99", {"where": {"model": "plstm"}, "value": 900.0}
    found = [made_row({name: metrics.Censored(900)}, row) for row in rows([0.1, 0.1, 0.1])]
    table = {**TABLE, "metric": name, "better": "lower", "unit": "steps"}
    assert cell(printed, table, found).verdict == "less stable (3 of 3 never reached the threshold)"
    found[1].values[name] = 300
    result = cell(printed, table, found)
    assert result.verdict == "less stable (2 of 3 never reached the threshold)"
    assert [wording.number(value) for _, value in result.sample.values] == [">900", "300", ">900"]
    for row in found:
        row.values[name] = 300
    assert cell(printed, table, found).verdict == "cannot be decided (a time is printed without a spread)"


def test_best_stable_learning_rate():
    found = rows([0.7, 0.72, 0.71], **{"optimizer.lr": 1e-3}) + rows([0.9, 0.9, 0.91], **{"optimizer.lr": 1e-2})
    table = {"reduce": "best_lr", "metric": "test/accuracy"}
    assert judged(found, {"value": 90.3}, **table).verdict == "consistent, imprecise"
    found += rows([None], status="diverged", **{"optimizer.lr": 1e-2})  # higher, but one run diverged
    assert judged(found, {"value": 71.0, "failed": 1}, **table).verdict == "consistent, imprecise"
    for row in found:
        row.values["probe/loss"] = {1e-3: 2.0, 1e-2: 0.1}[row.axes["optimizer.lr"]]
    stable = [row for row in found if row.status == "finished"]
    loss = {"metric": "probe/loss", "unit": "nats", "value": 0.1, "tolerance": 0.01}
    assert (
        judged(stable, loss | {"better": "lower"}, **table).verdict == "agrees"
    )  # the rate that is best for this cell
    assert judged(stable, loss | {"value": 2.0}, **table).verdict == "agrees"
    lost = rows([None], "lstm", status="diverged", **{"optimizer.lr": 1e-2})
    told = judge("plstm > lstm", {**TABLE, **table, "reduce": "best_lr"}, stable + lost)
    assert told.verdict == "cannot be decided (no run of a side succeeded)"
    assert judged(lost, {"where": {"model": "lstm"}}, **table).verdict == "less stable (1 of 1 failed)"


def test_a_maximum_has_the_error_of_drawing_its_runs_again_and_fails_at_the_best_rate_alone():
    """Gu et al., table 5: the best score over learning rates and seeds; asterisks count the best rate's failures."""
    found = rows([0.93, 0.90], **{"optimizer.lr": 1e-3})
    found += rows([None, None], status="diverged", **{"optimizer.lr": 1e-2})
    assert judged(found, {"value": 93.2, "n_min": 2}, reduce="max").verdict == "consistent, imprecise"
    # Of 12 runs at three rates three diverged, two of those at the best: all are there, and it is the paper's failures.
    found = [row for rate in (1e-3, 5e-4, 2e-4) for row in rows([0.90, 0.91, 0.92, 0.93], **{"optimizer.lr": rate})]
    found[3].values["last test/accuracy"] = 0.95
    for k in (0, 1, 4):
        found[k] = made_row({"last test/accuracy": None}, found[k], status="diverged")
    best = judged(found, {"value": 95.0, "failed": 2, "n_min": 12}, reduce="max")
    assert (best.verdict, best.sample.failed, best.sample.of) == ("consistent, imprecise", 2, 4)
    assert judged(found, {"value": 95.0}, reduce="max").verdict.startswith("less stable (2 of 4 failed")
    # Where less is better the best rate is another one.
    assert judged(found, {"value": 90.0, "better": "lower"}, reduce="max").verdict == "consistent, imprecise"
    near = [row for rate in (1e-3, 5e-4) for row in rows([0.948, 0.949, 0.950], **{"optimizer.lr": rate})]
    assert judged(near, {"value": 95.0}, reduce="max").verdict == "agrees"
    assert judged(near, {"value": 96.0}, reduce="max").verdict == "lower"


def test_runs_that_failed_are_computed_with_no_more_than_they_are_averaged(monkeypatch):
    monkeypatch.setattr(cells, "computed", lambda name, found: float(len(found)))
    once = "cannot be decided (it is computed once from all runs, and has no standard error)"
    found = rows([0.9, 0.1, 0.9])
    mean = judged(found, {"compute": "x.y", "value": 2.0, "failed": 1}, success="valid/accuracy > 0.5")
    assert (mean.verdict, mean.sample.mean, mean.sample.n) == (once, 2.0, 2)
    told = {"compute": "x.y", "value": 2.0}
    assert judged(found, told, success="valid/accuracy > 0.5").verdict == "less stable (1 of 3 failed)"
    apart = [made_row(like=row, axes={**row.axes, "T": T}) for T in (200, 500) for row in rows([0.9, 0.9])]
    monkeypatch.setattr(cells, "computed", lambda name, found: 2.0)
    assert judged(apart, told).sample.n == 2  # as many of each setting
    monkeypatch.setattr(cells, "computed", lambda name, found: None)
    assert judged(found[1:2], told, success="valid/accuracy > 0.5").verdict == "less stable (1 of 1 failed)"
    assert judged(found[1:2], told, success="valid/accuracy > 0.05").verdict == once  # more are to come
    assert judged(rows([0.1], stale=True), told, success="valid/accuracy > 0.5").verdict == "stale"
