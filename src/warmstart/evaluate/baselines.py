"""What a model must beat: always the commonest label, and TF-IDF with logistic regression.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from warmstart.registry import Registry

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""values of C (inverse strength of the penalty) tried on the validation split"""


@dataclass(frozen=True)
class Labelled:
    """Texts with their class numbers."""

    texts: Sequence[str]
    labels: np.ndarray
    """(N,) int64"""


@dataclass(frozen=True)
class BaselineResult:
    """What a baseline says of the test texts."""

    probabilities: np.ndarray
    """(N, C), columns in the task's order"""
    settings: str
    """what was chosen on the validation split"""


def majority(train: Labelled, validation: Labelled, test: Sequence[str], classes: int) -> BaselineResult:
    """The share of each label in training, whatever the text."""
    shares = np.bincount(train.labels, minlength=classes) / len(train.labels)
    return BaselineResult(np.tile(shares, (len(test), 1)), "always the commonest label")


def tfidf(train: Labelled, validation: Labelled, test: Sequence[str], classes: int) -> BaselineResult:
    """TF-IDF of words and word pairs, then logistic regression; C is chosen on the validation split, which is not trained on.

    Classes missing from the training texts get probability 0.
    """
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    known = vectorizer.fit_transform(train.texts)
    unknown = vectorizer.transform(validation.texts)
    models = [LogisticRegression(C=strength, max_iter=2000).fit(known, train.labels) for strength in STRENGTHS]
    scores = [float(model.score(unknown, validation.labels)) for model in models]
    best = int(np.argmax(scores))
    probabilities = np.zeros((len(test), classes))
    probabilities[:, models[best].classes_] = models[best].predict_proba(vectorizer.transform(test))
    return BaselineResult(probabilities, f"C = {STRENGTHS[best]:g}, chosen on validation")


Baseline = Callable[[Labelled, Labelled, Sequence[str], int], BaselineResult]

BASELINES: Registry[Baseline] = Registry("baseline", {"majority": majority, "TF-IDF + logistic regression": tfidf})
"""Every method that needs no backbone."""
