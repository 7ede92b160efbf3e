"""The result of continual learning: every task after every stage, what was forgotten, and what each strategy brings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from warmstart.data.test_ledger import LedgerSummary, findings_by_task
from warmstart.notebook import Shown
from warmstart.stats.changes import Change, changes_of
from warmstart.stats.comparison import MethodResult, PairedComparison, compare_pairs, detectable_points
from warmstart.stats.differences import MethodScores
from warmstart.stats.formatting import INTERVAL_OVER, percent, points_range, rows_by_source
from warmstart.stats.intervals import Interval
from warmstart.stats.splits import THIS_SPLIT

COMPARED = {"average": "Average over tasks at the end", "after_learning": "Score on each new task"}
"""metrics between 0 and 1, on which strategies are compared; the others lie between -1 and 1"""
METRICS = ("average", "after_learning", "backward_transfer", "forgetting")
"""in the order of the table"""


@dataclass(frozen=True)
class ContinualRun:
    """All tasks, learned one after another with one strategy and one seed."""

    seed: int
    scores: tuple[tuple[float, ...], ...]
    """[k][j]: test score on task j after task k"""
    language_losses: tuple[float, ...]
    """language-model loss in nats at the start and after each task; empty without a text"""
    seconds: float
    validation_score: float | None
    """mean over all tasks at the end, on the texts that choose; None if none do"""
    resampled: tuple[tuple[np.ndarray, ...], ...]
    """[k][j]: (R,) the test scores on resamples of the test texts"""
    resampled_losses: tuple[np.ndarray, ...]
    """(R,) the language-model losses on resamples of the text's documents"""

    @property
    def metrics(self) -> ForgettingMetrics:
        """The metrics of continual learning."""
        return forgetting_metrics(self.scores)


