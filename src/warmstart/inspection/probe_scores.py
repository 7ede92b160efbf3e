"""The scores of probes: accuracy by layer with intervals over sentences, control tasks and compression. No model is needed here.

Letters: N items, S fits (seeds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from warmstart.stats.intervals import Estimate
from warmstart.stats.resampling import cluster_bootstrap

BAG, MIX = "bag of embeddings", "mix"
"""representations that are no layers: the mean embedding of an item's tokens, without context, and a learned mix of all layers"""


@dataclass(frozen=True)
class ProbedItems:
    """The items of a task as one model reads them, and what their labels give without any states."""

    majority: float
    """accuracy on the test items of always predicting the most frequent training label"""
    dropped: int
    """words that do not fit into the model, or sentences whose ends do not fit"""
    total: int
    """words or sentences of all splits, including these"""
    frequency_compression: float = math.nan
    """how many times shorter the frequencies of the training labels alone make their code"""


@dataclass(frozen=True)
class ProbeScores:
    """The scores of one type of probe on one representation."""

    layer: str
    """bag of embeddings, embedding, the number of a block, or mix"""
    correct: np.ndarray
    """(S, N) 1.0 for each test item that is predicted correctly, else 0.0"""
    control: np.ndarray
    """(S, N) the same for the control task"""
    sentences: np.ndarray
    """(N,) the sentence of each test item"""
    validations: tuple[float, ...]
    """(S,) accuracy on validation, by whose mean a layer may be chosen"""
    compression: tuple[float, ...] = ()
    """(S,) how many times shorter the labels are in the online code than in a uniform code"""
    items: ProbedItems = ProbedItems(math.nan, 0, 0)

    @property
    def accuracy(self) -> Estimate:
        """Accuracy on the test items, mean over fits, with its 95% interval over sentences."""
        return cluster_bootstrap(self.correct.mean(axis=0), self.sentences)

    @property
    def validation(self) -> float:
        """Accuracy on validation, mean over fits."""
        return float(np.mean(self.validations))

    @property
    def selectivity(self) -> float:
        """Accuracy less that on the control task (Hewitt and Liang 2019)."""
        return float(self.correct.mean() - self.control.mean())

    def difference(self, other: ProbeScores) -> Estimate:
        """Accuracy less that of ``other`` on the same items, with its 95% interval over sentences."""
        return cluster_bootstrap(self.correct.mean(axis=0) - other.correct.mean(axis=0), self.sentences)


def best_layer(scores: Mapping[str, ProbeScores]) -> ProbeScores:
    """The layer that is best on validation; the mix and the bag of embeddings are no layers."""
    layers = [one for one in scores.values() if one.layer not in (BAG, MIX)]
    return max(layers, key=lambda one: one.validation)


def scores_by_layer(fits: Sequence[Sequence[ProbeScores]]) -> dict[str, ProbeScores]:
    """The scores of each layer, pooled over several models (or one) whose layers come in the same order."""
    return {same[0].layer: pool_scores(same) for same in zip(*fits, strict=True)}


def pool_scores(scores: Sequence[ProbeScores]) -> ProbeScores:
    """The scores of the same layer of several models on the same items, as one; every fit counts alike."""
    first = scores[0]
    return replace(
        first,
        correct=np.concatenate([one.correct for one in scores]),
        control=np.concatenate([one.control for one in scores]),
        validations=tuple(value for one in scores for value in one.validations),
        compression=tuple(value for one in scores for value in one.compression),
    )
