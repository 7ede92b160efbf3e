"""The training runs of compared methods: which one is kept, and how their validation scores developed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

PRETRAINED, SCRATCH = "pretrained", "from scratch"
"""names of methods in a comparison"""


class ComparedRun(Protocol):
    """What the run of any compared method has."""

    @property
    def seed(self) -> int:
        """The run's seed."""

    @property
    def validation_score(self) -> float:
        """The score of the kept weights on the validation split."""

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """(step, validation score) of every evaluation."""


R = TypeVar("R", bound=ComparedRun)
Runs = Mapping[str, tuple[R, ...]]
"""the runs of each trained method, one per seed"""


def best_run(runs: Runs[R], name: str = PRETRAINED) -> R:
    """The run of a method with the best validation score, or the first if there are none; the test split has no influence."""
    return max(runs[name], key=lambda run: run.validation_score)


def curve_rows(runs: Runs[R]) -> list[tuple[str, int, float, int]]:
    """(method, seed, validation score, number of the evaluation) of every evaluation."""
    return [
        (name, run.seed, score, number)
        for name, seeds in runs.items()
        for run in seeds
        for number, (_, score) in enumerate(run.curve, 1)
    ]
