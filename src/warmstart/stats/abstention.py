"""Abstention: a confidence threshold above which errors stay below a target, with a stated confidence level.

A model whose confidence ranks its predictions well can keep an error rate on part of them that it cannot keep on all: it predicts
only if it is confident, and abstains otherwise. The threshold is found on examples that were not trained on. The guarantee holds
for new examples drawn from the same distribution, with probability ``confidence_level``; it says nothing about other texts.

Letters: N examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warmstart.errors import ConfigError
from warmstart.stats.formatting import percent
from warmstart.stats.proportions import clopper_pearson_bound


@dataclass(frozen=True)
class Threshold:
    """Predict if the confidence is at least ``threshold``, else abstain."""

    threshold: float
    """infinite if no threshold can give the guarantee: the model then always abstains"""
    target: float
    """the guaranteed largest error rate among the predictions given"""
    confidence_level: float
    """probability that the guarantee holds, over the draw of the held-out examples"""
    answered: int
    """held-out examples above the threshold"""
    wrong: int
    """how many of these were wrong"""
    examples: int
    """held-out examples in all"""

    def sentence(self) -> str:
        """What the threshold guarantees, or why it cannot guarantee anything."""
        errors, level = percent(self.target, trim=True), percent(self.confidence_level, trim=True)
        if math.isinf(self.threshold):
            return (
                f"No threshold can guarantee at most {errors} errors with {level} confidence from these {self.examples} held-out "
                "examples, so the model always abstains. Allow more errors, or hold out more examples."
            )
        reached = f"{self.answered} ({percent(self.answered / self.examples, 0)})"
        return (
            f"With a confidence threshold of {self.threshold:.3g}, at most {errors} of predictions are wrong, with {level} "
            f"confidence. Of {self.examples} held-out examples, {reached} reach it, and {self.wrong} of those are wrong."
        )


def find_threshold(confidence: np.ndarray, right: np.ndarray, target: float, confidence_level: float = 0.95) -> Threshold:
    """The lowest threshold that keeps the guarantee (Geifman and El-Yaniv 2017, algorithm 1).

    A binary search over the ranked examples; each of its tests gets an equal part of the allowed error probability. ``confidence``
    (N,) and ``right`` (N,) bool are of examples that were not trained on. Raises ``ConfigError`` unless both rates lie between 0
    and 1.
    """
    if not (0 < target < 1 and 0 < confidence_level < 1):
        raise ConfigError(
            f"the target error and the confidence level must lie between 0 and 1, but are {target} and {confidence_level}"
        )
    count = len(confidence)
    ranked = np.sort(confidence)
    each = 1 - (1 - confidence_level) / max(1, math.ceil(math.log2(count + 1)))
    best = Threshold(math.inf, target, confidence_level, 0, 0, count)
    low, high = -1, count  # the threshold lies above low, and high keeps the guarantee
    while high - low > 1:
        middle = (low + high) // 2
        given = confidence >= ranked[middle]
        wrong = int((~right[given]).sum())
        if clopper_pearson_bound(wrong, int(given.sum()), each) <= target:
            best, high = Threshold(float(ranked[middle]), target, confidence_level, int(given.sum()), wrong, count), middle
        else:
            low = middle
    return best


def risk_coverage(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coverage (fraction predicted) and risk (fraction of those that is wrong) at each threshold, highest first: two (M,) arrays.

    Equal confidences share a threshold. ``confidence [.9 .8 .8]``, ``right [1 1 0]`` -> coverage ``[1/3 1]``, risk ``[0 1/3]``.
    """
    order = np.argsort(-confidence, kind="stable")
    wrong = np.cumsum(~right[order])
    last = np.append(np.diff(confidence[order]) != 0, True)  # the last of equal confidences counts them all
    answered = np.arange(1, len(order) + 1)
    return answered[last] / len(order), (wrong / answered)[last]


def area_under_risk_coverage(coverage: np.ndarray, risk: np.ndarray) -> float:
    """The mean risk over all coverages (AURC): 0 for a model that is never wrong, small if only unsure predictions are."""
    return float((np.diff(coverage, prepend=0.0) * risk).sum())
