"""The tests behind the verdicts, against numbers that are worked out in another way."""

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from timescales.papers.significance import (
    MIN_PAIRS,
    Moments,
    Time,
    beyond,
    detectable,
    equivalent_within,
    error_of_best,
    error_of_difference,
    error_of_next,
    false_discovery,
    gehan,
    half_width,
    p_of_difference,
    p_of_larger_spread,
    p_of_more_failures,
    p_of_smaller,
    paired_best,
    ranks_of_times,
    two_one_sided,
    welch,
)

OURS = [98.86, 98.96, 99.28, 99.24, 99.22]  # chien_table3: chrono, sync_1, with time; printed 99.45 (.1), n = 5
PRINTED = Moments(99.45, 0.1, 5)


def by_hand(ours, theirs, shift=0.0):
    """Welch's t and its degrees of freedom, written out."""
    a, b = ours.sd**2 / ours.n, theirs.sd**2 / theirs.n
    t = (ours.mean + shift - theirs.mean) / math.sqrt(a + b)
    return t, (a + b) ** 2 / (a**2 / (ours.n - 1) + b**2 / (theirs.n - 1))


def test_welch_is_the_formula_and_scipys_test_on_samples_of_that_spread():
    test, (t, df) = welch(Moments.of(OURS), PRINTED), by_hand(Moments.of(OURS), PRINTED)
    assert test(0.0, "less") == pytest.approx(stats.t.cdf(t, df))
    assert test(0.0, "greater") == pytest.approx(stats.t.sf(t, df))
    assert test(0.0, "two-sided") == pytest.approx(2 * stats.t.cdf(t, df))
    assert test(0.0, "two-sided") == pytest.approx(0.0121, abs=1e-4)
    others = [86.0, 95.0, 89.0, 91.5, 93.7]
    expected = stats.ttest_ind(OURS, others, equal_var=False).pvalue
    assert welch(Moments.of(OURS), Moments.of(others))(0.0, "two-sided") == pytest.approx(expected, rel=1e-12)


def test_against_an_exact_value_it_is_the_test_of_one_sample():
    """chien_imdb: plstm, three runs, 88.1 printed without a spread."""
    ours = [85.0, 84.14, 84.8]
    expected = stats.ttest_1samp(ours, 88.1)
    found = welch(Moments.of(ours), Moments.exact(88.1))(0.0, "two-sided")
    assert found == pytest.approx(expected.pvalue, rel=1e-12)
    assert found == pytest.approx(0.00561, abs=1e-5)


def test_one_run_is_one_more_draw_from_the_others():
    """x = 93 against mean 90, sd 2, n 5: t = 3 / (2 sqrt(1 + 1/5)) with 4 degrees of freedom."""
    t = 3 / (2 * math.sqrt(1.2))
    assert welch(Moments.of([93.0]), Moments(90.0, 2.0, 5))(0.0, "greater") == pytest.approx(stats.t.sf(t, 4))
    assert welch(Moments(90.0, 2.0, 5), Moments.of([93.0]))(0.0, "less") == pytest.approx(stats.t.sf(t, 4))


def test_where_nothing_says_how_far_apart_two_draws_are_there_is_no_test():
    nothing = [(Moments.of([1.0]), Moments.of([2.0])), (Moments.of([1.0]), Moments(2.0, 0.0, 3))]
    for first, second in [*nothing, (Moments.of([1.0]), Moments.exact(2.0))]:
        assert welch(first, second)(0.0, "two-sided") is None
        assert two_one_sided(welch(first, second), 5.0) is None
    same = welch(Moments(1.0, 0.0, 3), Moments(2.0, 0.0, 3))
    assert [same(0.0, way) for way in ("two-sided", "less", "greater")] == [0.0, 0.0, 1.0]
    assert [two_one_sided(same, margin) for margin in (0.5, 1.5)] == [1.0, 0.0]


