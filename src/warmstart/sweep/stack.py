"""``stack``: the best method with a pretrained backbone and the best without, mixed; all of it is chosen within the labels.

    p(class) = w p_1(class) + (1 - w) p_2(class)

Each method's probabilities are calibrated by a temperature first, and the weight w has the highest likelihood, on the texts that
choose, which neither method had learned from when it predicted them (stacked density estimation, Smyth and Wolpert 1999, Machine
Learning 36). One weight and two temperatures are fitted to these texts, so that the stack's score on them is hardly flattered.

Letters: M texts that choose, N test texts, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from warmstart.stats.calibration import apply_temperature, fit_temperature
from warmstart.sweep.store import TrialPredictions
from warmstart.sweep.trial import Trial, TrialResult

STACK = "stack"
MEMBERS = (("adapted", "frozen"), ("baseline", "scratch"))
"""the families from which one method each is taken: with a pretrained backbone, and without"""
MIXING_STEPS = 100
"""of expectation and maximisation; the likelihood has one maximum"""
LEAST_PROBABILITY = 1e-6
"""the least probability of a label that was predicted"""


def best_member(results: Mapping[Trial, TrialResult], families: Sequence[str]) -> Trial | None:
    """The trial of these families with the lowest loss on the texts that choose; of equals the first. None if there is none."""
    losses = {trial: result.validation_loss for trial, result in results.items() if trial.method.family in families}
    return min(losses, key=lambda trial: math.inf if (loss := losses[trial]) is None else loss, default=None)


def mix(one: TrialPredictions, other: TrialPredictions, labels: np.ndarray) -> tuple[float, TrialPredictions]:
    """The weight of ``one``, and the mixture's probabilities; ``labels`` (M,) are those of the texts that choose."""
    (choosing, test), (choosing_2, test_2) = (_calibrated(member, labels) for member in (one, other))
    right, right_2 = (np.maximum(part[np.arange(len(labels)), labels], LEAST_PROBABILITY) for part in (choosing, choosing_2))
    weight = 0.5
    for _ in range(MIXING_STEPS):
        weight = float(np.mean(weight * right / (weight * right + (1 - weight) * right_2)))
    mixed = TrialPredictions(weight * choosing + (1 - weight) * choosing_2, weight * test + (1 - weight) * test_2)
    return weight, mixed


def _calibrated(member: TrialPredictions, labels: np.ndarray) -> TrialPredictions:
    temperature = fit_temperature(member.choosing, labels)
    return TrialPredictions(*(apply_temperature(part, temperature) for part in member))
