"""Intervals against other computations of them, and what they say of claims and printed values."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from made_up import FAILING, TABLE, judged_claim, judged_value, made_row, quoted, report_of, rows
from scipy import stats

from timescales.errors import ConfigError
from timescales.papers import judge
from timescales.papers.judge import Interval
from timescales.papers.parse import parse
from timescales.papers.table import expand
from timescales.reports.report import Judged
from timescales.runs.metrics import Censored

INF = math.inf
STEPS = "steps to valid/accuracy >= 0.9"
TIMES = {"metric": STEPS, "better": "lower", "unit": "steps"}
RATES = {"reduce": "best_lr"}
PLANNED = expand(parse(TABLE))


def close(told, *ends):
    assert tuple(told) == pytest.approx(ends)


# --- intervals ---
@pytest.mark.parametrize(("n", "m", "spread"), [(2, 2, 1.0), (3, 5, 4.0), (5, 5, 0.3), (12, 4, 1.0)])
def test_a_difference_of_means_has_the_interval_of_welch(n, m, spread, monkeypatch):
    random = np.random.default_rng(n)
    a, b = random.normal(1, 1, n), random.normal(0, spread, m)
    told = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    close(judge.contrast_of(a, b), told.low, a.mean() - b.mean(), told.high)
    alone = stats.ttest_1samp(a, 0).confidence_interval(0.95)
    close(judge.contrast([a], [1]), alone.low, a.mean(), alone.high)
    for level in (0.5, 0.999):
        monkeypatch.setattr(judge, "LEVEL", level)
        told = stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)
        close(judge.contrast([a, b], (1, -1)), told.low, a.mean() - b.mean(), told.high)


def test_runs_without_a_spread_have_no_interval_or_a_sure_one():
    close(judge.contrast([[1.0], [0.0, 1.0]], (1, -1)), -INF, 0.5, INF)
    close(judge.contrast_of([2.0, 2.0], [1.0, 1.0]), 1, 1, 1)
    half = stats.t.ppf(0.975, 2) / math.sqrt(3)  # only one side spreads: its degrees of freedom
    close(judge.contrast_of([1.0, 2.0, 3.0], [1.0, 1.0]), 1 - half, 1, 1 + half)


def wilson(failed, runs, z=1.959963984540054):
    """The interval of a share, by Wilson's formula."""
    p = failed / runs
    middle = (p + z * z / (2 * runs)) / (1 + z * z / runs)
    half = z / (1 + z * z / runs) * math.sqrt(p * (1 - p) / runs + z * z / (4 * runs * runs))
    return middle - half, p, middle + half


@pytest.mark.parametrize("failed_of", [(0, 1), (1, 1), (0, 3), (3, 3), (1, 5), (4, 10), (1, 999), (998, 999)])
def test_a_share_has_the_interval_of_wilson(failed_of, monkeypatch):
    assert tuple(judge.rate(*failed_of)) == pytest.approx(wilson(*failed_of), abs=1e-12)
    for level in (0.5, 0.95, 0.999):
        monkeypatch.setattr(judge, "LEVEL", level)
        told, ends = judge.rate(*failed_of), stats.binomtest(*failed_of).proportion_ci(level, "wilson")
        assert (told.low, told.high) == pytest.approx((ends.low, ends.high), abs=1e-14)
        assert (told.low == 0.0, told.high == 1.0) == (ends.low == 0.0, ends.high == 1.0)


@pytest.mark.parametrize(("a", "b"), [((56, 70), (48, 80)), ((9, 10), (3, 10)), ((5, 5), (0, 5))])
def test_a_difference_of_shares_has_the_interval_of_newcombe(a, b):
    """His method 10; the first example is his, (.0524, .3339)."""
    (l1, p1, u1), (l2, p2, u2) = wilson(*a), wilson(*b)
    low, high = math.hypot(p1 - l1, u2 - p2), math.hypot(u1 - p1, p2 - l2)
    told = judge.combined([judge.rate(*a), judge.rate(*b)], (1, -1))
    close(told, p1 - p2 - low, p1 - p2, p1 - p2 + high)
    if a == (56, 70):
        assert (round(told.low, 4), round(told.high, 4)) == (0.0524, 0.3339)


def test_a_weighted_sum_takes_of_each_part_the_end_that_moves_it():
    parts = [Interval(1, 2, 5), Interval(-1, 0, 4), Interval(-INF, 9, INF)]
    close(judge.combined(parts, (2, -3, 0)), 4 - math.hypot(2, 12), 4, 4 + math.hypot(6, 3))
    close(judge.combined(parts, (0, 0, 1)), -INF, 9, INF)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 4), (4, 4), (3, 5), (5, 5), (4, 7)])
