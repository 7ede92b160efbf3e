"""Comparisons say who won, by how much and how sure that is, whoever it is."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from helpers.figures import repeats
from helpers.simulation import answers, seed_effects
from warmstart.stats.comparison import MethodResult, MethodTable, PairedComparison, compare_pairs, detectable_points
from warmstart.stats.differences import MethodScores
from warmstart.stats.multiple_testing import holm

OURS = MethodResult("pretrained", (0.86, 0.84, 0.85), seconds=61.24, trainable=1_234_567)
SCRATCH = MethodResult("from scratch", (0.70, 0.72, 0.71), seconds=60.0, trainable=1_234_567, note="1 of 3 runs collapsed")
TFIDF = MethodResult("TF-IDF", (0.88,))


def drawn(name: str, right: np.ndarray) -> MethodResult:
    """A method whose answers (S, N) are right or wrong, with its resamples."""
    texts = np.random.default_rng(9).integers(0, right.shape[1], (200, right.shape[1]))
    return MethodResult(name, tuple(right.mean(axis=1).tolist()), resampled=np.array([run[texts].mean(axis=1) for run in right]))


def compare_pair(one: MethodResult, other: MethodResult) -> PairedComparison:
    """The difference of a single pair."""
    return compare_pairs([(one, other)])[0]


def test_a_win_and_a_loss_are_a_sentence() -> None:
    """Better or worse, by how many points, between which bounds, over what; without resamples, that is these test texts alone.

    A method without chance is the same for every seed; the strongest rival is named first.
    """
    won, lost = compare_pair(OURS, SCRATCH), compare_pair(OURS, TFIDF)
    assert won.significant
    assert lost.significant
    back, there = compare_pair(SCRATCH, OURS).difference, won.difference
    assert (back.low, back.high, back.p) == pytest.approx((-there.high, -there.low, there.p)), "turned round"
    assert [lost.sentence, won.sentence] == [
        "Pretrained is worse than TF-IDF by 3.0 points (95% interval 0.5 to 5.5, over 3 seeds on these test texts).",
        "Pretrained is better than from scratch by 14.0 points (95% interval 9.0 to 19.0, over 3 seeds on these test texts).",
    ]
    findings = MethodTable("accuracy", (OURS, SCRATCH, TFIDF)).findings()
    assert [one.split(" by ")[0] for one in findings] == [one.sentence.split(" by ")[0] for one in (lost, won)]


def test_no_difference_is_claimed_from_noise() -> None:
    """Where the interval holds zero, no one is better."""
    found = compare_pair(MethodResult("a", (0.53, 0.67, 0.6)), MethodResult("b", (0.6, 0.6, 0.58)))
    assert not found.significant
    assert found.sentence.startswith("Undecided: a is ahead of b by 0.7 points (95% interval -")
    finds, more = found.difference.detectable(), found.difference.detectable(seeds=10)
    said = f" A run of this size finds a lead of {100 * finds:.1f} points in 4 of 5 cases; with 10 seeds about {100 * more:.0f}."
    assert found.sentence.endswith(said)


def test_only_a_small_difference_is_said_to_be_small() -> None:
    """Where the whole interval lies within 2 points of none, its farther end is what the two differ by at most."""
    one, other = MethodResult("a", (0.700, 0.704, 0.702)), MethodResult("b", (0.701, 0.702, 0.703))
    found = compare_pair(one, other)
    assert found.sentence.startswith("Undecided: a is level with b (95% interval -0.4 to +0.4, over 3 seeds")
    assert ") They" not in found.sentence
    assert ". They differ by at most 0.4 points. A run of this size finds a lead of " in found.sentence
    wide = compare_pair(one, MethodResult("b", (0.681, 0.702, 0.723))).sentence
    assert "They differ" not in wide


def test_comparisons_made_at_once_are_corrected_for_their_number() -> None:
    """As Holm corrects the probabilities of each pair alone; what is seen follows, and the sentence says what was corrected.

    The p-value of the one question is that of the pair alone, as one comparison; the others are corrected among themselves.
    """
    chance = np.random.default_rng(1)
    rows = [drawn(str(level), chance.random((5, 300)) < level) for level in (0.8, 0.7, 0.74, 0.79)]
    alone = {row.name: compare_pair(rows[0], row).p for row in rows[1:]}
    corrected = compare_pairs([(rows[0], other) for other in rows[1:]])
    assert [one.p for one in corrected] == pytest.approx(holm([*alone.values()]))
    assert {one.sentence for one in corrected} == {*MethodTable("accuracy", tuple(rows)).findings()}
    assert ", over 5 seeds and the test texts; corrected p " in corrected[0].sentence
    assert all(one.significant == (one.p < 0.05) == ("better" in one.sentence) for one in corrected)
    found = {one.names[1]: one for one in MethodTable("accuracy", tuple(rows), rival="0.74").compared()}
    assert found["0.74"].p == pytest.approx(alone["0.74"])
    assert "corrected p" not in found["0.74"].sentence
    assert [found[name].p for name in ("0.7", "0.79")] == pytest.approx(holm([alone["0.7"], alone["0.79"]]))
    assert [found[name].comparisons for name in ("0.7", "0.74", "0.79")] == [2, 1, 2]


def test_more_comparisons_detect_less() -> None:
    """The smallest detectable difference is that of the corrected level; from 50 points on, seeds are too few."""
    few, other = MethodResult("a", (0.5, 0.7, 0.6)), MethodResult("b", (0.6, 0.6, 0.58))
    alone, *_, among = compare_pair(few, other).difference, *(one.difference for one in compare_pairs([(few, other)] * 4))
    assert alone.at_most == among.at_most
    assert alone.detectable(1) < alone.detectable(4)
    found = compare_pair(MethodResult("a", (0.3, 0.8)), MethodResult("b", (0.6, 0.6))).sentence
    too_few = "2 seeds are too few to detect a difference under 50 points with 80% power."
    assert found.endswith(f"over 2 seeds on these test texts). {too_few}")


def test_a_table_says_where_seeds_are_too_few() -> None:
    """As a sentence does; scores without bounds have a figure, however large."""
    assert [detectable_points(size, bounded=True) for size in (0.024, 0.5)] == ["2.4", "too few seeds"]
    assert detectable_points(0.7, bounded=False) == "70.0"


def test_one_seed_shows_nothing() -> None:
    """However large the difference, one seed claims nothing."""
    found = compare_pair(MethodResult("a", (0.9,)), MethodResult("b", (0.1,)))
    assert not found.significant
    assert found.sentence == "A and b differ by +80.0 points on one seed, which shows nothing."
    found = compare_pair(drawn("a", np.arange(200)[None] < 180), drawn("b", np.arange(200)[None] < 20))
    assert not found.significant
    begin = "A and b differ by +80.0 points on one seed, which shows nothing about other seeds (95% interval +7"
    assert found.sentence.startswith(begin)
    assert found.sentence.endswith(", over the test texts alone).")


def test_seeds_without_spread_tell_no_chance() -> None:
    """The same gap with every seed has no interval, and nothing is claimed of it; nor of no gap at all."""
    found = compare_pair(MethodResult("a", (0.85,) * 3), MethodResult("b", (0.8,)))
    assert not found.significant
    assert found.sentence == "A and b differ by +5.0 points on each of 3 seeds; without spread, significance is unknown."
    same = compare_pair(MethodResult("a", (0.8,) * 3), MethodResult("b", (0.8,))).sentence
    assert same == "No difference between a and b: +0.0 points on each of 3 seeds."


def test_shares_end_at_none_and_all() -> None:
    """No accuracy above 100 % or below 0, no difference above 100 points; a correlation may be below 0."""
    high, low = MethodResult("a", (0.99, 1.0, 0.9)), MethodResult("b", (0.0, 0.02, 0.0))
    assert str(high.interval) == "96.3% (82.7 to 100.0)"
    assert str(low.interval).startswith("0.7% (0.0 to ")
    assert replace(low, bounded=False).interval.low < 0
    assert compare_pair(MethodResult("a", (0.9, 1.0)), MethodResult("b", (0.1, 0.0))).difference.high == 1


def test_the_headline_covers_seeds_and_texts() -> None:
    """With resamples the interval is that over both, wider than over seeds alone, and cut to 0 to 1; one run has that of texts."""
    right = np.random.default_rng(3).random((3, 120)) < 0.98
    found = drawn("a", right)
    assert found.interval.high - found.interval.low > found.over_seeds.high - found.over_seeds.low
    assert found.interval.high <= 1
    [row] = MethodTable("accuracy", (drawn("a", right[1:2]),)).table()
    assert row[1].startswith(f"{right[1].mean():.1%} (9")
    assert row[2] == "one run"
    assert MethodTable("accuracy", (drawn("a", right[1:2]),)).header[1] == "score (95% over texts)"
    assert MethodTable("accuracy", (drawn("a", right),)).header[1] == "score (95% over seeds and texts)"


def test_a_lead_that_is_not_enough_among_several_is_said_to_be_so() -> None:
    """It may exclude 0 where the corrected p-value is above 5%."""
    chance = np.random.default_rng(0)
    one = drawn("a", chance.random((3, 300)) < 0.8)
    rest = [drawn(f"b{i}", chance.random((3, 300)) < 0.74) for i in range(12)]
    found = [row for row in compare_pairs([(one, other) for other in rest]) if not row.significant and row.difference.low > 0]
    assert found
    assert all("), which is not enough as one of 12 comparisons. A run of this" in row.sentence for row in found)


def test_unequal_seeds_are_our_mistake() -> None:
    """Three scores cannot be paired with two."""
    with pytest.raises(AssertionError, match="same seeds"):
        compare_pair(OURS, MethodResult("b", (0.1, 0.2)))


def test_table_is_ranked() -> None:
    """The best mean stands first, the question's method where it belongs; what took no training has no seconds."""
    table = MethodTable("accuracy", (OURS, SCRATCH, TFIDF)).table()
    assert table == [
        ("TF-IDF", "88.0% (one run)", "one run", "-", "-", ""),
        ("pretrained", "85.0% (82.5 to 87.5)", "82.5 to 87.5", "61.2", "1,234,567", ""),
        ("from scratch", "71.0% (68.5 to 73.5)", "68.5 to 73.5", "60.0", "1,234,567", "1 of 3 runs collapsed"),
    ]


