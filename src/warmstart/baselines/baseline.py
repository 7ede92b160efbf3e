"""What a baseline is: predictions for a task's test split, made without a pretrained network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warmstart.data.task import Split, Task, plain_text

NO_WORDS = "the training texts have no words"


@dataclass(frozen=True)
class BaselineResult:
    """Predictions for the test split."""

    predictions: Any
    """in the form that the task type scores"""
    note: str
    """what the baseline does, or the settings that it chose"""


@dataclass(frozen=True)
class Baseline:
    """One baseline. A new one is a function in a file, and one row in ``BASELINES``."""

    predict: Callable[[Task], BaselineResult]
    """learns from the training split, chooses settings on the validation split, and predicts the test split"""
    types: tuple[str, ...] | None = None
    """names of the task types that it serves; None: all"""
    race_only: bool = False
    """a race runs it, but an adaptation leaves it out"""


def plain_texts(split: Split) -> list[str]:
    """The inputs of a split as plain strings."""
    return [plain_text(text) for text in split.texts]
