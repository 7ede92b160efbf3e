"""What a model must beat: always the commonest label, and linear models of TF-IDF.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.evaluate.metrics import classification
from warmstart.registry import Registry

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""values of C (inverse strength of the penalty) tried on the validation split"""
MARGINS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""the same of the support vector machine"""

NO_WORDS = "the training texts have no words"


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


def majority(train: Labelled, validation: Labelled, test: Sequence[str], classes: int, metric: str = "accuracy") -> BaselineResult:
    """The share of each label in training, whatever the text."""
    shares = np.bincount(train.labels, minlength=classes) / len(train.labels)
    return BaselineResult(np.tile(shares, (len(test), 1)), "always the commonest label")


def tfidf(train: Labelled, validation: Labelled, test: Sequence[str], classes: int, metric: str = "accuracy") -> BaselineResult:
    """TF-IDF of words and word pairs, then logistic regression; C is chosen on the validation split, which is not trained on.

    Classes missing from the training texts get probability 0.
    """
    from sklearn.linear_model import LogisticRegression

    models = {strength: LogisticRegression(C=strength, max_iter=2000) for strength in STRENGTHS}
    return _best_of(models, train, validation, test, (classes, metric))


def svm(train: Labelled, validation: Labelled, test: Sequence[str], classes: int, metric: str = "accuracy") -> BaselineResult:
    """The same words under a linear support vector machine; the softmax of its margins is good to rank by, no more."""
    from sklearn.svm import LinearSVC

    models = {strength: LinearSVC(C=strength) for strength in MARGINS}
    return _best_of(models, train, validation, test, (classes, metric))


def _best_of(
    models: dict[float, Any], train: Labelled, validation: Labelled, test: Sequence[str], judged: tuple[int, str]
) -> BaselineResult:
    """What the one that is best on the validation texts says of the test texts; ties go to the smaller C.

    ``judged`` is (number of classes, metric).
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not has_words(train.texts):
        shares = majority(train, validation, test, judged[0])
        return BaselineResult(shares.probabilities, f"{NO_WORDS}; {shares.settings}")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    known = vectorizer.fit_transform(train.texts)
    unknown = vectorizer.transform(validation.texts)
    classes, metric = judged
    scores, names = {}, [str(number) for number in range(classes)]
    for strength, model in models.items():
        said = np.eye(classes)[model.fit(known, train.labels).predict(unknown)]
        scores[strength] = classification(validation.labels, said, names).score(metric)
    strength = max(scores, key=lambda tried: scores[tried])
    best, rows = models[strength], vectorizer.transform(test)
    probabilities = np.zeros((len(test), classes))
    probabilities[:, best.classes_] = best.predict_proba(rows) if hasattr(best, "predict_proba") else _softmax(best, rows)
    return BaselineResult(probabilities, f"C = {strength:g}, chosen on validation")


def _softmax(model: Any, rows: Any) -> np.ndarray:
    """Margins as if they were logits: their order is what counts."""
    from scipy.special import softmax

    margins = model.decision_function(rows)
    return softmax(np.stack([-margins, margins], axis=1) if margins.ndim == 1 else margins, axis=1)


def has_words(texts: Sequence[str]) -> bool:
    """Whether any text has more than white space, without which TF-IDF has nothing to count."""
    return any(text.strip() for text in texts)


Baseline = Callable[..., BaselineResult]

BASELINES: Registry[Baseline] = Registry(
    "baseline", {"majority": majority, "TF-IDF + logistic regression": tfidf, "TF-IDF + linear SVM": svm}
)
"""Every method that needs no backbone."""