def test_plain_is_json() -> None:
    """The plain form goes through strict JSON unchanged: a missing interval is null, never NaN."""
    plain = MethodTable("accuracy", (OURS, SCRATCH, TFIDF)).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["rows"][2]["low"] is None
    assert plain["rows"][0]["mean"] == pytest.approx(0.85)


def test_a_lead_that_is_rounded_away_is_level() -> None:
    """In whichever direction."""
    scores = np.array([0.7, 0.71, 0.69])
    for lead in (-0.0003, 0.0003):
        moved = scores + lead * np.array([1, 2, 0])
        one, other = (MethodResult(name, tuple(values.tolist())) for name, values in (("a", moved), ("b", scores)))
        assert "a is level with b" in compare_pair(one, other).sentence


@pytest.mark.proofs
def test_few_comparisons_of_equal_objectives_claim_a_difference() -> None:
    """Two or four objectives, 3 or 5 seeds, 200 pairs in groups: at most 5% of comparisons, within two Monte-Carlo errors."""
    sizes, chances = [50, 50, 40, 20, 20, 10, 10], {seeds: np.random.default_rng(seeds) for seeds in (3, 5)}
    weights = np.repeat(1 / np.array(sizes), sizes)  # every group counts alike
    for seeds, count in ((3, 2), (3, 4), (5, 2), (5, 4)):
        chance, claims, held = chances[seeds], list[bool](), list[bool]()
        for _ in range(repeats(200, 100)):
            right = answers(chance, seed_effects(chance, (count, seeds), 0.02), sum(sizes)).astype(float)
            scores = [MethodScores.from_texts(str(i), rows, weights=weights) for i, rows in enumerate(right)]
            found = [MethodResult(one.name, one.scores, resampled=one.resampled) for one in scores]
            compared = compare_pairs([*combinations(sorted(found, key=lambda one: -one.interval.mean), 2)])
            claims.append(any(one.significant for one in compared))
            held.append(compared[0].difference.low <= 0 <= compared[0].difference.high)
        print(f"{seeds} seeds, {count} objectives: claims {np.mean(claims):.3f}, coverage of the lead {np.mean(held):.3f}")
        assert np.mean(claims) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(claims)), (seeds, count)
        assert np.mean(held) >= 0.94, (seeds, count)
