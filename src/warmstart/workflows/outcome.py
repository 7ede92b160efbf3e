"""What the workflows hand to their reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warmstart.data import Audit, Task
from warmstart.engine import Trained
from warmstart.evaluate import Comparison, Scores
from warmstart.model import Bundle
from warmstart.workflows.finetune import FineTuned

PRETRAINED, SCRATCH = "pretrained", "from scratch"


@dataclass(frozen=True)
class Pretrained:
    """What came of pretraining."""

    bundle: Bundle
    trained: Trained
    figures: dict[str, Any]
    """held-out figures at the end, over all held-out text, in float32"""


@dataclass(frozen=True)
class Outcome:
    """Everything a comparison on one task found."""

    task: Task
    comparison: Comparison
    runs: dict[str, tuple[FineTuned, ...]]
    """the runs of each trained method"""
    baselines: dict[str, Scores]
    audit: Audit

    @property
    def best(self) -> FineTuned:
        """The pretrained run with the best validation score: the one that is saved. The test split has no say in it."""
        return max(self.runs[PRETRAINED], key=lambda run: run.validation)
