"""The table of few labels: ``python -m benchmarks few-labels-50 few-labels-100 few-labels-500``; its labelled sets: few_label_tasks.py.

Each row is a race on one set with one number of labels, 5 draws. The regret of a recommendation is the mean test score, over draws, of
the method that is best in hindsight, less that of what each draw recommends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.few_label_tasks import SETS

WITHOUT = ("baseline", "scratch")
"""families without a pretrained backbone"""


class Case(NamedTuple):
    """One set with one number of labels."""

    name: str
    best_without: tuple[str, float]
    """the method without a pretrained backbone that is best in hindsight, and its mean test score"""
    best_with: tuple[str, float]
    """the same with one"""
    scores: dict[str, float]
    """mean test score of every method"""
    recommended: str
    """the method that most draws recommend"""
    of_recommended: float
    """the mean test score of what each draw recommends"""

    @property
    def best(self) -> tuple[str, float]:
        """The best method in hindsight, and its score."""
        return max(self.scores.items(), key=lambda one: one[1])

    @property
    def regret(self) -> float:
        """Of the recommendation."""
        return self.best[1] - self.of_recommended


def case_of(name: str, race: dict[str, Any]) -> Case:
    """From ``race.json``."""
    scores = {row["method"]: float(np.mean(row["scores"])) for row in race["methods"]}
    family = {row["method"]: row["id"].split("/")[0] for row in race["methods"]}
    sides = [
        max(((one, score) for one, score in scores.items() if (family[one] in WITHOUT) == without), key=lambda one: one[1])
        for without in (True, False)
    ]
    return Case(name, sides[0], sides[1], scores, race["recommended"], race["score_of_recommended"]["mean"])


def few_labels(results: Sequence[dict[str, Any]]) -> str:
    """The table of all sets with one number of labels."""
    raise NotImplementedError


def race_command(name: str, labels: int) -> str:
    """The race of one cell."""
    return (
        f"warmstart race runs/tasks/{name}/task.yaml --backbones runs/wikitext-2 runs/minilm --labels {labels} --schemes probe "
        f"--no-scratch --selection none --drop-leaks --out runs/few-labels/{name}-{labels}"
    )
