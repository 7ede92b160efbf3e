"""Linear models on TF-IDF of words and word pairs, from scikit-learn.

The strength of the penalty is chosen on the validation split, which is not trained on; of equal ones the first is taken.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from warmstart.baselines.baseline import NO_WORDS, BaselineResult, plain_texts
from warmstart.baselines.majority import majority
from warmstart.data.task import Task
from warmstart.tasks import task_type_of

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""values of C (inverse strength of the penalty) of a logistic regression"""
MARGINS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""values of C of a support vector machine"""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""values of alpha (strength of the penalty) of a ridge regression"""

Predict = Callable[[Any, Any], np.ndarray]
"""a fitted model and rows of TF-IDF -> predictions in the form that the task type scores"""


def logistic_regression(task: Task) -> BaselineResult:
    """Logistic regression; with several labels per text, one for each label.

    Labels without a training text get probability 0.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    if task.single_label:
        models = {strength: LogisticRegression(C=strength, max_iter=2000) for strength in STRENGTHS}
        return _best_of(task, "C", models, _class_probabilities(task))
    several = {strength: OneVsRestClassifier(LogisticRegression(C=strength, max_iter=2000)) for strength in STRENGTHS[:3]}
    return _best_of(task, "C", several, lambda model, rows: model.predict_proba(rows))


def support_vector_machine(task: Task) -> BaselineResult:
    """A linear support vector machine. The softmax of its margins ranks the labels; it is no probability."""
    from sklearn.svm import LinearSVC

    return _best_of(task, "C", {strength: LinearSVC(C=strength) for strength in MARGINS}, _class_probabilities(task))


def ridge_regression(task: Task) -> BaselineResult:
    """Ridge regression."""
    from sklearn.linear_model import Ridge

    models = {strength: Ridge(alpha=strength) for strength in PENALTIES}
    return _best_of(task, "alpha", models, lambda model, rows: model.predict(rows)[:, None])


def _best_of(task: Task, letter: str, models: Mapping[float, Any], predict: Predict) -> BaselineResult:
    """Predictions of the model with the best validation score; ``letter`` names what the models differ in."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = plain_texts(task.train)
    if not any(text.strip() for text in texts):
        constant = majority(task)
        return BaselineResult(constant.predictions, f"{NO_WORDS}; {constant.note}")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    train, validation = vectorizer.fit_transform(texts), vectorizer.transform(plain_texts(task.validation))
    task_type, scores = task_type_of(task), dict[float, float]()
    for strength, model in models.items():
        predictions = predict(model.fit(train, task.train.labels), validation)
        scores[strength] = task_type.scores(task.validation, predictions, task).score(task.metric)
    best = max(scores, key=lambda strength: scores[strength])
    predictions = predict(models[best], vectorizer.transform(plain_texts(task.test)))
    return BaselineResult(predictions, f"{letter} = {best:g}, chosen on validation")


def _class_probabilities(task: Task) -> Predict:
    """(N, C) from a classifier that may have seen fewer than C classes."""

    def predict(model: Any, rows: Any) -> np.ndarray:
        probabilities = np.zeros((rows.shape[0], len(task.labels)))
        probabilities[:, model.classes_] = model.predict_proba(rows) if hasattr(model, "predict_proba") else _softmax(model, rows)
        return probabilities

    return predict


def _softmax(model: Any, rows: Any) -> np.ndarray:
    """The softmax of a classifier's margins."""
    from scipy.special import softmax

    margins = model.decision_function(rows)
    return softmax(np.stack([-margins, margins], axis=1) if margins.ndim == 1 else margins, axis=1)
