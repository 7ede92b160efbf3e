"""Proportions: intervals hold the truth as often as they say, and differences are claimed only with reason."""

from __future__ import annotations

import math

import numpy as np
import pytest

from warmstart.seeding import rng
from warmstart.stats.proportions import binomial_test, mean_proportion, paired_proportions, unseen_label_share, wilson_interval


def groups(*rights: object) -> list[np.ndarray]:
    return [np.array(right, dtype=float) for right in rights]


def test_intervals_by_known_values() -> None:
    """Wilson: 8 of 10 -> 0.49 to 0.94; half a success is rounded towards chance."""
    assert wilson_interval(0.8, 10)[1:] == pytest.approx((0.490, 0.943), abs=1e-3)
    assert wilson_interval(0.0, 20).low == 0
    assert binomial_test(2.5, 3) == binomial_test(2, 3)


def test_a_few_cases_that_agree_are_not_certain() -> None:
    """By hand: p = 3/5 for one success; a single group has Wilson's interval; no end lies beyond 0 or 1."""
    half = 1.96 * math.sqrt(3 * 0.24) / 3
    assert mean_proportion(groups([1], [1], [1])) == pytest.approx((1, 1 - half, 1))
    assert mean_proportion(groups([0] * 3, [0] * 3))[1:] == pytest.approx((0, 1.96 * math.sqrt(2 * (2 / 7) * (5 / 7) / 3) / 2))
    assert mean_proportion(groups([1] * 9 + [0]))[1:] == wilson_interval(0.9, 10)[1:]
    assert mean_proportion(groups(*[[1]] * 9, [0]))[2] == 1


def test_the_interval_of_the_mean_holds_the_truth() -> None:
    """In at least 95 of 100 studies, give or take 2, however few cases each group has."""
    for count, pairs, proportion in ((3, 3, 0.9), (40, 1, 0.7), (67, 200, 0.6)):
        draw = rng(0, "studies")
        found = [mean_proportion(groups(*(draw.random((count, pairs)) < proportion))) for _ in range(400)]
        assert sum(low <= proportion <= high for _, low, high in found) > 0.93 * 400, count


@pytest.mark.proofs
def test_the_share_of_unseen_labels_is_estimated() -> None:
    """Hardly any bias over users of few and many labels; a user's own estimate is off by a few points."""
    chance = np.random.default_rng(0)
    for labels, texts, skew in ((80, 100, 0.3), (150, 50, 1.0), (20, 200, 1.5), (5, 100, 0.0)):
        shares = 1 / np.arange(1, labels + 1) ** skew
        shares /= shares.sum()
        drawn = [chance.choice(labels, texts, p=shares) for _ in range(1000)]
        off = np.array([unseen_label_share(one) - np.delete(shares, np.unique(one)).sum() for one in drawn])
        print(f"{labels} labels, {texts} texts: bias {100 * off.mean():+.2f} points, off by {100 * off.std():.1f}")
        assert abs(off.mean()) < 1 / texts + 4 * off.std() / np.sqrt(len(off))
        assert off.std() < 1 / np.sqrt(texts)


def test_copies_are_one_text_with_a_label() -> None:
    """A label seen on copies alone has been seen once."""
    assert unseen_label_share(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2])) == pytest.approx(1 / 3)


def test_a_difference_is_claimed_if_interval_and_sign_test_agree() -> None:
    """One case claims nothing, nor do five; ten that all agree do, and leave some uncertainty."""
    assert paired_proportions(groups([1]), groups([0])).sign == 0
    assert paired_proportions(groups([1] * 5), groups([0] * 5)).sign == 0
    apart = paired_proportions(groups(*[[1]] * 20, [0] * 90), groups(*[[0]] * 20, [1] * 90))
    assert (apart.low > 0, apart.p < 0.05, apart.sign) == (True, True, 0), "groups say better, pairs say worse"
    better = paired_proportions(groups([1] * 10), groups([0] * 10))
    assert (better.mean, better.low < 0.8, better.sign, better.p) == (1, True, 1, pytest.approx(2 / 2**10))
    assert paired_proportions(groups([0] * 10), groups([1] * 10)).sign == -1
    alike = paired_proportions(groups([1] * 10), groups([1] * 10))
    assert (alike.sign, alike.p, alike.low < 0 < alike.high) == (0, 1, True)
    draw = rng(0)
    one, other = (draw.random((3, 400)) < share for share in (0.7, 0.6))
    found = paired_proportions(groups(*one), groups(*other))
    assert found.high - found.mean == pytest.approx(1.96 * (one.astype(float) - other).std() / math.sqrt(1200), rel=0.01)
