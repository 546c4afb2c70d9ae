"""Verdicts on made-up runs: of claims."""

import math

import numpy as np
import pytest
from made_up import TABLE, judge, judged, made_row, quoted, raw, report_of, rows
from scipy import stats

from timescales import errors
from timescales.analysis import bins
from timescales.papers import claims
from timescales.papers.parse import parse
from timescales.papers.significance import detectable
from timescales.papers.table import columns
from timescales.runs import metrics

STEPS = "steps to valid/accuracy >= 0.99"
FASTER = {**TABLE, "metric": STEPS, "better": "lower", "unit": "steps"}


def steps(values, model="plstm", status="finished"):
    return [made_row({STEPS: v}, row) for row, v in zip(rows([0.9] * len(values), model, status), values, strict=True)]


def test_where_none_reaches_a_threshold_nobody_is_faster():
    """All runs are censored: two failures prove neither order nor likeness."""
    found = steps([metrics.Censored(900)] * 3) + steps([metrics.Censored(900)] * 3, "lstm")
    assert judge("plstm > lstm", FASTER, found).verdict == "undecided"
    assert judge("plstm ~ lstm", FASTER, found).verdict == "not shown"
    found[0].values[STEPS] = 300
    claim = judge("plstm > lstm", FASTER, found)
    assert (claim.verdict, claim.detail) == ("in order", ">900 (n=3) against >900 (n=3)")  # p = 10/20


@pytest.mark.parametrize(
    ("ours", "theirs", "greater", "alike"),
    [
        ([100, 110, 120, 125], [metrics.Censored(900)] * 4, "holds", "refuted"),  # p = 1/70, two-sided 2/70
        ([100, 110, 120], [metrics.Censored(900)] * 3, "in order", "not shown"),  # 1/20 is not below .05
        ([100, 110, 120, 125], [800, 820, 830, metrics.Censored(900)], "holds", "refuted"),
        # whatever number of steps the fourth would have taken: 3 of 70 ways are as extreme
        ([100, 110, 120, metrics.Censored(400)], [8000, 8100, 8200, 8300], "holds", "not shown"),
        # two of four are surely earlier: 9 of 70
        ([100, 110, metrics.Censored(115), metrics.Censored(115)], [8000, 8100, 8200, 8300], "in order", "not shown"),
        ([metrics.Censored(400)] * 4, [500, 510, 520, 530], "undecided", "not shown"),
        ([8000, 8100, 8200, 8300], [100, 110, 120, metrics.Censored(400)], "refuted", "not shown"),
        ([8000, 8100, 8200, 8300], [100, 110, 120, 130], "refuted", "refuted"),
        ([100, 101, 102, 103], [99, 100, 101, 104], "reversed", "holds"),  # within 20 steps
    ],
)
def test_times_are_compared_by_ranks_that_know_what_is_censored(ours, theirs, greater, alike):
    found = steps(ours) + steps(theirs, "lstm")
    assert judge("plstm > lstm", FASTER, found).verdict == greater
    assert judge({"claim": "plstm ~ lstm", "tolerance": 20}, FASTER, found).verdict == alike


def test_a_claim_about_times_shows_their_medians():
    found = steps([100, 140, metrics.Censored(412114)]) + steps([150, metrics.Censored(200), 90, 300], "lstm")
    assert judge("plstm > lstm", FASTER, found).detail == "140 (n=3) against >175 (n=4)"


def test_runs_that_diverged_are_no_hole_where_everyone_counts():
    """An LSTM of five got there first and four diverged: it is not the faster one."""
    found = steps([100, 110, 120, 130, 140]) + steps([90], "lstm")
    found += steps([metrics.Censored(900)] * 4, "lstm", status="diverged")
    told = judge("plstm > lstm", FASTER, found)
    # Of 252 ways to deal the scores of ten runs, 14 give the first five a sum as small as theirs.
    assert (told.verdict, told.detail) == ("in order", "120 (n=5) against >900 (n=5)")
    assert told.p == pytest.approx(14 / 252)
    accurate = {"claim": "plstm > lstm", "failures": "count"}
    lost = rows([None] * 3, "lstm", status="diverged")  # these have no accuracy
    told = judge(accurate, TABLE, rows([0.90, 0.91, 0.92]) + rows([0.95, 0.96, 0.97], "lstm") + lost)
    assert (told.verdict, told.detail) == ("reversed", "91 (n=3) against 96 (n=3); 3 diverged")  # would be refuted
    told = judge(accurate, TABLE, rows([0.90, 0.91, 0.92]) + rows([0.80, 0.81, 0.82], "lstm") + lost)
    assert told.verdict == "holds"  # they were the worse ones anyway
    assert told.text == "plstm > lstm (failures: count)"


