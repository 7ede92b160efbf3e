"""Several seeds as one model: a stack of the networks, whose prediction is the mean of theirs.

It takes as many times the memory, and as many times the time for a text. It is kept if its score on texts that the networks had not
learned from is not below the mean score of the single seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.data.budget import LabelBudget
from warmstart.errors import ConfigError
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.selection import BudgetedRun
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Member, Stack
from warmstart.stats.formatting import percent
from warmstart.tasks.thresholds import scores_left_out

STACKABLE = ("classification", "multilabel", "regression")
"""types of tasks whose predictions have a mean that a stack can hold"""


@dataclass(frozen=True)
class Averaged:
    """The seeds as one model."""

    name: str
    """name with the number of seeds"""
    model: Stack
    """without calibration"""
    choosing: Any
    """predictions for the texts that choose; None if there are none"""
    test_predictions: Any
    score: float
    """the metric on the texts that choose; nan if there are none"""

    def kept(self, singles: Sequence[float]) -> bool:
        """True if it is saved: not if it scores below the mean of ``singles``, the scores of single seeds on these texts."""
        return not (len(singles) and self.score < float(np.mean(singles)))

    def sentence(self, singles: Sequence[float], metric: str) -> str:
        """The scores on the texts that choose, and whether the ensemble is saved."""
        if not len(singles):
            return f"The {self.name} is saved: no label chooses."
        single, kept = percent(float(np.mean(singles))), "saved" if self.kept(singles) else "not saved"
        return (
            f"On the texts that choose, the {self.name} scores {percent(self.score)} {metric}, and single seeds {single} on "
            f"average; it is {kept}."
        )


def check_ensemble(task_type: str, seeds: int) -> None:
    """Raise ``ConfigError`` if the seeds cannot become one model, before any is trained."""
    if seeds < 2:
        raise ConfigError(f"--ensemble needs two seeds at least, but has {seeds}; give --seeds 5, or leave it out")
    if task_type not in STACKABLE:
        raise ConfigError(
            f"--ensemble needs a task of the type {', '.join(STACKABLE[:-1])} or {STACKABLE[-1]}, but this is a {task_type} task; "
            "leave it out"
        )


def average_probabilities(
    encoded: EncodedTask, budget: LabelBudget, runs: Sequence[BudgetedRun], networks: Sequence[Bundle]
) -> Averaged:
    """The mean of the predictions of all seeds, as a stack of the networks of ``runs``."""
    members = tuple(Member(f"seed {run.seed}", one) for run, one in zip(runs, networks, strict=True))
    stack = Stack(members, encoded.task.type, encoded.task.labels)
    choosing, test = [run.choosing for run in runs], [run.final.test_predictions for run in runs]
    mean = None if choosing[0] is None else np.mean(choosing, axis=0)
    return Averaged(f"mean of {len(runs)} seeds", stack, mean, np.mean(test, axis=0), _score(budget, mean))


def _score(budget: LabelBudget, choosing: Any) -> float:
    if choosing is None:
        return float("nan")
    task = budget.task
    return float(scores_left_out(task, budget.choosing, choosing).score(task.metric))
