"""Equal data are no difference, however many runs each side has and however their numbers were computed."""

import itertools
from fractions import Fraction
from math import inf, nextafter

import numpy as np
import pytest
from made_up import TABLE, judge, judged, made_row, quoted, rows

from timescales.analysis import bins
from timescales.papers.significance import (
    Moments,
    Time,
    beyond,
    gehan,
    paired_best,
    paired_t,
    ranks_of_times,
    two_one_sided,
    welch,
)
from timescales.runs.metrics import Censored

SIZES = [(3, 5), (5, 3), (2, 7), (10, 3)]
ACCURACIES = [100.0 * (k / 10_000) for k in range(1, 10_001)]  # in percent
WAYS = ("greater", "less", "two-sided")


def noisy(value, n):
    """A value n times, as sums in another order would give it."""
    return [(value, nextafter(value, inf), nextafter(value, -inf))[k % 3] for k in range(n)]


def one(test, shift=0.0):
    return all(test(shift, way) == 1.0 for way in WAYS)


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_of_ten_thousand_equal_pairs_none_differs(n, m):
    """In 18 % of them the two means differ in the last bit."""
    for value in ACCURACIES:
        equal = welch(Moments.of([value] * n), Moments.of([value] * m))
        assert one(equal)
        assert beyond(equal, 0.0) == two_one_sided(equal, 0.0) == 1.0
    for value in ACCURACIES[::20]:
        assert one(welch(Moments.of([value] * n), Moments.exact(value)))
        assert one(welch(Moments.of(noisy(value, n)), Moments.of(noisy(value, m)[::-1])))


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_a_difference_of_just_the_margin_is_neither_within_nor_beyond_it(n, m):
    for value, margin in itertools.product(ACCURACIES[::50], (0.1, 0.5, 7.0)):
        apart = welch(Moments.of([value] * n), Moments.of([value + margin] * m))
        assert two_one_sided(apart, margin) == beyond(apart, margin) == 1.0
        assert two_one_sided(apart, 1.01 * margin) == beyond(apart, 0.99 * margin) == 0.0


def test_of_ten_thousand_equal_runs_no_two_metrics_differ():
    for value in ACCURACIES:
        assert one(paired_t([value] * 5, noisy(value, 5)))
    margin = 0.1
    apart = paired_t([x + margin for x in ACCURACIES], ACCURACIES)
    assert two_one_sided(apart, margin) == beyond(apart, margin) == 1.0


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_equal_times_have_equal_scores_whatever_they_were_multiplied_by(n, m):
    """49 * (1 / 49) is less than 1; censored after an event at the same time is later."""
    for k in range(1, 10_001, 7):
        first, second = [Time(1.0, False)] * n, [Time(k * (1.0 / k), False)] * m
        assert set(gehan([*first, *second])) == {0}
        later = [time._replace(censored=True) for time in second]
        assert gehan([*first, *later]) == [-m] * n + [n] * m


@pytest.mark.parametrize(("n", "m"), [*SIZES, (1, 5), (5, 1)])
def test_the_rank_test_of_equal_times_is_no_difference(n, m):
    for k, shift in itertools.product((49, 98, 103), (0.0, 0.3)):
        first, second = [Time(0.1 * k, False)] * n, [Time(k / 10 + shift, False)] * m
        test = ranks_of_times(first, second)
        assert test(shift, "greater") == test(shift, "less") == 1.0


def test_equal_best_values_are_no_difference():
    for value in ACCURACIES[1::500]:
        test = paired_best([value] * 6, [nextafter(value, 0.0)] * 6, largest=True)
        assert test(0.0, "greater") == test(0.0, "less") == 1.0


def test_the_test_of_best_values_counts_exchanges_that_are_as_extreme():
    """Accuracies of two digits, whose differences are equal in fractions and not in floating point."""
    drawn = np.random.default_rng(3).integers(9895, 9905, (200, 2, 5))
    for first, second in drawn:
        observed = max(first) - max(second)
        exchanged = [
            max(np.where(swap, second, first)) - max(np.where(swap, first, second))
            for swap in itertools.product([False, True], repeat=5)
        ]
        test = paired_best([x / 100 for x in first], [x / 100 for x in second], largest=True)
        assert Fraction(test(0.0, "greater")) == Fraction(sum(d >= observed for d in exchanged), 32)
        assert Fraction(test(0.0, "less")) == Fraction(sum(d <= observed for d in exchanged), 32)