@pytest.mark.parametrize(
    ("failed", "ended", "planned", "fails", "never_fails"),
    [
        (5, 5, 5, "holds", "refuted"),
        (3, 5, 5, "holds", "refuted"),
        (3, 3, 5, "holds (n=3)", "refuted (n=3)"),  # more than half of those planned, whatever the others do
        (2, 2, 5, "in order (n=2)", "reversed (n=2)"),
        (2, 4, 5, "reversed (n=4)", "reversed (n=4)"),
        (2, 5, 5, "reversed", "reversed"),  # half or fewer: it may be chance
        (0, 5, 5, "refuted", "holds"),
        (0, 2, 5, "reversed (n=2)", "in order (n=2)"),  # the others may fail
        (1, 2, 5, "reversed (n=2)", "reversed (n=2)"),
    ],
)
def test_failures_are_counted_among_all_planned_runs(failed, ended, planned, fails, never_fails):
    table = {**TABLE, "success": "valid/accuracy > 0.5", "n_min": 5}
    found = rows([0.1] * failed + [0.9] * (ended - failed), "lstm")
    there_will_be = [row.axes for row in rows([0.5] * planned, "lstm")]
    for line, word in (("lstm fails", fails), ("lstm never fails", never_fails)):
        told = judge(line, table, found, there_will_be)
        assert (told.verdict, told.p, told.value.p_against) == (word, None, None)


def test_failing_is_said_of_each_group_of_runs():
    """At T = 1,000 all fail, at T = 500 one of five: six of ten are more than half, but not of either."""
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    found = rows([0.1] * 5, "lstm", T=1000) + rows([0.1, 0.9, 0.9, 0.9, 0.9], "lstm", T=500)
    told = judge("lstm fails", table, found)
    assert (told.verdict, told.detail) == ("reversed", "1 of 5 runs fail; the weakest of 2 groups")
    # One that was committed without the value it is judged by is neither failed nor good.
    nobody_knows = [made_row({"last valid/accuracy": None}, row) for row in rows([0.9] * 3, "lstm")]
    assert judge("lstm never fails", table, nobody_knows).verdict == "not run"
    ours = [made_row(like=row, axes={**row.axes, "model": "plstm"}) for row in nobody_knows]
    assert judged([*rows([0.1]), *ours], success=table["success"]).verdict == "less stable (1 of 1 failed)"
    assert judged(ours, success=table["success"]).verdict == "not run"


def test_a_claim_says_of_how_many_of_its_groups_it_is_said():
    found = rows([0.9, 0.91], T=200) + rows([0.8, 0.81], "lstm", T=200) + rows([0.9, 0.91, 0.92], T=500)
    planned = [row.axes for T in (200, 500, 1000) for model in ("lstm", "plstm") for row in rows([0] * 3, model, T=T)]
    assert judge("plstm > lstm", TABLE, found, planned).verdict == "in order (n=2, 1 of 3 groups)"
    found += rows([0.92], T=200)[-1:] + rows([0.82], "lstm", T=200)[-1:] + rows([0.8, 0.81, 0.82], "lstm", T=500)
    told = judge("plstm > lstm", {**TABLE, "n_min": 2}, found, planned)
    assert (told.verdict, told.detail.split("; ")[1]) == ("in order (2 of 3 groups)", "the weakest of 2 groups")
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    assert judge("plstm never fails", table, found, planned).verdict == "in order (2 of 3 groups)"
    # The number is the fewest of a group, p that of the group which says least.
    groups = [
        rows(v, T=T) + rows([0.8, 0.81, 0.82][: len(v)], "lstm", T=T)
        for T, v in ((200, [0.9, 0.91, 0.93]), (500, [0.99, 0.991]))
    ]
    each = [judge("plstm > lstm", TABLE, found) for found in groups]
    together = [row for found in groups for row in found]
    both = judge("plstm > lstm", TABLE, together)
    assert [told.verdict for told in (*each, both)] == ["holds", "holds (n=2)", "holds (n=2)"]
    assert both.p == max(told.p for told in each)
    against = [raw(told.value.p_against) for told in each]
    assert raw(both.value.p_against) == min(1.0, 2 * min(against))
    alike = {"claim": "plstm ~ lstm", "tolerance": 50}
    assert judge(alike, TABLE, together).p == max(judge(alike, TABLE, found).p for found in groups)


