"""Results of commands that train, without training: the scores are made up, with as many seeds as wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from helpers.tasks import cats
from warmstart.commands.continual import ContinualResult
from warmstart.data.audit import audit
from warmstart.data.budget import LabelBudget
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.finetuning.answering import AnswerPredictions
from warmstart.finetuning.answers_result import AnswersResult
from warmstart.finetuning.runs import PRETRAINED, SCRATCH
from warmstart.report import page
from warmstart.report.parts import Report
from warmstart.stats.abstention import Threshold
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.differences import MethodScores
from warmstart.stats.forgetting import ALONE, JOINT, ContinualRun
from warmstart.stats.scores import classification_scores
from warmstart.tasks.answers import AnsweredQuestions, AnswerTask

TEXTS = 200
"""test texts of every result"""


def report_of(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> Report:
    """The report that a function writes, whose charts are not drawn."""
    found = list[Report]()
    monkeypatch.setattr(page, "svg", lambda spec: "<svg/>")
    monkeypatch.setattr(page, "render", lambda report, *drawn: found.append(report) or "")
    write()
    return found[0]


def compared(accuracies: Mapping[str, float], seeds: int, chance: np.random.Generator) -> MethodTable:
    """Methods that are right so often, each text by itself."""
    rights = {name: chance.random((seeds, TEXTS)) < accuracy for name, accuracy in accuracies.items()}
    scores = [MethodScores.from_texts(name, right.astype(float)) for name, right in rights.items()]
    rows = tuple(MethodResult(one.name, one.scores, resampled=one.resampled) for one in scores)
    return MethodTable("accuracy", rows, rival=SCRATCH)


def adapt_result(accuracies: Mapping[str, float], seeds: int = 3, labels: int = 80) -> AdaptResult:
    """The first method was adapted; all seeds have the same labels, of which twenty choose."""
    task, chance = cats(), np.random.default_rng(labels)
    comparison = compared(accuracies, seeds, chance)
    first, name = comparison.rows[0], comparison.rows[0].name
    final = SimpleNamespace(test_predictions=None)
    scored = enumerate(first.scores)
    runs = [SimpleNamespace(seed=seed, validation_score=score, curve=((1, score),), final=final) for seed, score in scored]
    scores = classification_scores(task.test.labels, chance.dirichlet([1, 1], len(task.test)), task.labels)
    budgets = {seed: LabelBudget(task, np.arange(labels - 20), np.arange(20), seed) for seed in range(seeds)}
    return AdaptResult(
        task, comparison, cast("Any", {name: tuple(runs)}), {row.name: (scores,) * seeds for row in comparison.rows},
        audit(task), 60, budgets,
    )  # fmt: skip


def continual_result(ends: Mapping[str, float], seeds: int = 5) -> ContinualResult:
    """Three tasks, of which the first one ends at a score that depends on the strategy; seeds share a split."""
    chance = np.random.default_rng(0)
    texts = chance.normal(0, 0.02, (3, 3, 1000))  # other test texts move all seeds alike

    def run(seed: int, strategy: str, end: float) -> ContinualRun:
        means = ((0.9,), (0.8, 0.8), (end, 0.8, 0.7))
        scores = tuple(tuple(mean + chance.normal(0, 0.01) for mean in row) for row in means)
        resampled = tuple(tuple(score + texts[k, j] for j, score in enumerate(row)) for k, row in enumerate(scores))
        losses = (3.0, 3.5 + chance.normal(0, 0.01))
        if strategy in (JOINT, ALONE):
            scores, resampled = scores[-1:], resampled[-1:]
        return ContinualRun(seed, scores, losses, 1.0, 0.8, resampled, tuple(loss + texts[0, 0] for loss in losses))

    runs = {name: tuple(run(seed, name, end) for seed in range(seeds)) for name, end in ends.items()}
    return ContinualResult(("a", "b", "c"), runs, one_split=True)


def answers_result(seeds: int = 3, draw: int = 0) -> AnswersResult:
    """A pretrained model and one from scratch that are right equally often, the more often the more confident they are."""
    chance = np.random.default_rng(draw)
    runs = dict[str, tuple[Any, ...]]()
    for name in (PRETRAINED, SCRATCH):
        confidence = chance.random((seeds, TEXTS))
        correct = chance.random((seeds, TEXTS)) < np.clip(0.8 + 0.4 * (confidence - 0.5), 0, 1)
        tests = [AnswerPredictions(("Riga",) * TEXTS, *one) for one in zip(confidence, correct, strict=True)]
        runs[name] = tuple(
            SimpleNamespace(seed=seed, validation_score=test.correct.mean(), curve=((1, 0.5), (2, 0.8)), test=test)
            for seed, test in enumerate(tests)
        )
    rows = [MethodScores.from_texts(name, np.array([run.test.correct for run in found], float)) for name, found in runs.items()]
    questions = AnsweredQuestions(tuple(f"Where was {i} born?" for i in range(TEXTS)), ("Riga",) * TEXTS)
    table = MethodTable("correct", tuple(MethodResult(one.name, one.scores, resampled=one.resampled) for one in rows))
    task, threshold = AnswerTask("places", questions, questions, questions), Threshold(0.5, 0.1, 0.95, 100, 5, TEXTS)
    return AnswersResult(task, table, runs, runs[PRETRAINED][0].test, threshold)
