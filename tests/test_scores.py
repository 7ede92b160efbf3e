"""Scores of a classifier: scikit-learn's own numbers, over every class of the task."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss, precision_score, recall_score

from warmstart.errors import ConfigError
from warmstart.seeding import rng
from warmstart.stats.scores import classification_scores

NAMES = ("ABBR", "DESC", "ENTY", "HUM")


def drawn(seed: int, texts: int = 40, classes: int = 4, absent: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities; no text has the label ``absent``."""
    chance = rng(seed, "test metrics")
    labels = chance.choice([c for c in range(classes) if c != absent], texts)
    return labels, chance.dirichlet(np.ones(classes), texts)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([None, 0, 3]))
def test_equal_to_scikit_learn(seed: int, absent: int | None) -> None:
    """Every figure is scikit-learn's, with and without a class that no test text has; as JSON too, without nan."""
    labels, probabilities = drawn(seed, absent=absent)
    scores, answers, every = classification_scores(labels, probabilities, NAMES), probabilities.argmax(axis=1), list(range(4))
    assert scores.accuracy == accuracy_score(labels, answers)
    assert scores.macro_f1 == pytest.approx(f1_score(labels, answers, labels=every, average="macro", zero_division=0))
    assert scores.log_loss == pytest.approx(log_loss(labels, probabilities, labels=every))
    assert (scores.confusion == confusion_matrix(labels, answers, labels=every)).all()
    for reference, field in ((precision_score, "precision"), (recall_score, "recall"), (f1_score, "f1")):
        expected = reference(labels, answers, labels=every, average=None, zero_division=0)
        assert [getattr(row, field) for row in scores.per_class] == pytest.approx(list(expected))
    assert [row.support for row in scores.per_class] == np.bincount(labels, minlength=4).tolist()
    plain = scores.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["per_class"][2]["name"] == "ENTY"


def test_by_hand() -> None:
    """Rows of the confusion are true labels; an absent class counts 0 in macro F1; the first of equals is the answer.

    A probability of zero for the truth costs much, but not infinitely much.
    """
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    scores = classification_scores(np.array([0, 1, 1]), probabilities, ("a", "b", "c"))
    assert scores.accuracy == pytest.approx(2 / 3)
    assert scores.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert scores.log_loss == pytest.approx(-np.log([0.7, 0.8, 0.3]).mean())
    assert scores.confusion.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert classification_scores(np.array([0, 1]), np.full((2, 2), 0.5), ("a", "b")).confusion.tolist() == [[1, 0], [1, 0]]
    certain = classification_scores(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]), ("a", "b"))
    assert certain.log_loss == pytest.approx(-np.log(1e-12) / 2)


def test_score_by_name() -> None:
    """A metric is asked for by its name; an unknown one is named with the nearest known one."""
    labels, probabilities = drawn(0)
    scores = classification_scores(labels, probabilities, NAMES)
    assert (scores.score("accuracy"), scores.score("macro_f1")) == (scores.accuracy, scores.macro_f1)
    with pytest.raises(ConfigError, match="unknown metric 'macro-f1'; did you mean 'macro_f1'"):
        scores.score("macro-f1")
