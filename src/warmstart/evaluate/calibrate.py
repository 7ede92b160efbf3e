"""Whether a confidence can be taken at its word, and the one number that mends most of it.

A fine-tuned network is often surer than it is right. Its logits divided by one temperature, fitted on texts that were not
trained on, say nearly the truth (Guo et al. 2017); no label changes, since the order of the classes stays.

Letters: N texts, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BINS = 15
RANGE = (0.05, 20.0)
"""temperatures looked at"""


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The temperature at which ``probabilities`` (N, C) give ``labels`` (N,) the lowest log loss; above 1: the model was too sure.

    Where every text is answered rightly, no temperature is too low for the log loss; then it is 1. It is convex in 1 / T, so that a
    bounded search over it ends at the one minimum, or at an end of ``RANGE``.
    """
    from scipy.optimize import minimize_scalar

    if bool((probabilities.argmax(axis=1) == labels).all()):
        return 1.0
    logits = np.log(probabilities.clip(min=1e-30))
    picked = logits[np.arange(len(labels)), labels]

    def loss(slope: float) -> float:
        scaled = slope * logits
        highest = scaled.max(axis=1)
        return float(np.mean(np.log(np.exp(scaled - highest[:, None]).sum(axis=1)) + highest - slope * picked))

    found = minimize_scalar(loss, bounds=(1 / RANGE[1], 1 / RANGE[0]), method="bounded", options={"xatol": 1e-6})
    return float(1 / found.x)


def at_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """(N, C) what the softmax would have said had the logits been divided by ``temperature``."""
    if temperature == 1:
        return probabilities
    scaled = np.log(probabilities.clip(min=1e-30)) / temperature
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Bin:
    """Texts of like confidence."""

    confidence: float
    """their mean"""
    accuracy: float
    """the share of them that is right"""
    count: int


def reliability(confidence: np.ndarray, right: np.ndarray, bins: int = BINS, *, equal_mass: bool = True) -> list[Bin]:
    """Texts by confidence (N,), in bins of as many texts each, or of equal width; empty ones are left out.

    Of equal mass is the default: where a model is mostly sure, bins of equal width leave nearly all texts in one of them, and
    noise in the others (Nixon et al. 2019).
    """
    order = np.argsort(confidence, kind="stable")
    if equal_mass:
        groups = np.array_split(order, min(bins, len(order)))
    else:
        edges = np.searchsorted(confidence[order], np.linspace(0, 1, bins + 1)[1:-1], side="right")
        groups = np.split(order, edges)
    return [Bin(float(confidence[g].mean()), float(right[g].mean()), len(g)) for g in groups if len(g)]


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS, *, equal_mass: bool = True) -> float:
    """Expected calibration error: how far confidence and accuracy lie apart, as a mean over texts (Naeini et al. 2015).

    It is never quite 0 on a finite sample: chance alone separates the two within each bin.
    """
    found = reliability(confidence, right, bins, equal_mass=equal_mass)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in found) / len(confidence)