def test_one_run_against_runs_without_spread_is_an_order_at_most():
    same = rows([0.9, 0.9, 0.9])
    assert judge("plstm > lstm", TABLE, same + rows([0.8], "lstm")).verdict == "in order (n=1)"
    assert judge("lstm > plstm", TABLE, same + rows([0.8], "lstm")).verdict == "reversed (n=1)"


@pytest.mark.parametrize(
    ("claim", "ours", "theirs", "word"),
    [
        ("plstm > lstm", [0.9, 0.91, 0.92], [0.8, 0.81, 0.82], "holds"),
        ("plstm > lstm", [0.9, 0.5, 0.92], [0.8, 0.3, 0.82], "in order"),
        ("plstm > lstm", [0.9], [0.8], "in order"),
        ("plstm > lstm", [0.7], [0.8], "reversed"),
        ("plstm > lstm", [0.7, 0.71, 0.72], [0.8, 0.81, 0.82], "refuted"),
        ("plstm > lstm", [0.79, 0.6, 0.9], [0.8, 0.65, 0.9], "reversed"),
        ("plstm > lstm", [0.7], [], "not run"),
        ("plstm ~ lstm", [0.9, 0.91, 0.92], [0.91, 0.92, 0.90], "not shown"),  # they spread by 1, the tolerance is .5
        ("plstm ~ lstm", [0.9, 0.901, 0.902], [0.901, 0.902, 0.9], "holds"),
        ("plstm ~ lstm", [0.9, 0.901, 0.902], [0.903, 0.904, 0.905], "holds"),  # different (p = .02), but by .3
        ("plstm ~ lstm", [0.9, 0.91, 0.92], [0.80, 0.81, 0.82], "refuted"),
        ("plstm ~ lstm", [0.9], [0.902], "not shown"),
        ("plstm ~ lstm", [0.9], [0.92, 0.88], "not shown"),
        ("plstm ~ lstm", [0.9, 0.8], [0.75, 0.7], "not shown"),
        ("plstm > lstm", [0.8, 0.8], [0.9, 0.9], "refuted"),  # without any spread
        ("plstm > lstm", [0.9, 0.9], [0.8, 0.8], "holds"),
        ("plstm > lstm", [0.9], [0.8, 0.801, 0.802], "holds"),
        ("plstm > lstm", [0.9, 0.9, 0.9], [0.9, 0.9, 0.9], "undecided"),  # a tie
        ("plstm > lstm @ task=smnist", [0.9], [0.8], "not run"),
        ("task=copy model=plstm > task=copy model=lstm @ seed=0", [0.9], [0.8], "in order"),
    ],
)
def test_verdict_of_a_claim(claim, ours, theirs, word):
    found = judge(claim, TABLE, rows(ours) + rows(theirs, "lstm"))
    assert found.value.word == word
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
        row.values.update({"probe/near": near, "probe/far": far})
    nearer = {"claim": "plstm", "metric": "probe/near", "than": "probe/far", "better": "lower", "unit": "1"}
    told = judge(nearer, TABLE, found)
    assert told.verdict == "holds"
    assert told.p == pytest.approx(stats.ttest_rel([0.10, 0.11, 0.12], [0.30, 0.31, 0.35], alternative="less").pvalue)
    assert told.text == "plstm (probe/near, before probe/far)"
    assert told.detail == "0.11 (n=3) against 0.32 (n=3)"
    assert judge(nearer | {"better": "higher"}, TABLE, found).verdict == "refuted"
    assert judge(nearer, TABLE, found[:1]).verdict == "in order (n=1)"
    assert judge(nearer | {"claim": "lstm"}, TABLE, found).verdict == "not run"
    assert columns(parse(TABLE | {"claims": [quoted(nearer)]}))[1:] == ["probe/near", "probe/far"]
    for line in ("plstm > lstm", "plstm ~ lstm", "plstm fails"):
        with pytest.raises(errors.ConfigError, match="one side alone"):
            judge(nearer | {"claim": line}, TABLE, found)


