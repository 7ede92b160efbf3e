"""What the workflows hand to their reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from warmstart.data import AnswerTask, Audit, Corpus, Task
from warmstart.engine import Trained
from warmstart.evaluate import Bar, Comparison
from warmstart.kinds import Result
from warmstart.model import Bundle, Model
from warmstart.workflows.finetune import FineTuned

PRETRAINED, SCRATCH = "pretrained", "from scratch"
Corpora = tuple[Corpus, Corpus | None]
"""training text and held-out text, where any is held out"""


@dataclass(frozen=True)
class Pretrained:
    """What came of pretraining."""

    bundle: Bundle
    trained: Trained
    figures: dict[str, Any]
    """held-out figures at the end, over all held-out text, in float32; empty where no text is held out"""


@dataclass(frozen=True)
class Taught:
    """What came of teaching one model to answer."""

    model: Model
    seed: int
    trained: Trained
    curve: tuple[tuple[int, float], ...]
    """(step, exact match on the validation questions)"""
    validation: float
    longest: int
    """tokens an answer may take"""
    known: tuple[np.ndarray, np.ndarray]
    """confidence (N,) and rightness (N,) of the answers to the validation questions"""
    test: tuple[np.ndarray, np.ndarray]
    """the same of the test questions"""
    said: tuple[str, ...]
    """the answers to the test questions"""


R = TypeVar("R", FineTuned, Taught)
Runs = Mapping[str, tuple[R, ...]]
"""the runs of each trained method"""


def best_run(runs: Runs[R]) -> R:
    """The pretrained run with the best validation score. The test split has no say in it."""
    return max(runs[PRETRAINED], key=lambda run: run.validation)


@dataclass(frozen=True)
class Outcome:
    """Everything a comparison on one task found."""

    task: Task
    comparison: Comparison
    runs: dict[str, tuple[FineTuned, ...]]
    """the runs of each trained method"""
    baselines: dict[str, Result]
    audit: Audit

    @property
    def best(self) -> FineTuned:
        """The pretrained run that is saved."""
        return best_run(self.runs)


@dataclass(frozen=True)
class Answers:
    """Everything that was found out about written answers."""

    task: AnswerTask
    comparison: Comparison
    runs: dict[str, tuple[Taught, ...]]
    bar: Bar
    """found on the validation questions of the run that is kept"""

    @property
    def best(self) -> Taught:
        """The pretrained run that is kept."""
        return best_run(self.runs)
