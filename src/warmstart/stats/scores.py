"""Scores of predictions on one split of a task: named metrics, and the details of a classifier.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.errors import ConfigError, suggest
from warmstart.notebook import Shown
from warmstart.seeding import rng
from warmstart.stats.calibration import log_loss
from warmstart.stats.formatting import of_100
from warmstart.stats.intervals import Estimate, percentiles
from warmstart.stats.resampling import resample_counts


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
    """remarks for the reader"""

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
    >>> scores = classification_scores(np.array([0, 1, 1]), probabilities, ["cat", "dog"])
    >>> round(scores.accuracy, 3), round(scores.macro_f1, 3)
    (0.667, 0.667)
    """
    assert probabilities.shape == (len(labels), len(names)), "one row per text, one column per class"
    predicted, classes = probabilities.argmax(axis=1), len(names)
    confusion = np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    hits, predictions, support = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    precision, recall = hits / np.maximum(predictions, 1), hits / np.maximum(support, 1)
    f1 = 2 * hits / np.maximum(predictions + support, 1)
    rows = tuple(ClassScore(*row) for row in zip(names, *(part.tolist() for part in (precision, recall, f1, support)), strict=True))
    values = {
        "accuracy": float((predicted == labels).mean()),
        "macro_f1": float(f1.mean()),
        "log_loss": log_loss(probabilities, labels),
    }
    return ClassificationScores(values=values, per_class=rows, confusion=confusion, predicted=predicted)


# --------------------------------------------- The probability from which a text gets a label, where it may have several
# Half is right if a wrong label costs as much as a missing one. F1 asks for less, and for rare labels much less, which then
# would hardly ever be given. Letters: N texts, C labels, G thresholds that are tried.


HALF = 0.5
"""the threshold where nothing is known"""
SHARED_TEXTS = 3.0
"""weight of all labels together beside those of one, in texts of that one"""
SHARED_FOR_ALL = 20.0
"""this weight where the F1 of all labels together matters more than that of each (results/other.md)"""
_MOST = 2000
"""thresholds tried"""


def label_thresholds(probabilities: np.ndarray, labels: np.ndarray, shared: float = SHARED_TEXTS) -> np.ndarray:
    """(C,) the threshold of each label with the highest F1, from ``probabilities`` (N, C) of texts that were left out.

    ``labels`` (N, C) are 1 where a text has a label, else 0. F1 = 2 hits / (predictions + labels) of a label counts, beside its own
    texts, the hits and predictions of all labels as if they were ``shared`` more texts that have it: a label of few texts has about
    the threshold that is best for all together, since its own best one is chance (Fan and Lin 2007; Lipton, Elkan and Narayanaswamy
    2014). The F1 at thresholds on the texts that chose them is too high. Simulation: tests/test_label_thresholds.py:
    ``test_thresholds_of_few_texts_lose_little``.

    >>> probabilities = np.array([[0.1], [0.2], [0.3], [0.4]])
    >>> label_thresholds(probabilities, np.array([[0], [0], [1], [1]])).round(2).tolist()
    [0.25]
    """
    total = float(labels.sum())
    if not total:
        return np.full(labels.shape[1], HALF)
    values = np.unique(probabilities)
    values = values[np.unique(np.linspace(0, len(values) - 1, _MOST).astype(int))]
    tried = np.append(values[0], (values[1:] + values[:-1]) / 2)
    assigned = np.stack([_at_least(column, tried) for column in probabilities.T])  # (C, G)
    pairs = zip(probabilities.T, labels.T > 0, strict=True)
    hits = np.stack([_at_least(column[has], tried) for column, has in pairs])
    share = shared / total
    sizes = assigned + labels.sum(axis=0)[:, None] + share * (assigned.sum(axis=0) + total)
    f1 = 2 * (hits + share * hits.sum(axis=0)) / np.maximum(sizes, 1e-12)
    return np.asarray(tried[f1.shape[1] - 1 - f1[:, ::-1].argmax(axis=1)])  # of equal ones the highest


def _at_least(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(G,) the number of values at least as high as each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds)