def test_claims_on_another_metric_and_on_failing():
    slow, fast = rows([0.9] * 4, "lstm"), rows([0.9] * 4)
    for k, row in enumerate(slow + fast):
        row.values["steps to valid/accuracy >= 0.9"] = 1000 + k if row.axes["model"] == "lstm" else 100 + k
    faster = {"claim": "plstm > lstm", "metric": "steps to valid/accuracy >= 0.9", "better": "lower", "unit": "steps"}
    found = judge(faster, TABLE, slow + fast)
    assert found.verdict == "holds"
    assert found.text == "plstm > lstm (steps to valid/accuracy >= 0.9)"
    assert found.detail == "105.5 (n=4) against 1002 (n=4)"
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    runs = rows([0.9, 0.1], "lstm") + rows([0.9, 0.9])
    assert judge("lstm fails", table, runs).verdict == "reversed (n=2)"  # half of them
    assert judge("lstm fails", table, [*runs, *rows([0.1], "lstm")]).verdict == "holds"
    assert judge("plstm fails", table, runs).verdict == "refuted (n=2)"
    assert judge("plstm never fails", table, runs).verdict == "holds (n=2)"
    assert judge("lstm never fails", table, runs).verdict == "reversed (n=2)"
    assert judge("plstm fails @ model=ur", table, runs).verdict == "not run"
    with pytest.raises(errors.ConfigError, match="cannot read the claim 'plstm wins'"):
        judge("plstm wins", TABLE, runs)


def test_runs_that_fail_count_where_a_claim_says_so():
    table = {**TABLE, "success": "valid/accuracy > 0.5", "n_min": 1}
    found = rows([0.9, 0.91, 0.92, 0.9]) + rows([0.1, 0.11, 0.12, 0.1], "lstm")
    assert judge("plstm > lstm", table, found).verdict == "cannot be decided (no run of a side succeeded)"
    assert judge({"claim": "plstm > lstm", "failures": "count"}, table, found).verdict == "holds"
    for row in found:
        row.values["steps to valid/accuracy >= 0.9"] = 300 if row.axes["model"] == "lstm" else 100 + row.seed
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
        values = {f"probe/bins/{name}": value for name, value in ppl.items()}
        return made_row(values, rows([0.5], model, **axes)[0], blocks=text)

    table = {**TABLE, "better": "lower", "unit": "perplexity", "n_min": 1, "tolerance": 0.01, "probe": ["bins"]}
    found = [run("lstm", [2.0, 3.0, 5.1, 7.0]), run("mts", [2.0, 3.1, 5.0, 6.9], **{"model.layer1_bias": "eq5"})]
    assert bins.p_lower(found[1].blocks, found[0].blocks, "100_1K") == 0.0

    def said(text, name, **more):
        return judge({"claim": text, "metric": f"probe/bins/{name}"} | more, table, found).verdict

    assert said("mts model.layer1_bias=eq5 > lstm", "100_1K") == "holds"
    assert said("mts > lstm", "100_1K") == "not run"  # they differ in the bias, which the claim does not name
    assert said("lstm > mts model.layer1_bias=eq5", "100_1K") == "reversed"  # it knows nothing of seeds
    assert said("mts model.layer1_bias=eq5 ~ lstm", "above_10K", tolerance=0.01) == "holds"
    assert said("mts model.layer1_bias=eq5 ~ lstm", "1K_10K", tolerance=0.01) == "not shown"
    assert said("mts model.layer1_bias=eq5 ~ lstm", "1K_10K", tolerance=3.0) == "holds"  # e^3.1 - e^3 is 2.1
    shown = report_of(table, {"paper": found, "tiny": []}).bootstrap
    (difference,) = (row.mean for row in shown if row.words == bins.NAMES[2])
    assert difference == pytest.approx(math.exp(5.1) - math.exp(5.0), rel=0.05)  # LSTM minus MTS
    two_bins = {"claim": "lstm", "metric": "probe/bins/above_10K", "than": "probe/bins/below_100"}
    assert judge(two_bins, table, found).p is None  # of one run the blocks tell nothing
    assert bins.p_lower(found[0].blocks, "\n".join(found[1].blocks.splitlines()[:9]) + "\n", "all") is None
    none = bins.to_text(bins.Blocks(np.array([[1.0, 1.0, 0.0, 0.0]] * 20), np.array([[50, 50, 0, 0]] * 20)))
    assert bins.p_lower(none, none, "below_100") is None  # a bin without words
    found = [made_row(like=row, blocks=None) for row in found]
    assert said("mts model.layer1_bias=eq5 > lstm", "100_1K") == "in order"


