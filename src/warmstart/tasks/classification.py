"""Classification: one label per text, or per pair of texts.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.stats.resampling import resample_classification
from warmstart.stats.scores import ClassificationScores, classification_scores
from warmstart.tasks.task_type import Examples, HeadSettings, TaskType, label_names, label_numbers

if TYPE_CHECKING:
    from warmstart.data.tables import TextTable


class ClassificationTask(TaskType):
    """A text gets one of C labels. Predictions: (N, C) probabilities, each row summing to 1."""

    name: ClassVar = "classification"
    head_config: ClassVar = ClassificationHeadConfig
    metrics: ClassVar = ("accuracy", "macro_f1")
    probabilistic: ClassVar = True
    one_label: ClassVar = True
    constant_rule: ClassVar = "always the most frequent label"

    def examples(self, table: TextTable, source: Source) -> Examples:
        """Texts or pairs, and the name of each label."""
        return table.inputs(source), table.labels(source)

    def lines(self, source: Source) -> Examples | None:
        """Texts that have one label for all, or their labels in another file, or by a pattern."""
        from warmstart.data.read import labelled_lines

        return labelled_lines(source) if source.second is None else None

    def label_names(self, targets: Sequence[Any], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        """The names that occur, or those in the manifest."""
        return label_names(targets, wanted)

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N,) int64 numbers of the labels."""
        numbers = label_numbers(split, targets, labels)
        return np.array([numbers[label] for label in targets], dtype=np.int64)

    def head(self, task: Task, settings: HeadSettings) -> ClassificationHeadConfig:
        """One class per label."""
        return ClassificationHeadConfig(classes=len(task.labels), **settings._asdict())

    def scores(self, split: Split, predictions: np.ndarray, task: Task) -> ClassificationScores:
        """Accuracy, macro F1, log loss, and every class by itself."""
        return classification_scores(split.labels, predictions, task.labels)

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> np.ndarray:
        """The relative frequency of each label."""
        return np.tile(np.bincount(fitted.labels, minlength=len(task.labels)) / len(fitted), (len(inputs), 1))

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``label`` and ``probabilities``."""
        rows = [top_probabilities(row, labels, top) for row in predictions]
        return [{"label": next(iter(row)), "probabilities": row} for row in rows]

    def resampled_scores(self, split: Split, predictions: np.ndarray, task: Task) -> np.ndarray:
        """Scores of resamples from counts of the classes alone, which is fast."""
        predicted = predictions.argmax(axis=1)
        return resample_classification(task.metric, split.labels, predicted, len(task.labels), groups=split.units)


def top_probabilities(row: np.ndarray, labels: Sequence[str], top: int) -> dict[str, float]:
    """The ``top`` most probable labels with their probabilities, the most probable first."""
    return {labels[i]: round(float(row[i]), 4) for i in (-row).argsort(kind="stable")[:top]}