def given_and_found(labels: np.ndarray, predicted: np.ndarray) -> str:
    """``"Of 100 labels given, 83 are right; of 100 that hold, 71 are found."`` of labels and predictions (N, C), 1 or 0."""
    hits, assigned, held = float((labels * predicted).sum()), float(predicted.sum()), float(labels.sum())
    if not assigned or not held:
        return "No label is given." if not assigned else "No label holds."
    return f"Of 100 labels given, {of_100(hits / assigned)} are right; of 100 that hold, {of_100(hits / held)} are found."


def without_label(share: float) -> str:
    """``"No label reached its threshold in 12 of 100 texts."`` of the share of texts without a label; empty if hardly any are."""
    return f"No label reached its threshold in {of_100(share)} of 100 texts." if round(100 * share) else ""


# --------------------------------------------------------------------- Agreement between people who label the same texts


def krippendorff_alpha(answers: Iterable[Sequence[Hashable]]) -> float:
    """Krippendorff's alpha for names: 1 is full agreement, 0 what chance gives, below 0 systematic disagreement.

    Each of ``answers`` holds the labels that people gave one text, in any order; texts with fewer than two do not count. alpha =
    1 - observed / expected disagreement, where a text of m answers weighs 1 / (m - 1) (Krippendorff 2004, chapter 11). nan if
    there is nothing to compare, or only one label. Simulation: tests/test_stats_simulations.py:
    ``test_alpha_is_what_two_people_know_together``; a published example is reproduced, too.

    >>> krippendorff_alpha([["a", "a"], ["b", "b"], ["a", "b"]])
    0.4444444444444444
    """
    texts = [text for text in answers if len(text) > 1]
    totals, observed = Counter[Hashable](), 0.0
    for text in texts:
        counts = Counter(text)
        totals.update(counts)
        observed += sum(count * (len(text) - count) for count in counts.values()) / (len(text) - 1)
    number = sum(totals.values())
    expected = (number**2 - sum(count**2 for count in totals.values())) / (number - 1) if number > 1 else 0.0
    return 1 - observed / expected if expected else float(np.nan)


def krippendorff_interval(texts: Sequence[Sequence[Sequence[Hashable]]]) -> Estimate:
    """Krippendorff's alpha with its 95% interval for other texts; nan where ``krippendorff_alpha`` is.

    Each of ``texts`` holds the units of one text, such as its words, and each unit the labels that people gave it. The interval is
    a percentile bootstrap over texts (Efron and Tibshirani 1993, chapter 13). For its low end two different labels for one more
    text are added, because few texts without any disagreement do not prove that there is none. Simulation:
    tests/test_stats_simulations.py: ``test_intervals_of_alpha_hold_the_truth``.

    >>> alpha, low, high = krippendorff_interval([[["a", "a"]], [["b", "b"]]] * 10)
    >>> alpha, round(low, 1), high
    (1.0, 0.7, 1.0)
    """
    units = [(number, Counter(unit)) for number, text in enumerate(texts) for unit in text if len(unit) > 1]
    place = {label: column for column, label in enumerate(dict.fromkeys(label for _, unit in units for label in unit))}
    alpha = krippendorff_alpha(unit for text in texts for unit in text)
    if np.isnan(alpha):
        return Estimate(alpha, alpha, alpha)
    counts, observed = np.zeros((len(texts), len(place))), np.zeros(len(texts))
    for number, unit in units:
        for label, count in unit.items():
            counts[number, place[label]] += count
            observed[number] += count * (unit.total() - count) / (unit.total() - 1)
    kept = counts.any(axis=1)
    counts, observed = counts[kept], observed[kept]
    apart = np.isin(np.arange(len(place)), np.argsort(-counts.sum(axis=0), kind="stable")[:2]).astype(float)
    _, high = percentiles(_resampled_alpha(counts, observed))
    low, _ = percentiles(_resampled_alpha(np.vstack([counts, apart]), np.append(observed, 2.0)))
    return Estimate(alpha, float(low), float(high))


def _resampled_alpha(counts: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Alpha of each resample of texts with these counts of labels (N, C) and disagreements (N,); without those of one label."""
    weights = resample_counts(len(counts), rng(len(counts), "alpha"))
    totals = weights @ counts
    number = totals.sum(axis=1)
    expected = (number**2 - (totals**2).sum(axis=1)) / (number - 1)
    known = expected > 0
    return np.asarray(1 - (weights @ observed)[known] / expected[known])
