"""From which probability a text gets a label, where it may have several.

Half is right if a wrong label costs as much as a missing one. F1 asks for less, and for rare labels much less, which then would
hardly ever be given. Letters: N texts, C labels, G thresholds that are tried.
"""

from __future__ import annotations

import numpy as np

from warmstart.stats.formatting import of_100

HALF = 0.5
"""the threshold where nothing is known"""
SHARED_TEXTS = 3.0
"""how much all labels together count beside those of one: as so many of its texts"""
SHARED_FOR_ALL = 20.0
"""the same where the F1 of all labels together matters more than that of each (results/other.md)"""
_MOST = 2000
"""thresholds tried"""


def label_thresholds(probabilities: np.ndarray, labels: np.ndarray, shared: float = SHARED_TEXTS) -> np.ndarray:
    """(C,) the threshold of each label with the highest F1, from ``probabilities`` (N, C) of texts that were left out.

    ``labels`` (N, C) are 1 where a text has a label, else 0. F1 = 2 hits / (predictions + labels) of a label counts, beside its own
    texts, the hits and predictions of all labels as if they were ``shared`` more texts that have it: a label of few texts has about
    the threshold that is best for all together, since its own best one is chance (Fan and Lin 2007; Lipton, Elkan and Narayanaswamy
    2014). The F1 at thresholds on the texts that chose them is too high. Simulation: tests/test_label_thresholds.py:
    ``test_thresholds_of_few_texts_lose_little``.

    >>> probabilities = np.array([[0.1], [0.2], [0.3], [0.4]])
    >>> label_thresholds(probabilities, np.array([[0], [0], [1], [1]])).round(2).tolist()
    [0.25]
    """
    total = float(labels.sum())
    if not total:
        return np.full(labels.shape[1], HALF)
    values = np.unique(probabilities)
    values = values[np.unique(np.linspace(0, len(values) - 1, _MOST).astype(int))]
    tried = np.append(values[0], (values[1:] + values[:-1]) / 2)
    given = np.stack([_at_least(column, tried) for column in probabilities.T])  # (C, G)
    pairs = zip(probabilities.T, labels.T > 0, strict=True)
    hits = np.stack([_at_least(column[has], tried) for column, has in pairs])
    share = shared / total
    sizes = given + labels.sum(axis=0)[:, None] + share * (given.sum(axis=0) + total)
    f1 = 2 * (hits + share * hits.sum(axis=0)) / np.maximum(sizes, 1e-12)
    return np.asarray(tried[f1.shape[1] - 1 - f1[:, ::-1].argmax(axis=1)])  # of equal ones the highest


def _at_least(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(G,) how many values are at least as high as each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds)


def given_and_found(labels: np.ndarray, predicted: np.ndarray) -> str:
    """``"Of 100 labels given, 83 are right; of 100 that hold, 71 are found."`` of labels and predictions (N, C), 1 or 0."""
    hits, given, held = float((labels * predicted).sum()), float(predicted.sum()), float(labels.sum())
    if not given or not held:
        return "No label is given." if not given else "No label holds."
    return f"Of 100 labels given, {of_100(hits / given)} are right; of 100 that hold, {of_100(hits / held)} are found."


def without_label(share: float) -> str:
    """``"No label reached its threshold in 12 of 100 texts."`` of the share of texts without a label; empty if hardly any are."""
    return f"No label reached its threshold in {of_100(share)} of 100 texts." if round(100 * share) else ""
