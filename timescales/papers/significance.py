"""The statistical tests behind the verdicts: pure functions of numbers. SciPy does the arithmetic.

Each test of two samples comes as a function `test(shift, alternative)`: the p value of "the first sample, plus `shift`,
is greater (or less) than the second". `two_one_sided` turns any of them into a test of equivalence. None means that
the numbers allow no test.
"""

from __future__ import annotations

import functools
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


def exactly(difference: float, *numbers: float) -> float:
    """A difference that was computed with these numbers; 0 if it may be one of rounding."""
    return 0.0 if abs(difference) <= rounding(*numbers) else difference


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


def false_discovery(ps: Sequence[float]) -> list[float]:
    """The p values of one family, corrected by Benjamini and Hochberg (1995), in the order given.

    The k-th smallest of m is multiplied by m / k; a corrected p is never above that of a larger one. Of the tests with
    a corrected p below .05, at most 5 % are expected to be false.
    """
    corrected, smallest = [0.0] * len(ps), 1.0
    order = sorted(range(len(ps)), key=ps.__getitem__)
    for k in range(len(ps), 0, -1):
        i = order[k - 1]
        smallest = min(smallest, ps[i] * len(ps) / k)
        corrected[i] = smallest
    return corrected


class Error(NamedTuple):
    """The standard error of a difference of two means, and its degrees of freedom."""

    se: float
    df: float


def error_of_next(printed: Moments, ours: Moments, of_median: bool = False) -> Error:
    """How far our mean may be from a printed one if its runs are like the paper's (Patil et al. 2016).

    s sqrt(1/n0 + 1/n) with the printed spread s of n0 runs, and n of ours. Of a median 1/n is pi/2 times as large.
    """
    share = (math.pi / 2 if of_median and ours.n > 2 else 1.0) / ours.n
    return Error(printed.sd * math.sqrt(1 / printed.n + share), printed.n - 1)


def error_of_difference(first: Moments, second: Moments) -> Error:
    """Welch's: each sample with its own spread; of a single value it is taken to be the other sample's."""
    if first.n == 1:
        return Error(second.sd * math.sqrt(1 / second.n + 1), second.n - 1)
    if second.n == 1:
        return error_of_difference(second, first)
    a, b = first.sd**2 / first.n, second.sd**2 / second.n
    if a + b == 0.0:
        return Error(0.0, 1.0)
    return Error(math.sqrt(a + b), (a + b) ** 2 / (a**2 / (first.n - 1) + b**2 / (second.n - 1)))


def p_of_difference(difference: float, error: Error) -> float:
    """p of a difference from zero, by t on both sides."""
    from scipy import stats

    if error.se == 0.0:
        return 0.0 if difference else 1.0
    return float(2 * stats.t.sf(abs(difference) / error.se, error.df))


def half_width(error: Error) -> float:
    """Half of a 95 % interval."""
    from scipy import stats

    return float(stats.t.ppf(0.975, error.df) * error.se)


def equivalent_within(difference: float, error: Error) -> float:
    """The smallest margin at which two one-sided tests (TOST; Schuirmann 1987) show equivalence.

    |difference| + t se, with the 95 % point of t: each of the tests then has p = .05.
    """
    from scipy import stats

    return abs(difference) + float(stats.t.ppf(0.95, error.df) * error.se)


def p_of_larger_spread(ours: Moments, printed: Moments) -> float | None:
    """F test that our runs spread more than the paper's; None without two runs of ours or a printed spread above 0."""
    from scipy import stats

    if ours.n < 2 or not printed.sd:
        return None
    return float(stats.f.sf((ours.sd / printed.sd) ** 2, ours.n - 1, printed.n - 1))


@functools.lru_cache
def detectable(n: int, samples: int = 2) -> float | None:
    """The difference, in standard deviations, that n runs a sample show with probability 1/3 (Simonsohn 2015).

    By a t-test at 5 % on both sides; samples: two, or one of differences. None for a single run.
    """
    from scipy import optimize, stats

    if n < 2:
        return None
    df, scale = samples * (n - 1), math.sqrt(n / samples)
    beyond_it = stats.t.ppf(0.975, df)
    return float(optimize.brentq(lambda d: stats.nct.sf(beyond_it, df, d * scale) - 1 / 3, 1e-6, 50.0))


def p_of_smaller(difference: float, error: Error, shares: float, effect: float) -> float:
    """p that a true difference is smaller than `effect` standard deviations, from the one found (Simonsohn 2015).

    Args:
        difference: in the direction that was claimed.
        shares: 1/n1 + 1/n2 of the two samples, or 1/n of differences.
    """
    from scipy import stats

    if error.se == 0.0:
        return 1.0 if difference > 0 else 0.0
    return float(stats.nct.cdf(difference / error.se, error.df, effect / math.sqrt(shares)))


def p_of_more_failures(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Fisher's exact test that more of the first runs fail; each: how many of them failed, and of how many."""
    from scipy import stats

    table = [[failed, runs - failed] for failed, runs in (first, second)]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def error_of_best(groups: Sequence[Sequence[float]], largest: bool) -> Error | None:
    """The standard error of the best of all values, which lie in groups with a mean of their own (learning rates).

    Values are drawn again RESAMPLES times, normal with each group's mean and the spread within groups. None where no
    group has two values.
    """
    import numpy as np

    several = [values for values in groups if len(values) > 1]
    df = sum(len(values) - 1 for values in several)
    if not df:
        return None
    within = math.sqrt(sum(statistics.variance(values) * (len(values) - 1) for values in several) / df)
    means = np.concatenate([np.full(len(values), statistics.fmean(values)) for values in groups])
    drawn = means + within * np.random.default_rng(0).standard_normal((RESAMPLES, len(means)))
    return Error(float((drawn.max(1) if largest else drawn.min(1)).std(ddof=1)), df)


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