@dataclass(frozen=True)
class ContinualResult(Shown, view="commands.continual.page:continual_view"):
    """The runs of every strategy."""

    tasks: tuple[str, ...]
    """in the order learned"""
    runs: Mapping[str, tuple[ContinualRun, ...]]
    """by strategy, one per seed"""
    ledgers: tuple[LedgerSummary, ...] = ()
    """how often the test split of each task was scored"""
    labels: tuple[str, ...] = ()
    """what the labels of each task were for, as sentences"""
    one_split: bool = False
    """whether the intervals hold for one split only, because seeds share too many training texts of a task"""

    HEADER: ClassVar = (
        "strategy", INTERVAL_OVER, "average at the end", "right after learning", "backward transfer", "forgetting", "seconds",
    )  # fmt: skip
    """names the columns of ``table``"""
    TESTED_HEADER: ClassVar = (
        "strategy", "figure", "value", "compared with", "value there", "95% interval of the difference", "significant",
        "smallest detectable",
    )  # fmt: skip
    """names the columns of ``tested``"""

    @property
    def seeds(self) -> int:
        """Runs of each strategy."""
        return len(next(iter(self.runs.values())))

    def score(self, strategy: str, stage: int, task: int) -> Interval:
        """Test score on a task after a stage, over seeds and test texts."""
        return self._score(strategy, stage, task).over_both.within(0, 1)

    def stage_rows(self, strategy: str) -> list[tuple[str, ...]]:
        """The scores of all tasks after each stage, and below them intervals over seeds alone; a task not yet learned is empty."""
        rows = list[tuple[str, ...]]()
        for stage in range(len(self.tasks)):
            both = [self.score(strategy, stage, task) for task in range(stage + 1)]
            alone = [self._score(strategy, stage, task).over_seeds.within(0, 1).ends for task in range(stage + 1)]
            later = [""] * (len(self.tasks) - stage - 1)
            rows += rows_by_source(self.tasks[stage], self.seeds, [*both, *later], [*alone, *later])
        return rows

    def metric(self, strategy: str, name: str) -> MethodScores:
        """One of the metrics of every seed, with its resamples."""
        runs = self.runs[strategy]
        resampled = np.array([_metrics(run.resampled)[name] for run in runs])
        return MethodScores(_named(strategy), tuple(getattr(run.metrics, name) for run in runs), resampled)

    def language_losses(self, strategy: str) -> list[float]:
        """Language-model loss at the start and after each task, mean over seeds; empty without a text."""
        runs = self.runs[strategy]
        return [sum(run.language_losses[stage] for run in runs) / len(runs) for stage in range(len(runs[0].language_losses))]

    @property
    def findings(self) -> list[str]:
        """What the first strategy forgets, and what each other one brings; ``tested`` has the rest."""
        base = next(iter(self.runs))
        findings = [
            change.in_percent(f"With {_named(strategy)}, by the end, the score on {self.tasks[task]}")
            for (strategy, task), change in self._forgotten().items()
            if strategy == base
        ]
        findings += [f"{COMPARED[name]}: {one.sentence}" for (_, name), one in self._compared().items() if name == "average"]
        findings += [
            change.in_nats(f"With {_named(strategy)}, the language-model loss")
            for strategy, change in self._language_changes().items()
            if strategy == base
        ]
        findings += [f"{task}: {labels}" for task, labels in zip(self.tasks, self.labels, strict=False)]
        findings += [THIS_SPLIT] if self.one_split else []
        return findings + [f"{task}: {scored}" for task, scored in findings_by_task(self.tasks, self.ledgers)]

    def tested(self) -> list[tuple[str, ...]]:
        """Every change and comparison under ``TESTED_HEADER``; each kind is corrected for its number."""
        base, rows = next(iter(self.runs)), list[tuple[str, ...]]()
        for (strategy, task), one in self._forgotten().items():
            before, after = (percent(score) for score in (one.before, one.after))
            ends = f"{points_range(one.low, one.high)} points"
            figure = f"score on {self.tasks[task]}"
            row = (strategy, figure, after, "right after learning", before, ends, _yes(one.sign))
            rows.append((*row, _points(one.detectable)))
        for (strategy, name), found in self._compared().items():
            there, here = (percent(self.interval(each, name).mean) for each in (base, strategy))
            ends = f"{points_range(found.difference.low, found.difference.high)} points"
            row = (strategy, COMPARED[name].lower(), here, _named(base), there, ends, _yes(found.significant))
            rows.append((*row, _points(found.difference.detectable(found.comparisons))))
        for strategy, one in self._language_changes().items():
            before, after = (f"{loss:.3f}" for loss in (one.before, one.after))
            ends = f"{one.low:+.3f} to {one.high:+.3f} nats"
            row = (strategy, "language-model loss", after, "the pretrained model", before, ends, _yes(one.sign))
            rows.append((*row, _detectable(one.detectable, "{:.3f} nats".format)))
        return rows

    def _forgotten(self) -> dict[tuple[str, int], Change]:
        """(strategy, task) -> each task but the last, right after it was learned and at the end; corrected for their number."""
        stages = [(strategy, task) for strategy in self.runs for task in range(len(self.tasks) - 1)]
        end = len(self.tasks) - 1
        pairs = [(self._score(strategy, end, task), self._score(strategy, task, task)) for strategy, task in stages]
        return dict(zip(stages, changes_of(pairs, "the test texts"), strict=True))

    def _compared(self) -> dict[tuple[str, str], PairedComparison]:
        """(strategy, metric) -> each strategy but the first against it; corrected for their number."""
        base, *others = list(self.runs)
        pairs = [(other, name) for other in others for name in COMPARED]
        return dict(
            zip(pairs, compare_pairs([(self._method(other, name), self._method(base, name)) for other, name in pairs]), strict=True)
        )

    def _language_changes(self) -> dict[str, Change]:
        """Strategy -> the language-model loss before the first task and at the end; corrected for their number."""
        measured = [strategy for strategy in self.runs if self.language_losses(strategy)]
        pairs = [(self._loss(strategy, -1), self._loss(strategy, 0)) for strategy in measured]
        return dict(zip(measured, changes_of(pairs, "the text's documents"), strict=True))

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
        """A metric between 0 and 1, with its resamples."""
        found = self.metric(strategy, name)
        return MethodResult(found.name, found.scores, resampled=found.resampled)

    def interval(self, strategy: str, name: str) -> Interval:
        """A metric over seeds and test texts, cut to its range."""
        return self.metric(strategy, name).over_both.within(_least(name), 1)

    def over_seeds(self, strategy: str, name: str) -> Interval:
        """The same over seeds alone."""
        return self.metric(strategy, name).over_seeds.within(_least(name), 1)

    def table(self) -> list[tuple[str, ...]]:
        """Two rows per strategy: all metrics over seeds and texts, and below them over seeds alone; one row each with one seed."""
        rows = list[tuple[str, ...]]()
        for strategy, runs in self.runs.items():
            both, seconds = [self.interval(strategy, name) for name in METRICS], f"{np.mean([run.seconds for run in runs]):.1f}"
            alone = [self.over_seeds(strategy, name).ends for name in METRICS]
            rows += rows_by_source(strategy, self.seeds, [*both, seconds], [*alone, ""])
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything but resamples as plain values, fit for JSON."""
        kept = ("seed", "scores", "language_losses", "seconds", "validation_score")
        runs = {
            strategy: [{name: getattr(run, name) for name in kept} | asdict(run.metrics) for run in runs]
            for strategy, runs in self.runs.items()
        }
        ledgers = [ledger.to_dict() for ledger in self.ledgers]
        return {"tasks": self.tasks, "findings": self.findings, "tested": self.tested(), "runs": runs, "test_splits": ledgers}


def _least(metric: str) -> int:
    """The lowest value that a metric can have."""
    return 0 if metric in COMPARED else -1


def _yes(significant: int) -> str:
    return "yes" if significant else "no"


def _points(size: float | None) -> str:
    """A smallest detectable difference of scores."""
    return _detectable(size, partial(detectable_points, bounded=True, unit=" points"))


def _detectable(size: float | None, write: Callable[[float], str]) -> str:
    """The same of any figure; a dash where nothing can be detected, with one seed or without any spread."""
    return "-" if size is None or math.isinf(size) else write(size)


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
    return ForgettingMetrics(
        **{name: float(value) for name, value in _metrics([list(map(np.asarray, row)) for row in scores]).items()}
    )


def _metrics(scores: Sequence[Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """The same by name, of arrays of one shape."""
    last, earlier = scores[-1], range(len(scores) - 1)
    backward = [last[j] - scores[j][j] for j in earlier]
    lost = [np.max([scores[k][j] for k in range(j, len(scores) - 1)], axis=0) - last[j] for j in earlier]
    return {
        "average": np.mean(last, axis=0),
        "after_learning": np.mean([row[-1] for row in scores], axis=0),
        "backward_transfer": np.mean(backward or [0 * last[0]], axis=0),
        "forgetting": np.mean(lost or [0 * last[0]], axis=0),
    }
