"""Task types: what a text is labelled with, and everything that follows. A new type is one file and one row here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmstart.data.task import Task
from warmstart.errors import DataError, ModelError
from warmstart.model.bundle import Bundle
from warmstart.registry import Registry
from warmstart.tasks.classification import ClassificationTask
from warmstart.tasks.multilabel import MultilabelTask
from warmstart.tasks.regression import RegressionTask
from warmstart.tasks.tagging import TaggingTask
from warmstart.tasks.task_type import TaskType

if TYPE_CHECKING:
    from warmstart.model.stack import Stack

TASK_TYPES: Registry[TaskType] = Registry(
    "task type",
    {
        "classification": ClassificationTask(),
        "multilabel": MultilabelTask(),
        "regression": RegressionTask(),
        "tagging": TaggingTask(),
    },
)
"""Every task type, by the name that manifests use."""


def task_type_of(task: Task) -> TaskType:
    """The type of a task."""
    return TASK_TYPES[task.type]


def task_type_for(bundle: Bundle | Stack) -> TaskType:
    """The task type that a model was fine-tuned for.

    Each type has a head of its own. Raises ``ModelError`` for a model without a task head.
    """
    if not isinstance(bundle, Bundle):
        return TASK_TYPES[bundle.type]
    config = bundle.model.head.config
    fitting = next((task_type for task_type in TASK_TYPES.values() if isinstance(config, task_type.head_config)), None)
    if fitting is None:
        raise ModelError(f"a fine-tuned model is needed, but this one's head is '{config.kind}'; adapt it to a task first")
    return fitting


def check_task_type(bundle: Bundle | Stack, task: Task) -> TaskType:
    """The common type of a model and a task. Raises ``DataError`` if they differ."""
    task_type = task_type_for(bundle)
    if task.type != task_type.name:
        raise DataError(f"the model was fine-tuned for a {task_type.name} task, but '{task.name}' is a {task.type} task")
    return task_type
