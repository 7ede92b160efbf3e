"""The result of multi-task training: each task on a shared backbone, and alone.

Letters: R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.data.test_ledger import LedgerSummary, findings_by_task
from warmstart.notebook import Shown
from warmstart.stats.comparison import MethodResult, MethodTable, compare_pairs
from warmstart.stats.formatting import sources_of_interval
from warmstart.stats.splits import THIS_SPLIT

TOGETHER, ALONE = "together", "alone"


@dataclass(frozen=True)
class MultitaskRun:
    """All tasks together, and each alone, with one seed."""

    seed: int
    together: tuple[float, ...]
    """test score of each task, trained together"""
    alone: tuple[float, ...]
    """test score of each task, trained alone"""
    resampled: tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]
    """(R,) by task, together and alone: the same on resamples of the test split"""
    seconds: tuple[float, float]
    """of training together, and of all tasks alone"""
    validation_score: float | None
    """together: mean over tasks on the texts that choose; None if none do"""


@dataclass(frozen=True)
class MultitaskResult(Shown, view="commands.multitask.page:multitask_view"):
    """What sharing a backbone brings each task."""

    tasks: tuple[str, ...]
    runs: tuple[MultitaskRun, ...]
    """one per seed"""
    ledgers: tuple[LedgerSummary, ...] = ()
    """how often the test split of each task was scored"""
    labels: tuple[str, ...] = ()
    """what the labels of each task were for, as sentences"""
    one_split: bool = False
    """whether the intervals hold for one split only, because seeds share too many training texts of a task"""

    def comparison(self, task: int) -> MethodTable:
        """One task, trained together with the others and alone."""
        rows = (
            MethodResult(
                name,
                tuple(getattr(run, name)[task] for run in self.runs),
                float(np.mean([run.seconds[i] for run in self.runs])),
                resampled=np.array([run.resampled[i][task] for run in self.runs]),
            )
            for i, name in enumerate((TOGETHER, ALONE))
        )
        return MethodTable("score", tuple(rows))

    def comparisons(self) -> list[MethodTable]:
        """Every task, in order."""
        return [self.comparison(task) for task in range(len(self.tasks))]

    def sentences(self) -> list[str]:
        """What sharing brings each task; corrected for the number of tasks."""
        return [one.sentence for one in compare_pairs([(one.rows[0], one.rows[1]) for one in self.comparisons()])]

    @property
    def findings(self) -> list[str]:
        """The same, each with the task's name; what its labels were for, and how often its test split was scored."""
        named = [*zip(self.tasks, self.sentences(), strict=True), *zip(self.tasks, self.labels, strict=False)]
        scored = [f"{task}: {one}" for task, one in findings_by_task(self.tasks, self.ledgers)]
        return [*(f"{task}: {sentence}" for task, sentence in named), *self.one_split_caution, *scored]

    @property
    def one_split_caution(self) -> list[str]:
        """What a reader of the intervals should know, if ``one_split``."""
        return [THIS_SPLIT] if self.one_split else []

    @property
    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        over = f"95% over {sources_of_interval(len(self.runs))}"
        names = (TOGETHER, ALONE)
        return ("task", *(f"{name} ({over})" for name in names), *(f"{name}, over seeds" for name in names))

    def table(self) -> list[tuple[str, ...]]:
        """One row per task: both scores with intervals over all sources of chance, then the intervals over seeds alone."""
        return [
            (task, *(str(row.interval) for row in comparison.rows), *(row.over_seeds.ends for row in comparison.rows))
            for task, comparison in zip(self.tasks, self.comparisons(), strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        runs = [{key: getattr(run, key) for key in ("seed", TOGETHER, ALONE, "seconds", "validation_score")} for run in self.runs]
        return {
            "tasks": self.tasks,
            "findings": self.findings,
            "runs": runs,
            "test_splits": [ledger.to_dict() for ledger in self.ledgers],
        }
