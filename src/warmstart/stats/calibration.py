"""Calibration: whether confidence equals accuracy, and temperature scaling, which corrects most of the gap.

A fine-tuned network is often overconfident. Its logits divided by one temperature, fitted on texts that were not trained on, give
nearly the right probabilities (Guo et al. 2017); no prediction changes, since the order of the classes stays.

Letters: N texts, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warmstart.seeding import rng

BINS = 15
RANGE = (0.05, 20.0)
"""the temperatures searched"""


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The temperature at which ``probabilities`` (N, C) give ``labels`` (N,) the lowest log loss.

    Above 1 the model is overconfident. If every prediction is right, the loss falls with the temperature without end; it is then
    left at 1. The loss is convex in 1 / T, so a bounded search ends at the only minimum, or at an end of ``RANGE``.
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

    optimum = minimize_scalar(loss, bounds=(1 / RANGE[1], 1 / RANGE[0]), method="bounded", options={"xatol": 1e-6})
    return float(1 / optimum.x)


def apply_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """(N, C) the softmax of the logits divided by ``temperature``, from the probabilities at temperature 1."""
    if temperature == 1:
        return probabilities
    scaled = np.log(probabilities.clip(min=1e-30)) / temperature
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -ln(probability of the true label) in nats, of (N, C) and (N,); probabilities below 1e-12 count as 1e-12."""
    return float(-np.log(probabilities[np.arange(len(labels)), labels].clip(min=1e-12)).mean())


@dataclass(frozen=True)
class ReliabilityBin:
    """Texts of similar confidence."""

    confidence: float
    """their mean"""
    accuracy: float
    """the fraction that is right"""
    count: int
    """texts"""


def reliability_bins(
    confidence: np.ndarray, right: np.ndarray, bins: int = BINS, *, equal_mass: bool = True
) -> list[ReliabilityBin]:
    """Texts by confidence (N,), in bins with equally many texts, or of equal width; empty ones are left out.

    Equal mass is the default: if a model is mostly confident, bins of equal width put nearly all texts in one of them, and
    noise in the others (Nixon et al. 2019).
    """
    order = np.argsort(confidence, kind="stable")
    if equal_mass:
        groups = np.array_split(order, min(bins, len(order)))
    else:
        edges = np.searchsorted(confidence[order], np.linspace(0, 1, bins + 1)[1:-1], side="right")
        groups = np.split(order, edges)
    return [ReliabilityBin(float(confidence[g].mean()), float(right[g].mean()), len(g)) for g in groups if len(g)]


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS, *, equal_mass: bool = True) -> float:
    """How far confidence and accuracy are apart, averaged over texts (Naeini et al. 2015).

    It is never quite 0 on a finite sample: chance alone separates the two within each bin.
    """
    found = reliability_bins(confidence, right, bins, equal_mass=equal_mass)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in found) / len(confidence)


def perfect_calibration_error(confidence: np.ndarray, draws: int = 200) -> float:
    """The mean expected calibration error of a perfectly calibrated model with these confidences (N,): what chance alone shows.

    Whether each text is right is drawn with its confidence as the probability (the consistency resampling of Broecker and Smith
    2007). ``perfect_calibration_error(np.full(500, 0.75))`` -> about ``0.06``. Simulated in tests/test_calibration.py:
    ``test_a_perfect_model_shows_the_error_of_chance``.
    """
    generator = rng(len(confidence), "perfect calibration")
    drawn = (generator.random(len(confidence)) < confidence for _ in range(draws))
    return float(np.mean([expected_calibration_error(confidence, right) for right in drawn]))
