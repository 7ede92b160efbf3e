"""Linear models, from scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from warmstart.baselines.baseline import Sample
from warmstart.baselines.one_label import ClassSample, for_labels, from_margins
from warmstart.stack.readout import LinearReadout

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""values of C (inverse strength of the penalty) of a logistic regression on TF-IDF"""
MARGINS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""values of C of a support vector machine"""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""values of alpha (strength of the penalty) of a ridge regression"""


@for_labels
def logistic_regression(sample: ClassSample, strength: float) -> LinearReadout:
    """Logistic regression, until it has converged."""
    from sklearn.linear_model import LogisticRegression

    return logistic(LogisticRegression(C=strength, max_iter=10_000).fit(sample.rows, sample.labels))


def logistic(model: Any) -> LinearReadout:
    """A fitted logistic regression of scikit-learn."""
    return from_margins(model.coef_.T, model.intercept_, side=0.0)


@for_labels
def support_vector_machine(sample: ClassSample, strength: float) -> LinearReadout:
    """A linear support vector machine. The softmax of its margins ranks the labels; it is no probability."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(C=strength, max_iter=20_000, random_state=0).fit(sample.rows, sample.labels)
    return from_margins(model.coef_.T, model.intercept_)


def ridge_regression(sample: Sample, strength: float) -> LinearReadout:
    """Ridge regression."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=strength).fit(sample.rows, sample.labels)
    return LinearReadout(model.coef_[:, None], np.array([model.intercept_]), "identity")