def test_single_runs_are_judged_by_the_interval_that_is_printed(monkeypatch):
    """95 % of the resamples are in it: one in forty is above, so p is twice the share."""
    table = {
        **TABLE,
        "better": "lower",
        "unit": "perplexity",
        "n_min": 3,
        "metric": "probe/bins/all",
        "probe": ["bins"],
    }
    both = rows([0.9]) + rows([0.8], "lstm")
    found = [made_row({"probe/bins/all": k}, row, blocks=row.id) for k, row in enumerate(both)]
    for share, word in ((0.02, "holds (n=1)"), (0.03, "in order (n=1)")):
        monkeypatch.setattr(bins, "p_lower", lambda *_, share=share: share)
        told = judge("plstm > lstm", table, found)
        assert (told.verdict, told.p, told.value.p_against) == (word, 2 * share, None)


def best_of(values, model="plstm", **axes):
    """Runs at three learning rates, a list of values for each, and as many seeds."""
    runs = zip((1e-3, 5e-4, 2e-4), values, strict=True)
    return [row for rate, of_rate in runs for row in rows(of_rate, model, **{"optimizer.lr": rate}, **axes)]


def test_best_values_are_compared_by_exchanging_pairs_of_one_rate_and_seed():
    """Of 2^6 exchanges those of the second's six pairs matter whose first value is above the second's best."""
    table = {**TABLE, "reduce": "max", "n_min": 6}
    found = best_of([[0.95, 0.94], [0.93, 0.92], [0.91, 0.905]])
    others = best_of([[0.90, 0.89], [0.88, 0.87], [0.86, 0.85]], "lstm")
    told = judge("plstm > lstm", table, found + others)
    assert (told.verdict, told.detail) == ("holds", "95 (n=6) against 90 (n=6)")
    assert told.p == pytest.approx(1 / 64)
    assert judge("lstm > plstm", table, found + others).verdict == "refuted"
    low = {**table, "better": "lower"}
    assert judge("lstm > plstm", low, found + others).verdict == "holds"
    near = best_of([[0.901, 0.899], [0.88, 0.87], [0.86, 0.85]])
    assert judge("plstm > lstm", table, near + others).verdict == "in order"
    # A run that diverged is the worst of its pair; one that is still to come is in no pair.
    found[1] = made_row({"last test/accuracy": None}, found[1], status="diverged")
    assert judge("plstm > lstm", table, found + others).p == pytest.approx(2 / 64)
    few = judge("plstm > lstm", table, found[:4] + others, [row.axes for row in found + others])
    assert (few.verdict, few.p) == ("in order (n=4)", None)  # four pairs: no test


def test_stale_runs_say_nothing():
    old = rows([0.9, 0.91, 0.92], stale=True) + rows([0.8, 0.81, 0.82], "lstm")
    assert judge("plstm > lstm", TABLE, old).verdict == "stale"
    new = rows([0.9, 0.91, 0.92]) + rows([0.8, 0.81, 0.82], "lstm") + rows([0.1], "chrono", stale=True)
    assert judge("plstm > lstm", TABLE, new).verdict == "holds"  # it is not about these