def test_equivalence_is_two_one_sided_tests():
    """The larger p of (m1 - m2 + margin) / se > 0 and (m1 - m2 - margin) / se < 0, at the same degrees of freedom."""
    ours = Moments.of(OURS)
    (above, df), (below, _) = by_hand(ours, PRINTED, 0.5), by_hand(ours, PRINTED, -0.5)
    expected = max(stats.t.sf(above, df), stats.t.cdf(below, df))
    assert two_one_sided(welch(ours, PRINTED), 0.5) == pytest.approx(expected)
    assert expected == pytest.approx(0.0703, abs=1e-4)
    one = [86.7, 86.9, 86.8]  # against 86.8 exactly: t = .4 / (.1 / sqrt 3) with 2 degrees of freedom
    p = two_one_sided(welch(Moments.of(one), Moments.exact(86.8)), 0.4)
    assert p == pytest.approx(stats.t.sf(0.4 / (statistics.stdev(one) / math.sqrt(3)), 2))


def test_two_samples_with_the_same_mean_do_not_agree_within_one_standard_deviation():
    """Even the paper's own numbers: se = sd sqrt(2/5), so t = sqrt(5/2) = 1.58 with 8 degrees of freedom."""
    printed = Moments(70.7, 17.9, 5)
    p = two_one_sided(welch(printed, printed), 17.9)
    assert p == pytest.approx(stats.t.sf(math.sqrt(2.5), 8))
    assert p == pytest.approx(0.0763, abs=1e-4)


@pytest.mark.parametrize(
    ("ps", "corrected"),
    [
        ([], []),
        ([0.04], [0.04]),
        ([0.02, 0.03, 0.2], [0.045, 0.045, 0.2]),  # .02 * 3/1 = .06, .03 * 3/2 = .045, .2 * 3/3
        ([0.2, 0.01, 0.02, 0.03], [0.2, 0.04, 0.04, 0.04]),  # .01 * 4/1, .02 * 4/2, .03 * 4/3
        ([0.02, 0.02], [0.02, 0.02]),
        ([0.9, 1.0], [1.0, 1.0]),
    ],
)
def test_false_discovery(ps, corrected):
    assert false_discovery(ps) == pytest.approx(corrected)


PAPER, LIKE = Moments(70.0, 2.0, 5), Moments(71.0, 2.0, 5)


def test_the_error_of_the_next_mean_is_by_the_papers_spread():
    """2 sqrt(1/5 + 1/5) = 1.265 with 4 degrees of freedom: 95 % within 2.776 times that, 3.51."""
    for sd in (0.1, 2.0, 50.0):  # of ours does not matter
        error = error_of_next(PAPER, LIKE._replace(sd=sd))
        assert error == pytest.approx((2 * math.sqrt(0.4), 4))
    assert half_width(error) == pytest.approx(3.512, abs=1e-3)
    assert p_of_difference(half_width(error), error) == pytest.approx(0.05)
    assert p_of_difference(-1.0, error) == pytest.approx(2 * stats.t.sf(1 / error.se, 4))
    median = error_of_next(PAPER, LIKE, of_median=True)
    assert median.se == pytest.approx(2 * math.sqrt(1 / 5 + math.pi / 10))
    single = error_of_next(PAPER, LIKE._replace(n=1), of_median=True)  # it is the mean
    assert single.se == pytest.approx(2 * math.sqrt(1.2))


def test_the_smallest_margin_of_equivalence_is_the_one_at_which_tost_has_p_of_5_percent():
    """1 + 1.860 sqrt(4/5 + 4/5), with 8 degrees of freedom."""
    within = equivalent_within(1.0, error_of_difference(LIKE, PAPER))
    assert within == pytest.approx(1 + 1.8595 * math.sqrt(1.6), abs=1e-3)
    for first, second in ((LIKE, PAPER), (Moments.of(OURS), PRINTED)):
        margin = equivalent_within(first.mean - second.mean, error_of_difference(first, second))
        assert two_one_sided(welch(first, second), margin) == pytest.approx(0.05)
    assert error_of_difference(Moments(1.0, 0.0, 1), PAPER) == pytest.approx((2 * math.sqrt(1.2), 4))
    assert error_of_difference(PAPER, Moments(1.0, 0.0, 1)) == pytest.approx((2 * math.sqrt(1.2), 4))
    assert equivalent_within(-0.5, error_of_difference(Moments(1, 0, 3), Moments(2, 0, 5))) == 0.5


