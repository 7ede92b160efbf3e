"""Comparisons say who won, by how much and how sure that is, whoever it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from warmstart.evaluate import Comparison, Row, paired
from warmstart.seeding import rng

OURS = Row("pretrained", (0.86, 0.84, 0.85), seconds=61.24, trainable=1_234_567)
SCRATCH = Row("from scratch", (0.70, 0.72, 0.71), seconds=60.0, trainable=1_234_567, note="1 of 3 runs collapsed")
TFIDF = Row("TF-IDF", (0.88,))


def test_a_win_is_a_sentence() -> None:
    """Better, by how many points, between which bounds, on how many seeds."""
    found = paired(OURS, SCRATCH)
    assert found.seen
    assert found.sentence == "pretrained is better than from scratch by 14.0 points (95 % interval 9.0 to 19.0, 3 seeds)"


def test_a_loss_is_said_as_plainly() -> None:
    """Losing reads like winning, with positive bounds in order; a method without chance is the same for every seed."""
    found = paired(OURS, TFIDF)
    assert found.seen
    assert found.sentence == "pretrained is worse than TF-IDF by 3.0 points (95 % interval 0.5 to 5.5, 3 seeds)"


def test_no_difference_is_claimed_from_noise() -> None:
    """Where the interval holds zero, no one is better."""
    found = paired(Row("a", (0.5, 0.7, 0.6)), Row("b", (0.6, 0.6, 0.58)))
    assert not found.seen
    assert found.sentence.startswith("no difference between a and b can be seen: +0.7 points (95 % interval -")


def test_one_seed_shows_nothing() -> None:
    """However large the difference, one seed claims nothing."""
    found = paired(Row("a", (0.9,)), Row("b", (0.1,)))
    assert not found.seen
    assert found.sentence == "a and b differ by +80.0 points on one seed, which shows nothing"


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 8), st.integers(0, 10_000))
def test_equal_to_the_paired_t_test(seeds: int, seed: int) -> None:
    """The interval is that of scipy's paired t test, and turns round with the two methods."""
    a, b = rng(seed, "paired").random((2, seeds)).tolist()
    found, back = paired(Row("a", tuple(a)), Row("b", tuple(b))), paired(Row("b", tuple(b)), Row("a", tuple(a)))
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx((expected.low, expected.high))
    assert (back.difference.low, back.difference.high) == pytest.approx((-expected.high, -expected.low))
    assert found.seen == back.seen


def test_pairing_sees_what_means_hide() -> None:
    """Seeds that are hard for both methods cancel out: a steady gain shows through a large spread."""
    assert paired(Row("a", (0.420, 0.621, 0.819)), Row("b", (0.4, 0.6, 0.8))).seen


def test_unequal_seeds_are_our_mistake() -> None:
    """Three scores cannot be paired with two."""
    with pytest.raises(AssertionError, match="same seeds"):
        paired(OURS, Row("b", (0.1, 0.2)))


def test_table_is_ranked() -> None:
    """The best mean stands first, the question's method where it belongs; what took no training has no seconds."""
    table = Comparison("accuracy", (OURS, SCRATCH, TFIDF)).table()
    assert table == [
        ("TF-IDF", "88.0 % (one run)", "-", "-", ""),
        ("pretrained", "85.0 % (82.5 to 87.5)", "61.2", "1,234,567", ""),
        ("from scratch", "71.0 % (68.5 to 73.5)", "60.0", "1,234,567", "1 of 3 runs collapsed"),
    ]


def test_sentences_hold_the_first_against_each() -> None:
    """One sentence per other method, in the order given."""
    said = Comparison("accuracy", (OURS, SCRATCH, TFIDF)).sentences()
    assert [sentence.split(" by ")[0] for sentence in said] == [
        "pretrained is better than from scratch",
        "pretrained is worse than TF-IDF",
    ]


def test_plain_is_json() -> None:
    """The plain form goes through strict JSON unchanged: a missing interval is null, never NaN."""
    plain = Comparison("accuracy", (OURS, SCRATCH, TFIDF)).plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["rows"][2]["low"] is None
    assert plain["rows"][0]["mean"] == pytest.approx(0.85)
