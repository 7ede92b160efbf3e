"""Figures of each attention head over a corpus, compared with uniform attention; needs no model.

A weight says little by itself: over four visible tokens, a head that has learned nothing puts a quarter on each. So every figure
is compared with uniform attention over the same visible tokens. Uncertainty is that of the passages that have such tokens, however
many more were read.

Letters: N passages, L layers, H heads, M measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.multiple_testing import holm
from warmstart.stats.ratios import ClusteredRatio, ratio

RELATIONS = ("itself", "previous", "next", "first", "last", "same", "punctuation")
"""relations of the attended token to the attending one: the token itself, or the one before it, the one after it, the first
or the last of the row (these frame the text), one with the same id that is no special token, punctuation"""
MEASURES = ("entropy", "normalized entropy", "distance", *RELATIONS)
"""entropy in bits; entropy over that of uniform attention, 0 to 1; mean distance in tokens; the weight on each relation"""
THRESHOLD = 0.2
"""a head attends to a relation if it puts at least this much more weight there than uniform attention"""


@dataclass(frozen=True)
class HeadAttention:
    """The figures of L x H heads over N passages: sums over the attending tokens that count.

    A token counts if it can attend to at least two tokens, of which one (for a relation) has that relation to it.
    """

    sums: np.ndarray
    """(N, L, H, M) of each measure"""
    uniform_sums: np.ndarray
    """(N, L, M) the same for uniform attention"""
    counts: np.ndarray
    """(N, L, M) attending tokens that count"""

    @cached_property
    def means(self) -> np.ndarray:
        """(L, H, M) over all tokens that count; nan if there are none."""
        return ratio(self.sums.sum(axis=0), self.counts.sum(axis=0)[:, None])

    @cached_property
    def uniform(self) -> np.ndarray:
        """(L, M) the same for uniform attention."""
        return ratio(self.uniform_sums.sum(axis=0), self.counts.sum(axis=0))

    @property
    def difference(self) -> np.ndarray:
        """(L, H, M) means less those of uniform attention."""
        return self.means - self.uniform[:, None]

    @cached_property
    def _ratio(self) -> ClusteredRatio:
        """The difference as a ratio of sums over passages: (L, H, M)."""
        return ClusteredRatio(self.difference, self.sums - self.uniform_sums[:, :, None], self.counts[:, :, None])

    @property
    def passages(self) -> np.ndarray:
        """(L, M) passages with a token that counts."""
        return self._ratio.clusters[:, 0]

    def interval(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Both ends (L, H, M) of the difference's 95% interval over passages; nan if fewer than two have a token that counts."""
        return self._ratio.interval(rng(seed, "bootstrap"))

    def p_values(self) -> np.ndarray:
        """(L, H, M) two-sided p-values of no difference; nan as in ``interval``."""
        return self._ratio.p_values()


@dataclass(frozen=True)
class HeadTests:
    """Differences of every head from uniform attention, with intervals and p-values over passages."""

    attention: HeadAttention
    low: np.ndarray
    """(L, H, M) lower ends of the differences' 95% intervals; nan if fewer than two passages have a token that counts"""
    high: np.ndarray
    """(L, H, M) upper ends"""
    p: np.ndarray
    """(L, H, M) Holm's correction over all heads and relations; nan for other measures, and where the interval is"""

    @property
    def is_corpus(self) -> bool:
        """There are passages enough for intervals."""
        return len(self.attention.sums) > 1

    @property
    def count(self) -> int:
        """L x H."""
        return int(np.prod(self.p.shape[:2]))

    def is_tested(self, relation: str) -> bool:
        """True if at least two passages have a token with this relation to another."""
        return bool((self.attention.passages[:, MEASURES.index(relation)] > 1).any())

    def above_threshold(self, relation: str) -> list[tuple[int, int]]:
        """Heads (layer, head; from 0) whose interval, or in a single text difference, is above the threshold; highest first."""
        m = MEASURES.index(relation)
        values = self.low[:, :, m] if self.is_corpus else self.attention.difference[:, :, m]
        heads = np.argwhere(np.nan_to_num(values) >= THRESHOLD)
        return [(int(i), int(j)) for i, j in sorted(heads, key=lambda head: -values[head[0], head[1]])]

    def strongest(self, relation: str) -> tuple[int, int] | None:
        """The head with the largest difference; None if no token counts."""
        difference = self.attention.difference[:, :, MEASURES.index(relation)]
        if np.isnan(difference).all():
            return None
        layer, head = np.unravel_index(np.nanargmax(difference), difference.shape)
        return int(layer), int(head)

    def value(self, measure: str, layer: int, head: int) -> tuple[float, float]:
        """A head's figure, and that of uniform attention."""
        m = MEASURES.index(measure)
        return float(self.attention.means[layer, head, m]), float(self.attention.uniform[layer, m])


def check_heads(attention: HeadAttention, seed: int) -> HeadTests:
    """Intervals over passages, and p-values corrected for the number of heads and relations."""
    low, high = attention.interval(seed)
    p, uncorrected = np.full_like(attention.means, np.nan), attention.p_values()
    tested = ~np.isnan(uncorrected) & np.isin(MEASURES, RELATIONS)
    p[tested] = holm(uncorrected[tested].tolist())
    return HeadTests(attention, low, high, p)
