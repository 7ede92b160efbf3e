"""The settings of what `pretrain --for` reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from tyro.conf import arg

from warmstart.config import Advanced, Config, FileInput, TaskInput


class DomainConfig(Config):
    """The task whose domain is read, and what is read for it."""

    for_task: TaskInput[Annotated[str | None, arg(name="for")]] = None
    """manifest of a task (YAML): pretrain on its own text, and on the passages of TEXT that are most like it"""
    labels: int | None = Field(None, gt=1)
    """with --for: labelled texts of the task, drawn by the seed, whose task loss is minimised too; default: no label is used"""
    task_weight: Advanced[float] = Field(1.0, gt=0)
    """with --labels: weight of the mean task loss beside the mean loss of the objective"""
    pool: FileInput[Advanced[str]] = "rest"
    """with --for: the task's own text without labels: rest (its `unlabelled` text and its training texts), none, or a file"""
    relevant_words: Advanced[int | None] = Field(None, gt=0)
    """with --for and TEXT: words of passages to keep, the most relevant first; default: four times those of the task's own text,
    but at least 500,000"""

    @model_validator(mode="after")
    def _only_with_a_task(self) -> DomainConfig:
        if self.for_task is None and self != type(self).model_construct():
            raise ValueError("--labels, --task-weight, --pool and --relevant-words go with --for TASK; name a task, or remove them")
        return self
