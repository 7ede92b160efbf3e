"""Learning from texts without labels, by scikit-learn: self-training and label spreading.

Letters: N texts, M texts of the pool, K classes.
"""

from __future__ import annotations

import numpy as np

from warmstart.baselines.linear import logistic
from warmstart.baselines.one_label import ClassSample, for_labels
from warmstart.stack.readout import LinearReadout, NeighbourReadout

POOL_LIMIT = 10_000
"""texts of the pool that are read at most: each is compared with each, or fitted to many times; more are sampled by the seed"""
SELF_TRAINING_STRENGTH = 10.0
CONFIDENT = 0.9
"""the probability from which on a guess is taken for a label"""
NEIGHBOURS = 10


@for_labels
def self_training(sample: ClassSample, setting: float) -> LinearReadout:
    """Logistic regression that takes its confident guesses for labels, in up to 10 rounds (Yarowsky 1995).

    Classes have equal weight: otherwise the guesses are of the larger classes only, and more so in each round.
    """
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    model = LogisticRegression(C=SELF_TRAINING_STRENGTH, max_iter=10_000, class_weight="balanced")
    if sample.pool is None:
        return logistic(model.fit(sample.rows, sample.labels))
    rows, labels = vstack([sample.rows, sample.pool]), np.append(sample.labels, np.full(sample.pool.shape[0], -1))
    return logistic(SelfTrainingClassifier(model, threshold=CONFIDENT).fit(rows, labels).estimator_)


@for_labels
def label_spreading(sample: ClassSample, setting: float) -> NeighbourReadout:
    """Labels spread along a graph of nearest neighbours (Zhou et al. 2004); a new text gets the mean of its own neighbours."""
    from sklearn.semi_supervised import LabelSpreading

    pool = sample.rows[:0] if sample.pool is None else sample.pool
    rows, labels = np.concatenate([sample.rows, pool]), np.append(sample.labels, np.full(len(pool), -1))
    neighbours = min(NEIGHBOURS, len(rows))
    spread = LabelSpreading(kernel="knn", n_neighbors=neighbours, max_iter=1000).fit(rows, labels)
    floor = 1e-9 * np.bincount(sample.labels) / len(sample.labels)  # where no label has spread, the frequencies remain
    return NeighbourReadout(rows, spread.label_distributions_, floor, neighbours, "euclidean")
