"""Calibration: whether confidence equals accuracy, and temperature scaling, which corrects most of the gap.

A fine-tuned network is often overconfident. Its logits divided by one temperature, fitted on texts that were not trained on, give
nearly the right probabilities (Guo et al. 2017); no prediction changes, since the order of the classes stays.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from warmstart.seeding import rng
from warmstart.stats.intervals import percentiles, t_quantile
from warmstart.stats.resampling import resample_indices

BINS = 15
RESAMPLES = 400
"""resamples of the texts, to compare two calibration errors"""
RANGE = (0.05, 20.0)
"""the temperatures searched"""
ONE_SAYS = 50
"""texts that a temperature of 1 counts for, before any is seen"""


def each_label(probabilities: np.ndarray) -> np.ndarray:
    """(N C, 2) the probabilities that a text has not and has a label, from ``probabilities`` (N, C) of several per text."""
    return np.stack([1 - probabilities, probabilities], axis=-1).reshape(-1, 2)


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The temperature at which ``probabilities`` (N, C) give ``labels`` (N,) the lowest log loss (Guo et al. 2017, section 4.2).

    With several labels per text, ``labels`` (N, C) of 1 and 0, the loss is that of each text and label.

    Minimises mean(-ln softmax(ln(probabilities) / T)[label]). Above 1 the model is overconfident. If every prediction is right, the
    loss falls with the temperature without end; it is then left at 1. The loss is convex in 1 / T, so a bounded search ends at the
    only minimum, or at an end of ``RANGE``. Parity: tests/test_calibration.py: ``test_it_is_scikit_learns_temperature``.

    >>> overconfident = np.array([[0.9, 0.1]] * 4)  # right three times of four: 0.75 = softmax(ln 9 / 2)
    >>> round(fit_temperature(overconfident, np.array([0, 0, 0, 1])), 3)
    2.0
    """
    from scipy.optimize import minimize_scalar

    if labels.ndim == 2:
        probabilities, labels = each_label(probabilities), labels.reshape(-1).astype(np.int64)
    if bool((probabilities.argmax(axis=1) == labels).all()):
        return 1.0
    loss = _loss_by_slope(probabilities, labels)
    optimum = minimize_scalar(loss, bounds=(1 / RANGE[1], 1 / RANGE[0]), method="bounded", options={"xatol": 1e-6})
    return float(1 / optimum.x)


def towards_one(temperature: float, texts: int) -> float:
    """A temperature that so many ``texts`` gave, as if ``ONE_SAYS`` more had said that 1 is right: few say little.

    Its logarithm is shrunk towards a guess (Efron and Morris 1973). On the four development sets with 60 to 500 labels,
    probabilities of new texts are then neither too sure nor too unsure. Simulation: tests/test_calibration.py:
    ``test_a_temperature_of_few_texts_is_better_moved_towards_one``.

    >>> [round(towards_one(0.5, texts), 2) for texts in (0, 50, 1000)]
    [1.0, 0.71, 0.52]
    """
    return float(temperature ** (texts / (texts + ONE_SAYS)))


def temperature_interval(
    probabilities: np.ndarray, labels: np.ndarray, temperature: float, groups: np.ndarray | None = None
) -> tuple[float, float] | None:
    """The ends of the 95% interval, over texts, of a ``temperature`` that ``fit_temperature`` found on them; None if it found none.

    All temperatures whose log loss, summed over the N texts, exceeds the lowest one by at most t^2 / 2 (profile likelihood; t is
    Student's quantile with N - 1 degrees of freedom; with ``groups`` (N,) of texts, their number counts), times the variance of the
    loss's slope over that which the model assumes, if this is more than 1: a temperature alone does not make a network's
    probabilities right (Kent 1982; White 1982). An end beyond ``RANGE`` is cut to it. Simulation: tests/test_calibration.py:
    ``test_the_interval_of_the_temperature_holds_the_truth``.

    >>> overconfident, labels = np.array([[0.9, 0.1]] * 400), np.array([0, 0, 0, 1] * 100)
    >>> [round(end, 2) for end in temperature_interval(overconfident, labels, 2.0) or ()]
    [1.65, 2.51]
    """
    from scipy.optimize import brentq

    owners = np.unique(np.arange(len(labels)) if groups is None else groups, return_inverse=True)[1]
    units, best = int(owners.max()) + 1, 1 / temperature
    if units < 2 or bool((probabilities.argmax(axis=1) == labels).all()):
        return None
    logits, calibrated = np.log(probabilities.clip(min=1e-30)), apply_temperature(probabilities, temperature)
    mean = (calibrated * logits).sum(axis=1)  # (N,)
    assumed = ((calibrated * logits**2).sum(axis=1) - mean**2).mean()
    slopes = np.bincount(owners, logits[np.arange(len(labels)), labels] - mean)  # of each unit's loss
    observed = (slopes**2).sum() / len(labels) * units / (units - 1)
    loss = _loss_by_slope(probabilities, labels)
    allowed = loss(best) + t_quantile(0.95, units - 1) ** 2 / 2 / len(labels) * max(1.0, observed / max(assumed, 1e-12))

    def end(furthest: float) -> float:
        return furthest if loss(furthest) <= allowed else float(brentq(lambda slope: loss(slope) - allowed, best, furthest))

    return 1 / end(1 / RANGE[0]), 1 / end(1 / RANGE[1])


