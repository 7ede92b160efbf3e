"""Trust in the confidence of a saved model, before and after calibration. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.stats.abstention import area_under_risk_coverage, find_threshold, risk_coverage, smallest_guarantee
from warmstart.stats.calibration import (
    apply_temperature,
    calibration_error_change,
    expected_calibration_error,
    log_losses,
    perfect_calibration_error,
    reliability_bins,
)
from warmstart.stats.changes import Change
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import figure_interval, percent, percent_value
from warmstart.stats.noise import detectable_from_interval
from warmstart.stats.resampling import cluster_bootstrap
from warmstart.types import SelectionName

if TYPE_CHECKING:
    from warmstart.model.bundle import Calibration
    from warmstart.stats.calibration import ReliabilityBin

TARGET_ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""error rates for which the report finds thresholds"""
CONFIDENCE_LEVEL = 0.95
THRESHOLD_HEADER = ("guaranteed error rate", "confidence threshold", "test texts labelled", "errors among them")


@dataclass(frozen=True)
class ConfidenceResult:
    """The confidence of a saved model on the test split, before and after calibration.

    Letters: N test texts, C classes.
    """

    calibration: Calibration
    probabilities: np.ndarray
    """(N, C) before calibration"""
    labels: np.ndarray
    """(N,)"""
    units: np.ndarray
    """(N,) which texts are resampled together: each alone, or those of one group"""
    selection: SelectionName = "holdout"
    """texts that chose the settings; the temperature is fitted on the same predictions"""

    @property
    def correct(self) -> np.ndarray:
        """(N,) whether the most probable class is the label; calibration changes none."""
        return self.probabilities.argmax(axis=1) == self.labels

    def confidences(self) -> dict[str, np.ndarray]:
        """(N,) the highest probability of each text, rounded as bundles store it, before and after calibration."""
        after = apply_temperature(self.probabilities, self.calibration.temperature)
        return {
            "before calibration": self.probabilities.max(axis=1).round(6),
            "after calibration": after.max(axis=1).round(6),
        }

    def bins(self) -> dict[str, list[ReliabilityBin]]:
        """The texts in bins of equal size by confidence, before and after calibration."""
        return {name: reliability_bins(confidence, self.correct) for name, confidence in self.confidences().items()}

    def risk_coverage(self) -> tuple[np.ndarray, np.ndarray]:
        """(K,) coverage and (K,) risk at each of K thresholds, after calibration."""
        return risk_coverage(self.confidences()["after calibration"], self.correct)

    @cached_property
    def findings(self) -> list[str]:
        """Sentences about miscalibration, the changes by calibration, and the guarantees of thresholds."""
        findings = [
            " ".join([self._miscalibration(), *self._changes()]),
            f"Averaged over all thresholds, {percent(area_under_risk_coverage(*self.risk_coverage()))} of the predicted labels are "
            "wrong (AURC).",
        ]
        if self.calibration.held_out:
            count, level = len(self.calibration.held_out), percent(CONFIDENCE_LEVEL, trim=True)
            findings.append(
                f"Thresholds found on {count} held-out texts that chose nothing guarantee an error rate with {level} confidence "
                f"for new texts from the same distribution, but none below {percent(smallest_guarantee(count, CONFIDENCE_LEVEL))}, "
                "which takes more texts."
            )
        return findings

    def to_dict(self) -> dict[str, Any]:
        """Changes by calibration, and effects of thresholds, as plain values, fit for JSON."""
        thresholds = self.threshold_table() if self.calibration.held_out else []
        return {"findings": self.findings, "header": THRESHOLD_HEADER, "thresholds": thresholds}

    def _miscalibration(self) -> str:
        """A sentence about the temperature and its interval; miscalibrated if that excludes 1."""
        temperature, interval = self.calibration.temperature, self.calibration.interval
        if interval is None:
            why = {
                "cross-validation": "all texts are classified correctly out of fold",
                "holdout": "all validation texts are classified correctly",
                "none": "no label chooses, which leaves no text to fit it on",
            }
            return f"No temperature was fitted, because {why[self.selection]}; no probability changes."
        low, high = interval
        out_of_fold = "out-of-fold predictions for the texts that learn"
        fitted_on = out_of_fold if self.selection == "cross-validation" else "the validation texts"
        fitted = f"the temperature fitted on {fitted_on} is {figure_interval(temperature, low, high, digits=2)}"
        if low <= 1 <= high:
            detected = detection_text([detectable_from_interval(low, high)], "a distance of {:.2f} from 1".format, "")
            return f"No significant miscalibration: {fitted}, and the interval includes 1; {detected}."
        return f"The model was {'overconfident' if low > 1 else 'underconfident'}: {fitted}."

    def _changes(self) -> list[str]:
        """Sentences about the changes by the temperature on the test texts."""
        if self.calibration.interval is None:
            return []
        calibrated = apply_temperature(self.probabilities, self.calibration.temperature)
        before, after = (log_losses(values, self.labels) for values in (self.probabilities, calibrated))
        _, low, high = cluster_bootstrap(after - before, self.units)
        loss = Change(float(before.mean()), float(after.mean()), low, high, "the test texts")
        confidence, calibrated_confidence = self.confidences().values()
        both = (confidence, calibrated_confidence)
        errors = [percent_value(expected_calibration_error(values, self.correct)) for values in both]
        by_chance = [percent_value(perfect_calibration_error(values)) for values in both]
        sign = calibration_error_change(confidence, calibrated_confidence, self.correct, self.units)
        verb = ("did not change significantly", "rose", "fell")[sign]
        return [
            loss.in_nats("With it, the log loss on the test texts"),
            f"The expected calibration error there {verb}: {errors[0]} points before, {errors[1]} after; on as many texts a "
            f"perfectly calibrated model would show {by_chance[0]} and {by_chance[1]}. No predicted label changes.",
        ]

    def threshold_table(self) -> list[tuple[str, str, str, str]]:
        """Effects of each target's threshold on the test texts, which it never saw; one row per ``TARGET_ERRORS``."""
        confidence, correct = (np.array(column) for column in zip(*self.calibration.held_out, strict=True))
        return [self._threshold_row(target, confidence, correct.astype(bool)) for target in TARGET_ERRORS]

    def _threshold_row(self, target: float, confidence: np.ndarray, correct: np.ndarray) -> tuple[str, str, str, str]:
        threshold = find_threshold(confidence, correct, target, CONFIDENCE_LEVEL).threshold
        name = f"at most {percent(target, trim=True)}"
        if math.isinf(threshold):
            return name, "none", percent(0.0), "-"
        labelled = self.confidences()["after calibration"] >= threshold
        errors = percent((~self.correct[labelled]).mean()) if labelled.any() else "-"
        return name, f"{threshold:.3f}", percent(labelled.mean()), errors
