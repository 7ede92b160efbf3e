"""Statistics equal those of scipy and scikit-learn, or the definition by brute force, where such a reference exists."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from warmstart.stats.calibration import expected_calibration_error, log_loss, reliability_bins
from warmstart.stats.intervals import bootstrap_interval
from warmstart.stats.multiple_testing import benjamini_hochberg, holm
from warmstart.stats.proportions import clopper_pearson_bound, sign_test, wilson_interval
from warmstart.stats.resampling import cluster_bootstrap, jackknife


def test_intervals_of_proportions_are_those_of_scipy() -> None:
    """Wilson's to four digits (1.96 for the normal quantile), Clopper and Pearson's bound and the sign test to all."""
    for right, count in ((0, 7), (3, 10), (45, 50), (120, 400), (9, 9)):
        found, exact = wilson_interval(right / count, count), stats.binomtest(right, count)
        expected = exact.proportion_ci(0.95, "wilson")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-4)
        for level in (0.8, 0.95):
            bound = stats.binomtest(right, count, alternative="less").proportion_ci(level, "exact").high
            assert clopper_pearson_bound(right, count, level) == pytest.approx(bound)
        assert sign_test(right, count - right) == pytest.approx(exact.pvalue)


def test_the_bootstrap_is_that_of_scipy() -> None:
    """Percentile intervals of 10,000 resamples differ by less than their Monte-Carlo error."""
    values = np.random.default_rng(0).gamma(2.0, size=80)
    expected = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    found = bootstrap_interval(values, draws=10_000)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    clusters = cluster_bootstrap(values, np.arange(80), draws=10_000)
    assert (clusters.low, clusters.high) == pytest.approx((expected.low, expected.high), abs=0.02)


def test_holm_is_the_closure_of_bonferroni() -> None:
    """A corrected p-value is the largest Bonferroni p-value of all sets of hypotheses that contain its own (Marcus et al. 1976)."""
    sets = [one for size in range(1, 7) for one in combinations(range(6), size)]
    for p in np.random.default_rng(0).beta(0.4, 2, (5, 6)):
        expected = [max(min(1.0, len(one) * p[list(one)].min()) for one in sets if i in one) for i in range(6)]
        assert holm(p.tolist()) == pytest.approx(expected)


def test_benjamini_hochberg_is_the_step_up_procedure() -> None:
    """q-values below a level are the hypotheses that the procedure of 1995 rejects at it, in any shape."""
    p = np.random.default_rng(1).beta(0.3, 1, (5, 8))
    for level in (0.01, 0.05, 0.2):
        ranked = np.sort(p.ravel())
        passing = np.flatnonzero(ranked <= level * np.arange(1, 41) / 40)
        rejected = p <= ranked[passing[-1]] if len(passing) else np.zeros_like(p, dtype=bool)
        np.testing.assert_array_equal(benjamini_hochberg(p) <= level, rejected)


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    """For a mean, leaving one out gives the interval of the t test."""
    values = np.random.default_rng(2).normal(size=12)
    found = jackknife(np.array([values.mean(), *((values.sum() - values) / 11)]))
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_calibration_figures_are_those_of_scikit_learn() -> None:
    """The log loss; the calibration error, from the bins of ``calibration_curve``."""
    from sklearn import metrics
    from sklearn.calibration import calibration_curve

    chance = np.random.default_rng(3)
    probabilities = chance.dirichlet(np.ones(3), 600)
    labels = np.array([chance.choice(3, p=row) for row in probabilities])
    assert log_loss(probabilities, labels) == pytest.approx(metrics.log_loss(labels, probabilities, labels=[0, 1, 2]))
    confidence = chance.random(600)
    right = chance.random(600) < confidence**2
    for equal_mass, strategy in ((True, "quantile"), (False, "uniform")):
        accuracy, mean = calibration_curve(right, confidence, n_bins=15, strategy=strategy)
        bins = reliability_bins(confidence, right, 15, equal_mass=equal_mass)
        assert np.array([one.accuracy for one in bins]) == pytest.approx(accuracy)
        assert np.array([one.confidence for one in bins]) == pytest.approx(mean)
        found = expected_calibration_error(confidence, right, equal_mass=equal_mass)
        counts = np.histogram(confidence, np.linspace(0, 1, 16))[0] if strategy == "uniform" else np.full(15, 40)
        assert found == pytest.approx((counts * np.abs(accuracy - mean)).sum() / 600)