def test_a_run_that_collapses_is_seen_in_the_spread():
    """chien_table3, LSTM with time: F = (16 / .8)^2 with 4 and 4 degrees of freedom."""
    assert p_of_larger_spread(Moments(61.3, 16.0, 5), Moments(82.7, 0.8, 5)) == pytest.approx(stats.f.sf(400, 4, 4))
    assert p_of_larger_spread(Moments(61.3, 0.8, 5), Moments(82.7, 0.8, 5)) == pytest.approx(0.5)
    assert p_of_larger_spread(Moments(61.3, 0.0, 1), Moments(82.7, 0.8, 5)) is None
    assert p_of_larger_spread(Moments(61.3, 1.0, 5), Moments(82.7, 0.0, 5)) is None  # rounded away


def test_what_a_study_can_see_once_in_three_times():
    """Simonsohn (2015) has d = .5 for 20 runs a sample."""
    assert detectable(20) == pytest.approx(0.5, abs=5e-3)
    assert detectable(5) == pytest.approx(1.097, abs=1e-3)
    drawn = np.random.default_rng(0).standard_normal((20_000, 2, 5))
    shown = stats.ttest_ind(drawn[:, 0] + detectable(5), drawn[:, 1], axis=1)
    assert np.mean((shown.pvalue < 0.05) & (shown.statistic > 0)) == pytest.approx(1 / 3, abs=0.01)
    assert detectable(1) is None
    assert detectable(5, samples=1) < detectable(5)  # differences of the same runs


def test_a_difference_smaller_than_that():
    """With a true effect of just that size p is uniform; with none, small."""
    drawn = np.random.default_rng(1).standard_normal((2000, 2, 20))

    def p(effect, first, second):
        first, second = Moments.of(first + effect), Moments.of(second)
        return p_of_smaller(first.mean - second.mean, error_of_difference(first, second), 0.1, detectable(5))

    assert np.mean([p(detectable(5), *pair) < 0.05 for pair in drawn]) == pytest.approx(0.05, abs=0.015)
    assert np.mean([p(0.0, *pair) < 0.05 for pair in drawn]) > 0.9
    assert p_of_smaller(0.0, error_of_difference(Moments(1, 0, 3), Moments(1, 0, 3)), 2 / 3, 1.0) == 0.0


def test_more_failures_by_fishers_test():
    """3 of 3 against 0 of 3: one of 20 ways. 5 of 6 against 1 of 6: (C(6,5) C(6,1) + 1) / C(12,6)."""
    assert p_of_more_failures((3, 3), (0, 3)) == pytest.approx(1 / 20)
    assert p_of_more_failures((5, 6), (1, 6)) == pytest.approx(37 / 924)
    assert p_of_more_failures((0, 6), (0, 6)) == pytest.approx(1.0)


def test_the_error_of_a_best_value():
    """The largest of three normal values has a standard deviation of .748; rates far below do not matter."""
    groups = [[1.0, 2.0, 3.0], [101.0, 102.0, 103.0]]
    found = error_of_best(groups, largest=True)
    assert found == pytest.approx((0.748, 4), abs=0.015)  # within groups the spread is 1
    turned = error_of_best([[-x for x in values] for values in groups], largest=False)
    assert turned == pytest.approx((0.748, 4), abs=0.015)
    assert error_of_best([[1.0], [2.0]], largest=True) is None


def times(*values):
    """Times of numbers; a text ">900" is censored."""
    return [Time(float(str(v).lstrip(">")), isinstance(v, str)) for v in values]


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        ((3, 1, 2), [2 - 0, -2, 0]),
        ((1, ">1", 2), [-2, 1, 1]),  # the first is the shortest; of ">1" and 2 nobody knows
        ((5, 5, ">4"), [0, 0, 0]),
        ((">4", ">900"), [0, 0]),
        ((90, ">900", ">900", 100), [-3, 2, 2, -1]),
    ],
)
def test_gehans_scores_count_the_pairs_whose_order_is_sure(values, scores):
    assert gehan(times(*values)) == scores


