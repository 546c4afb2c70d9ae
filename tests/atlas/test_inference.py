"""Intervals and ranks: the bootstrap beside a literal loop, ranks beside worked examples."""

import numpy as np
import pytest

from timescales.atlas.inference import Bootstrap, Interval, ranks, spread

SCORES = {"a": np.array([[0.2, 0.3, 0.4], [0.7, 0.8, 0.9]]), "b": np.array([[0.5, 0.5, 0.8]])}


def test_the_bootstrap_draws_rungs_and_then_seeds():
    """The same mean and spread as a loop that draws one rung and one seed after another."""
    drawn = Bootstrap(20_000).means(SCORES, "a", 0)
    rng, looped = np.random.default_rng(1), []
    for _ in range(4000):
        values = [SCORES["a"][rng.integers(2)][rng.integers(3, size=3)].mean() for _ in range(2)]
        looped.append(np.mean(values))
    assert drawn.mean() == pytest.approx(0.55, abs=0.01)
    assert drawn.std() == pytest.approx(np.std(looped), rel=0.05)
    assert np.quantile(drawn, [0.1, 0.9]) == pytest.approx(np.quantile(looped, [0.1, 0.9]), abs=0.03)
    # a single rung stays: its spread is that of three seeds
    alone = Bootstrap(20_000).means(SCORES, "b", 0)
    assert alone.std() == pytest.approx(SCORES["b"].std() / np.sqrt(3), rel=0.05)


def test_an_interval_is_of_the_mean_over_abilities():
    found = Bootstrap().of(SCORES, ["a", "b"])
    assert found.value == pytest.approx((0.55 + 0.6) / 2)
    assert found.low < found.value < found.high
    assert not Interval(0.1, -0.1, 0.3).apart_from_0
    assert Interval(0.1, 0.05, 0.3).apart_from_0


def test_a_difference_is_of_the_same_rungs():
    """A cell that is .1 better on every rung and seed: the rungs differ by .5, and yet the interval is narrow."""
    flat = {"a": np.repeat([[0.2], [0.7]], 3, 1)}
    better = {"a": flat["a"] + 0.1}
    found = Bootstrap().of(better, ["a"], flat)
    assert found == pytest.approx((0.1, 0.1, 0.1))
    assert found.apart_from_0
    same = Bootstrap().of(SCORES, ["a"], SCORES)
    assert same.value == 0.0
    assert not same.apart_from_0


def test_one_seed_has_no_interval():
    one = {"a": np.array([[0.2], [0.7]])}
    assert Bootstrap().of(one, ["a"]) == (pytest.approx(0.45), None, None)
    assert not Bootstrap().of(one, ["a"], SCORES).apart_from_0


def test_nemenyi_has_the_critical_difference_of_demsar():
    """Demsar 2006, section 3.2.2: four classifiers on 14 data sets, q = 2.569, CD = 1.25."""
    from scipy import stats  # here: each worker that collects tests would take a second to import it

    rng = np.random.default_rng(0)
    means = {name: rng.random(14) + k for k, name in enumerate("abcd")}
    found = ranks(means)
    assert found.difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=0.002)
    assert found.mean == {"d": 1.0, "c": 2.0, "b": 3.0, "a": 4.0}
    assert found.p == pytest.approx(stats.friedmanchisquare(*means.values()).pvalue)
    assert found.shown_to_differ("d", "b")
    assert not found.shown_to_differ("d", "c")
    assert found.alike() == [["d", "c"], ["c", "b"], ["b", "a"]]


def test_ranks_share_ties_and_say_nothing_where_friedman_does_not():
    found = ranks({"a": [0.5, 0.5], "b": [0.5, 0.5], "c": [0.5, 0.5]})
    assert found.mean == {"a": 2.0, "b": 2.0, "c": 2.0}
    assert not found.differ
    assert found.alike() == [["a", "b", "c"]]
    noise = ranks({name: np.random.default_rng(k).random(5) for k, name in enumerate("abcd")})
    assert noise.p > 0.05
    assert not any(noise.shown_to_differ(a, b) for a in "abcd" for b in "abcd")
    assert ranks({"a": [1.0, 2.0], "b": [1.0, 2.0]}) is None
    assert ranks({}) is None


def test_the_spread_compares_cells_with_seeds():
    """Means 1, 5 and 9 have the standard deviation 4; the seeds of each cell have sqrt(2), in the mean of variances."""
    assert spread([[0, 2], [4, 6], [8, 10]]) == pytest.approx(4 / np.sqrt(2))
    assert spread([[0, 0], [1, 1]]) == np.inf
    different_numbers_of_seeds = [[0, 2], [4, 6], [7, 8, 9, 10, 11]]
    assert spread(different_numbers_of_seeds) == pytest.approx(4 / np.sqrt((2 + 2 + 2.5) / 3))
