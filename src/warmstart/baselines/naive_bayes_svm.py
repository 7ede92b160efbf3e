"""NBSVM: a linear support vector machine on words weighted by their log-count ratio (naive Bayes).

    r = ln(p / |p|) - ln(q / |q|),   p = 2 f + texts of the class with each word,   q = 2 (1 - f) + other texts with it
    w = β w + (1 - β) |w| / V        between the weights of the SVM and naive Bayes

Wang and Manning 2012, "Baselines and bigrams: simple, good sentiment and topic classification" (ACL). With two classes of one size,
a fraction f of 1/2 of the texts each, this is the paper's p = 1 + …. With one class against the rest of many, 1 on both sides would
make a word of the class of every word that neither has often. Rows have length 1, so that the margins of classes compare.

Letters: N texts, V words and word pairs, K classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from warmstart.baselines.one_label import ClassSample, for_labels, from_margins
from warmstart.stack.readout import LinearReadout

INTERPOLATION = 0.9
"""β: the share of the weights of the SVM; 0.25 in the paper"""
NBSVM_MARGINS = (1.0, 0.1, 10.0)
"""values of C"""


@for_labels
def nbsvm(sample: ClassSample, strength: float) -> LinearReadout:
    """One for two classes, otherwise one for each class. The softmax of the margins ranks the classes; it is no probability."""
    classes = [1] if sample.labels.max() == 1 else range(sample.labels.max() + 1)
    models = [_one_against_rest(sample.rows, sample.labels == one, strength) for one in classes]
    weights, bias = np.stack([model[0] for model in models], axis=1), np.array([model[1] for model in models])
    return replace(from_margins(weights, bias), unit_length=True)


def _one_against_rest(rows: Any, inside: np.ndarray, strength: float) -> tuple[np.ndarray, float]:
    """The weights (V,) and the bias of one class."""
    from sklearn.preprocessing import normalize
    from sklearn.svm import LinearSVC

    of_class, others = (2 * which.mean() + np.asarray(rows[which].sum(axis=0)).ravel() for which in (inside, ~inside))
    ratios = np.log(of_class / of_class.sum()) - np.log(others / others.sum())
    model = LinearSVC(C=strength, max_iter=20_000, random_state=0).fit(normalize(rows).multiply(ratios[None]).tocsr(), inside)
    learned = model.coef_[0]
    return ratios * (INTERPOLATION * learned + (1 - INTERPOLATION) * np.abs(learned).mean()), float(model.intercept_[0])
