"""Learning in the span of the rows gives the model that learning on all columns gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, Ridge

from warmstart.baselines.baseline import Sample
from warmstart.baselines.classifiers import logistic_regression, ridge_regression
from warmstart.baselines.span import span_of
from warmstart.data.task import Split, Task
from warmstart.seeding import rng

SEVERAL = 3
"""the number of labels, and of classes"""


def words(texts: int, columns: int = 400) -> Any:
    """(texts, columns) sparse rows of length 1, of which two are copies and one is empty."""
    rows = sparse.random(texts, columns, 0.05, "csr", random_state=texts)
    rows = sparse.vstack([rows[:-2], rows[:1], sparse.csr_matrix((1, columns))]).tocsr()
    return rows.multiply(1 / np.maximum(sparse.linalg.norm(rows, axis=1), 1e-9)[:, None]).tocsr()


def learned(rows: Any, labels: np.ndarray, in_span: bool, strength: float, metric: str = "accuracy") -> Any:
    """The logistic regression of labels (N,) or (N, C) as baselines have it."""
    split = Split(tuple(f"text {i}" for i in range(len(labels))), labels)
    task = Task(
        "t", ("a", "b", "c"), split, split, split, type="multilabel" if labels.ndim == 2 else "classification", metric=metric
    )
    return logistic_regression(Sample(rows, labels, None, task, 0, in_span=in_span), strength)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("made", [words, lambda texts: rng(texts, "dense").normal(size=(texts, 400)) / 20], ids=["sparse", "dense"])
def test_margins_are_those_of_all_columns(made: Any, strength: float, classes: int) -> None:
    """Of a fold, for texts left out and for new ones; scikit-learn's, converged on the columns, is the reference."""
    rows, labels, learn = made(30), np.arange(30) // 2 % classes, np.arange(22)
    span = span_of(rows)
    assert span is not None
    found = learned(span.rows[learn], labels[learn], in_span=True, strength=strength)
    exact = LogisticRegression(C=strength, max_iter=100_000, tol=1e-10).fit(rows[learn], labels[learn])
    new = made(31)
    np.testing.assert_allclose(found(span.rows)[:, :classes], exact.predict_proba(rows), atol=1e-4)
    np.testing.assert_allclose(span.on_columns(found)(new)[:, :classes], exact.predict_proba(new), atol=1e-4)


def test_the_gradient_on_the_columns_vanishes() -> None:
    """The mean loss with its penalty cannot fall any more at the weights that are saved: |gradient| / N is at most 1e-7."""
    rows, labels = words(40), np.arange(40) // 2 % SEVERAL
    span = span_of(rows)
    assert span is not None
    model = span.on_columns(learned(span.rows, labels, in_span=True, strength=10.0))
    chances = softmax(rows @ model.weights + model.bias, axis=1)
    gradient = rows.T @ (chances - np.eye(SEVERAL)[labels]) + model.weights / 10.0
    assert np.abs(gradient).max() / 40 < 1e-7


def test_classes_and_labels_that_weigh_otherwise() -> None:
    """Balanced classes, and one model for each of several labels, of which one never occurs."""
    rows, unequal = words(40), np.repeat([0, 1, 2], [30, 6, 4])
    several = np.stack([unequal == 0, unequal == 1, np.zeros(40, bool)], axis=1).astype(np.float64)
    span = span_of(rows)
    assert span is not None
    for labels, metric in ((unequal, "macro_f1"), (several, "micro_f1")):
        within = span.on_columns(learned(span.rows, labels, in_span=True, strength=1.0, metric=metric))
        np.testing.assert_allclose(within(rows), learned(rows, labels, in_span=False, strength=1.0, metric=metric)(rows), atol=1e-3)


def test_ridge_regression_too() -> None:
    rows, labels = words(30), rng(0, "numbers").normal(size=30)
    span = span_of(rows)
    assert span is not None
    split = Split(tuple(f"text {i}" for i in range(30)), labels)
    sample = Sample(span.rows, labels, None, Task("t", (), split, split, split, type="regression", metric="mae"), 0, in_span=True)
    found, exact = span.on_columns(ridge_regression(sample, 0.1)), Ridge(alpha=0.1, tol=1e-10).fit(rows, labels)
    np.testing.assert_allclose(found(words(31))[:, 0], exact.predict(words(31)), atol=1e-5)


def test_no_more_dimensions_than_columns() -> None:
    """Where the rows are not fewer than the columns, nothing is turned."""
    assert span_of(rng(0, "tall").normal(size=(30, 30))) is None
