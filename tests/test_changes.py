"""Changes: "fell" and "rose" are said beyond noise only, and one seed shows nothing about others."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from warmstart.stats.changes import Change, changes_of
from warmstart.stats.differences import MethodScores

CHANGES = [
        (Change(4.0, 3.9, -0.15, -0.05, "it"), "It fell from 4.000 to 3.900 nats (95% interval of the change -0.150 to -0.050"),
        (Change(4.0, 4.1, 0.05, 0.15, "9 texts"), "It rose from 4.000 to 4.100 nats ("),
        (Change(4.0, 3.9, -0.25, 0.05, "9 texts"), "It did not change significantly: 4.000 nats before, 3.900 nats after ("),
        (Change(4.0, 3.9, -0.15, -0.05, "9 texts", corrected=False), "It did not change significantly: "),
        (Change(4.0, 4.0, 0.0, 0.0, "9 texts"), "It did not change: it stayed at 4.000 nats."),
        (Change(4.0, 3.9, math.nan, math.nan, "one text"), "It was 4.000 nats before and 3.900 nats after; one text, so its noise"),
]  # fmt: skip


def test_a_change_is_said_beyond_noise_only() -> None:
    """The verb follows the interval, and the correction for several changes."""
    for change, sentence in CHANGES:
        assert change.in_nats("It").startswith(sentence)


def scores(values: list[float], chance: np.random.Generator) -> MethodScores:
    return MethodScores("", tuple(values), np.array(values)[:, None] + chance.normal(0, 0.005, (len(values), 1000)))


def test_one_seed_shows_nothing() -> None:
    """However large a change is: its interval is over the texts alone; five seeds show it."""
    chance = np.random.default_rng(0)
    after, before = [0.70, 0.71, 0.69, 0.70, 0.72], [0.90, 0.91, 0.90, 0.89, 0.90]
    [one] = changes_of([(scores(after[:1], chance), scores(before[:1], chance))], "the test texts")
    [five] = changes_of([(scores(after, chance), scores(before, chance))], "the test texts")
    assert one.in_percent("The score").startswith("The score did not change significantly: 90.0% before, 70.0% after")
    assert one.in_percent("The score").endswith("over the test texts alone, which shows nothing about other seeds).")
    assert five.in_percent("The score").startswith("The score fell from 90.0% to 70.4% (95% interval of the change -2")
    assert five.in_percent("The score").endswith(" points, over 5 seeds and the test texts).")


def test_several_changes_are_corrected() -> None:
    """A change whose own interval excludes 0 is none among ten, and the corrected p-value beside it says why."""
    chance = np.random.default_rng(0)
    steady, lower = [0.70, 0.71, 0.69, 0.70, 0.72], [0.68, 0.70, 0.68, 0.66, 0.71]
    pairs = [(scores(lower, chance), scores(steady, chance)), *((scores(steady, chance), scores(steady, chance)) for _ in range(9))]
    first, *_ = changes_of(pairs, "the test texts")
    assert first.high < 0
    assert first.sign == 0
    assert first.in_percent("The score").startswith("The score did not change significantly: 70.4% before, 68.6% after")
    limit = r"; \d\.\d points would have been detected with 80% power\."
    assert re.search(r", over 5 seeds and the test texts; corrected p 0\.\d{3}\)" + limit + "$", first.in_percent("The score"))


def test_what_would_have_been_detected_is_said() -> None:
    """Of a change that is not significant: 1.43 times half the interval; nothing of one that is."""
    assert (
        Change(4.0, 3.95, -0.15, 0.05, "9 texts").in_nats("It").endswith("); 0.143 nats would have been detected with 80% power.")
    )
    assert (
        Change(0.5, 0.5, -0.01, 0.01, "9 texts").in_percent("It").endswith("); 1.4 points would have been detected with 80% power.")
    )
    assert "detected" not in Change(4.0, 3.9, -0.15, -0.05, "9 texts").in_nats("It")


def test_half_of_the_range_is_not_worth_printing() -> None:
    """Two seeds of a score are too few, as in comparisons; a loss has no range."""
    chance = np.random.default_rng(0)
    [change] = changes_of([(scores([0.70, 0.85], chance), scores([0.74, 0.71], chance))], "the test texts")
    assert change.in_percent("It").endswith("; 2 seeds are too few to detect a difference under 50 points with 80% power.")
    assert re.search(r"; \d\.\d{3} nats would have been detected with 80% power\.$", change.in_nats("It"))


@pytest.mark.proofs
@pytest.mark.parametrize("seeds", [1, 3, 5])
def test_few_equal_scores_are_said_to_have_changed(seeds: int) -> None:
    """Six scores of 75% that did not change, 500 test texts and seeds that differ by 2 points: about 5% of tables claim any."""
    chance, claimed = np.random.default_rng(seeds), 0
    weights = chance.multinomial(500, np.full(500, 1 / 500), 300).T / 500  # as in a table: the same resamples for all scores
    for _ in range(300):
        right = chance.random((12, seeds, 500)) < 0.75 + chance.normal(0, 0.02, (12, seeds, 1))
        rows = [MethodScores("", tuple(one.mean(axis=1).tolist()), many) for one, many in zip(right, right @ weights, strict=True)]
        claimed += any(change.sign for change in changes_of([*zip(rows[::2], rows[1::2], strict=True)], "the test texts"))
    print(f"{seeds} seeds: {claimed / 300:.1%} of tables claim a change that does not exist")
    assert claimed <= (0 if seeds == 1 else 22)
