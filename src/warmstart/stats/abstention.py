"""Abstention: a confidence threshold above which errors stay below a target, with a stated confidence level.

A model whose confidence ranks its predictions well can keep an error rate on part of them that it cannot keep on all: it predicts
only if it is confident, and abstains otherwise. The threshold is found on examples that chose nothing. The guarantee holds for new
examples drawn from the same distribution, with probability ``confidence_level``; it says nothing about other texts.

Letters: N examples, M distinct confidences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warmstart.errors import ConfigError
from warmstart.stats.formatting import percent


@dataclass(frozen=True)
class Threshold:
    """Predict if the confidence is at least ``threshold``, else abstain."""

    threshold: float
    """infinite if no threshold can give the guarantee: the model then always abstains"""
    target: float
    """the guaranteed largest error rate among the predictions given"""
    confidence_level: float
    """probability that the guarantee holds, over the draw of the held-out examples"""
    answered: int
    """held-out examples above the threshold"""
    wrong: int
    """number of these that were wrong"""
    examples: int
    """held-out examples in all"""

    def sentence(self) -> str:
        """A sentence on what the threshold guarantees, or on why it cannot guarantee anything."""
        errors, level = percent(self.target, trim=True), percent(self.confidence_level, trim=True)
        if math.isinf(self.threshold):
            return (
                f"No threshold can guarantee at most {errors} errors with {level} confidence from these {self.examples} held-out "
                "examples, so the model always abstains. Allow more errors, or hold out more examples."
            )
        reached = f"{self.answered} ({percent(self.answered / self.examples, 0)})"
        return (
            f"With a confidence threshold of {self.threshold:.3g}, at most {errors} of the predictions that reach it are wrong, "
            f"with {level} confidence. Of {self.examples} held-out examples, {reached} reach it, and {self.wrong} of those are "
            "wrong."
        )


def find_threshold(confidence: np.ndarray, right: np.ndarray, target: float, confidence_level: float = 0.95) -> Threshold:
    """The lowest threshold that keeps the guarantee, by fixed-sequence tests from several starts (Angelopoulos et al. 2021).

    ``confidence`` (N,) and ``right`` (N,) bool are of examples that chose nothing. A threshold passes with the error probability e
    if P(Binomial(answered, target) <= wrong) <= e, the exact bound of Clopper and Pearson (1934). Each start walks from high to low
    thresholds until one fails, so every test of it may use its whole e (Learn then Test). A walk from few examples often ends by
    chance, so four share 1 - confidence_level: half of it begins where one wrong answer may pass, and a sixth each goes to three
    starts in equal ratios from there to all N. With N below twice the first start it begins there alone, with all of it. Where the
    search begins depends on N, target and level alone. Errors are assumed to be no rarer below a threshold than above it.

    Simulation: tests/test_abstention.py: ``test_a_threshold_is_found_and_its_guarantee_holds``. Raises ``ConfigError`` unless both
    rates lie between 0 and 1.

    >>> find_threshold(np.linspace(0.2, 1, 400), np.ones(400, dtype=bool), 0.05).threshold  # none is wrong
    0.2
    """
    from scipy import stats

    if not (0 < target < 1 and 0 < confidence_level < 1):
        raise ConfigError(
            f"the target error and the confidence level must lie between 0 and 1, but are {target} and {confidence_level}"
        )
    thresholds, answered, wrong = _by_threshold(confidence, right)
    chance, last = stats.binom.cdf(wrong, answered, target), -1
    for fewest, error in _starts(len(confidence), target, 1 - confidence_level):
        first = int(np.searchsorted(answered, fewest))
        if passed := int(np.logical_and.accumulate(chance[first:] <= error).sum()):
            last = max(last, first + passed - 1)
    if last < 0:
        return Threshold(math.inf, target, confidence_level, 0, 0, len(confidence))
    return Threshold(float(thresholds[last]), target, confidence_level, int(answered[last]), int(wrong[last]), len(confidence))


def conformal_p_values(left_out: np.ndarray, new: np.ndarray) -> np.ndarray:
    """(N,) the share of texts that are no more typical than each new one: (1 + count of left_out <= new) / (M + 1).

    ``left_out`` (M,) says how typical texts are that a model had not learned from, ``new`` (N,) how typical the new ones are. Of
    new texts like those left out, at most the share s has a value of at most s (Vovk et al. 2005; Bates et al. 2023). Simulation:
    tests/test_abstention.py: ``test_no_more_known_texts_are_refused_than_stated``.

    >>> conformal_p_values(np.linspace(0.1, 0.9, 9), np.array([0.05, 0.5])).round(2).tolist()
    [0.1, 0.6]
    """
    return (1 + np.searchsorted(np.sort(left_out), new, side="right")) / (len(left_out) + 1)


def smallest_guarantee(examples: int, confidence_level: float = 0.95) -> float:
    """The smallest error rate that ``find_threshold`` can guarantee from this many examples, if none is wrong.

    Clopper and Pearson (1934) without an error: 1 - (1 - confidence_level)^(1 / examples). Simulation: tests/test_abstention.py:
    ``test_no_smaller_error_rate_can_be_guaranteed``.

    >>> round(smallest_guarantee(59), 3)  # the rule of three: about 3 / 59
    0.05
    """
    return float(1 - (1 - confidence_level) ** (1 / examples))


def risk_coverage(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coverage (fraction predicted) and risk (fraction of those that is wrong) at each threshold, highest first: two (M,) arrays.

    ``confidence`` (N,) and ``right`` (N,) bool; equal confidences share a threshold (El-Yaniv and Wiener 2010). By hand:
    tests/test_abstention.py: ``test_risk_and_coverage_by_hand``.

    >>> coverage, risk = risk_coverage(np.array([0.9, 0.8, 0.8]), np.array([True, True, False]))
    >>> coverage.round(2).tolist(), risk.round(2).tolist()
    ([0.33, 1.0], [0.0, 0.33])
    """
    _, answered, wrong = _by_threshold(confidence, right)
    return answered / len(confidence), wrong / answered


