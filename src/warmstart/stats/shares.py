"""Shares of labels among many texts: predictions for all of them, corrected by a few whose labels are known.

Counting predictions is biased by what the model gets wrong. The labelled texts, as random a sample as the others, say by how much:

    share = mean label + lambda (mean prediction of the others - mean out-of-fold prediction of the labelled texts)

(prediction-powered inference: Angelopoulos, Duchi and Zrnic 2023). With lambda 0 only the labels count, with 1 the predictions are
believed up to their mean error; the lambda in between that makes the labels vary least is estimated. It is one for all labels, so
that the shares of texts with a single label sum to 1.

Letters: M labelled texts, N others, C labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.formatting import of_100, percent_range
from warmstart.stats.intervals import Estimate, t_quantile

FEWEST_LABELLED = 20
"""labelled texts below which an interval says too little"""
_PRIOR = 1.0
"""texts added to the variation of each label with and without predictions: a label on few texts has not been tried"""
_OVERLAP = 1.1
"""texts that count as one where predictions correct the labels: the folds learn from overlapping texts"""
_PERMUTATIONS = 999
_FEW, _NAMED = 6, 3
"""labels that a sentence names all; and the commonest of more"""


class LabelledSample(NamedTuple):
    """Labelled texts, and predictions for them by models that did not learn from them."""

    labels: np.ndarray
    """(M, C) 1 for each label of a text, else 0"""
    predictions: np.ndarray
    """(M, C) out-of-fold probabilities"""
    weights: np.ndarray
    """(M,) inverse probabilities with which the texts were drawn, up to a factor; ones for a random sample"""

    def take(self, rows: np.ndarray) -> LabelledSample:
        """The texts of these rows (indices, or a mask)."""
        return LabelledSample(self.labels[rows], self.predictions[rows], self.weights[rows])


def estimate_shares(sample: LabelledSample, predictions: np.ndarray, *, single: bool = True) -> list[Estimate]:
    """The share of each label among N other texts, with its 95% interval, from ``predictions`` (N, C) for them.

    ``single``: each text has one label, so that the shares sum to 1. A share that would be negative becomes 0 (the nearest shares
    that are possible). The interval is that of Wilson 1927, with Student's t, for as many labelled texts as would tell as much
    without predictions; weighted texts count as sum(w)^2 / sum(w^2) (Kish 1965). Simulation: tests/test_shares.py:
    ``test_shares_are_covered``.

    >>> labels = np.eye(2)[[0] * 30 + [1] * 70]
    >>> sample = LabelledSample(labels, 0.8 * labels + 0.1, np.ones(100))
    >>> [[round(value, 2) for value in share] for share in estimate_shares(sample, np.full((1000, 2), [0.4, 0.6]))]
    [[0.36, 0.33, 0.39], [0.64, 0.61, 0.67]]
    """
    weights = sample.weights / sample.weights.sum()
    count = 1 / float((weights**2).sum())
    labels, left_out = (values - weights @ values for values in (sample.labels, sample.predictions))
    varied = float((weights @ left_out**2).sum())
    slope = float(np.clip((weights @ (labels * left_out)).sum() / varied, 0, 1)) if varied else 0.0
    shares = weights @ sample.labels + slope * (predictions.mean(axis=0) - weights @ sample.predictions)
    shares = _nearest_shares(shares) if single else shares.clip(0, 1)
    corrected, alone = (count * (weights @ values**2) + _PRIOR for values in (labels - slope * left_out, labels))
    counts = count * np.maximum(alone / corrected / _OVERLAP, 1) / (1 + count / len(predictions))
    return [_wilson(share, number, count) for share, number in zip(shares, counts, strict=True)]


def _wilson(share: float, count: float, drawn: float) -> Estimate:
    """Wilson's interval of a share of ``count`` texts, with Student's t of ``drawn`` ones."""
    z = t_quantile(0.95, max(1.0, drawn - 1))
    middle, half = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low, high = (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)
    return Estimate(float(share), max(0.0, float(low)), min(1.0, float(high)))


def _nearest_shares(values: np.ndarray) -> np.ndarray:
    """(C,) the nearest numbers that are at least 0 and sum to 1 (projection onto the simplex: Duchi and others 2008)."""
    ordered = np.sort(values)[::-1]
    surplus = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - surplus[np.flatnonzero(ordered > surplus)[-1]], 0)


def with_known(share: Estimate, others: int, known: np.ndarray) -> Estimate:
    """The share among N ``others`` and K texts more, whose label is ``known`` (K,), 0 or 1."""
    return Estimate(*((others * value + float(known.sum())) / max(1, others + len(known)) for value in share))


def shares_sentence(labels: Sequence[str], shares: Sequence[Estimate], texts: str) -> str:
    """``Of 100 of the 9,700 texts, 18 are complaint (15 to 22), 9 praise (7 to 12)``: the commonest labels, of these ``texts``.

    >>> shares = [Estimate(0.1, 0.08, 0.12)] * 6 + [Estimate(0.4, 0.37, 0.43)]
    >>> shares_sentence("abcdefg", shares, "9,700 texts")
    'Of 100 of the 9,700 texts, 40 are g (37 to 43), 10 a (8 to 12), 10 b (8 to 12); 4 other labels are rarer'
    """
    order = np.argsort([-share.value for share in shares], kind="stable")
    parts = [f"{of_100(shares[place].value)} {labels[place]}{share_ends(shares[place])}" for place in order]
    parts[0] = parts[0].replace(" ", " are ", 1)
    if len(parts) > _FEW:
        parts[_NAMED - 1 :] = [f"{parts[_NAMED - 1]}; {len(parts) - _NAMED} other labels are rarer"]
    return f"Of 100 of the {texts}, {', '.join(parts)}"


def share_ends(share: Estimate) -> str:
    """The interval behind a share of 100: `` (15 to 22)``; empty if there is none."""
    return "" if math.isnan(share.low) else f" ({percent_range(share.low, share.high, digits=0)})"


def share_difference(one: Estimate, other: Estimate) -> Estimate:
    """``one`` less ``other``, of two independent groups, with the 95% interval of Newcombe 1998 (his method 10).

    Simulation: tests/test_shares.py: ``test_shares_are_covered``.

    >>> [round(value, 2) for value in share_difference(Estimate(0.5, 0.4, 0.6), Estimate(0.2, 0.1, 0.35))]
    [0.3, 0.12, 0.44]
    """
    difference = one.value - other.value
    down, up = math.hypot(one.value - one.low, other.high - other.value), math.hypot(one.high - one.value, other.value - other.low)
    return Estimate(difference, difference - down, difference + up)


def sampled_alike(sample: LabelledSample, predictions: np.ndarray, seed: int = 0) -> float:
    """The p-value of a permutation test that labelled texts and N others, with ``predictions`` (N, C), are of the same kind.

    The statistic is the largest difference of a label's mean predictions, in standard deviations; permutations give its
    distribution (Fisher 1935). Labels that were picked, so many of each kind, differ from the others in their mean predictions.
    Simulation: tests/test_shares.py: ``test_labels_that_were_picked_are_noticed``.

    >>> picked = LabelledSample(np.eye(2)[[0, 1] * 50], np.array([[0.9, 0.1], [0.1, 0.9]] * 50), np.ones(100))
    >>> sampled_alike(picked, np.array([[0.9, 0.1], [0.1, 0.9]] * 300)), sampled_alike(picked, np.full((600, 2), [0.9, 0.1]))
    (1.0, 0.001)
    """
    together = np.concatenate([sample.predictions, predictions])
    spread = together.std(axis=0)
    scaled = ((together - together.mean(axis=0)) / np.where(spread > 0, spread, 1)).astype(np.float32)
    count, generator = len(sample.predictions), rng(seed, "sampled alike")
    weights = (sample.weights / sample.weights.sum()).astype(np.float32)
    observed = np.abs(weights @ scaled[:count]).max()
    drawn = (np.abs(weights @ scaled[generator.integers(0, len(scaled), count)]).max() for _ in range(_PERMUTATIONS))
    return (1 + sum(bool(value >= observed) for value in drawn)) / (1 + _PERMUTATIONS)