def _loss_by_slope(probabilities: np.ndarray, labels: np.ndarray) -> Callable[[float], float]:
    """The mean log loss of the logits times a slope, 1 / T; convex in the slope."""
    logits = np.log(probabilities.clip(min=1e-30))
    picked = logits[np.arange(len(labels)), labels]  # (N,)

    def loss(slope: float) -> float:
        scaled = slope * logits
        highest = scaled.max(axis=1)
        return float(np.mean(np.log(np.exp(scaled - highest[:, None]).sum(axis=1)) + highest - slope * picked))

    return loss


def apply_temperature(probabilities: np.ndarray, temperature: float, several: bool = False) -> np.ndarray:
    """(N, C) the softmax of the logits divided by ``temperature``, from ``probabilities`` (N, C) at temperature 1.

    With ``several`` labels per text each probability is scaled by itself, by the logistic function.

    p_c^(1/T) / sum_k p_k^(1/T) (Guo et al. 2017, section 4.2). No prediction changes. Parity: tests/test_calibration.py:
    ``test_it_is_scikit_learns_temperature``.

    >>> apply_temperature(np.array([[0.9, 0.1]]), 2.0).round(3).tolist()
    [[0.75, 0.25]]
    """
    if temperature == 1:
        return probabilities
    if several:
        return np.asarray(apply_temperature(each_label(probabilities), temperature)[:, 1].reshape(probabilities.shape))
    scaled = np.log(probabilities.clip(min=1e-30)) / temperature
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -ln(probability of the true label) in nats (Good 1952), of ``probabilities`` (N, C) and ``labels`` (N,).

    Probabilities below 1e-12 count as 1e-12. Equal to scikit-learn's: tests/test_stats_references.py:
    ``test_calibration_figures_are_those_of_scikit_learn``.

    >>> round(log_loss(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 0])), 3)
    0.399
    """
    return float(log_losses(probabilities, labels).mean())


def log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) -ln(probability of the true label) of each text in nats, cut as in ``log_loss``; of several labels (N, C) the sum."""
    if labels.ndim == 2:
        losses = log_losses(each_label(probabilities), labels.reshape(-1).astype(np.int64))
        return np.asarray(losses.reshape(labels.shape).sum(axis=1))
    return np.asarray(-np.log(probabilities[np.arange(len(labels)), labels].clip(min=1e-12)))


def loss_gain(probabilities: np.ndarray, labels: np.ndarray, known: np.ndarray) -> tuple[float, float]:
    """Nats per text that a classifier gains over the label frequencies, and the standard error over texts, infinite for one text.

    mean(ln p_i(label_i) - ln f(label_i)) for probabilities p (N, C) of texts with ``labels`` (N,), at the temperature that
    ``fit_temperature`` finds on these texts. f are the frequencies of ``known`` labels, those of the budget; some of them may be of
    texts that never choose, because no other has their class. If all choose, f is the best constant prediction in hindsight, so
    that a classifier that learned nothing gains less than nothing. All probabilities count, where accuracy sees the first places
    only; with few texts that varies less.
    Simulation: tests/test_draws.py: ``test_few_draws_without_signal_claim_anything``.

    >>> sure, labels = np.array([[0.9, 0.1], [0.1, 0.9]] * 4), np.array([0, 1, 0, 1, 0, 1, 1, 0])  # as good as 0.75
    >>> round(loss_gain(sure, labels, labels)[0], 3)  # ln 2 - 0.562
    0.131
    """
    several = labels.ndim == 2
    calibrated = apply_temperature(probabilities, fit_temperature(probabilities, labels), several)
    frequencies = known.mean(axis=0) if several else np.bincount(known, minlength=probabilities.shape[1]) / len(known)
    gains = log_losses(np.tile(frequencies, (len(labels), 1)), labels) - log_losses(calibrated, labels)
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf


