"""``stack``: the mean of the probabilities of the three methods with the lowest loss on the texts that choose.

Each method's probabilities are calibrated by a temperature first (Guo et al. 2017): otherwise one that is sure of its errors would
outvote the others. Losses and temperatures come from texts that the methods had not learned from when they predicted them. Three,
and equal weights: on development tasks with a hundred labels the mean of three lost least to the best method in hindsight; fitted
weights (Wolpert 1992) and fewer or more methods lost more (docs/comparison.md, ``benchmarks/stacking.py``).

Letters: M texts that choose, N test texts, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from warmstart.stats.calibration import apply_temperature, fit_temperature
from warmstart.sweep.store import TrialPredictions
from warmstart.sweep.trial import Trial, TrialResult

STACK = "stack"
STACKED = 3
"""methods in a stack"""


def trials_of_seed(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """The trials that may be in the stack of a seed; those that are the same for every seed are in each."""
    return [trial for trial in trials if trial.method.family != STACK and (trial.seed == seed or trial.same_for_every_seed)]


def stacked_trials(results: Mapping[Trial, TrialResult]) -> list[Trial]:
    """The trials with the lowest loss on the texts that choose, best first; without those that predict no probabilities.

    Nor those that texts without labels hurt.
    """
    gains = {trial: result.gain[0] for trial, result in results.items() if result.gain and not result.refused}
    return sorted(gains, key=lambda trial: -gains[trial])[:STACKED]


def average(members: Sequence[TrialPredictions], labels: np.ndarray) -> TrialPredictions:
    """The mean of calibrated probabilities, (M, C) and (N, C); ``labels`` (M,) are those of the texts that choose."""
    parts = [_calibrated(member, labels) for member in members]
    return TrialPredictions(*(np.mean(rows, axis=0) for rows in zip(*parts, strict=True)))


def _calibrated(member: TrialPredictions, labels: np.ndarray) -> TrialPredictions:
    temperature = fit_temperature(member.choosing, labels)
    return TrialPredictions(*(apply_temperature(part, temperature) for part in member))
