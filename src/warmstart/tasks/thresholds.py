"""The thresholds of a task with several labels per text: chosen on texts that were left out, and kept with the model.

Letters: N texts, C labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.task import Split, Task
from warmstart.model.bundle import Bundle
from warmstart.seeding import rng
from warmstart.stats.scores import SHARED_FOR_ALL, SHARED_TEXTS, Scores, label_thresholds
from warmstart.tasks import task_type_of

if TYPE_CHECKING:
    from warmstart.model.stack import Stack

CHOOSING_PARTS = 5
"""parts of the texts that choose thresholds where they are scored too: the thresholds of each part are chosen by the others"""


def has_thresholds(task: Task) -> bool:
    """True if the labels of a task have thresholds."""
    return task_type_of(task).several_labels


def chosen_thresholds(task: Task, split: Split, predictions: Any) -> tuple[float, ...]:
    """The threshold of each label, from ``predictions`` (N, C) for texts that were left out; empty if the task has none."""
    return tuple(_thresholds(task, predictions, split.labels).tolist()) if has_thresholds(task) and len(split) else ()


def _thresholds(task: Task, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return label_thresholds(predictions, labels, SHARED_TEXTS if task.metric == "macro_f1" else SHARED_FOR_ALL)


def thresholds_of(model: Bundle | Stack) -> tuple[float, ...]:
    """Thresholds of a model; empty: a half, or it has no labels."""
    return model.calibration.thresholds if model.calibration else ()


def at_thresholds(predictions: Any, thresholds: tuple[float, ...]) -> Any:
    """1 for each label whose probability (N, C) reaches its threshold, else 0; without thresholds the predictions as they are."""
    return (np.asarray(predictions) >= thresholds).astype(np.float64) if thresholds else predictions


def left_out_at_thresholds(task: Task, split: Split, predictions: Any) -> Any:
    """Labels of the texts that choose thresholds: of each text by the others, copies of it not among them."""
    if not has_thresholds(task) or not len(split):
        return predictions
    assigned = np.zeros(predictions.shape)
    for units in np.array_split(rng(0, "texts that choose thresholds").permutation(np.unique(split.units)), CHOOSING_PARTS):
        held = np.isin(split.units, units)
        assigned[held] = predictions[held] >= _thresholds(task, predictions[~held], split.labels[~held])
    return assigned


def scores_left_out(task: Task, split: Split, predictions: Any) -> Scores:
    """Every metric of predictions for the texts that choose."""
    return task_type_of(task).scores(split, left_out_at_thresholds(task, split, predictions), task)