def test_a_shift_has_the_ends_of_all_orders_by_brute_force(n, m):
    """An end is the k-th difference for the largest k with which no more than .025 of all orders have U < k."""
    us = [sum(places) - n * (n - 1) // 2 for places in itertools.combinations(range(n + m), n)]
    k = max(k for k in range(n * m) if sum(u < k for u in us) <= 0.025 * len(us))
    random = np.random.default_rng(10 * n + m)
    a, b = random.normal(0, 1, n), random.normal(0, 1, m)
    apart = sorted(x - y for x in a for y in b)
    ends = (apart[k - 1], apart[-k]) if k else (-INF, INF)
    told = judge.ranks_of(a, b)
    close(told, ends[0], np.median(apart), ends[1])
    for shift, inside in ((told.low - 1e-6, False), (told.low + 1e-6, True), (told.high + 1e-6, False)):
        if k:
            p = stats.mannwhitneyu(a - shift, b, method="exact").pvalue
            assert bool(p > 0.05) is inside, "the test that it inverts"


def test_a_time_that_is_only_known_as_later_moves_the_ends_that_it_can():
    sure = [(x, x) for x in (1.0, 2.0, 3.0, 4.0)]
    later = [(x, INF) for x in (11.0, 12.0, 13.0, 14.0)]
    close(judge.shift(later, sure), 7, 10, INF)
    close(judge.shift(sure, later), -INF, -10, -7)


@pytest.mark.parametrize(
    ("told", "region", "place"),
    [
        ((1, 2, 3), (0, INF), 1),
        ((1, 2, 3), (1, INF), 0),  # an end on an edge
        ((1 + 1e-12, 2, 3), (1, INF), 0),  # within rounding of it
        ((1 + 1e-6, 2, 3), (1, INF), 1),
        ((-3, -2, -1), (0, INF), -1),
        ((-3, -2, 0), (0, INF), 0),
        ((-1, 0, 1), (-2, 2), 1),
        ((3, 4, 5), (-2, 2), -1),
        ((1, 2, 3), (-2, 2), 0),
        ((-INF, 0, INF), (-2, 2), 0),
        ((-INF, 0, 1), (-INF, 2), 1),
        ((1e6, 1e6, 1e6 + 1e-4), (-INF, 1e6), 0),  # rounding grows with the numbers
    ],
)
def test_an_interval_is_inside_outside_or_across(told, region, place):
    assert Interval(*told).place(*region) == place


# --- claims ---
HIGH, LOW = [0.90, 0.91, 0.92], [0.60, 0.61, 0.62]
NEAR = [0.900, 0.901, 0.902]


@pytest.mark.parametrize(
    ("claim", "plstm", "lstm", "word"),
    [
        ("plstm > lstm", HIGH, LOW, "holds"),
        ("plstm > lstm", LOW, HIGH, "refuted"),
        ("plstm > lstm", HIGH, NEAR, "undecided"),  # 1 +- 2.1
        ("plstm > lstm", [0.9], [0.6], "undecided"),  # one run has no interval
        ({"claim": "plstm > lstm", "better": "lower"}, HIGH, LOW, "refuted"),
        ({"claim": "plstm > lstm", "better": "lower"}, LOW, HIGH, "holds"),
        ("plstm ~ lstm", NEAR, [0.9005, 0.9015, 0.9025], "holds"),  # .05 +- .2 within .5
        ("plstm ~ lstm", HIGH, LOW, "refuted"),
        ("plstm ~ lstm", HIGH, HIGH, "undecided"),
        ("plstm >= lstm", NEAR, [0.9005, 0.9015, 0.9025], "holds"),
        ("plstm >= lstm", HIGH, LOW, "holds"),
        ("plstm >= lstm", LOW, HIGH, "refuted"),
        ({"claim": "plstm > lstm", "by": 25}, HIGH, LOW, "holds"),  # 30 +- 2.3
        ({"claim": "plstm > lstm", "by": 35}, HIGH, LOW, "refuted"),
        ({"claim": "plstm > lstm", "times": 1.4}, HIGH, LOW, "holds"),  # 91 - 85.4 = 5.6
        ({"claim": "plstm > lstm", "times": 1.6}, HIGH, LOW, "refuted"),  # 91 - 97.6
        ({"claim": "plstm > lstm", "times": 1.4, "better": "lower"}, LOW, HIGH, "holds"),  # 91 / 1.4 = 65 - 61
        ({"claim": "plstm > lstm", "times": 1.6, "better": "lower"}, LOW, HIGH, "refuted"),  # 91 / 1.6 = 56.9
    ],
)
def test_a_claim_that_compares_two_sides(claim, plstm, lstm, word):
    assert judged_claim(claim, rows(plstm) + rows(lstm, "lstm")).word == word


def test_the_effect_of_a_claim_is_welchs_in_the_printed_unit():
    told = judged_claim("plstm > lstm", rows(HIGH) + rows(LOW, "lstm"))
    ends = stats.ttest_ind(100 * np.array(HIGH), 100 * np.array(LOW), equal_var=False).confidence_interval()
    close(told.interval, ends.low, 30, ends.high)
    assert (told.region, told.n, list(told.notes)) == ((0, INF), 3, [])


@pytest.mark.parametrize(
    ("claim", "plstm", "lstm", "word"),
    [  # a run fails below .5
        ("lstm fails", 0, (10, 10), "holds"),
        ("lstm fails", 0, (3, 3), "undecided"),  # Wilson's low end of 3 of 3 is .44
        ("lstm fails", 0, (4, 4), "holds"),  # .51
        ("lstm fails", 0, (0, 4), "refuted"),
        ("lstm fails", 0, (5, 10), "undecided"),
        ("lstm never fails", 0, (0, 4), "holds"),
        ("lstm never fails", 0, (4, 4), "refuted"),
        ("lstm never fails", 0, (1, 4), "undecided"),
        ("lstm sometimes fails", 0, (1, 10), "holds"),
        ("lstm sometimes fails", 0, (0, 10), "undecided"),
        ("lstm fails more often than plstm", (0, 5), (5, 5), "holds"),
        ("lstm fails more often than plstm", (5, 5), (0, 5), "refuted"),
        ("lstm fails more often than plstm", (1, 5), (2, 5), "undecided"),
    ],
)
def test_a_claim_about_failures(claim, plstm, lstm, word):
    def side(model, told):
        return rows([0.1] * told[0] + [0.9] * (told[1] - told[0]), model) if told else []

    told = judged_claim(claim, side("plstm", plstm) + side("lstm", lstm), **FAILING)
    assert told.word == word
    assert told.interval.mid == pytest.approx(lstm[0] / lstm[1] - (plstm[0] / plstm[1] if plstm else 0))


def test_a_run_that_diverged_has_failed_and_one_without_a_value_says_nothing():
    found = rows([None] * 4, "lstm", status="diverged") + rows([None], "lstm", first=4)
    told = judged_claim("lstm fails", found, **FAILING)
    close(told.interval, *wilson(4, 4))
    assert (told.n, told.notes) == (4, ["1 run without a value"])
    assert judged_claim("lstm fails", found[4:], **FAILING).interval is None


def test_a_claim_of_two_metrics_goes_by_the_differences_within_runs():
    values = [{"probe/made/a": a, "probe/made/b": b} for a, b in ((9, 4), (1, 0), (5, 4))]
    found = [made_row(*pair) for pair in zip(values, rows(HIGH), strict=True)]
    claim = {"claim": "plstm", "metric": "probe/made/a", "than": "probe/made/b", "unit": "steps"}
    told = stats.ttest_1samp([5, 1, 1], 0).confidence_interval()
    close(judged_claim(claim, found).interval, told.low, 7 / 3, told.high)
    found[0].values["probe/made/b"] = None  # a run that lacks one of them
    verdict = judged_claim(claim, found, [*PLANNED, {"task": "copy", "model": "plstm", "seed": 3}])
    assert (verdict.interval.mid, verdict.n, verdict.notes) == (1, 2, ["3 of 4 runs", "1 run without a value"])
    twice = stats.ttest_1samp([1 - 2 * 0, 5 - 2 * 4], 0).confidence_interval()
    close(judged_claim(claim | {"times": 2}, found).interval, twice.low, -1, twice.high)


def test_two_times_of_a_run_that_never_got_there_are_compared_as_far_as_they_are_known():
    later = "steps to valid/accuracy >= 0.95"

    def judged(first, second):
        found = [made_row({later: x}, row) for x, row in zip(second, timed(first), strict=True)]
        return judged_claim({"claim": "plstm", "than": later}, found, **TIMES)

    never = [Censored(50)] * 3
    assert (judged([10, 20, 30], never).word, judged([10, 20, 30], never).interval.high) == ("holds", INF)
    one = judged([10, 10, 10, 10, Censored(50)], [110, 110, 110, 110, 40])  # 78 +- 61 if it had got there at 50
    assert (one.word, one.interval.low, one.notes) == ("undecided", -INF, [])
    assert judged(never, never).notes == ["runs never got there"]
    lacking = judged([1000, 1100, Censored(5000)], [3000, 3200, None])  # the mean is of the first two runs
    close(lacking.interval, *judge.contrast([[2000, 2100]], [1]))
    assert (lacking.n, len(lacking.notes)) == (2, 1)


def timed(values, model="plstm"):
    return [made_row({STEPS: v}, row) for v, row in zip(values, rows([0.9] * len(values), model), strict=True)]


def test_times_are_compared_by_ranks_and_a_run_that_never_got_there_is_later():
    fast, slow = [100, 120, 140, 160], [400, 500, 600, 700]
    told = judged_claim("plstm > lstm", timed(fast) + timed(slow, "lstm"), **TIMES)
    assert (told.word, *told.interval) == ("holds", 240, 420, 600)
    never = [Censored(700)] * 4
    told = judged_claim("plstm > lstm", timed(fast) + timed(never, "lstm"), **TIMES)
    assert (told.word, *told.interval) == ("holds", 540, 570, INF)
    assert judged_claim("lstm > plstm", timed(fast) + timed(never, "lstm"), **TIMES).word == "refuted"
    both = judged_claim("plstm > lstm", timed([Censored(700)] * 4) + timed(never, "lstm"), **TIMES)
    assert (both.word, both.interval.low, both.interval.high) == ("undecided", -INF, INF)
    assert both.notes == ["runs of both sides never got there"], "four runs a side are enough for ranks"
    twice = {"claim": "plstm > lstm", "times": 2}
    told = judged_claim(twice, timed(fast) + timed(slow, "lstm"), **TIMES)
    assert tuple(told.interval) == (40, 145, 250)  # half of the slow times
    few = judged_claim("plstm > lstm", timed(fast[:3]) + timed(slow[:3], "lstm"), **TIMES)
    assert (few.word, few.notes) == ("undecided", ["3 runs are too few for ranks"])


def test_a_ratio_of_times_is_a_power_of_two():
    fast, slow = [100, 100, 100, 100], [400, 400, 800, 800]
    told = judged_claim("plstm > lstm", timed(fast) + timed(slow, "lstm"), ratio=True, **TIMES)
    assert (told.word, told.region) == ("holds", (0, INF))
    close(told.interval, 2, 2.5, 3)
    told = judged_claim({"claim": "plstm > lstm", "times": 2}, timed(fast) + timed(slow, "lstm"), ratio=True, **TIMES)
    close(told.interval, 1, 1.5, 2)
    never = judged_claim("plstm > lstm", timed(fast) + timed([Censored(400)] * 4, "lstm"), ratio=True, **TIMES)
    close(never.interval, 2, 2, INF)


def test_runs_of_one_seed_are_compared_with_each_other():
    a, b = [0.70, 0.80, 0.90], [0.69, 0.785, 0.89]
    told = stats.ttest_rel(100 * np.array(a), 100 * np.array(b)).confidence_interval()
    found = rows(a) + rows(b, "lstm")
    close(judged_claim("plstm > lstm", found, pair=True).interval, told.low, 7 / 6, told.high)
    assert judged_claim("plstm > lstm", found).word == "undecided"
    assert judged_claim("plstm > lstm", found, pair=True).word == "holds"
    apart = rows(a) + rows(b, "lstm", first=2)  # one seed in common
    verdict = judged_claim("plstm > lstm", apart, pair=True)
    close(verdict.interval, -INF, 21, INF)
    assert verdict.notes == ["one seed in common"], "it is not judged by ranks"
    assert judged_claim("plstm > lstm", rows(a) + rows(b, "lstm", first=9), pair=True).interval is None


def test_a_side_of_several_settings_counts_each_of_its_runs():
    found = rows(HIGH, gate="u") + rows([0.80, 0.81, 0.82], gate="r") + rows(LOW, gate="-")
    told = judged_claim("gate=[u,r] > gate=-", found)
    ends = stats.ttest_ind([90, 91, 92, 80, 81, 82], [60, 61, 62], equal_var=False).confidence_interval()
    close(told.interval, ends.low, 25, ends.high)
    assert told.n == 3


def test_where_a_table_names_chance_values_are_compared_by_ranks():
    high, two = [0.96, 0.97, 0.98, 0.99, 0.5], [0.80, 0.81, 0.82, 0.83, 0.5]
    found = rows(high) + rows(two, "lstm")
    told = judged_claim("plstm > lstm", found, chance="valid/accuracy < 0.55")
    close(told.interval, *judge.ranks_of([100 * x for x in high], [100 * x for x in two]))
    assert told.interval.mid == pytest.approx(np.median([100 * (x - y) for x in high for y in two]))
    close(judged_claim("plstm > lstm", found).interval, *judge.contrast_of([96, 97, 98, 99, 50], [80, 81, 82, 83, 50]))


def test_a_run_that_diverged_without_a_value_counts_as_the_worst_of_all():
    lost = rows([None], status="diverged", first=3)
    found = rows(HIGH) + lost + rows(LOW, "lstm")
    told = judged_claim("plstm > lstm", found)
    close(told.interval, *judge.contrast_of([90, 91, 92, 60], [60, 61, 62]))
    assert "failed: 1 of 4, 0 of 3" in told.notes
    lower = judged_claim("plstm > lstm", found, better="lower")
    close(lower.interval, *judge.contrast_of([-90, -91, -92, -92], [-60, -61, -62]))
    close(judged_claim("plstm > lstm", found + rows([0.59], "lstm", first=3), pair=True).interval,
          *judge.contrast([[30, 30, 30, 0]], [1]))  # fmt: skip
    assert judged_claim("plstm > lstm", lost + rows(LOW, "lstm")).interval is None, "no run of a side has a value"


def rated(values, rate, model="plstm", **more):
    return rows(values, model, **{"optimizer.lr": rate}, **more)


def test_the_best_rate_is_the_one_with_the_best_mean_among_those_at_which_no_run_failed():
    found = rated([0.70, 0.71, 0.72], 1e-3) + rated(HIGH, 1e-2) + rated([0.5], 1e-1) + rated(LOW, 1e-3, "lstm")
    told = judged_claim("plstm > lstm", found, **RATES)
    close(told.interval, *judge.contrast_of([90, 91, 92], [60, 61, 62]))
    found += rated([None], 1e-2, status="diverged", first=3)
    told = judged_claim("plstm > lstm", found, **RATES)
    close(told.interval, *judge.contrast_of([70, 71, 72], [60, 61, 62]))
    assert (told.n, told.notes) == (3, ["failed: 1 of 8, 0 of 3", "1 run without a value"]), "n: at the best rates"
    told = judged_claim("plstm > lstm", found, better="lower", **RATES)  # the rate with the lowest mean: one run
    assert (told.interval.mid, told.n) == (pytest.approx(61 - 50), 1)
    every = [replace(row, status="diverged") if row.axes["model"] == "plstm" else row for row in found]
    assert judged_claim("plstm > lstm", every, **RATES).interval is None
    one = rated([0.9, 0.91], 1e-2) + rated([None], 1e-2, status="diverged", first=2) + rated(LOW, 1e-2, "lstm")
    told = judged_claim("plstm > lstm", one, **RATES)  # where there is one rate, nothing is chosen
    close(told.interval, *judge.contrast_of([90, 91, 60], [60, 61, 62]))


def test_a_claim_of_two_metrics_counts_the_runs_at_all_rates():
    found = []
    for rate in (1e-3, 1e-2):  # no rate is usable: a run diverged at each
        found += rated([0.9] * 3, rate) + rated([0.9], rate, status="diverged", first=3)
    found = [made_row({"last valid/loss": 0.1 * (k % 4)}, row) for k, row in enumerate(found)]
    verdict = judged_claim({"claim": "plstm", "than": "valid/loss"}, found, **RATES)
    close(verdict.interval, *judge.contrast([[90, 80, 70, 60] * 2], [1]))
    assert (verdict.word, verdict.n, verdict.notes) == ("holds", 8, ["failed: 2 of 8"])


def test_a_claim_must_hold_in_each_group_and_one_refutes_it():
    def both(plstm, lstm, T):
        return rows(plstm, T=T) + rows(lstm, "lstm", T=T)

    three = both(HIGH, LOW, 1) + both(HIGH, NEAR, 2)
    told = judged_claim("plstm > lstm", three)
    assert (told.word, told.notes) == ("undecided", ["holds in 1 of 2 groups"])
    close(told.interval, *judge.contrast_of([90, 91, 92], [90.0, 90.1, 90.2]))  # the group that supports it least
    three += both(LOW, HIGH, 3)
    told = judged_claim("plstm > lstm", three)
    assert (told.word, told.notes) == ("refuted", ["holds in 1, refuted in 1 of 3 groups"])
    assert told.interval.mid == pytest.approx(-30)
    assert judged_claim("plstm > lstm", both(HIGH, LOW, 1) + both(HIGH, LOW, 2)).word == "holds"
    assert judged_claim("plstm > lstm @ T=1", three).word == "holds"


def test_where_runs_are_missing_nothing_is_decided():
    found = rows(HIGH) + rows(LOW, "lstm")
    assert judged_claim("plstm > lstm", [], PLANNED).word == "not run"
    told = judged_claim("plstm > lstm", found[:3], PLANNED)
    assert (told.word, told.interval) == ("not run", None)
    told = judged_claim("plstm > lstm", found[:5], PLANNED)  # to stop when the word pleases would decide too often
    assert (told.word, told.notes, told.n) == ("not run", ["5 of 6 runs"], 2)
    assert told.interval.mid == pytest.approx(91 - 60.5)
    assert judged_claim("plstm > lstm", found, PLANNED).word == "holds"
    wide = PLANNED + [{**axes, "task": "adding"} for axes in PLANNED]  # a second group without runs
    assert judged_claim("plstm > lstm", found, wide).word == "not run"
    assert judged_claim("lstm > plstm", found, wide).word == "not run", "one group would refute it"


def test_a_run_that_was_not_analysed_counts_as_missing_where_a_claim_is_about_the_analysis():
    values = [{"probe/made/a": value, "probe/made/b": 1.0} for value in (9, 8, 7, 1, 2, 3)]
    found = [made_row(*pair) for pair in zip(values, rows(HIGH) + rows(LOW, "lstm"), strict=True)]
    claim = {"claim": "plstm > lstm", "metric": "probe/made/a", "unit": "steps"}
    assert judged_claim(claim, found).word == "holds"
    found[0].values["probe/made/a"] = None  # analysed, but without this value
    told = judged_claim(claim, found)
    assert (told.word, told.notes) == ("holds", ["1 run without a value"])
    found[0].values["probe/made/b"] = None  # not analysed at all
    told = judged_claim(claim, found)
    assert (told.word, told.notes[0]) == ("not run", "5 of 6 runs")
    lost = replace(found[0], status="diverged")  # there is no network to analyse
    assert judged_claim(claim, [lost, *found[1:]]).word != "not run"


def test_notes_of_a_claim():
    found = rows(HIGH) + rows([0.4, 0.6, 0.62], "lstm")
    found[0] = replace(found[0], partial="half of it")
    assert judged_claim("plstm > lstm", found, **FAILING).notes == ["failed: 0 of 3, 1 of 3", "part of the data"]
    assert judged_claim("lstm never fails", found, **FAILING).notes == []


# --- printed values ---
@pytest.mark.parametrize(
    ("ours", "printed", "word"),
    [
        ([0.901, 0.900, 0.902], {}, "agrees"),  # .1 +- .25, of .5
        ([0.903, 0.896, 0.902], {}, "undecided"),
        ([0.919, 0.920, 0.921], {}, "differs"),
        ([0.9001], {}, "undecided"),
        ([0.91, 0.905, 0.915], {"sd": 2.0, "n": 5}, "agrees"),  # the margin is 4
        ([0.95, 0.955, 0.96], {"sd": 2.0, "n": 5}, "differs"),
        ([0.91, 0.905, 0.915], {"se": 1.0, "n": 4}, "agrees"),  # a spread of 2
        ([0.91, 0.905, 0.915], {"sd": 0.1, "n": 5}, "undecided"),  # the tolerance
        ([0.919, 0.920, 0.921], {"better": "lower"}, "differs"),
        ([0.919, 0.920, 0.921], {"tolerance": 3}, "agrees"),
    ],
)
def test_a_printed_value_is_judged_by_the_interval_of_our_mean(ours, printed, word):
    told = judged_value(rows(ours), printed)
    ends = stats.ttest_1samp(100 * np.array(ours), 0).confidence_interval() if len(ours) > 1 else (-INF, INF)
    close(told.interval, ends[0], 100 * np.mean(ours), ends[1])
    assert told.word == word
    assert (told.n, len(told.values)) == (len(ours), len(ours))


def test_an_interval_in_percent_ends_at_0_and_100():
    told = judged_value(rows([0.98, 1.0]), {"value": 99.0})
    assert (told.interval.high, told.interval.low < 90) == (100, True)
    assert judged_value(rows([0.02, 0.0]), {"value": 1.0}).interval.low == 0
    assert judged_value(rows([0.98, 1.0]), {"unit": "nats", "value": 0.99}).interval.high > 1
    close(judged_value(rows([1.5, 1.6, 1.7]), {"value": 160.0}).interval, *judge.contrast([[150, 160, 170]], [1]))
    told = judged_value(rows([0.5]), {"value": 50.0, "tolerance": 60})
    assert (told.word, told.interval) == ("undecided", (-INF, 50, INF)), "one run has no interval"


def test_the_margin_is_two_spreads_but_no_more_than_half_the_gap_that_the_paper_concludes_from():
    def margins(claim, apart=3.0):
        printed = (("plstm", 90.0), ("lstm", 90.0 - apart))
        cells = [{"where": {"model": model}, "value": value, "sd": 2.0, "n": 5} for model, value in printed]
        return [cell.margin for cell in parse(TABLE | {"cells": cells, "claims": [claim]}).cells]

    assert margins(quoted("plstm > lstm")) == [1.5, 1.5]
    assert margins(quoted("plstm > lstm"), apart=0.1) == [0.5, 0.5]  # the tolerance
    assert margins(quoted("plstm ~ lstm")) == [4, 4]  # nothing is concluded from a gap
    assert margins({"claim": "plstm > lstm", "ours": "to see"}) == [4, 4]
    assert margins(quoted({"claim": "plstm > lstm", "metric": "valid/accuracy"})) == [4, 4]


def test_failures_are_left_out_and_told_and_runs_at_chance_stay():
    found = rows([0.901, 0.9, 0.902, 0.1]) + rows([None], status="diverged", first=4)
    told = judged_value(found, **FAILING)
    assert (told.word, told.n, told.notes) == ("agrees", 3, ["2 of 5 failed"])
    assert [round(x, 1) for x in told.values] == [90.1, 90.0, 90.2]
    told = judged_value(rows([0.9, 0.901, 0.52]), chance="valid/accuracy < 0.55")
    assert (told.n, told.notes) == (3, ["1 of 3 at chance"])
    told = judged_value(rows([0.1, 0.1]), **FAILING)
    assert (told.word, told.interval, told.n) == ("undecided", None, 0)


def test_a_run_without_a_value_is_noted_and_not_counted():
    verdict = judged_value(rows([0.899, None, 0.901, 0.9]))
    assert (verdict.word, verdict.n, verdict.notes) == ("agrees", 3, ["1 run without a value"])
    verdict = judged_value([made_row({"last valid/accuracy": None}, row) for row in rows([0.9, 0.9])], **FAILING)
    assert (verdict.word, verdict.n, verdict.notes) == ("undecided", 0, ["2 runs without a value"]), "did they succeed?"


def test_a_value_with_missing_runs_is_not_run():
    assert judged_value([], planned=3).word == "not run"
    told = judged_value(rows([0.9, 0.91]), planned=3)
    assert (told.word, told.notes) == ("not run", ["2 of 3 runs"])
    assert judged_value(rows([0.900, 0.9001]), planned=3).word == "not run"
    assert judged_value(rows([0.900, 0.9001]), planned=2).word == "agrees"
    assert judged_value(rows([0.9, 0.9]), {"value": None}).word == ""
    assert judged_value(rows([0.9], "lstm")).word == "not run", "runs of another model"


def test_values_that_are_one_number_of_all_runs_have_no_interval(monkeypatch):
    from timescales.analysis import two_delays

    found = timed([100, 300, Censored(900)])
    told = judged_value(found, {"value": 300}, **TIMES)
    assert (told.word, tuple(told.interval)) == ("undecided", (-INF, 300, INF))
    best = rated([0.90, 0.93], 1e-3) + rated([0.95], 1e-2)
    assert judged_value(best, {"value": 95.0}, reduce="max").interval.mid == pytest.approx(95)
    assert judged_value(best, {"value": 95.0, "better": "lower"}, reduce="max").interval.mid == pytest.approx(90)
    monkeypatch.setattr(two_delays, "t", lambda rows: float(len(rows)), raising=False)
    told = judged_value(rows([0.9, 0.1, 0.9]), {"compute": "two_delays.t", "value": 2.0}, **FAILING)
    assert (told.word, told.interval.mid) == ("undecided", 2)  # of the runs that succeeded
    monkeypatch.setattr(two_delays, "t", lambda rows: None)
    assert judged_value(rows([0.9]), {"compute": "two_delays.t", "value": 2.0}).interval is None


def test_a_value_of_the_best_rate():
    found = rated([0.70, 0.71, 0.72], 1e-3) + rated(HIGH, 1e-2)
    assert judged_value(found, **RATES).interval.mid == pytest.approx(91)
    told = judged_value(found + rated([None], 1e-2, status="diverged", first=3), **RATES)
    assert (told.interval.mid, told.n, told.notes) == (pytest.approx(71), 3, ["1 of 7 failed"])


# --- counts ---
def test_each_item_is_counted_once_and_what_was_chosen_by_not_at_all():
    shown = {"unit": {"said": "open", "shown": {"raw": "raw", "half": "t/2"}}, "x": {"said": "", "calibrated": True}}
    runs = [{"task": "copy", "model": ["lstm", "plstm"], "unit": ["raw", "half"], "seed": [0, 1, 2]}]
    cells = [
        {"where": {"model": "plstm"}, "value": 91.0, "tolerance": 3},
        {"where": {"model": "lstm"}, "value": None},
        {"where": {"model": "lstm"}, "value": 61.0, "calibrated": True},
    ]
    claims = [quoted("plstm > lstm"), quoted("lstm > plstm"), {"claim": "plstm > lstm", "ours": "to see"}]
    claims += [{**quoted("plstm > lstm"), "calibrated": True}]
    table = parse(TABLE | {"runs": runs, "assumed": shown, "cells": cells, "claims": claims})
    same = rows(HIGH, unit="raw") + rows(LOW, "lstm", unit="raw") + rows(HIGH, unit="half")
    found = same + rows(LOW, "lstm", unit="half")
    claims, values = judge.judge(table, found)
    assert (len(claims), len(values)) == (8, 6)
    assert report_of(table, {"paper": found}).counts == ({"holds": 1, "refuted": 1}, {"agrees": 1})
    turned = same + rows([0.99, 0.991, 0.992], "lstm", unit="half")
    assert report_of(table, {"paper": turned}).counts[0] == {"undecided": 2}, "the views disagree"
    assert report_of(table, {"paper": same}).counts[0] == {"not run": 2}
    assert Judged([], [judge.Verdict("holds"), judge.Verdict("not run")]).word == "not run"


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
    "claims": list(map(quoted, ("plstm > lstm @ time=true", "plstm time=true > plstm time=false", "plstm > lstm"))),
    "assumed": OPEN,
}


