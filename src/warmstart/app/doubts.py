"""Labels that are likely wrong, by confident learning (Northcutt, Jiang and Chuang 2021).

Letters: n labelled texts, C classes.
"""

from __future__ import annotations

import numpy as np

_TIMES = 10.0
"""so many times as probable as the label another class must be; else too many right labels are doubted"""


def likely_wrong(labels: np.ndarray, classes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Places of the labels (n,) that are likely wrong, the least credible first.

    ``probabilities`` (n, C) are of ``classes`` (C,), by models that did not learn from that text. A label is doubted if another
    class is the most probable one, ten times as probable as the label, and at least as probable as that class is on average among
    the texts that have it.
    """
    given = np.searchsorted(classes, labels)
    own = probabilities[np.arange(len(labels)), given]
    usual = np.array([own[given == number].mean() if (given == number).any() else np.inf for number in range(len(classes))])
    best = probabilities.argmax(axis=1)
    most = probabilities.max(axis=1)
    doubted = np.flatnonzero((best != given) & (most >= usual[best]) & (most >= _TIMES * own))
    return np.asarray(doubted[np.argsort(own[doubted] / most[doubted], kind="stable")])
