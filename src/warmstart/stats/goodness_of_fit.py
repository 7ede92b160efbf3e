"""Goodness of fit of numbers to a distribution."""

from __future__ import annotations

import numpy as np


def distance_from_normal(values: np.ndarray) -> float:
    """The largest difference between the distribution of values (N,) and the standard normal one (Kolmogorov 1933), 0 to 1.

    max_x |#{values <= x} / N - Phi(x)|. Of normal values it exceeds 1.358 / sqrt(N) in 5% of large samples. By definition:
    tests/test_stats_references.py: ``test_the_distance_from_normal_is_the_largest_gap``.

    >>> distance_from_normal(np.zeros(3))
    0.5
    """
    from scipy import stats

    return float(stats.kstest(values, "norm").statistic)
