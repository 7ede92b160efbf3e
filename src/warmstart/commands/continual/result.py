"""The result of continual learning: every task after every stage, what was forgotten, and what each strategy brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.data.test_ledger import LedgerSummary, findings_by_task
from warmstart.stats.changes import changes_of
from warmstart.stats.comparison import MethodResult, compare_pairs
from warmstart.stats.differences import MethodScores
from warmstart.stats.intervals import Interval, t_interval

COMPARED = {"average": "Average over tasks at the end", "after_learning": "Score on each new task"}
"""metrics between 0 and 1, on which strategies are compared; the others lie between -1 and 1"""


@dataclass(frozen=True)
class ContinualRun:
    """All tasks, learned one after another with one strategy and one seed."""

    seed: int
    scores: tuple[tuple[float, ...], ...]
    """[k][j]: test score on task j after task k"""
    language_losses: tuple[float, ...]
    """language-model loss in nats at the start and after each task; empty without a text"""
    seconds: float
    validation_score: float
    """mean over all tasks at the end"""
    resampled: tuple[tuple[np.ndarray, ...], ...]
    """[k][j]: (R,) the test scores on resamples of the test texts"""
    resampled_losses: tuple[np.ndarray, ...]
    """(R,) the language-model losses on resamples of the text's documents"""

    @property
    def metrics(self) -> ForgettingMetrics:
        """The metrics of continual learning."""
        return forgetting_metrics(self.scores)


