"""The one place where a test split is scored. Every scoring stands in the ledger before it happens (``data/scorings.py``).

A test holds that no other file reads the labels of a test split to score predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warmstart.data.scorings import ScoredMethod
from warmstart.data.task import Task
from warmstart.stats.intervals import Estimate, percentiles
from warmstart.stats.proportions import effective_cases, proportion_in_units, wilson_interval
from warmstart.stats.scores import ClassificationScores, Scores, metric_range
from warmstart.tasks import task_type_of
from warmstart.tasks.answers import Answer, AnswerTask, exact_matches


@dataclass(frozen=True)
class ScoredPredictions:
    """The predictions of one model for a test split, scored."""

    task: Task
    predictions: Any
    """predictions in the form that the task type scores"""
    scores: Scores

    @property
    def score(self) -> float:
        """The task's metric."""
        return self.scores.score(self.task.metric)

    @cached_property
    def interval(self) -> Estimate:
        """The task's metric with its 95% interval over independent test texts."""
        test, metric = self.task.test, self.task.metric
        if isinstance(self.scores, ClassificationScores) and metric == "accuracy":
            return proportion_in_units(self.scores.predicted == test.labels, test.units)
        if metric_range(metric) != (0.0, 1.0):
            low, high = percentiles(self.resampled)
            return Estimate(self.score, float(low), float(high))
        most, units = sum(map(np.size, test.labels)), len(np.unique(test.units))
        variance = self.score * (1 - self.score)
        return wilson_interval(self.score, effective_cases(variance, float(self.resampled.var()), most, units))

    @cached_property
    def resampled(self) -> np.ndarray:
        """(R,) the task's metric on resamples of the split; the resamples are the same for every method."""
        return task_type_of(self.task).resampled_scores(self.task.test, self.predictions, self.task)


def score_test(
    task: Task, predictions: Any, method: ScoredMethod, seed: int | None, counted: Task | None = None
) -> ScoredPredictions:
    """Score predictions for the test split of a task.

    The ledger counts it for the test split of ``counted``, from whose texts ``task`` drew another one, if it is given.
    """
    method.record(counted or task, seed)
    return ScoredPredictions(task, predictions, task_type_of(task).scores(task.test, predictions, task))


def score_test_answers(task: AnswerTask, answers: Sequence[Answer], method: ScoredMethod, seed: int | None) -> np.ndarray:
    """(N,) bool: whether each answer to the test questions is right. Raises ``DataError`` as ``score_test``."""
    method.record(task, seed)
    return exact_matches(answers, task.test)