def test_no_difference_is_one_that_is_shown_to_be_within_the_tolerance():
    a, b = rows([0.9000, 0.9001, 0.9002]), rows([0.9020, 0.9021, 0.9022], "lstm")
    assert judge("plstm ~ lstm", TABLE, a + b).verdict == "holds"  # .2 apart, significantly so, and within .5
    apart = {"claim": "plstm ~ lstm", "tolerance": 0.1}
    assert judge(apart, TABLE, a + b).verdict == "refuted"


def test_the_claims_of_a_table_are_families_of_tests():
    """p = .034 alone holds; beside one that shows nothing it is .068 and does not; what is no test takes no part."""
    lines = ["plstm > lstm", "plstm > chrono", "lstm never fails"]
    table = parse(
        TABLE
        | {"success": "valid/accuracy > 0.5", "claims": [quoted(line) for line in lines]}
        | {"runs": [{"task": "copy", "model": ["lstm", "plstm", "chrono"], "seed": [0, 1, 2]}]}
    )
    ours, theirs = [0.9, 0.91, 0.93], [0.88, 0.885, 0.89]
    found = rows(ours) + rows(theirs, "lstm")
    p = stats.ttest_ind(ours, theirs, equal_var=False, alternative="greater").pvalue
    assert 0.025 < p < 0.05

    def judged_together(claims_, others):
        return [result.verdict for result in claims.judge_claims(claims_, found + rows(others, "chrono"))]

    (alone,) = judged_together(table.claims[:1], theirs)
    assert (alone.word, alone.p_for.corrected) == ("holds", pytest.approx(p))
    both = judged_together(table.claims, [0.7, 0.9, 1.0])
    assert [v.word for v in both] == ["in order", "in order", "holds"]
    assert both[0].p_for.corrected == pytest.approx(2 * p)
    assert both[2].p_for is None
    alike = judged_together(table.claims, theirs)  # two that are equally good
    assert [v.p_for.corrected for v in alike[:2]] == pytest.approx([p, p])
    assert [v.word for v in alike[:2]] == ["holds", "holds"]


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        (
            [0.90, 0.91, 0.92, 0.93, 0.94],
            [0.90, 0.91, 0.92, 0.93, 0.94],
            "too small",
        ),  # a tie: p = .041
        ([0.86, 0.87, 0.88, 0.89, 0.90], [0.87, 0.88, 0.89, 0.90, 0.91], "too small"),  # the other way round, p = .18
        ([0.90, 0.91, 0.92, 0.93, 0.94], [0.89, 0.90, 0.91, 0.92, 0.93], "in order"),
        ([0.90, 0.91, 0.92, 0.93, 0.94], [0.80, 0.81, 0.82, 0.83, 0.84], "holds"),
        ([0.80, 0.81, 0.82, 0.83, 0.84], [0.90, 0.91, 0.92, 0.93, 0.94], "refuted"),
    ],
)
def test_a_difference_that_is_too_small_for_the_paper_to_have_seen(ours, theirs, word):
    """Five runs a side show 1.1 standard deviations once in three times (Simonsohn 2015)."""
    found = rows(ours) + rows(theirs, "lstm")
    told = judge(quoted("plstm > lstm"), {**TABLE, "n_min": 5}, found)
    a, b = ([100 * x for x in values] for values in (ours, theirs))
    t = stats.ttest_ind(a, b, equal_var=False)
    p = stats.nct.cdf(t.statistic, t.df, detectable(5) / math.sqrt(2 / 5))
    assert raw(told.value.p_small) == pytest.approx(p, rel=1e-6)
    assert told.verdict == word
    lower = {**TABLE, "n_min": 5, "better": "lower"}
    turned = [made_row({"last test/accuracy": -row.value("last test/accuracy")}, row) for row in found]
    assert judge(quoted("plstm > lstm"), lower, turned).verdict == word
    mine = judge({"claim": "plstm > lstm", "ours": "to see"}, {**TABLE, "n_min": 5}, found)
    assert mine.value.p_small is None  # what the paper has not said it cannot have seen
    assert judge(quoted("plstm > lstm"), {**TABLE, "n_min": 1}, found).value.p_small is None