def test_what_depends_on_a_shown_setting_is_judged_under_each_of_its_values():
    table = parse(MADE)
    cells = [(cell.number, cell.under, cell.where.get("task.unit")) for cell in table.cells]
    assert cells == [(0, "raw t", "raw"), (0, "t/125", "longest"), (1, "", None)]
    claims = [(claim.number, claim.under) for claim in table.claims]
    assert claims == [(number, under) for number in (0, 1, 2) for under in ("raw t", "t/125")]


def test_a_claim_compares_the_runs_of_its_view_alone():
    unit, half = {"time": True, "task.unit": "raw"}, {"time": True, "task.unit": "longest"}
    found = [
        *rows([0.60, 0.61, 0.62], "plstm", **unit),
        *rows([0.90, 0.91, 0.92], "plstm", **half),
        *rows([0.80, 0.81, 0.82], "plstm", time=False),
        *rows([0.70, 0.71, 0.72], "lstm", **unit),
        *rows([0.70, 0.71, 0.72], "lstm", **half),
        *rows([0.76, 0.77, 0.78], "lstm", time=False),
    ]
    table = parse(MADE)
    claims, values = judge.judge(table, found)
    means = [(cell.under, round(told.interval.mid, 6)) for cell, told in zip(table.cells, values, strict=True)]
    assert means == [("raw t", 61.0), ("t/125", 91.0), ("", 81.0)]
    words = [(claim.number, claim.under, told.word) for claim, told in zip(table.claims, claims, strict=True)]
    both = (("raw t", "refuted"), ("t/125", "holds"))
    assert words == [(number, under, word) for number in (0, 1, 2) for under, word in both]
    leads = [round(told.interval.mid, 6) for told in claims]  # of the weakest group: without time it is 81 - 77
    assert leads == [-10, 20, -20, 10, -10, 4]
    assert [told.notes for told in claims] == [[], [], [], [], ["holds in 1, refuted in 1 of 2 groups"], []]


