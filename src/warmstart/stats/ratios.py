"""A ratio of two sums over clusters, such as a mean over the tokens of N passages: its standard error, interval and test.

Tokens of one passage depend on each other, passages are assumed independent. So uncertainty is that of the passages that contain
anything to count, however many tokens they have.

Letters: N clusters, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warmstart.stats.intervals import percentiles
from warmstart.stats.resampling import resample_counts

FEW_CLUSTERS = 10
"""clusters below which the bootstrap's percentiles are too narrow, and Student's t is used"""
EQUAL = 1e-6
"""ratios smaller than this are rounding errors"""


def ratio(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Element by element, one over the other; nan if there is nothing to count."""
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def resampled_ratios(sums: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(R, ...) the ratio in each resample; nan if a resample has nothing to count.

    ``sums`` (N, ...) and ``counts`` (N, ...) broadcast to each other; ``weights`` (R, N) come from ``resample_counts``.
    """
    over, under = ((weights @ part.reshape(len(part), -1)).reshape(-1, *part.shape[1:]) for part in (sums, counts))
    return np.divide(over, under, out=np.full(over.shape, np.nan), where=under > 0)


@dataclass(frozen=True)
class ClusteredRatio:
    """A ratio of sums over N clusters, element by element."""

    value: np.ndarray
    """(...) the sum of ``sums`` over that of ``counts``; nan where nothing is counted"""
    sums: np.ndarray
    """(N, ...) of each cluster"""
    counts: np.ndarray
    """(N, ...) of each cluster; broadcasts to ``sums``"""

    @cached_property
    def clusters(self) -> np.ndarray:
        """(...) clusters with something to count."""
        return np.asarray((self.counts > 0).sum(axis=0))

    @cached_property
    def standard_error(self) -> np.ndarray:
        """(...) by linearisation (Cochran 1977, section 6.3); nan for fewer than two clusters."""
        residuals = self.sums - np.nan_to_num(self.value) * self.counts
        spread = np.sqrt((residuals**2).sum(axis=0) * self.clusters / np.maximum(self.clusters - 1, 1))
        return np.where(self.clusters < 2, np.nan, ratio(spread, self.counts.sum(axis=0)))

    def interval(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(...) both ends of the 95% interval; nan for fewer than two clusters.

        Percentiles of the bootstrap over clusters (a resample that lacks what is rare counts as the ratio itself), and Student's t
        for fewer than ``FEW_CLUSTERS`` clusters.
        """
        from scipy import stats

        drawn = resampled_ratios(self.sums, self.counts, resample_counts(len(self.sums), generator))
        low, high = percentiles(np.where(np.isnan(drawn), self.value, drawn))
        half = stats.t.ppf(0.975, np.maximum(self.clusters - 1, 1)) * self.standard_error
        few = np.broadcast_to(self.clusters < FEW_CLUSTERS, half.shape)
        return np.where(few, self.value - half, low), np.where(few, self.value + half, high)

    def p_values(self) -> np.ndarray:
        """(...) two-sided p-values of a ratio of 0 (t-test over clusters); nan for fewer than two clusters."""
        from scipy import stats

        size = np.abs(self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(self.standard_error > 0, size / self.standard_error, np.inf)
            p = 2 * stats.t.sf(t, np.maximum(self.clusters - 1, 1))
        return np.where(np.isnan(self.standard_error), np.nan, np.where(size < EQUAL, 1.0, p))
