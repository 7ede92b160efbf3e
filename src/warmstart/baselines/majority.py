"""The baseline that ignores the texts: always the most frequent label, or whatever is constant for the task type.

A run that scores no better has learned nothing.
"""

from __future__ import annotations

from warmstart.baselines.baseline import BaselineResult
from warmstart.data.task import Task
from warmstart.stats.scores import Scores
from warmstart.tasks import task_type_of

COLLAPSE_MARGIN = 0.01
"""a run that beats the constant prediction by less has collapsed"""


def majority(task: Task) -> BaselineResult:
    """The constant prediction of the task type, fitted to the training split."""
    task_type = task_type_of(task)
    return BaselineResult(task_type.constant(task.train, task.test.texts, task), task_type.constant_rule)


def constant_score(task: Task) -> float:
    """The test score, in the task's metric, of a constant prediction.

    With one label per text that is the best constant prediction there is, the most frequent label of the test split itself;
    otherwise it is the prediction fitted to the training split.
    """
    task_type, fitted = task_type_of(task), task.test if task.single_label else task.train
    return task_type.scores(task.test, task_type.constant(fitted, task.test.texts, task), task).score(task.metric)


def collapsed(task: Task, scores: Scores) -> bool:
    """Whether a run learned nothing: its test score is no better than that of a constant prediction."""
    return bool(scores.score(task.metric) <= constant_score(task) + COLLAPSE_MARGIN)
