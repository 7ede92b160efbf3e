"""Scores of predictions on one split of a task: named metrics, and the details of a classifier.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.errors import ConfigError, suggest
from warmstart.notebook import Shown
from warmstart.stats.calibration import log_loss


def metric_range(metric: str) -> tuple[float, float]:
    """The least and the greatest value of a metric: ``metric_range("accuracy")`` -> ``(0, 1)``; of correlations -1 to 1.

    Intervals are cut to it (``Interval.within``).
    """
    return {"pearson": (-1.0, 1.0), "spearman": (-1.0, 1.0), "r2": (-float("inf"), 1.0)}.get(metric, (0.0, 1.0))


class NamedFigures(dict[str, Any], Shown, view="report.notebook:figures_view"):
    """Figures by name, which a notebook shows as a table."""


@dataclass(frozen=True)
class Scores(Shown, view="report.notebook:scores_view"):
    """Named metrics on one split. Of those that a task can choose, higher is better."""

    values: dict[str, float]
    """metric -> value"""
    note: str = ""
    """what a reader should know about them"""

    header: ClassVar[tuple[str, ...]] = ("metric", "value")
    """the columns of ``table``"""

    def score(self, metric: str) -> float:
        """The value of one metric. Raises ``ConfigError`` for an unknown one."""
        if metric not in self.values:
            raise ConfigError(f"unknown metric '{metric}'; {suggest(metric, self.values)}")
        return self.values[metric]

    def table(self) -> list[tuple[str, ...]]:
        """One row per metric."""
        return [(name.replace("_", " "), f"{value:.4f}") for name, value in self.values.items()]

    def to_dict(self) -> dict[str, Any]:
        """All metrics as plain values, fit for JSON."""
        return {**self.values, "note": self.note}


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    """texts that have this label"""


@dataclass(frozen=True, kw_only=True)
class ClassificationScores(Scores):
    """Scores of a classifier: accuracy, macro F1, log loss, and every class by itself."""

    per_class: tuple[ClassScore, ...]
    confusion: np.ndarray
    """(C, C) counts: row = true label, column = predicted label"""
    predicted: np.ndarray
    """(N,) the most probable class of each text"""

    header: ClassVar[tuple[str, ...]] = ("label", "precision", "recall", "F1", "texts")
    """the columns of ``table``"""

    @property
    def accuracy(self) -> float:
        """Fraction of texts whose most probable class is the true one."""
        return self.values["accuracy"]

    @property
    def macro_f1(self) -> float:
        """Mean F1 over all C classes; a class that is never predicted, or has no text, counts as 0."""
        return self.values["macro_f1"]

    @property
    def log_loss(self) -> float:
        """Mean of -ln(probability of the true label), in nats; probabilities below 1e-12 count as 1e-12."""
        return self.values["log_loss"]

    def table(self) -> list[tuple[str, ...]]:
        """One row per class, in the task's order."""
        return [(c.name, f"{c.precision:.3f}", f"{c.recall:.3f}", f"{c.f1:.3f}", f"{c.support:,}") for c in self.per_class]

    def to_dict(self) -> dict[str, Any]:
        """All scores as plain values, fit for JSON."""
        return {**self.values, "per_class": [vars(row) for row in self.per_class], "confusion": self.confusion.tolist()}


def classification_scores(labels: np.ndarray, probabilities: np.ndarray, names: Sequence[str]) -> ClassificationScores:
    """Scores of ``probabilities`` (N, C) against ``labels`` (N,); ``names`` are the C labels.

    The most probable class is the prediction; of equal ones the first. Precision, recall and F1 with nothing to divide by are 0.
    Macro F1 is their mean F1 (Opitz and Burst 2019). Parity: tests/test_stats_references.py: ``test_equal_to_scikit_learn``.

    >>> probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> found = classification_scores(np.array([0, 1, 1]), probabilities, ["cat", "dog"])
    >>> round(found.accuracy, 3), round(found.macro_f1, 3)
    (0.667, 0.667)
    """
    assert probabilities.shape == (len(labels), len(names)), "one row per text, one column per class"
    predicted, classes = probabilities.argmax(axis=1), len(names)
    confusion = np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    hits, predictions, support = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    precision, recall = hits / np.maximum(predictions, 1), hits / np.maximum(support, 1)
    f1 = 2 * hits / np.maximum(predictions + support, 1)
    rows = tuple(ClassScore(*one) for one in zip(names, *(part.tolist() for part in (precision, recall, f1, support)), strict=True))
    values = {
        "accuracy": float((predicted == labels).mean()),
        "macro_f1": float(f1.mean()),
        "log_loss": log_loss(probabilities, labels),
    }
    return ClassificationScores(values=values, per_class=rows, confusion=confusion, predicted=predicted)
