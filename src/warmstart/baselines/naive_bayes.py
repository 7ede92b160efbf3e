"""Multinomial naive Bayes, and the same with texts without labels by expectation maximisation.

    EM:  fit to the labelled texts; then 15 times: guess the classes of the pool, fit to the labels and, at a tenth of the weight,
         to the guesses

Nigam, McCallum, Thrun and Mitchell 2000, "Text classification from labeled and unlabeled documents using EM" (Machine Learning 39).

Letters: N texts, M texts of the pool, V words, K classes.
"""

from __future__ import annotations

import numpy as np

from warmstart.baselines.one_label import ClassSample, for_labels
from warmstart.stack.readout import LinearReadout

SMOOTHING = (1.0, 0.3, 0.1, 0.03)
"""values of alpha, which is added to the count of each word in each class"""
EM_SMOOTHING = (0.1, 0.03, 0.01)
"""the same with the pool, whose many words make large values drown what a class has said"""
EM_STEPS = 15
POOL_WEIGHT = 0.1
"""of a text without label; a labelled one has 1"""


@for_labels
def multinomial_naive_bayes(sample: ClassSample, smoothing: float) -> LinearReadout:
    """Multinomial naive Bayes, from scikit-learn."""
    from sklearn.naive_bayes import MultinomialNB

    model = MultinomialNB(alpha=smoothing).fit(sample.rows, sample.labels)
    return LinearReadout(model.feature_log_prob_.T, model.class_log_prior_)


@for_labels
def naive_bayes_em(sample: ClassSample, smoothing: float) -> LinearReadout:
    """Naive Bayes that also learns from its own guesses for the pool."""
    known = np.eye(sample.labels.max() + 1)[sample.labels]
    texts, words = known.sum(axis=0), sample.rows.T @ known
    predict = _naive_bayes(texts, words, smoothing)
    for _ in range(EM_STEPS if sample.pool is not None else 0):
        guessed = POOL_WEIGHT * predict(sample.pool)
        predict = _naive_bayes(texts + guessed.sum(axis=0), words + sample.pool.T @ guessed, smoothing)
    return predict


def _naive_bayes(texts: np.ndarray, words: np.ndarray, smoothing: float) -> LinearReadout:
    """From the number of texts of each class (K,) and of each word in each class (V, K): rows (·, V) -> (·, K) probabilities."""
    smooth = words + smoothing
    return LinearReadout(np.log(smooth / smooth.sum(axis=0)), np.log(texts / texts.sum()))
