"""Regression: one number per text, or per pair of texts. Trained with squared error, scored by correlation.

Letters: N texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.heads.per_text import RegressionHeadConfig
from warmstart.stats.scores import Scores
from warmstart.tasks.task_type import Examples, HeadSettings, TaskType

if TYPE_CHECKING:
    from warmstart.data.tables import TextTable


class RegressionTask(TaskType):
    """A text gets a number. Predictions: (N, 1), in the units of the targets."""

    name: ClassVar = "regression"
    head_config: ClassVar = RegressionHeadConfig
    metrics: ClassVar = ("pearson", "spearman", "r2")
    bounded: ClassVar = False
    constant_rule: ClassVar = "always the mean"

    def examples(self, table: TextTable, source: Source) -> Examples:
        """Texts or pairs, and a finite number each."""
        from warmstart.data.label_cells import DECIMAL_COMMA

        targets = []
        for number, cell in enumerate(table.column(source.label, "label").to_list(), 1):
            try:
                comma = isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell.strip())
                targets.append(float(cell.replace(",", ".") if comma else cell))
            except (TypeError, ValueError):
                targets.append(math.nan)
            if not math.isfinite(targets[-1]):
                raise DataError(f"row {number} of {table.file} must hold a number in '{source.label}', but holds {cell!r}")
        return table.inputs(source), targets

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N,) float64."""
        return np.array(targets, dtype=np.float64)

    def head(self, task: Task, settings: HeadSettings) -> RegressionHeadConfig:
        """One output, standardised by the mean and the spread of the training targets, which the head keeps."""
        mean, spread = float(task.train.labels.mean()), float(task.train.labels.std()) or 1.0
        return RegressionHeadConfig(**settings.pooled(), mean=mean, std=spread)

    def scores(self, split: Split, predictions: np.ndarray, task: Task) -> Scores:
        """Correlations, R², mean absolute and root mean squared error. The correlation with a constant counts as 0."""
        from sklearn.metrics import r2_score

        from warmstart.stats.correlation import pearson, spearman

        truth, predicted = split.labels, predictions[:, 0]
        constant = any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (predicted, truth))
        error = predicted - truth
        return Scores(
            {
                "pearson": 0.0 if constant else pearson(truth, predicted),
                "spearman": 0.0 if constant else spearman(truth, predicted),
                "r2": float(r2_score(truth, predicted)) if len(truth) > 1 else 0.0,
                "mae": float(np.abs(error).mean()),
                "rmse": float(np.sqrt((error**2).mean())),
            }
        )

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> np.ndarray:
        """The mean."""
        return np.full((len(inputs), 1), fitted.labels.mean())

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``number``."""
        return [{"number": round(float(row[0]), 6)} for row in predictions]
