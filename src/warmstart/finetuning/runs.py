"""The training runs of compared methods: which one is kept, and how their validation scores developed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

PRETRAINED, SCRATCH = "pretrained", "from scratch"
"""names of methods in a comparison"""


class ComparedRun(Protocol):
    """The part of a run that all compared methods have."""

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


# ----------- How long the control of an adaptation may take: the same network from scratch, which learns far more slowly


LEAST_SECONDS = 60.0
"""seconds that a run of the control may always take"""


@dataclass(frozen=True)
class ControlBudget:
    """A control, the same network from scratch, that had fewer steps than its settings say.

    Its time is held by a number of steps, and not by a clock: the same number gives the same figures.
    """

    steps: int
    planned: int

    @property
    def note(self) -> str:
        """For a table: ``"15 of 60 steps"``."""
        return f"{self.steps:,} of {self.planned:,} steps"

    @property
    def sentence(self) -> str:
        """The consequence for the comparison, as a sentence."""
        return (
            f"The control from scratch had time for {self.note}, so the gain over it is an upper bound; with --scratch-time 0 "
            "it takes all of them."
        )


def most_seconds(pretrained: float, times: float) -> float:
    """The longest time of a control run, where a pretrained one takes so many seconds: ``times`` as much; 0: no limit."""
    return max(LEAST_SECONDS, times * pretrained) if times else math.inf


def share_within(seconds: float, most: float) -> float:
    """The largest of 1, 1/2, 1/4 … of a run of so many ``seconds`` that takes at most ``most``; so coarse that it seldom varies."""
    return 1.0 if seconds <= most else 2.0 ** math.floor(math.log2(most / seconds))
