"""Measures of a model that learns several tasks: the scores after every stage, and the usual metrics of forgetting.

Letters: R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

IN_TURN, JOINT, ALONE = "none", "joint", "alone"
"""strategies: one task after another with nothing against forgetting, all at once, each on a backbone of its own"""
WHOLE = "all tasks"
"""stage after which joint learning is tested"""


@dataclass(frozen=True)
class ContinualRun:
    """All tasks, learned by one strategy with one seed."""

    seed: int
    scores: tuple[tuple[float, ...], ...]
    """[k][j]: test score on task j after task k; a single row of all tasks if none was learned after another"""
    language_losses: tuple[float, ...]
    """language-model loss in nats at the start and after each stage; empty without a text, or without one backbone for all tasks"""
    seconds: float
    validation_score: float | None
    """mean over all tasks at the end, on the texts that choose; None if none do, or without one backbone for all tasks"""
    resampled: tuple[tuple[np.ndarray, ...], ...]
    """[k][j]: (R,) the test scores on resamples of the test texts"""
    resampled_losses: tuple[np.ndarray, ...]
    """(R,) the language-model losses on resamples of the text's documents"""

    @property
    def metrics(self) -> ForgettingMetrics:
        """The metrics of continual learning."""
        return forgetting_metrics(self.scores)


@dataclass(frozen=True)
class ForgettingMetrics:
    """The usual metrics of continual learning; all but the first are None if no task was learned after another."""

    average: float
    """mean over all tasks at the end"""
    after_learning: float | None = None
    """mean over tasks right after each was learned: what keeping the old ones costs the new ones"""
    backward_transfer: float | None = None
    """mean over all but the last task of (score at the end - score right after learning); below 0: forgotten"""
    forgetting: float | None = None
    """mean over all but the last task of (best score before the end - score at the end); 0: nothing lost"""


def forgetting_metrics(scores: Sequence[Sequence[float]]) -> ForgettingMetrics:
    """The metrics of ``scores[k][j]``: test score on task j after task k; or of a single row, if not in turn.

    Average and backward transfer: Lopez-Paz and Ranzato 2017, equations 2 and 3; forgetting: Chaudhry et al. 2018, equation 3.
    """
    metrics = metrics_of_arrays([list(map(np.asarray, row)) for row in scores])
    return ForgettingMetrics(**{name: float(value) for name, value in metrics.items()})


def metrics_of_arrays(scores: Sequence[Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """The metrics by name, of arrays of one shape; those without meaning are missing."""
    last, earlier = scores[-1], range(len(scores) - 1)
    average = {"average": np.mean(last, axis=0)}
    if not earlier:
        return average
    assert all(len(row) == k + 1 for k, row in enumerate(scores)), "one score for every task learned so far"
    return average | {
        "after_learning": np.mean([row[-1] for row in scores], axis=0),
        "backward_transfer": np.mean([last[j] - scores[j][j] for j in earlier], axis=0),
        "forgetting": np.mean([np.max([scores[k][j] for k in range(j, len(earlier))], axis=0) - last[j] for j in earlier], axis=0),
    }
