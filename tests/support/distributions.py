"""Comparison of random draws with a distribution."""

import numpy as np
from scipy import stats


def same_distribution(sample, distribution):
    """Kolmogorov-Smirnov test. A correct sample fails for one seed in a thousand, and the seed is fixed.

    distribution: a distribution of scipy.stats, or a cumulative distribution function.
    """
    assert stats.kstest(np.asarray(sample), getattr(distribution, "cdf", distribution)).pvalue > 1e-3
