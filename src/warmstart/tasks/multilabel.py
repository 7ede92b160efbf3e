"""Multilabel classification: any number of labels per text. A label is predicted if its probability is at least 0.5.

A model may have other thresholds, which make probabilities 0 or 1 before they are scored (``thresholds.py``).

Letters: N texts, C labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.heads.per_text import MultilabelHeadConfig
from warmstart.stats.resampling import resample_indices, resampled_macro_f1
from warmstart.stats.scores import Scores
from warmstart.tasks.classification import top_probabilities
from warmstart.tasks.task_type import Examples, HeadSettings, TaskType, label_names, label_numbers

if TYPE_CHECKING:
    from warmstart.data.tables import TextTable


class MultilabelTask(TaskType):
    """A text gets any number of C labels. Predictions: (N, C) probabilities, each by itself."""

    name: ClassVar = "multilabel"
    head_config: ClassVar = MultilabelHeadConfig
    metrics: ClassVar = ("micro_f1", "macro_f1", "subset")
    probabilistic: ClassVar = True
    several_labels: ClassVar = True
    constant_rule: ClassVar = "always the labels that most texts have"

    def examples(self, table: TextTable, source: Source) -> Examples:
        """Texts or pairs, and a list of label names each, as ``data/label_cells.py`` reads a cell.

        Raises ``DataError`` if no cell has the separator, which nobody named, but labels seem to stand between others.
        """
        from warmstart.data.label_cells import names_in, other_separator

        cells = table.column(source.label, "label").to_list()
        other = None if "separator" in source.model_fields_set else other_separator(cells, source.separator)
        if other is not None:
            example = next(cell for cell in cells if isinstance(cell, str) and other in cell)
            raise DataError(
                f"labels of one text must stand between '{source.separator}' in {table.file}, but none do, and {example!r} looks "
                f"like several; write 'separator: {json.dumps(other)}' beside the path, or 'separator: \"|\"' if that is one label"
            )
        return table.inputs(source), [names_in(cell, source.separator) for cell in cells]

    def label_names(self, targets: Sequence[Any], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        """The names that occur, or those in the manifest."""
        return label_names([name for row in targets for name in row], wanted)

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N, C) float32: 1 for each label that a text has, else 0."""
        numbers = label_numbers(split, (name for row in targets for name in row), labels)
        encoded = np.zeros((len(targets), len(labels)), dtype=np.float32)
        for index, row in enumerate(targets):
            encoded[index, [numbers[name] for name in row]] = 1
        return encoded

    def head(self, task: Task, settings: HeadSettings) -> MultilabelHeadConfig:
        """One logit per label."""
        return MultilabelHeadConfig(classes=len(task.labels), **settings.pooled())

    def scores(self, split: Split, predictions: np.ndarray, task: Task) -> Scores:
        """Micro and macro F1, and subset accuracy: the fraction of texts whose labels are all right."""
        from sklearn.metrics import f1_score

        truth, predicted = split.labels > 0.5, predictions >= 0.5
        f1 = {name: float(f1_score(truth, predicted, average=name, zero_division=0)) for name in ("micro", "macro")}
        subset = float((truth == predicted).all(axis=1).mean())
        return Scores({"micro_f1": f1["micro"], "macro_f1": f1["macro"], "subset": subset})

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> np.ndarray:
        """The relative frequency of each label; 1 for the most frequent one, so that at least one is predicted."""
        frequencies = fitted.labels.mean(axis=0)
        return np.tile(np.maximum(frequencies, frequencies == frequencies.max()), (len(inputs), 1))

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``labels`` and ``probabilities``."""
        return [
            {
                "labels": [name for name, probability in zip(labels, row, strict=True) if probability >= 0.5],
                "probabilities": top_probabilities(row, labels, top),
            }
            for row in predictions
        ]

    def resampled_scores(self, split: Split, predictions: np.ndarray, task: Task) -> np.ndarray:
        """Scores of resamples from counts, which is fast. Macro F1 leaves out labels that a resample neither has nor predicts."""
        truth, predicted = split.labels > 0.5, predictions >= 0.5
        right, both, whole = truth & predicted, truth.astype(float) + predicted, (truth == predicted).all(axis=1)
        absent = both.sum(axis=0) == 0
        scores: dict[str, Callable[[np.ndarray], float]] = {
            "micro_f1": lambda times: 2 * (times @ right).sum() / max(1.0, (times @ both).sum()),
            "macro_f1": lambda times: resampled_macro_f1(times @ right, times @ both, absent),
            "subset": lambda times: times @ whole / times.sum(),
        }
        draws = resample_indices(len(split), groups=split.units)
        return np.array([scores[task.metric](np.bincount(drawn, minlength=len(split))) for drawn in draws])