CLAIMS = [
    ("plstm > lstm", "undecided"),
    ("lstm > plstm", "undecided"),
    ({"claim": "plstm >= lstm", "tolerance": 0}, "not shown"),
    ({"claim": "plstm ~ lstm", "tolerance": 0}, "not shown"),
    ("plstm ~ lstm", "holds"),  # within .5
]


@pytest.mark.parametrize(("claim", "word"), CLAIMS)
def test_a_claim_about_equal_runs(claim, word):
    """Three runs of one model and five of the other, all 99.03 %."""
    for accuracy in (0.9903, 0.98, 0.7, 1 / 3):
        found = rows([accuracy] * 3) + rows([accuracy] * 5, "lstm")
        assert judge(claim, TABLE, found).verdict == word


@pytest.mark.parametrize(("n", "m"), [size for size in SIZES if min(size) > 2])
def test_a_conclusion_of_the_paper_about_equal_runs_is_the_same_both_ways(n, m):
    for accuracy in (0.9903, 0.98, 0.7, 1 / 3):
        found = rows([accuracy] * n) + rows([accuracy] * m, "lstm")
        told = [judge(quoted(claim), TABLE, found) for claim in ("plstm > lstm", "lstm > plstm")]
        assert [one.verdict for one in told] == ["too small"] * 2


def test_a_claim_of_so_many_times_about_runs_that_are_just_that():
    steps = "steps to valid/accuracy >= 0.99"
    table = {**TABLE, "metric": steps, "better": "lower", "unit": "steps"}
    found = [made_row({steps: 1}, row) for row in rows([0.9] * 3)]
    found += [made_row({steps: 49}, row) for row in rows([0.9] * 5, "lstm")]
    told = judge({"claim": "plstm > lstm", "times": 49}, table, found)
    assert (told.verdict, told.p) == ("undecided", 1.0)
    for row in found[3:]:  # never reached: surely later than at step 1
        row.values[steps] = Censored(49)
    assert judge({"claim": "plstm > lstm", "times": 49}, table, found).p == pytest.approx(1 / 56)
    found = rows([0.49] * 3) + rows([0.07] * 5, "lstm")
    assert judge({"claim": "plstm > lstm", "times": 7}, TABLE, found).verdict == "undecided"


def test_two_metrics_of_the_same_runs_that_are_equal():
    equal = [made_row({"last valid/accuracy": nextafter(0.9903, 1.0)}, row) for row in rows([0.9903] * 5)]
    told = judge({"claim": "plstm", "than": "valid/accuracy", "metric": "test/accuracy"}, TABLE, equal)
    assert (told.verdict, told.p) == ("undecided", 1.0)


def test_a_printed_value_that_our_runs_have_exactly():
    for accuracy in (0.9903, 0.98, 0.7):
        for n in (3, 5, 7):
            told = judged(rows([accuracy] * n), {"value": 100 * accuracy}, tolerance=0)
            assert (told.verdict, told.within, told.different) == ("agrees", 0.0, 1.0)


def test_single_runs_of_which_one_summed_in_another_order():
    """The same losses of 20 blocks of words but for the last bit."""

    def run(model, sums):
        text = bins.to_text(bins.Blocks(sums, np.full((20, 4), 25)))
        perplexity = float(bins.perplexities(bins.from_text(text))[-1])
        return made_row({"probe/bins/all": perplexity}, rows([0.5], model)[0], blocks=text)

    sums = np.random.default_rng(0).uniform(50.0, 150.0, (20, 4))
    found = [run("lstm", sums), run("mts", np.nextafter(sums, 0.0))]
    table = {
        **TABLE,
        "better": "lower",
        "unit": "perplexity",
        "n_min": 1,
        "metric": "probe/bins/all",
        "probe": ["bins"],
    }
    for claim in ("mts > lstm", "lstm > mts"):
        told = judge(claim, table, found)
        assert (told.verdict, told.p) == ("undecided", 1.0)


def test_of_learning_rates_that_are_equally_good_the_first_counts():
    """With three and with five runs, whose means differ in the last bit."""
    for accuracy in (0.9903, 0.98, 0.7):
        found = [row for n, rate in ((3, 1e-3), (5, 5e-4)) for row in rows([accuracy] * n, **{"optimizer.lr": rate})]
        for order in (found, found[::-1]):
            told = judged(order, reduce="best_lr")
            assert told.sample.n == (3 if order is found else 5)