def enumerated(scores, size):
    """p of "the first `size` scores have the larger sum" over all choices of so many."""
    sums = [sum(chosen) for chosen in itertools.combinations(scores, size)]
    return sum(s >= sum(scores[:size]) for s in sums) / len(sums)


def test_the_rank_test_of_times_counts_all_ways_to_deal_them():
    first, second = times(100, 110, ">400", 130, 140), times(90, ">900", ">900", ">900", ">900")
    scores = gehan([*first, *second])
    assert ranks_of_times(first, second)(0.0, "greater") == pytest.approx(enumerated(scores, 5))
    assert ranks_of_times(first, second)(0.0, "less") == pytest.approx(enumerated([-s for s in scores], 5))
    a, b = (1, 5, 3, 2, 8), (4, 6, 7, 9, 10)
    expected = stats.mannwhitneyu(a, b, alternative="less", method="exact").pvalue
    assert ranks_of_times(times(*a), times(*b))(0.0, "less") == pytest.approx(expected)
    none = ranks_of_times(times(">9", ">9"), times(">9", ">9"))
    assert none(0.0, "less") == none(0.0, "greater") == 1.0


def test_the_smallest_p_of_a_rank_test():
    """2 and 2 runs: 1 of 6 ways; 3 and 3: 1 of 20; 5 and 5: 1 of 252. Four of each are needed for p below .05."""
    for n, ways in ((2, 6), (3, 20), (4, 70), (5, 252)):
        first, second = times(*range(n)), times(*[">100"] * n)
        assert ranks_of_times(first, second)(0.0, "less") == pytest.approx(1 / ways)


def test_times_are_equivalent_if_shifting_them_by_the_margin_turns_their_order():
    first, second = times(100, 110, 120, 130, 140), times(102, 111, 119, 131, 142)
    test = ranks_of_times(first, second)
    assert two_one_sided(test, 100.0) == pytest.approx(1 / 252)
    assert two_one_sided(test, 10.0) > 0.05
    late = times(*[">900"] * 5)
    assert two_one_sided(ranks_of_times(first, late), 100.0) == 1.0


def test_the_test_of_best_values_counts_all_exchanges_of_pairs():
    first, second = np.array([9.0, 8.0, 7.5, 9.5, 8.0, 5.0]), np.array([7.0, 7.2, 8.2, 6.0, 5.0, 5.5])
    observed, larger = first.max() - second.max(), 0
    for swap in itertools.product([False, True], repeat=6):
        a, b = np.where(swap, second, first), np.where(swap, first, second)
        larger += a.max() - b.max() >= observed
    assert paired_best(first, second, largest=True)(0.0, "greater") == pytest.approx(larger / 64)
    assert paired_best(-first, -second, largest=False)(0.0, "less") == pytest.approx(larger / 64)
    better = paired_best([9.0] * 5, [1.0] * 5, largest=True)
    assert (better(0.0, "greater"), better(0.0, "less")) == (1 / 32, 1.0)
    assert paired_best([9.0] * (MIN_PAIRS - 1), [1.0] * (MIN_PAIRS - 1), largest=True)(0.0, "greater") is None


def test_a_difference_beyond_a_margin():
    test = welch(Moments(1.0, 0.2, 5), Moments(0.0, 0.2, 5))
    assert beyond(test, 0.0) == pytest.approx(test(0.0, "two-sided"))
    assert beyond(test, 0.5) == pytest.approx(2 * test(-0.5, "greater"))
    assert beyond(test, 1.5) == 1.0


def test_a_single_time_is_one_of_all():
    """Against three others it is the shortest of four by chance once in four; both sides give the same p."""
    one, three = [Time(5.0, False)], [Time(10.0, False), Time(20.0, False), Time(30.0, True)]
    assert ranks_of_times(one, three)(0.0, "less") == 0.25
    assert ranks_of_times(one, three)(0.0, "greater") == 1.0
    assert ranks_of_times(three, one)(0.0, "greater") == 0.25
    assert ranks_of_times(three, one)(0.0, "less") == 1.0
