"""How well numbers follow a distribution."""

from __future__ import annotations

import numpy as np


def distance_from_normal(values: np.ndarray) -> float:
    """The largest difference between the distribution of values (N,) and the standard normal one (Kolmogorov-Smirnov), 0 to 1."""
    from scipy import stats

    return float(stats.kstest(values, "norm").statistic)
