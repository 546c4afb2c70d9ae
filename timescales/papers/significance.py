"""The statistical tests behind the verdicts: pure functions of numbers. SciPy does the arithmetic.

Each test of two samples comes as a function `test(shift, alternative)`: the p value of "the first sample, plus `shift`,
is greater (or less) than the second". `two_one_sided` turns any of them into a test of equivalence. None means that
the numbers allow no test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

Alternative = Literal["greater", "less", "two-sided"]
Test = Callable[[float, Alternative], float | None]
RESAMPLES = 9999  # of a permutation test; it is exact where there are no more permutations than these
MIN_PAIRS = 5  # of a test of the best values: with fewer its p cannot be below .05
ROUNDING = 1e-9  # of the largest number of a comparison; float64 rounds to 1e-16, sums of thousands to 1e-13


def rounding(*numbers: float) -> float:
    """How far apart two results of computing with these numbers may be and still be equal.

    Means of the same values differ in the last bit, by the number of values. So no comparison here is exact.
    """
    return ROUNDING * max(map(abs, numbers), default=0.0)


class Moments(NamedTuple):
    """Mean, standard deviation and size of a sample."""

    mean: float
    sd: float
    n: float

    @staticmethod
    def of(values: Sequence[float]) -> Moments:
        """Those of these values; the standard deviation of a single one is 0 here."""
        return Moments(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))

    @staticmethod
    def exact(value: float) -> Moments:
        """A value without error: the mean of infinitely many that are all the same."""
        return Moments(value, 0.0, math.inf)


def welch(first: Moments, second: Moments) -> Test:
    """Welch's t-test: t = (m1 - m2) / sqrt(s1^2/n1 + s2^2/n2), with the degrees of freedom of Welch and Satterthwaite.

    - Against an exact value it is the one-sample t-test with n1 - 1 degrees of freedom.
    - A single value on one side is one more draw from the other side's distribution:
      t = (x - m) / (s sqrt(1 + 1/n)) with n - 1 degrees of freedom.
    - Two single values, or one and an exact value, allow no test; nor does one beside values without any spread.
    - Where both sides have no spread, different means are different with p = 0, equal ones with p = 1.
    """

    def test(shift: float, alternative: Alternative) -> float | None:
        from scipy import stats

        moved = first._replace(mean=first.mean + shift)
        single = 1 in (first.n, second.n)
        error = rounding(first.mean, shift, second.mean)
        if max(first.sd, second.sd) <= error:
            return None if single else _without_spread(moved.mean - second.mean, error, alternative)
        result = stats.ttest_ind_from_stats(*moved, *second, equal_var=single, alternative=alternative)
        return float(result.pvalue)

    return test


def _without_spread(difference: float, error: float, alternative: Alternative) -> float:
    as_said = {"two-sided": abs(difference) > error, "greater": difference > error, "less": difference < -error}
    return 0.0 if as_said[alternative] else 1.0


def paired_t(first: Sequence[float], second: Sequence[float]) -> Test:
    """The t-test of the differences first[k] - second[k]."""
    error = rounding(*first, *second)
    differences = [x - y for x, y in zip(first, second, strict=True)]
    return welch(Moments.of([0.0 if abs(d) <= error else d for d in differences]), Moments.exact(0.0))


def two_one_sided(test: Test, margin: float) -> float | None:
    """p of equivalence by two one-sided tests (TOST; Schuirmann 1987): the difference is within +- margin.

    The larger p of "first + margin > second" and "first - margin < second".
    """
    above, below = test(margin, "greater"), test(-margin, "less")
    return None if above is None or below is None else max(above, below)


def beyond(test: Test, margin: float) -> float | None:
    """p of a difference that is larger than +- margin: twice the smaller p of the two one-sided tests of that.

    "first - margin > second" and "first + margin < second". With margin 0 it is the usual two-sided test.
    """
    above, below = test(-margin, "greater"), test(margin, "less")
    return None if above is None or below is None else min(1.0, 2.0 * min(above, below))


def holm(ps: Sequence[float]) -> list[float]:
    """The p values of one family, corrected by Holm (1979), in the order given.

    The k-th smallest of m is multiplied by m - k + 1; a corrected p is never below that of a smaller one, nor above 1.
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for k, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - k) * ps[i]))
        corrected[i] = largest
    return corrected


class Time(NamedTuple):
    """A time, or if it is censored the time up to which an event had not come."""

    value: float
    censored: bool


def gehan(times: Sequence[Time]) -> list[int]:
    """Gehan's (1965) score of each time: how many of the others are surely shorter, minus how many surely longer.

    Of a pair the order is sure unless the smaller value, or one of two equal ones, is censored; an event comes before
    a censored time of the same value. Without censored times a score is a rank but for a constant.
    """
    error = rounding(*(time.value for time in times))

    def shorter(a: Time, b: Time) -> bool:
        return not a.censored and a.value < b.value + (error if b.censored else -error)

    return [sum(shorter(b, a) - shorter(a, b) for b in times) for a in times]


def ranks_of_times(first: Sequence[Time], second: Sequence[Time]) -> Test:
    """Permutation test of Gehan's scores: is the sum of the first sample's scores larger (its times longer)?

    All ways to deal the scores to the two samples are counted, or RESAMPLES random ones where there are more. Without
    censored times this is the exact test of Mann and Whitney. Each sample has at least one time.
    """

    def test(shift: float, alternative: Alternative) -> float:
        moved = [time._replace(value=time.value + shift) for time in first]
        scores = gehan([*moved, *second])
        mine, others = scores[: len(moved)], scores[len(moved) :]
        if len(mine) == 1 or len(others) == 1:  # which SciPy does not take: any of all scores may be the single one
            sign = 1 if len(mine) == 1 else -1  # the larger the single score of the second, the smaller the first's sum
            single = sign * (mine if len(mine) == 1 else others)[0]
            beyond_it = [sign * s >= single if alternative == "greater" else sign * s <= single for s in scores]
            return sum(beyond_it) / len(scores)
        return _permuted(mine, others, lambda a, _, axis: a.sum(axis), "independent", alternative)

    return test


def paired_best(first: Sequence[float], second: Sequence[float], largest: bool) -> Test:
    """Paired permutation test of the difference of two best values: each pair may be the other way round.

    All 2^n exchanges are counted, or RESAMPLES random ones where there are more. None for fewer than MIN_PAIRS pairs.

    Args:
        first, second: first[k] and second[k] are a pair.
        largest: whether the best value is the largest one, otherwise the smallest.
    """

    def statistic(a: Any, b: Any, axis: int) -> Any:
        return a.max(axis) - b.max(axis) if largest else a.min(axis) - b.min(axis)

    def test(shift: float, alternative: Alternative) -> float | None:
        if len(first) < MIN_PAIRS:
            return None
        return _permuted([value + shift for value in first], second, statistic, "samples", alternative)

    return test


def _permuted(
    first: Sequence[float],
    second: Sequence[float],
    statistic: Callable[..., Any],
    kind: Literal["independent", "samples"],
    alternative: Alternative,
) -> float:
    import numpy as np
    from scipy import stats

    samples = np.asarray(first, float), np.asarray(second, float)
    observed, error = statistic(*samples, 0), rounding(*first, *second)

    def with_ties(a: Any, b: Any, axis: int) -> Any:
        permuted = statistic(a, b, axis)
        return np.where(abs(permuted - observed) <= error, observed, permuted)

    found = stats.permutation_test(
        samples,
        with_ties,
        permutation_type=kind,
        vectorized=True,
        n_resamples=RESAMPLES,
        alternative=alternative,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)