@dataclass(frozen=True)
class ContinualResult:
    """The runs of every strategy."""

    tasks: tuple[str, ...]
    """in the order learned"""
    runs: Mapping[str, tuple[ContinualRun, ...]]
    """by strategy, one per seed"""
    ledgers: tuple[LedgerSummary, ...] = ()
    """how often the test split of each task was scored"""

    HEADER: ClassVar = (
        "strategy", "average at the end", "right after learning", "backward transfer", "forgetting", "seconds",
    )  # fmt: skip
    """names the columns of ``table``"""

    def score(self, strategy: str, stage: int, task: int) -> Interval:
        """Test score on a task after a stage, over seeds."""
        return t_interval([run.scores[stage][task] for run in self.runs[strategy]]).within(0, 1)

    def metric(self, strategy: str, name: str) -> Interval:
        """One of the metrics, over seeds."""
        values = [getattr(run.metrics, name) for run in self.runs[strategy]]
        return t_interval(values).within(0 if name in COMPARED else -1, 1)

    def language_losses(self, strategy: str) -> list[float]:
        """Language-model loss at the start and after each task, mean over seeds; empty without a text."""
        runs = self.runs[strategy]
        return [sum(run.language_losses[stage] for run in runs) / len(runs) for stage in range(len(runs[0].language_losses))]

    @property
    def findings(self) -> list[str]:
        """What was forgotten, and what each strategy brings."""
        findings = self._forgotten()
        base, *others = list(self.runs)
        pairs = [(other, name) for other in others for name in COMPARED]
        compared = compare_pairs([(self._method(other, name), self._method(base, name)) for other, name in pairs])
        findings += [f"{COMPARED[name]}: {one.sentence}" for (_, name), one in zip(pairs, compared, strict=True)]
        if self.language_losses(base):
            pairs_of_losses = [(self._loss(strategy, -1), self._loss(strategy, 0)) for strategy in self.runs]
            changes = changes_of(pairs_of_losses, "the text's documents")
            findings += [
                change.in_nats(f"With {_named(strategy)}, the language-model loss")
                for strategy, change in zip(self.runs, changes, strict=True)
            ]
        return findings + [f"{task}: {finding}" for task, finding in findings_by_task(self.tasks, self.ledgers)]

    def _forgotten(self) -> list[str]:
        """Each task but the last, right after it was learned and at the end; corrected for their number."""
        stages = [(strategy, task) for strategy in self.runs for task in range(len(self.tasks) - 1)]
        end = len(self.tasks) - 1
        changes = changes_of(
            [(self._score(name, end, task), self._score(name, task, task)) for name, task in stages], "the test texts"
        )
        return [
            change.in_percent(f"With {_named(strategy)}, by the end, the score on {self.tasks[task]}")
            for (strategy, task), change in zip(stages, changes, strict=True)
        ]

    def _score(self, strategy: str, stage: int, task: int) -> MethodScores:
        """Test scores on a task after a stage, of every seed."""
        runs = self.runs[strategy]
        return MethodScores(
            strategy, tuple(run.scores[stage][task] for run in runs), np.array([run.resampled[stage][task] for run in runs])
        )

    def _loss(self, strategy: str, stage: int) -> MethodScores:
        """Language-model losses after a stage, of every seed."""
        runs = self.runs[strategy]
        losses = tuple(run.language_losses[stage] for run in runs)
        return MethodScores(strategy, losses, np.array([run.resampled_losses[stage] for run in runs]))

    def _method(self, strategy: str, name: str) -> MethodResult:
        """A metric that is a mean over tasks, with its resamples: at the end, or right after each task was learned."""
        runs, tasks = self.runs[strategy], range(len(self.tasks))
        stages = [tasks[-1] if name == "average" else task for task in tasks]
        resampled = [
            np.mean([run.resampled[stage][task] for stage, task in zip(stages, tasks, strict=True)], axis=0) for run in runs
        ]
        return MethodResult(_named(strategy), tuple(getattr(run.metrics, name) for run in runs), resampled=np.array(resampled))

    def table(self) -> list[tuple[str, ...]]:
        """One row per strategy."""
        return [
            (
                strategy,
                *(str(self.metric(strategy, name)) for name in ("average", "after_learning", "backward_transfer", "forgetting")),
                f"{np.mean([run.seconds for run in runs]):.1f}",
            )
            for strategy, runs in self.runs.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything but resamples as plain values, fit for JSON."""
        kept = ("seed", "scores", "language_losses", "seconds", "validation_score")
        runs = {
            strategy: [{name: getattr(run, name) for name in kept} | asdict(run.metrics) for run in runs]
            for strategy, runs in self.runs.items()
        }
        ledgers = [ledger.to_dict() for ledger in self.ledgers]
        return {"tasks": self.tasks, "findings": self.findings, "runs": runs, "test_splits": ledgers}


def _named(strategy: str) -> str:
    """The strategy in a sentence."""
    return "no strategy" if strategy == "none" else strategy


@dataclass(frozen=True)
class ForgettingMetrics:
    """The usual metrics of continual learning."""

    average: float
    """mean over all tasks at the end"""
    after_learning: float
    """mean over tasks right after each was learned: what keeping the old ones costs the new ones"""
    backward_transfer: float
    """mean over all but the last task of (score at the end - score right after learning); below 0: forgotten"""
    forgetting: float
    """mean over all but the last task of (best score before the end - score at the end); 0: nothing lost"""


def forgetting_metrics(scores: Sequence[Sequence[float]]) -> ForgettingMetrics:
    """The metrics of ``scores[k][j]``: test score on task j after task k.

    Average and backward transfer: Lopez-Paz and Ranzato 2017, equations 2 and 3; forgetting: Chaudhry et al. 2018, equation 3.
    """
    assert all(len(row) == k + 1 for k, row in enumerate(scores)), "one score for every task learned so far"
    last, earlier = scores[-1], range(len(scores) - 1)
    backward = [last[j] - scores[j][j] for j in earlier]
    lost = [max(scores[k][j] for k in range(j, len(scores) - 1)) - last[j] for j in earlier]
    return ForgettingMetrics(
        float(np.mean(last)),
        float(np.mean([row[-1] for row in scores])),
        float(np.mean(backward)) if backward else 0.0,
        float(np.mean(lost)) if lost else 0.0,
    )
