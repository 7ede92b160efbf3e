"""The result of continual learning: every task after every stage, what was forgotten, and what each strategy brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.stats.comparison import MethodResult, compare_pairs
from warmstart.stats.formatting import percent
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
        findings = [self._forgotten(strategy, task) for strategy in self.runs for task in range(len(self.tasks) - 1)]
        base, *others = list(self.runs)
        pairs = [(other, name) for other in others for name in COMPARED]
        compared = compare_pairs([(self._method(other, name), self._method(base, name)) for other, name in pairs])
        findings += [f"{COMPARED[name]}: {one.sentence}" for (_, name), one in zip(pairs, compared, strict=True)]
        for strategy in self.runs:
            if losses := self.language_losses(strategy):
                change = f"from {losses[0]:.3f} to {losses[-1]:.3f} nats"
                findings.append(f"With {_named(strategy)}, the language-model loss went {change}.")
        return findings

    def _forgotten(self, strategy: str, task: int) -> str:
        learned, end = self.score(strategy, task, task).mean, self.score(strategy, len(self.tasks) - 1, task).mean
        if learned == end:
            change = f"stayed at {percent(end)}"
        else:
            change = f"{'fell' if end < learned else 'rose'} from {percent(learned)} to {percent(end)}"
        return f"With {_named(strategy)}, the score on {self.tasks[task]} {change} by the end."

    def _method(self, strategy: str, name: str) -> MethodResult:
        return MethodResult(_named(strategy), tuple(getattr(run.metrics, name) for run in self.runs[strategy]))

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
        """Everything as plain values, fit for JSON."""
        runs = {strategy: [asdict(run) | asdict(run.metrics) for run in runs] for strategy, runs in self.runs.items()}
        return {"tasks": self.tasks, "findings": self.findings, "runs": runs}


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
