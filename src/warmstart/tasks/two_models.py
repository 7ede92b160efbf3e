"""Two saved models on the same test texts, compared text by text.

Seeds play no part: the question is about these two models, and what is uncertain is the texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from warmstart.data.scorings import ScoredMethod
from warmstart.data.task import Task
from warmstart.errors import DataError, ModelError
from warmstart.heads.settings import TaskHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Stack
from warmstart.stats.intervals import percentiles
from warmstart.stats.proportions import ProportionDifference, paired_proportions
from warmstart.stats.scores import ClassificationScores, metric_range
from warmstart.tasks import check_task_type
from warmstart.tasks.answers import AnswerTask, answer_questions
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.scoring import score_test, score_test_answers
from warmstart.tasks.thresholds import at_thresholds, thresholds_of


@dataclass(frozen=True)
class ModelsCompared:
    """Two models on the same N test texts."""

    names: tuple[str, str]
    metric: str
    scores: tuple[float, float]
    difference: ProportionDifference
    """the first less the second; without a p-value (nan) if it comes from resamples"""
    right: np.ndarray | None
    """(2, N) bool: who is right; None if a text is neither right nor wrong by itself"""
    units: np.ndarray
    """(N,) equal for texts that depend on each other"""
    over: str
    """names what the interval covers"""
    parts: Sequence[tuple[str, np.ndarray]] = ()
    """(name, mask (N,)) of texts that are counted apart"""

    @property
    def texts(self) -> int:
        """N."""
        return len(self.units)

    @property
    def sign(self) -> int:
        """1 if the first is significantly better, -1 if significantly worse, else 0."""
        if math.isnan(self.difference.p):
            return int(self.difference.low > 0) - int(self.difference.high < 0)
        return self.difference.sign

    @property
    def differing(self) -> float:
        """Share of texts on which only one of the two is right."""
        return float("nan") if self.right is None else float((self.right[0] != self.right[1]).mean())


@dataclass(frozen=True)
class _Scored:
    """The scores of a model on the N test texts."""

    score: float
    right: np.ndarray | None = None
    """(N,) bool"""
    resampled: np.ndarray | None = None
    """(R,) the score on each resample; None where texts are compared one by one"""


def check_rivals(models: Mapping[str, Bundle | Stack]) -> None:
    """Raise ``DataError`` unless two models, by path, know the same labels, and ``ModelError`` for one that is not adapted."""
    for path, model in models.items():
        if isinstance(model, Bundle) and not (model.max_answer_tokens or isinstance(model.model.head.config, TaskHeadConfig)):
            raise ModelError(f"two adapted models are compared, but {path} is a language model; adapt it first")
    if len({frozenset(model.labels) for model in models.values()}) > 1:
        known = " and ".join(f"{path} knows {', '.join(model.labels) or 'none'}" for path, model in models.items())
        raise DataError(f"two models that are compared must know the same labels, but {known}; adapt both to the same task")


def measure_models(
    names: tuple[str, str], models: Sequence[Bundle | Stack], task: Task | AnswerTask, methods: Sequence[ScoredMethod]
) -> ModelsCompared:
    """Both models on the test texts of a task, which the ledger counts under ``methods``."""
    scored = [_scored(model, task, method) for model, method in zip(models, methods, strict=True)]
    return _compared(names, task.metric if isinstance(task, Task) else "accuracy", scored, task)


def as_model_numbers(model: Bundle | Stack, task: Task) -> Task:
    """The task with its labels in the order of the model's. Raises ``DataError`` if the model does not know them all."""
    if unknown := sorted(set(task.labels) - set(model.labels)):
        known = ", ".join(model.labels)
        raise DataError(
            f"the model must know every label of the task, but not {', '.join(unknown)}; it knows {known}: write these in "
            "their place"
        )
    if not task.single_label:
        if task.labels != model.labels:
            raise DataError(f"the model must know the task's labels in the same order: {', '.join(model.labels)}")
        return task
    numbers = np.array([model.labels.index(name) for name in task.labels])
    return replace(task, labels=model.labels, test=replace(task.test, labels=numbers[task.test.labels]))


def _scored(model: Bundle | Stack, task: Task | AnswerTask, method: ScoredMethod) -> _Scored:
    if isinstance(task, AnswerTask):
        if not (isinstance(model, Bundle) and model.max_answer_tokens):
            raise ModelError("a model that answers questions is compared with another one, but the other gives labels")
        right = score_test_answers(task, answer_questions(model, task.test.questions), method, None)
        return _Scored(float(right.mean()), right)
    check_task_type(model, task)
    known = as_model_numbers(model, task)
    scored = score_test(known, at_thresholds(raw_predictions(model, known.test.texts), thresholds_of(model)), method, None)
    if isinstance(scored.scores, ClassificationScores):
        right = scored.scores.predicted == known.test.labels
        return _Scored(scored.score, right, None if known.metric == "accuracy" else scored.resampled)
    return _Scored(scored.score, None, scored.resampled)


def _compared(names: tuple[str, str], metric: str, scored: list[_Scored], task: Task | AnswerTask) -> ModelsCompared:
    """Two models, by accuracy text by text; else by resamples of independent units that both share."""
    first, second = scored
    scores, units, count = (first.score, second.score), task.test.units, len(task.test)
    independent = len(np.unique(units)) == count
    right = None if first.right is None or second.right is None else np.stack([first.right, second.right])
    if metric == "accuracy" and right is not None:
        sides = right.astype(float)
        difference = paired_proportions([sides[0]], [sides[1]], units)
    else:
        assert first.resampled is not None
        assert second.resampled is not None
        difference = _resampled(first.score - second.score, first.resampled - second.resampled)
        if difference.low == difference.high and metric_range(metric) == (0.0, 1.0):  # they agree on all texts, which may be few
            difference = replace(paired_proportions([np.zeros(count)], [np.zeros(count)], units), p=math.nan)
    over = f"{count:,} test texts" if independent else f"{len(np.unique(units)):,} groups of test texts"
    return ModelsCompared(names, metric, scores, difference, right, units, over, _parts(task))


def _resampled(mean: float, differences: np.ndarray) -> ProportionDifference:
    """A difference with the percentiles of its resamples (R,)."""
    low, high = percentiles(differences)
    return ProportionDifference(mean, float(low), float(high), float("nan"), 0)


def _parts(task: Task | AnswerTask) -> list[tuple[str, np.ndarray]]:
    """All texts, and those of each class that occurs."""
    count = len(task.test)
    parts = [("all", np.ones(count, bool))]
    if isinstance(task, Task) and task.single_label:
        parts += [(name, task.test.labels == number) for number, name in enumerate(task.labels)]
    return [(name, chosen) for name, chosen in parts if chosen.any()]
