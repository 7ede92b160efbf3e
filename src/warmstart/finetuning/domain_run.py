"""Pretraining on the domain of a task: the text that was chosen for it, and the labels that are learned in the same steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from warmstart.data.budget import label_budget
from warmstart.data.domain import DomainConfig, DomainSource, DomainText
from warmstart.data.pool import pool_note
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.joint_loss import JointTask
from warmstart.model.history import DomainRecord
from warmstart.system.console import console
from warmstart.system.storage import sha256
from warmstart.tasks.load import load_task


@dataclass(frozen=True)
class DomainRun:
    """Pretraining on the domain of a task."""

    text: DomainText
    joint: JointTask | None
    """the labels that are learned in the same steps"""

    @property
    def identity(self) -> str:
        """A hash of what the text was chosen from, and of the labels."""
        labels = [] if self.joint is None else [self.joint.weight, self.joint.budget.task.train.labels.tolist()]
        return sha256(json.dumps([self.text.identity, *labels]).encode())

    @property
    def record(self) -> DomainRecord:
        """For the history of the bundle."""
        text, labels = self.text, 0 if self.joint is None else len(self.joint.budget)
        return DomainRecord(task=text.task, texts=text.pool_texts, left_out=text.left_out, passages=text.passages, labels=labels)


def domain_source(
    settings: DomainConfig, text: Sequence[Source], fraction: float | None, seed: int
) -> tuple[DomainSource | None, JointTask | None]:
    """What the text of the task's domain is chosen from, and the labels that are learned beside it; None if not asked for.

    ``fraction`` of the task's own text is held out; ``seed`` draws the labels.
    """
    if settings.for_task is None:
        return None, None
    task = load_task(settings.for_task)
    if note := pool_note(task, settings.pool):
        console.print(note)
    if settings.labels is None:
        return DomainSource.of(settings, task, None, text, fraction), None
    try:
        budget = label_budget(task, settings.labels, "none", seed)
    except DataError as error:
        raise ConfigError(f"--labels {settings.labels}: {error}") from None
    console.print(f"{len(budget)} labels of '{task.name}' are learned in the same steps, with weight {settings.task_weight:g}.")
    source = DomainSource.of(settings, task, budget, text, fraction)
    return source, JointTask(budget, settings.task_weight)
