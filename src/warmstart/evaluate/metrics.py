"""Scores of a classifier on labelled texts: scikit-learn does the sums.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.errors import ConfigError, suggest

METRICS = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class ClassScore:
    """How one class fared."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    """texts that truly have this label"""


@dataclass(frozen=True)
class Scores:
    """How a classifier fared on one split."""

    accuracy: float
    macro_f1: float
    """mean F1 over all C classes; a class never predicted, or absent, counts 0"""
    log_loss: float
    """mean of -ln(probability of the true label), in nats; probabilities below 1e-12 count as 1e-12"""
    per_class: tuple[ClassScore, ...]
    confusion: np.ndarray
    """(C, C) counts: row = true label, column = predicted label"""
    answers: np.ndarray
    """(N,) the likeliest class of each text"""

    def score(self, metric: str) -> float:
        """The figure named ``metric``; raises ``ConfigError`` for an unknown one."""
        if metric not in METRICS:
            raise ConfigError(f"unknown metric '{metric}'; {suggest(metric, METRICS)}")
        return float(getattr(self, metric))

    HEADER: ClassVar = ("label", "precision", "recall", "F1", "texts")
    """names the columns of ``table``"""

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """One row a class, in the task's order."""
        return [(c.name, f"{c.precision:.3f}", f"{c.recall:.3f}", f"{c.f1:.3f}", f"{c.support:,}") for c in self.per_class]

    def plain(self) -> dict[str, Any]:
        """All figures as plain values, fit for JSON."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "log_loss": self.log_loss,
            "per_class": [vars(row) for row in self.per_class],
            "confusion": self.confusion.tolist(),
        }


def classification(labels: np.ndarray, probabilities: np.ndarray, names: Sequence[str]) -> Scores:
    """Scores of ``probabilities`` (N, C) against ``labels`` (N,); the likeliest class is the answer, ties go to the first."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    assert probabilities.shape == (len(labels), len(names)), "one row a text, one column a class"
    answers, classes = probabilities.argmax(axis=1), np.arange(len(names))
    parts = precision_recall_fscore_support(labels, answers, labels=classes, zero_division=0)
    rows = tuple(ClassScore(n, float(p), float(r), float(f), int(s)) for n, p, r, f, s in zip(names, *parts, strict=True))
    truth = probabilities[np.arange(len(labels)), labels]
    return Scores(
        accuracy=float((answers == labels).mean()),
        macro_f1=float(np.mean([row.f1 for row in rows])),
        log_loss=float(-np.log(truth.clip(min=1e-12)).mean()),
        per_class=rows,
        confusion=confusion_matrix(labels, answers, labels=classes),
        answers=answers,
    )
