"""Resampling: by hand, and against loops over every resample."""

from __future__ import annotations

import numpy as np
import pytest

from warmstart.seeding import rng
from warmstart.stats.multiple_testing import max_statistic_threshold
from warmstart.stats.ratios import ClusteredRatio, ratio, resampled_ratios
from warmstart.stats.resampling import circular_shifts, cluster_bootstrap, resample_counts


def test_a_shift_keeps_a_passages_values() -> None:
    """Each column has the same values, rotated, and all columns by the same distance."""
    values = np.arange(10.0).reshape(5, 2)
    found = circular_shifts(values, np.random.default_rng(0), 7).reshape(5, 7, 2)
    for number in range(7):
        assert any(np.array_equal(found[:, number], np.roll(values, by, axis=0)) for by in range(5))


def test_counts_draw_as_many_units_as_there_are() -> None:
    """Every resample has N draws; the original sample counts every unit once."""
    counts = resample_counts(12, rng(0, "units"), 50, with_original=True)
    assert counts.shape == (51, 12)
    assert (counts.sum(axis=1) == 12).all()
    assert (counts[0] == 1).all()


def test_ratios_are_those_of_a_loop() -> None:
    """Sums and counts of any shapes that broadcast; a resample without anything to count has nan."""
    draw = np.random.default_rng(0)
    sums, counts = draw.normal(size=(6, 2, 3)), np.array([3, 1, 0, 2, 0, 4])[:, None, None]
    weights = resample_counts(6, rng(0, "units"), 20)
    found = resampled_ratios(sums, counts, weights)
    for row, values in zip(weights, found, strict=True):
        expected = sum(w * s for w, s in zip(row, sums, strict=True)) / (row @ counts[:, 0, 0])
        np.testing.assert_allclose(values, expected)
    assert np.isnan(resampled_ratios(sums, 0 * counts, weights)).all()


def test_few_clusters_have_students_interval() -> None:
    """Below ten clusters it is the t interval of the ratio's standard error, with a p-value to match; one cluster has neither."""
    values = np.array([0.2, 0.4, 0.3, 0.5])
    few = ClusteredRatio(np.array(values.mean()), values, np.ones(4))
    assert few.standard_error == pytest.approx(values.std(ddof=1) / 2)
    low, high = few.interval(rng(0, "clusters"))
    assert (low, high) == pytest.approx(
        (values.mean() - 3.182446 * values.std(ddof=1) / 2, values.mean() + 3.182446 * values.std(ddof=1) / 2)
    )
    assert 0.005 < few.p_values() < 0.05
    alone = ClusteredRatio(np.array(0.2), values[:1], np.ones(1))
    assert np.isnan(alone.interval(rng(0, "clusters"))).all()
    assert np.isnan(alone.p_values())


def test_a_ratio_of_nothing_is_nan() -> None:
    """Nothing to count gives no figure, and no warning."""
    np.testing.assert_array_equal(ratio(np.array([1.0, 2.0]), np.array([2, 0])), [0.5, np.nan])


def test_the_threshold_is_passed_by_one_permutation_in_twenty() -> None:
    """Of 101 largest statistics 0 to 100, the threshold is 95."""
    assert max_statistic_threshold(np.arange(101.0)[:, None]) == [95]


def test_words_of_a_sentence_are_resampled_together() -> None:
    """Fifty sentences of ten equal words have the interval of fifty items, not of five hundred."""
    each = rng(0, "right").integers(0, 2, 50).astype(float)
    mean, low, high = cluster_bootstrap(np.repeat(each, 10), np.repeat(np.arange(50), 10))
    _, low_50, high_50 = cluster_bootstrap(each, np.arange(50))
    assert mean == each.mean()
    assert (low, high) == (low_50, high_50)
    assert high - low > 0.2
