"""Every statistic of warmstart, each written once: intervals, resampling, comparisons, calibration, abstention, extrapolation.

    from warmstart.stats import MethodScores, holm, paired_difference

The names below are public and need no other part of warmstart; docs/reference/statistics.md lists them by question, with formula,
source and simulation. They are looked up when they are used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Backtest": "extrapolation",
    "Change": "changes",
    "ClassificationScores": "scores",
    "ClusteredRatio": "ratios",
    "Difference": "differences",
    "Estimate": "intervals",
    "Extrapolation": "extrapolation",
    "Interval": "intervals",
    "LossGains": "choice",
    "MethodResult": "comparison",
    "MethodScores": "differences",
    "Noise": "noise",
    "PairedComparison": "comparison",
    "PowerLaw": "extrapolation",
    "ProportionDifference": "proportions",
    "Threshold": "abstention",
    "apply_temperature": "calibration",
    "area_under_risk_coverage": "abstention",
    "backtest": "extrapolation",
    "benjamini_hochberg": "multiple_testing",
    "binomial_test": "proportions",
    "bootstrap_correlation": "correlation",
    "bootstrap_interval": "intervals",
    "calibration_error_change": "calibration",
    "changes_of": "changes",
    "cheapest_within_noise": "differences",
    "choose_within_draw": "choice",
    "classification_scores": "scores",
    "clopper_pearson_bound": "proportions",
    "cluster_bootstrap": "resampling",
    "compare_pairs": "comparison",
    "conformal_p_values": "abstention",
    "corrected_p_values": "differences",
    "correlation_q_values": "correlation",
    "detectable_from_interval": "power",
    "detectable_proportion": "power",
    "detection_power": "power",
    "difference_to_choice": "differences",
    "distance_from_normal": "goodness_of_fit",
    "expected_calibration_error": "calibration",
    "extrapolate": "extrapolation",
    "extrapolate_means": "extrapolation",
    "find_threshold": "abstention",
    "fit_power_law": "extrapolation",
    "fit_temperature": "calibration",
    "frequency_code_bits": "coding",
    "holm": "multiple_testing",
    "jackknife": "resampling",
    "krippendorff_alpha": "agreement",
    "krippendorff_interval": "agreement",
    "label_thresholds": "several_labels",
    "log_loss": "calibration",
    "max_statistic_threshold": "multiple_testing",
    "mean_proportion": "proportions",
    "moderated_noise": "noise",
    "p_of_no_signal": "permutation",
    "paired_difference": "differences",
    "paired_proportions": "proportions",
    "perfect_calibration_error": "calibration",
    "possible_noise": "power",
    "proven_mean": "anytime",
    "reliability_bins": "calibration",
    "resample_classification": "resampling",
    "resample_indices": "resampling",
    "rescaled": "power",
    "risk_coverage": "abstention",
    "smallest_guarantee": "abstention",
    "score_of_choice": "differences",
    "share_training_texts": "splits",
    "sign_test": "proportions",
    "smallest_detectable": "power",
    "t_interval": "intervals",
    "temperature_interval": "calibration",
    "texts_needed": "power",
    "texts_to_tell": "power",
    "selected_accuracy": "selected",
    "selected_f1": "selected",
    "weighted_accuracy": "anytime",
    "unseen_label_share": "proportions",
    "values_to_prove": "anytime",
    "wilson_interval": "proportions",
    "worse_out_of_fold": "choice",
}
"""Where each public name lives."""

__all__ = [*_HOMES]

if TYPE_CHECKING:
    from warmstart.stats.abstention import Threshold as Threshold
    from warmstart.stats.abstention import area_under_risk_coverage as area_under_risk_coverage
    from warmstart.stats.abstention import conformal_p_values as conformal_p_values
    from warmstart.stats.abstention import find_threshold as find_threshold
    from warmstart.stats.abstention import risk_coverage as risk_coverage
    from warmstart.stats.abstention import smallest_guarantee as smallest_guarantee
    from warmstart.stats.agreement import krippendorff_alpha as krippendorff_alpha
    from warmstart.stats.agreement import krippendorff_interval as krippendorff_interval
    from warmstart.stats.anytime import proven_mean as proven_mean
    from warmstart.stats.anytime import values_to_prove as values_to_prove
    from warmstart.stats.anytime import weighted_accuracy as weighted_accuracy
    from warmstart.stats.calibration import apply_temperature as apply_temperature
    from warmstart.stats.calibration import calibration_error_change as calibration_error_change
    from warmstart.stats.calibration import expected_calibration_error as expected_calibration_error
    from warmstart.stats.calibration import fit_temperature as fit_temperature
    from warmstart.stats.calibration import log_loss as log_loss
    from warmstart.stats.calibration import perfect_calibration_error as perfect_calibration_error
    from warmstart.stats.calibration import reliability_bins as reliability_bins
    from warmstart.stats.calibration import temperature_interval as temperature_interval
    from warmstart.stats.changes import Change as Change
    from warmstart.stats.changes import changes_of as changes_of
    from warmstart.stats.choice import LossGains as LossGains
    from warmstart.stats.choice import choose_within_draw as choose_within_draw
    from warmstart.stats.choice import worse_out_of_fold as worse_out_of_fold
    from warmstart.stats.coding import frequency_code_bits as frequency_code_bits
    from warmstart.stats.comparison import MethodResult as MethodResult
    from warmstart.stats.comparison import PairedComparison as PairedComparison
    from warmstart.stats.comparison import compare_pairs as compare_pairs
    from warmstart.stats.correlation import bootstrap_correlation as bootstrap_correlation
    from warmstart.stats.correlation import correlation_q_values as correlation_q_values
    from warmstart.stats.differences import Difference as Difference
    from warmstart.stats.differences import MethodScores as MethodScores
    from warmstart.stats.differences import cheapest_within_noise as cheapest_within_noise
    from warmstart.stats.differences import corrected_p_values as corrected_p_values
    from warmstart.stats.differences import difference_to_choice as difference_to_choice
    from warmstart.stats.differences import paired_difference as paired_difference
    from warmstart.stats.differences import score_of_choice as score_of_choice
    from warmstart.stats.extrapolation import Backtest as Backtest
    from warmstart.stats.extrapolation import Extrapolation as Extrapolation
    from warmstart.stats.extrapolation import PowerLaw as PowerLaw
    from warmstart.stats.extrapolation import backtest as backtest
    from warmstart.stats.extrapolation import extrapolate as extrapolate
    from warmstart.stats.extrapolation import extrapolate_means as extrapolate_means
    from warmstart.stats.extrapolation import fit_power_law as fit_power_law
    from warmstart.stats.goodness_of_fit import distance_from_normal as distance_from_normal
    from warmstart.stats.intervals import Estimate as Estimate
    from warmstart.stats.intervals import Interval as Interval
    from warmstart.stats.intervals import bootstrap_interval as bootstrap_interval
    from warmstart.stats.intervals import t_interval as t_interval
    from warmstart.stats.multiple_testing import benjamini_hochberg as benjamini_hochberg
    from warmstart.stats.multiple_testing import holm as holm
    from warmstart.stats.multiple_testing import max_statistic_threshold as max_statistic_threshold
    from warmstart.stats.noise import Noise as Noise
    from warmstart.stats.noise import moderated_noise as moderated_noise
    from warmstart.stats.power import detectable_from_interval as detectable_from_interval
    from warmstart.stats.power import detectable_proportion as detectable_proportion
    from warmstart.stats.power import detection_power as detection_power
    from warmstart.stats.power import possible_noise as possible_noise
    from warmstart.stats.power import rescaled as rescaled
    from warmstart.stats.power import smallest_detectable as smallest_detectable
    from warmstart.stats.power import texts_needed as texts_needed
    from warmstart.stats.power import texts_to_tell as texts_to_tell
    from warmstart.stats.proportions import ProportionDifference as ProportionDifference
    from warmstart.stats.proportions import binomial_test as binomial_test
    from warmstart.stats.proportions import clopper_pearson_bound as clopper_pearson_bound
    from warmstart.stats.proportions import mean_proportion as mean_proportion
    from warmstart.stats.proportions import paired_proportions as paired_proportions
    from warmstart.stats.proportions import sign_test as sign_test
    from warmstart.stats.proportions import unseen_label_share as unseen_label_share
    from warmstart.stats.proportions import wilson_interval as wilson_interval
    from warmstart.stats.ratios import ClusteredRatio as ClusteredRatio
    from warmstart.stats.resampling import cluster_bootstrap as cluster_bootstrap
    from warmstart.stats.resampling import jackknife as jackknife
    from warmstart.stats.resampling import resample_classification as resample_classification
    from warmstart.stats.resampling import resample_indices as resample_indices
    from warmstart.stats.scores import ClassificationScores as ClassificationScores
    from warmstart.stats.scores import classification_scores as classification_scores
    from warmstart.stats.selected import selected_accuracy as selected_accuracy
    from warmstart.stats.selected import selected_f1 as selected_f1
    from warmstart.stats.several_labels import label_thresholds as label_thresholds
    from warmstart.stats.splits import share_training_texts as share_training_texts


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'warmstart.stats' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