def test_many_runs_without_a_difference_are_too_small_for_a_paper_of_three():
    values = [0.90 + 0.001 * (7 * k % 20) for k in range(20)]
    told = judge(quoted("plstm > lstm"), TABLE, rows(values) + rows(values[::-1], "lstm"))
    assert told.verdict == "too small"
    two = rows(values)
    for row in two:
        accuracy = row.value("last test/accuracy")
        row.values.update({"probe/a": accuracy, "probe/b": accuracy + 1e-4 * (-1) ** row.seed})
    than = {"claim": "plstm", "metric": "probe/a", "than": "probe/b", "unit": "1"}
    assert judge(quoted(than), TABLE, two).verdict == "too small"


def test_a_claim_may_ask_for_more_than_a_difference():
    """5 to 10 points more: by more than 5, and the other is not worse by more than 10."""
    found = rows([0.90, 0.905, 0.91]) + rows([0.83, 0.835, 0.84], "lstm")
    told = judge({"claim": "plstm > lstm", "by": 5}, TABLE, found)
    assert (told.verdict, told.text) == ("holds", "plstm > lstm (by 5)")
    assert judge({"claim": "plstm > lstm", "by": 6.9}, TABLE, found).verdict == "in order"
    assert judge({"claim": "plstm > lstm", "by": 7.1}, TABLE, found).verdict == "reversed"
    assert judge({"claim": "plstm > lstm", "by": 10}, TABLE, found).verdict == "refuted"
    assert judge({"claim": "lstm >= plstm", "tolerance": 10}, TABLE, found).verdict == "holds"
    loss = {"claim": "lstm > plstm", "better": "lower"}
    assert [judge(loss | {"by": by}, TABLE, found).verdict for by in (5, 10)] == ["holds", "refuted"]


def test_sometimes_failing_is_failing_once():
    """Chien et al.: the LSTM did not always learn, with one of the five runs at chance. The claim says below what."""
    claim = {"claim": "lstm sometimes fails", "success": "valid/accuracy > 0.55"}
    planned = [row.axes for row in rows([0.5] * 5, "lstm")]
    for values, word in (
        ([0.9, 0.52, 0.9, 0.9, 0.9], "holds"),
        ([0.9] * 5, "reversed"),  # of a model of which one run in five fails, none of five does once in three times
        ([0.9, 0.52], "holds (n=2)"),
        ([0.9, 0.9], "reversed (n=2)"),
        ([0.5] * 5, "holds"),
    ):
        assert judge(claim, {**TABLE, "n_min": 3}, rows(values, "lstm"), planned).verdict == word


def test_failing_more_often_is_fishers_test_over_all_rates():
    """Nine of nine against none of nine: one of 48,620 ways; at three rates, which the claim does not tell apart."""
    table = {**TABLE, "reduce": "best_lr", "success": "valid/accuracy > 0.5", "n_min": 3}
    lost, good = best_of([[0.1] * 3] * 3, "lstm"), best_of([[0.9] * 3] * 3)
    told = judge("lstm fails more often than plstm", table, lost + good)
    assert (told.verdict, told.detail) == ("holds", "9 of 9 runs fail against 0 of 9 runs fail")
    assert told.p == pytest.approx(1 / 48620)
    assert judge("plstm fails more often than lstm", table, lost + good).verdict == "refuted"
    assert (
        judge("lstm fails more often than plstm", table, good + best_of([[0.9] * 3] * 3, "lstm")).verdict == "undecided"
    )
    place = "lstm fails more often than plstm @ optimizer.lr=[0.001,0.0005]"
    assert judge(place, table, lost + good).detail == "6 of 6 runs fail against 0 of 6 runs fail"
    both = 'model=["lstm","chrono"] fails more often than model=plstm'
    assert judge(both, table, lost + good + best_of([[0.9] * 3] * 3, "chrono")).detail.startswith("9 of 18 runs fail")


