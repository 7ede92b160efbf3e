"""Attention over one text, and what every head does over a corpus, tested against uniform attention.

Letters: N passages, T tokens, L layers, H heads, M measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.inspection.attention import measure_attention, text_attention
from warmstart.inspection.head_attention import MEASURES, RELATIONS, HeadAttention
from warmstart.model.bundle import Bundle
from warmstart.stats.multiple_testing import holm


@dataclass(frozen=True)
class HeadTests:
    """What every head does more than uniform attention, with intervals and p-values over passages."""

    attention: HeadAttention
    low: np.ndarray
    """(L, H, M) lower ends of the differences' 95% intervals; nan if fewer than two passages have a token that counts"""
    high: np.ndarray
    """(L, H, M) upper ends"""
    p: np.ndarray
    """(L, H, M) Holm's correction over all heads and relations; nan for other measures, and where the interval is"""
    threshold: float
    """a head attends to a relation if it puts at least this much more weight there than uniform attention"""

    @property
    def is_corpus(self) -> bool:
        """There are passages enough for intervals."""
        return len(self.attention.sums) > 1

    @property
    def count(self) -> int:
        """L x H."""
        return int(np.prod(self.p.shape[:2]))

    def is_tested(self, relation: str) -> bool:
        """Whether at least two passages have a token with this relation to another."""
        return bool((self.attention.passages[:, MEASURES.index(relation)] > 1).any())

    def above_threshold(self, relation: str) -> list[tuple[int, int]]:
        """Heads (layer, head; from 0) whose interval, or in a single text difference, is above the threshold; highest first."""
        m = MEASURES.index(relation)
        values = self.low[:, :, m] if self.is_corpus else self.attention.difference[:, :, m]
        heads = np.argwhere(np.nan_to_num(values) >= self.threshold)
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


@dataclass(frozen=True)
class AttentionMeasured:
    """Attention over one text of T tokens, and the tests over a corpus."""

    weights: np.ndarray
    """(L, H, T, T) float32"""
    ids: np.ndarray
    """(T,)"""
    tokens: list[str]
    cut: int
    """tokens at the end of the text that do not fit into the model"""
    text: HeadAttention
    """what the heads do over the text alone"""
    tests: HeadTests
    """over the corpus, or over the text if there is none"""
    causal: bool


def measure_text_and_corpus(bundle: Bundle, text: str, passages: Sequence[str], threshold: float, seed: int) -> AttentionMeasured:
    """The weights over ``text``, and the heads' figures over ``passages``, or over the text if there are none."""
    weights, encoded = text_attention(bundle, text)
    of_text = measure_attention(bundle, [text])
    tokens = [bundle.tokenizer.token(int(token_id)) for token_id in encoded.rows[0]]
    tests = check_heads(measure_attention(bundle, passages) if passages else of_text, threshold, seed)
    return AttentionMeasured(weights, encoded.rows[0], tokens, int(encoded.cut[0]), of_text, tests, bundle.model.causal)


def check_heads(attention: HeadAttention, threshold: float, seed: int) -> HeadTests:
    """Intervals over passages, and p-values corrected for the number of heads and relations."""
    low, high = attention.interval(seed)
    p, uncorrected = np.full_like(attention.means, np.nan), attention.p_values()
    tested = ~np.isnan(uncorrected) & np.isin(MEASURES, RELATIONS)
    p[tested] = holm(uncorrected[tested].tolist())
    return HeadTests(attention, low, high, p, threshold)
