"""Strategies by which several tasks are learned: in turn, and two references.

A strategy says which tasks each of its stages learns, and in what order their batches are read. Joint learns all tasks at once, the
usual upper bound; alone learns each on a backbone of its own. A new strategy is a class and a row in ``STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from warmstart.errors import ConfigError
from warmstart.finetuning.task_suite import TaskSuite
from warmstart.registry import Registry
from warmstart.seeding import derive, rng
from warmstart.stats.forgetting import ALONE, IN_TURN, JOINT
from warmstart.types import Batch


class Strategy:
    """Plain fine-tuning on one task after another; the references override what they change."""

    anew: ClassVar[bool] = False
    """whether each stage starts from the pretrained backbone"""

    def __init__(self, suite: TaskSuite, seed: int) -> None:
        self.suite, self.seed = suite, seed

    def stages(self) -> list[tuple[int, ...]]:
        """The tasks that each training run learns."""
        return [(task,) for task in range(len(self.suite.encoded))]

    def batches(self, tasks: tuple[int, ...]) -> tuple[Callable[[int], list[Batch]], int]:
        """The batches of each step of a stage, and its number of steps; each task's own texts come in their own order."""
        fractions = sampling_fractions([len(self.suite.encoded[task].train) for task in tasks], self.suite.config.alpha)
        order = task_order(fractions, sum(map(self.suite.steps, tasks)), self.seed)
        numbers = np.cumsum(order == np.arange(len(tasks))[:, None], axis=1) - 1
        own = [self.suite.batches(task, self.seed) for task in tasks]
        return lambda step: [own[order[step]](int(numbers[order[step], step]))], len(order)

    def stream(self, tasks: tuple[int, ...]) -> int:
        """The seed of all else that is drawn in a stage, such as dropout."""
        return derive(self.seed, "stream", *tasks)


class Joint(Strategy):
    """All tasks at once: each step reads texts of one of them."""

    def stages(self) -> list[tuple[int, ...]]:
        """One, of all tasks."""
        return [tuple(range(len(self.suite.encoded)))]

    def stream(self, tasks: tuple[int, ...]) -> int:
        """That of the only stage."""
        return derive(self.seed, "together")


class Alone(Strategy):
    """Each task on a backbone of its own."""

    anew = True

    def stream(self, tasks: tuple[int, ...]) -> int:
        """Another one than in turn."""
        return derive(self.seed, "alone", *tasks)


STRATEGIES: Registry[type[Strategy]] = Registry("strategy", {IN_TURN: Strategy, JOINT: Joint, ALONE: Alone})


def sampling_fractions(sizes: Sequence[int], alpha: float) -> np.ndarray:
    """The fraction of batches from each task, proportional to ``size ** alpha``: 1 by size, 0.5 by its root, 0 all equal."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha must lie between 0 (all tasks equally often) and 1 (by size), but is {alpha}")
    weights = np.array(sizes, dtype=float) ** alpha
    return weights / weights.sum()


def task_order(fractions: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """(steps,) int64: the task of each of ``steps`` batches: exactly these fractions (largest remainder), in a random order.

    ``task_order([.75, .25], 4, 0)`` has three 0s and one 1.
    """
    exact = fractions * steps
    counts = np.floor(exact).astype(int)
    for task in np.argsort(counts - exact, kind="stable")[: steps - counts.sum()]:
        counts[task] += 1
    tasks = np.repeat(np.arange(len(fractions)), counts)
    return rng(seed, "turns").permutation(tasks)