@dataclass(frozen=True)
class ReliabilityBin:
    """Texts of similar confidence."""

    confidence: float
    """mean confidence of the texts"""
    accuracy: float
    """share of the texts that is right"""
    count: int
    """texts"""


def reliability_bins(
    confidence: np.ndarray, right: np.ndarray, bins: int = BINS, *, equal_mass: bool = True
) -> list[ReliabilityBin]:
    """Texts by ``confidence`` (N,) and ``right`` (N,), in bins of equally many or of equal width; empty ones are left out.

    Equal mass is the default: if a model is mostly confident, bins of equal width put nearly all texts in one of them, and
    noise in the others (Nixon et al. 2019). Equal to scikit-learn's: tests/test_stats_references.py:
    ``test_calibration_figures_are_those_of_scikit_learn``.

    >>> groups = reliability_bins(np.array([0.5, 0.5, 1, 1]), np.array([0, 1, 1, 1]), 2)
    >>> [(group.confidence, group.accuracy, group.count) for group in groups]
    [(0.5, 0.5, 2), (1.0, 1.0, 2)]
    """
    order, starts = _bins(confidence, bins, equal_mass)
    groups = np.split(order, starts[1:])
    return [ReliabilityBin(float(confidence[g].mean()), float(right[g].mean()), len(g)) for g in groups]


def _bins(confidence: np.ndarray, bins: int, equal_mass: bool) -> tuple[np.ndarray, np.ndarray]:
    """(N,) the order of the texts by confidence, and where in it each bin that is not empty begins."""
    order, count = np.argsort(confidence, kind="stable"), len(confidence)
    if equal_mass:
        bins = min(bins, count)
        starts = np.arange(bins) * (count // bins) + np.minimum(np.arange(bins), count % bins)
    else:
        starts = np.searchsorted(confidence[order], np.linspace(0, 1, bins + 1)[1:-1], side="right")
        starts = np.unique(np.append(starts[starts < count], 0))
    return order, starts


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS, *, equal_mass: bool = True) -> float:
    """The mean gap of confidence and accuracy, 0 to 1: sum over bins of n_b / N |confidence_b - accuracy_b| (Naeini et al. 2015).

    ``confidence`` (N,) and ``right`` (N,). It is never quite 0 on a finite sample: chance alone separates the two within each bin,
    by ``perfect_calibration_error``. Simulation: tests/test_calibration.py: ``test_a_perfect_model_shows_the_error_of_chance``.

    >>> round(expected_calibration_error(np.array([0.9, 0.9, 0.9, 0.9]), np.array([1, 1, 1, 0]), bins=1), 3)
    0.15
    """
    order, starts = _bins(confidence, bins, equal_mass)
    return float(np.abs(np.add.reduceat((confidence - right)[order], starts)).sum() / len(confidence))


def calibration_error_change(before: np.ndarray, after: np.ndarray, right: np.ndarray, groups: np.ndarray | None = None) -> int:
    """1 or -1 if the calibration error of confidences ``after`` (N,) is significantly higher or lower than ``before``, else 0.

    Significant: the error changes in the same direction on 97.5% of resamples of the texts, or of ``groups`` (N,). A resample looks
    less calibrated than it is, mostly where a model is well calibrated, so that the test is careful and gives no interval of the
    change (the bootstrap of Efron 1979). Simulation: tests/test_calibration.py:
    ``test_few_equal_calibration_errors_are_said_to_differ``.

    >>> right = np.array([1, 1, 1, 0] * 50)
    >>> calibration_error_change(np.full(200, 0.99), np.full(200, 0.75), right)  # 0.75 is the accuracy
    -1
    """
    drawn = (
        expected_calibration_error(after[chosen], right[chosen]) - expected_calibration_error(before[chosen], right[chosen])
        for chosen in resample_indices(len(right), RESAMPLES, groups)
    )
    low, high = percentiles(np.fromiter(drawn, float))
    return int(low > 0) - int(high < 0)


def perfect_calibration_error(confidence: np.ndarray, draws: int = 200) -> float:
    """The mean expected calibration error of a perfectly calibrated model with these confidences (N,): that of chance, 0 to 1.

    Whether each text is right is drawn with its confidence as the probability (the consistency resampling of Bröcker and Smith
    2007). Simulation: tests/test_calibration.py: ``test_a_perfect_model_shows_the_error_of_chance``.

    >>> round(perfect_calibration_error(np.full(500, 0.75)), 2)
    0.06
    """
    generator = rng(len(confidence), "perfect calibration")
    drawn = (generator.random(len(confidence)) < confidence for _ in range(draws))
    return float(np.mean([expected_calibration_error(confidence, right) for right in drawn]))
