"""The result of learning several tasks: every task after every stage, what was forgotten, and what each strategy brings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from warmstart.data.test_ledger import LedgerSummary, findings_by_task
from warmstart.notebook import Shown
from warmstart.stats.changes import Change, changes_of
from warmstart.stats.comparison import MethodResult, PairedComparison, compare_pairs, detectable_points
from warmstart.stats.differences import MethodScores
from warmstart.stats.forgetting import ALONE, JOINT, WHOLE, ContinualRun, metrics_of_arrays
from warmstart.stats.formatting import INTERVAL_OVER, percent, points_range, rows_by_source
from warmstart.stats.intervals import Interval
from warmstart.stats.splits import THIS_SPLIT

COMPARED = {"average": "Average over tasks at the end", "after_learning": "Score on each new task"}
"""metrics between 0 and 1, on which strategies are compared; the others lie between -1 and 1"""
METRICS = ("average", "after_learning", "backward_transfer", "forgetting")
"""in the order of the table"""
REFERENCES = (
    "Joint training reads all tasks at once, and training alone gives each its own backbone: no task is learned after another, so "
    "the columns about learning and forgetting are empty."
)
NAMES = {"none": "no strategy", JOINT: "joint training", ALONE: "training alone"}
"""of strategies, in a sentence"""


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

    @property
    def base(self) -> str:
        """The strategy that the others are compared with: the first one that learns the tasks in turn, otherwise ``alone``."""
        return min(self.runs, key=lambda strategy: (strategy == JOINT, strategy == ALONE))

    def in_turn(self, strategy: str) -> bool:
        """Whether a strategy learns one task after another, so that it can forget."""
        return len(self.runs[strategy][0].scores) > 1

    def stages(self, strategy: str) -> tuple[str, ...]:
        """After what a strategy is tested."""
        return self.tasks if self.in_turn(strategy) else (WHOLE,)

    def score(self, strategy: str, stage: int, task: int) -> Interval:
        """Test score on a task after a stage, over seeds and test texts."""
        return self._score(strategy, stage, task).over_both.within(0, 1)

    def stage_rows(self, strategy: str) -> list[tuple[str, ...]]:
        """The scores of all tasks after each stage, and below them intervals over seeds alone; a task not yet learned is empty."""
        rows = list[tuple[str, ...]]()
        for stage, name in enumerate(self.stages(strategy)):
            learned = range(len(self.runs[strategy][0].scores[stage]))
            both = [self.score(strategy, stage, task) for task in learned]
            alone = [self._score(strategy, stage, task).over_seeds.within(0, 1).ends for task in learned]
            later = [""] * (len(self.tasks) - len(learned))
            rows += rows_by_source(name, self.seeds, [*both, *later], [*alone, *later])
        return rows

    def metric(self, strategy: str, name: str) -> MethodScores:
        """One of the metrics of every seed, with its resamples."""
        runs = self.runs[strategy]
        resampled = np.array([metrics_of_arrays(run.resampled)[name] for run in runs])
        return MethodScores(_named(strategy), tuple(getattr(run.metrics, name) for run in runs), resampled)

    def language_losses(self, strategy: str) -> list[float]:
        """Language-model loss at the start and after each stage, mean over seeds; empty without a text."""
        runs = self.runs[strategy]
        return [sum(run.language_losses[stage] for run in runs) / len(runs) for stage in range(len(runs[0].language_losses))]

    @property
    def findings(self) -> list[str]:
        """What ``base`` forgets, what each other strategy brings, and what sharing brings each task; ``tested`` has the rest."""
        findings = [
            change.in_percent(f"With {_named(strategy)}, by the end, the score on {self.tasks[task]}")
            for (strategy, task), change in self._forgotten().items()
            if strategy == self.base
        ]
        findings += [f"{COMPARED[name]}: {one.sentence}" for (_, name), one in self._compared().items() if name == "average"]
        findings += [f"{task}: {one.sentence}" for task, one in zip(self.tasks, self._shared(), strict=False)]
        findings += [
            change.in_nats(f"With {_named(strategy)}, the language-model loss")
            for strategy, change in self._language_changes().items()
            if strategy == self.base
        ]
        findings += [] if all(map(self.in_turn, self.runs)) else [REFERENCES]
        findings += [f"{task}: {labels}" for task, labels in zip(self.tasks, self.labels, strict=False)]
        findings += [THIS_SPLIT] if self.one_split else []
        return findings + [f"{task}: {scored}" for task, scored in findings_by_task(self.tasks, self.ledgers)]

    def tested(self) -> list[tuple[str, ...]]:
        """Every change and comparison under ``TESTED_HEADER``; each kind is corrected for its number."""
        rows = list[tuple[str, ...]]()
        for (strategy, task), one in self._forgotten().items():
            before, after = (percent(score) for score in (one.before, one.after))
            ends = f"{points_range(one.low, one.high)} points"
            figure = f"score on {self.tasks[task]}"
            row = (strategy, figure, after, "right after learning", before, ends, _yes(one.sign))
            rows.append((*row, _points(one.detectable)))
        for (strategy, name), found in self._compared().items():
            there, here = (percent(self.interval(each, name).mean) for each in (self.base, strategy))
            rows.append(_comparison_row((strategy, COMPARED[name].lower(), here, _named(self.base), there), found))
        for number, found in enumerate(self._shared()):
            here, there = (percent(self.score(each, -1, number).mean) for each in (JOINT, ALONE))
            rows.append(_comparison_row((JOINT, f"score on {self.tasks[number]}", here, _named(ALONE), there), found))
        for strategy, one in self._language_changes().items():
            before, after = (f"{loss:.3f}" for loss in (one.before, one.after))
            ends = f"{one.low:+.3f} to {one.high:+.3f} nats"
            row = (strategy, "language-model loss", after, "the pretrained model", before, ends, _yes(one.sign))
            rows.append((*row, _detectable(one.detectable, "{:.3f} nats".format)))
        return rows

    def _forgotten(self) -> dict[tuple[str, int], Change]:
        """(strategy, task) -> each task but the last, right after it was learned and at the end; corrected for their number."""
        stages = [(strategy, task) for strategy in filter(self.in_turn, self.runs) for task in range(len(self.tasks) - 1)]
        end = len(self.tasks) - 1
        pairs = [(self._score(strategy, end, task), self._score(strategy, task, task)) for strategy, task in stages]
        return dict(zip(stages, changes_of(pairs, "the test texts"), strict=True))

    def _compared(self) -> dict[tuple[str, str], PairedComparison]:
        """(strategy, metric) -> each strategy but ``base`` against it, where both have it; corrected for their number."""
        pairs = [(other, name) for other in self.runs if other != self.base for name in COMPARED]
        pairs = [(other, name) for other, name in pairs if {name} <= {*self._metrics(other)} & {*self._metrics(self.base)}]
        compared = [(_compared(self.metric(other, name)), _compared(self.metric(self.base, name))) for other, name in pairs]
        return dict(zip(pairs, compare_pairs(compared), strict=True))

    def _shared(self) -> list[PairedComparison]:
        """Each task learned jointly against alone, corrected for their number; empty without both."""
        if not {JOINT, ALONE} <= {*self.runs}:
            return []
        joint, alone = ([_compared(self._score(one, -1, task)) for task in range(len(self.tasks))] for one in (JOINT, ALONE))
        return compare_pairs([*zip(joint, alone, strict=True)])

    def _language_changes(self) -> dict[str, Change]:
        """Strategy -> the language-model loss before the first task and at the end; corrected for their number."""
        measured = [strategy for strategy in self.runs if self.language_losses(strategy)]
        pairs = [(self._loss(strategy, -1), self._loss(strategy, 0)) for strategy in measured]
        return dict(zip(measured, changes_of(pairs, "the text's documents"), strict=True))

    def _score(self, strategy: str, stage: int, task: int) -> MethodScores:
        """Test scores on a task after a stage, of every seed."""
        runs = self.runs[strategy]
        return MethodScores(
            _named(strategy), tuple(run.scores[stage][task] for run in runs), np.array([run.resampled[stage][task] for run in runs])
        )

    def _loss(self, strategy: str, stage: int) -> MethodScores:
        """Language-model losses after a stage, of every seed."""
        runs = self.runs[strategy]
        losses = tuple(run.language_losses[stage] for run in runs)
        return MethodScores(strategy, losses, np.array([run.resampled_losses[stage] for run in runs]))

    def _metrics(self, strategy: str) -> tuple[str, ...]:
        """The metrics that a strategy has."""
        return METRICS if self.in_turn(strategy) else METRICS[:1]

    def interval(self, strategy: str, name: str) -> Interval:
        """A metric over seeds and test texts, cut to its range."""
        return self.metric(strategy, name).over_both.within(_least(name), 1)

    def over_seeds(self, strategy: str, name: str) -> Interval:
        """The same over seeds alone."""
        return self.metric(strategy, name).over_seeds.within(_least(name), 1)

    def table(self) -> list[tuple[str, ...]]:
        """Two rows per strategy: its metrics over seeds and texts, and below them over seeds alone; one row each with one seed."""
        rows = list[tuple[str, ...]]()
        for strategy, runs in self.runs.items():
            names, seconds = self._metrics(strategy), f"{np.mean([run.seconds for run in runs]):.1f}"
            both, alone = (
                [self.interval(strategy, name) for name in names],
                [self.over_seeds(strategy, name).ends for name in names],
            )
            empty = [""] * (len(METRICS) - len(names))
            rows += rows_by_source(strategy, self.seeds, [*both, *empty, seconds], [*alone, *empty, ""])
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


def _compared(found: MethodScores) -> MethodResult:
    """A metric between 0 and 1, or the score on a task, as one side of a comparison."""
    return MethodResult(found.name, found.scores, resampled=found.resampled)


def _comparison_row(named: tuple[str, ...], found: PairedComparison) -> tuple[str, ...]:
    """A row under ``TESTED_HEADER``."""
    ends = f"{points_range(found.difference.low, found.difference.high)} points"
    return (*named, ends, _yes(found.significant), _points(found.difference.detectable(found.comparisons)))


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
    return NAMES.get(strategy, strategy)