def test_a_claim_that_has_fewer_groups_under_another_value_is_not_judged_there():
    runs = [*MADE["runs"], {"task": "copy", "model": "plstm", "time": True, "task.unit": "half", "seed": SEEDS}]
    shown = {"task.unit": {"said": "", "shown": {"raw": "raw t", "half": "t/2"}}}
    table = parse(MADE | {"runs": runs, "assumed": shown})
    assert [cell.under for cell in table.cells] == ["raw t", "t/2", ""]
    assert [(claim.number, claim.under) for claim in table.claims] == [(0, ""), (1, "raw t"), (1, "t/2"), (2, "")]


def test_a_value_of_runs_that_no_view_has_is_judged_as_it_is():
    runs = [*MADE["runs"], {"task": "copy", "model": "plstm", "time": True, "task.unit": "half", "seed": SEEDS}]
    cell = {"where": {"task.unit": "half"}, "value": 90.0}
    (found,) = parse(MADE | {"runs": runs, "cells": [cell]}).cells
    assert (found.where, found.under, found.planned) == (cell["where"], "", 3)


def test_a_shown_value_without_a_run_is_refused():
    shown = {"task.unit": {"said": "", "shown": {"raw": "raw t", "none": "nothing"}}}
    with pytest.raises(ConfigError, match=r"task\.unit\.shown: no run has task\.unit=none"):
        parse(MADE | {"assumed": shown})