def test_a_side_of_which_all_runs_fail_is_not_lost():
    """Where the LSTM fails to learn at all, it is compared as it is; where some of its runs learn, those are."""
    table = {**TABLE, "success": "valid/accuracy > 0.5"}
    claim = {"claim": "plstm > lstm", "failures": "count if all fail"}
    good = rows([0.90, 0.91, 0.92, 0.1])
    told = judge(claim, table, good + rows([0.1, 0.11, 0.12], "lstm"))
    assert (told.verdict, told.detail) == ("holds", "70.75 (n=4) against 11 (n=3); 4 failed")
    told = judge(claim, table, good + rows([0.1, 0.80, 0.81], "lstm"))
    assert told.detail == "91 (n=3) against 80.5 (n=2)"
    planned = [row.axes for row in good + rows([0] * 4, "lstm")]
    left_out = judge("plstm > lstm", table, good + rows([0.1, 0.11, 0.12], "lstm"), planned)
    assert left_out.verdict == "not run"  # the fourth may learn
    left_out = judge("plstm > lstm", table, good + rows([0.1, 0.11, 0.12, 0.1], "lstm"), planned)
    assert left_out.verdict == "cannot be decided (no run of a side succeeded)"


@pytest.mark.parametrize(
    ("claim", "table", "why"),
    [
        ("plstm > lstm", FASTER, "no order of so few times is significant"),  # 3 and 3: 1 of 20
        ("plstm > lstm", {**TABLE, "reduce": "max"}, "a test of best values needs 5 pairs of runs"),
        ("plstm > lstm @ seed=0", TABLE, "single runs allow no test"),
        ({"claim": "plstm @ seed=0", "metric": "probe/a", "than": "probe/b"}, TABLE, "single runs allow no test"),
        ({"claim": "plstm > lstm @ seed=0", "metric": "probe/bins/all"}, TABLE, ""),  # by the words
        ("plstm > lstm", TABLE, ""),
    ],
)
def test_what_no_planned_number_of_runs_can_decide_says_so(claim, table, why):
    planned = [row.axes for model in ("lstm", "plstm") for row in rows([0] * 3, model)]
    told = judge(quoted(claim), table, [], planned).value
    assert (told.word, told.why) == (("cannot be decided", why) if why else ("not run", ""))
    assert judge(claim, table, [], planned).value.word == "not run"  # what is ours decides nothing
    for row in (found := rows([0.9]) + rows([0.8], "lstm")):
        row.values.update({STEPS: 100, "probe/a": 1.0, "probe/b": 2.0, "probe/bins/all": 3.0})
    if why:
        assert judge(quoted(claim), table, found, planned).value.word == "cannot be decided"


def test_a_conclusion_is_not_run_while_runs_or_their_values_are_missing():
    (claim,) = parse(TABLE | {"claims": [quoted("plstm > lstm")]}).claims
    planned = [row.axes for model in ("lstm", "plstm") for row in rows([0] * 3, model)]

    def outcome(found):
        return claims.judge_claims([claim], found, planned)[0].outcome

    near, others = rows([0.9, 0.5, 0.92]), rows([0.8, 0.3, 0.82], "lstm")
    assert outcome([]) == outcome(near[:2] + others) == "not run"
    assert outcome(near + others) == "undecided"
    near[1].values["last test/accuracy"] = None
    assert outcome(near + others) == "not run"  # it was committed without this value
    near[1] = made_row(like=near[1], status="diverged")
    assert outcome(near + others) == "undecided"
    assert outcome(rows([0.9, 0.91, 0.92]) + rows([0.1, 0.11, 0.12], "lstm")) == "hold"


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([0.930, 0.931, 0.932], "holds"),  # better by more than the tolerance, which refutes "~"
        ([0.8990, 0.9000, 0.9010], "holds"),
        ([0.8960, 0.8970, 0.9000], "not shown"),
        ([0.880, 0.881, 0.882], "refuted"),
    ],
)
def test_at_least_as_good_goes_by_the_tolerance_in_one_direction(ours, word):
    """The tolerance of the table is .5 points."""
    found = rows(ours) + rows([0.900, 0.901, 0.902], "lstm")
    assert judge("plstm >= lstm", TABLE, found).verdict == word
    if word != "not shown":
        lower = [made_row({"last test/accuracy": -row.value("last test/accuracy")}, row) for row in found]
        assert judge({"claim": "plstm >= lstm", "better": "lower"}, TABLE, lower).verdict == word
