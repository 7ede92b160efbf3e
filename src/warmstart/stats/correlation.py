"""Correlations: Pearson's and Spearman's, over data too large for memory, with intervals and tests.

Letters: n rows (tokens), F and P columns of the two sides, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warmstart.stats.intervals import percentiles
from warmstart.stats.multiple_testing import benjamini_hochberg
from warmstart.stats.resampling import resample_counts


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation of two columns (n,)."""
    from scipy import stats

    return float(stats.pearsonr(one, other)[0])


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation of two columns (n,)."""
    from scipy import stats

    return float(stats.spearmanr(one, other)[0])


class PearsonSums:
    """Pearson's correlations of all F x P pairs of columns, from rows that come in batches; only sums are kept.

    Both sides are counted from the means of the first batch, so that no digits are lost.
    """

    def __init__(self) -> None:
        self.n = 0
        """rows so far"""
        self._at: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, one: np.ndarray, other: np.ndarray) -> None:
        """Take in rows: (n, F) and (n, P)."""
        if self._at is None:
            self._at = one.mean(axis=0), other.mean(axis=0)
            widths = (one.shape[1], other.shape[1])
            self._sums, self._squares = ([np.zeros(width) for width in widths] for _ in range(2))
            self._products = np.zeros(widths)
        moved = [side - at for side, at in zip((one, other), self._at, strict=True)]
        for number, side in enumerate(moved):
            self._sums[number] += side.sum(axis=0, dtype=np.float64)
            self._squares[number] += (side * side).sum(axis=0, dtype=np.float64)
        self._products += moved[0].T @ moved[1]
        self.n += len(one)

    def correlations(self) -> np.ndarray:
        """(F, P) Pearson's r; 0 if one of the two columns is constant."""
        spread = [
            np.sqrt(np.maximum(squares - sums**2 / self.n, 0)) for sums, squares in zip(self._sums, self._squares, strict=True)
        ]
        over = self._products - np.outer(*self._sums) / self.n
        constant = [side <= 1e-6 * np.sqrt(squares + 1e-30) for side, squares in zip(spread, self._squares, strict=True)]
        under = np.outer(*spread)
        r = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
        r[constant[0]], r[:, constant[1]] = 0, 0
        return np.clip(r, -1, 1)


def correlation_q_values(correlations: np.ndarray, n: int) -> np.ndarray:
    """The q-value of each of many ``correlations`` (any shape) over the same ``n`` rows, by two-sided t-tests.

    t = r sqrt((n - 2) / (1 - r^2)) (Fisher 1915), then Benjamini and Hochberg (1995). Rows are assumed independent, which tokens of
    one passage are not. Parity: tests/test_stats_references.py: ``test_q_values_are_those_of_scipy``.

    >>> correlation_q_values(np.array([0.8, 0.1]), 20).round(3).tolist()
    [0.0, 0.675]
    """
    from scipy import stats

    with np.errstate(divide="ignore"):
        t = np.abs(correlations) * np.sqrt(max(n - 2, 1) / np.maximum(1 - correlations**2, 0))
    return benjamini_hochberg(2 * stats.t.sf(t, max(n - 2, 1)))


def bootstrap_correlation(pairs: Sequence[tuple[np.ndarray, np.ndarray]], generator: np.random.Generator) -> tuple[float, float]:
    """Both ends of the 95% interval of Pearson's r, by resampling clusters (passages); each is given as its two columns (n,).

    Percentiles of the bootstrap over clusters (Cameron et al. 2008). Simulation: tests/test_stats_references.py:
    ``test_the_bootstrap_interval_holds_the_truth``.

    >>> passages = [(np.array([1.0, 2.0, 3.0]) + k, np.array([1.0, 2.0, 4.0]) + k) for k in range(12)]
    >>> low, high = bootstrap_correlation(passages, np.random.default_rng(0))
    >>> 0.9 < low < high < 1
    True
    """
    sums = np.array([[len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y] for x, y in pairs], dtype=np.float64)  # (N, 6)
    n, x, y, xx, yy, xy = (resample_counts(len(sums), generator) @ sums).T  # (R,) each
    spread = np.sqrt(np.maximum(n * xx - x**2, 0) * np.maximum(n * yy - y**2, 0))
    low, high = percentiles(np.divide(n * xy - x * y, spread, out=np.zeros_like(spread), where=spread > 0))
    return float(low), float(high)
