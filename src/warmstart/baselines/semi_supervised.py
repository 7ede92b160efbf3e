"""Learning from texts without labels, by scikit-learn: self-training and label spreading.

Letters: N texts, M texts of the pool, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warmstart.baselines.baseline import Predict
from warmstart.baselines.one_label import ClassSample, for_labels

POOL_LIMIT = 10_000
"""texts of the pool that are read at most: each is compared with each, or fitted to many times; more are sampled by the seed"""
SELF_TRAINING_STRENGTH = 10.0
CONFIDENT = 0.9
"""the probability from which on a guess is taken for a label"""
NEIGHBOURS = 10


@for_labels
def self_training(sample: ClassSample, setting: float) -> Predict:
    """Logistic regression that takes its confident guesses for labels, in up to 10 rounds (Yarowsky 1995).

    Classes have equal weight: otherwise the guesses are of the larger classes only, and more so in each round.
    """
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    model = LogisticRegression(C=SELF_TRAINING_STRENGTH, max_iter=10_000, class_weight="balanced")
    if sample.pool is None:
        return model.fit(sample.rows, sample.labels).predict_proba
    rows, labels = vstack([sample.rows, sample.pool]), np.append(sample.labels, np.full(sample.pool.shape[0], -1))
    return SelfTrainingClassifier(model, threshold=CONFIDENT).fit(rows, labels).predict_proba


@for_labels
def label_spreading(sample: ClassSample, setting: float) -> Predict:
    """Labels spread along a graph of nearest neighbours (Zhou et al. 2004); a new text gets the mean of its own neighbours."""
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.semi_supervised import LabelSpreading

    pool = sample.rows[:0] if sample.pool is None else sample.pool
    rows, labels = np.concatenate([sample.rows, pool]), np.append(sample.labels, np.full(len(pool), -1))
    neighbours = min(NEIGHBOURS, len(rows))
    spread = LabelSpreading(kernel="knn", n_neighbors=neighbours, max_iter=1000).fit(rows, labels)
    nearest = KNeighborsRegressor(neighbours).fit(rows, spread.label_distributions_)
    frequencies = np.bincount(sample.labels) / len(sample.labels)

    def probabilities(new: Any) -> np.ndarray:
        found = np.maximum(nearest.predict(new), 0) + 1e-9 * frequencies  # where no label has spread, the frequencies remain
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    return probabilities