def area_under_risk_coverage(coverage: np.ndarray, risk: np.ndarray) -> float:
    """The mean risk over all coverages, sum_m (coverage_m - coverage_{m-1}) risk_m (AURC; Geifman et al. 2019), 0 to 1.

    ``coverage`` and ``risk`` are (M,) of ``risk_coverage``. 0 for a model that is never wrong; the error rate if confidence says
    nothing. By hand: tests/test_abstention.py: ``test_risk_and_coverage_by_hand``.

    >>> round(area_under_risk_coverage(*risk_coverage(np.array([0.9, 0.8, 0.8]), np.array([True, True, False]))), 3)
    0.222
    """
    return float((np.diff(coverage, prepend=0.0) * risk).sum())


def _by_threshold(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct confidences, highest first, the number of examples that reach each, and of those that are wrong: three (M,)."""
    order = np.argsort(-confidence, kind="stable")
    last = np.flatnonzero(np.append(np.diff(confidence[order]) != 0, True))  # the last of equal confidences counts them all
    return confidence[order][last], last + 1, np.cumsum(~right[order])[last]


def _starts(count: int, target: float, error: float) -> list[tuple[int, float]]:
    """The fewest answers of each start of the search, and its part of the error probability."""
    first = _fewest_answers(count, target, error / 2)
    if count < 2 * first:
        return [(_fewest_answers(count, target, error), error)]
    return [(first, error / 2), *((round(first * (count / first) ** (step / 3)), error / 6) for step in (1, 2, 3))]


def _fewest_answers(count: int, target: float, error: float) -> int:
    """The fewest answers that pass although one is wrong, so that chance in one answer does not end the search at its beginning.

    If ``count`` examples are too few for that, the fewest that pass if none is wrong; more than ``count`` if there are no such.
    """
    from scipy import stats

    for wrong in (1, 0):
        passes = stats.binom.cdf(wrong, np.arange(1, count + 1), target) <= error
        if passes.any():
            return int(passes.argmax()) + 1
    return count + 1
