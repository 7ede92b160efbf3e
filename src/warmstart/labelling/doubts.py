"""Labels that are likely wrong, by confident learning (Northcutt, Jiang and Chuang 2021).

Letters: n labelled texts, C classes.
"""

from __future__ import annotations

import numpy as np


def likely_wrong(labels: np.ndarray, classes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Places of the labels (n,) that are likely wrong, the least credible first.

    ``probabilities`` (n, C) are of ``classes`` (C,), by models that did not learn from that text. A label is doubted if another
    class is the most probable one, and at least as probable as that class is on average among the texts that have it.
    """
    given = np.searchsorted(classes, labels)
    own = probabilities[np.arange(len(labels)), given]
    usual = np.array([own[given == number].mean() if (given == number).any() else np.inf for number in range(len(classes))])
    best = probabilities.argmax(axis=1)
    doubted = np.flatnonzero((best != given) & (probabilities.max(axis=1) >= usual[best]))
    return np.asarray(doubted[np.argsort(own[doubted] - probabilities.max(axis=1)[doubted], kind="stable")])
