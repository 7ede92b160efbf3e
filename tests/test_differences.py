"""Resamples and differences, against scikit-learn, loops and figures by hand; changes are said beyond noise only."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from helpers.figures import most, repeats
from warmstart.data.task import Split, Task
from warmstart.seeding import rng
from warmstart.stats import resampling
from warmstart.stats.changes import Change, changes_of
from warmstart.stats.differences import MethodScores, paired_difference
from warmstart.stats.ratios import ClusteredRatio, ratio, resampled_ratios
from warmstart.stats.resampling import (
    circular_shifts,
    cluster_bootstrap,
    resample_classification,
    resample_counts,
    resample_indices,
)
from warmstart.tasks import TASK_TYPES

DRAWS = 200


def judged(name: str, *scores: float, spread: float = 0.0) -> MethodScores:
    """A method whose scores on resamples lie around its scores."""
    chance = np.random.default_rng(0).normal(0, 1, DRAWS) * spread  # the same resamples for all
    return MethodScores(name, scores, np.array(scores)[:, None] + chance)


def test_resamples_are_scored_as_scikit_learn_scores_them() -> None:
    """Each draw names texts, and its score is the metric of these texts."""
    chance = np.random.default_rng(1)
    labels, answers = chance.integers(0, 4, 50), chance.integers(0, 4, 50)
    accuracy, macro_f1 = (resample_classification(metric, labels, answers, 5, draws=8) for metric in ("accuracy", "macro_f1"))
    for draw in range(8):
        texts = rng(50, "resample", draw).integers(0, 50, 50)
        assert accuracy[draw] == pytest.approx(accuracy_score(labels[texts], answers[texts]))
        # the fifth class stands nowhere, and counts 0 as in the full score; all others were drawn
        expected = f1_score(labels[texts], answers[texts], labels=range(5), average="macro", zero_division=0)
        assert macro_f1[draw] == pytest.approx(expected)


def test_kept_resamples_are_those_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For many texts they are not kept; no score depends on that, and nobody can change what is kept."""
    chance = np.random.default_rng(1)
    labels, answers = chance.integers(0, 4, 50), chance.integers(0, 4, 50)
    cases = [(metric, groups) for metric in ("accuracy", "macro_f1") for groups in (None, np.arange(50) // 3)]
    kept = [resample_classification(metric, labels, answers, 5, groups=groups) for metric, groups in cases]
    assert not next(resample_indices(50)).flags.writeable
    monkeypatch.setattr(resampling, "MOST_KEPT", 0)
    for (metric, groups), found in zip(cases, kept, strict=True):
        np.testing.assert_array_equal(resample_classification(metric, labels, answers, 5, groups=groups), found)


UNEVEN = np.repeat(np.arange(10), [80, 40, 20, 10, 5, 2, 2, 1, 1, 1])


def test_a_perfect_model_is_perfect_on_every_resample() -> None:
    """A rare class that a resample did not draw says nothing; one that stands nowhere costs what it costs the full score."""
    assert (resample_classification("macro_f1", UNEVEN, UNEVEN, 10, draws=200) == 1).all()
    assert resample_classification("macro_f1", UNEVEN, UNEVEN, 20, draws=200) == pytest.approx(0.5)


def test_several_labels_are_resampled_alike() -> None:
    """Any number of labels a text: perfect answers are perfect on every resample, others are scored as scikit-learn scores them."""
    chance = np.random.default_rng(2)
    truth, given = np.eye(11)[UNEVEN], np.clip(np.eye(11)[UNEVEN] + (chance.random((162, 11)) < 0.2), 0, 1)
    split = Split(tuple(map(str, range(162))), truth)
    task = Task("t", tuple("abcdefghijk"), split, split, split, metric="macro_f1", type="multilabel")
    assert TASK_TYPES["multilabel"].resampled_scores(split, truth, task) == pytest.approx(10 / 11)
    texts = rng(162, "resample", 0).integers(0, 162, 162)
    expected = f1_score(truth[texts], given[texts], average="macro", zero_division=0)
    assert TASK_TYPES["multilabel"].resampled_scores(split, given, task)[0] == pytest.approx(expected)


def test_resampled_macro_f1_leans_to_no_side() -> None:
    """Over rare classes and common mistakes, resamples lie around the score: no more than half of their spread away."""
    answers = UNEVEN.copy()
    answers[::7] = 0
    found, score = resample_classification("macro_f1", UNEVEN, answers, 10), f1_score(UNEVEN, answers, average="macro")
    assert abs(found.mean() - score) < found.std() / 2
    assert np.quantile(found, 0.025) < score < np.quantile(found, 0.975)


def test_what_all_methods_share_cancels() -> None:
    """Easy resamples are easy for both: the paired difference has no more doubt than that of the seeds."""
    one, other = judged("a", 0.8, 0.9, 0.85, spread=0.05), judged("b", 0.7, 0.8, 0.75, spread=0.05)
    assert paired_difference(one, other).error == pytest.approx(0, abs=1e-9)
    assert one.over_both.spread > 0.03


def test_a_method_is_not_different_from_itself() -> None:
    """No difference, no doubt; and one without chance is compared with every seed."""
    same = judged("a", 0.5, 0.6)
    assert paired_difference(same, same).p == 1
    assert paired_difference(same, judged("b", 0.4)).mean == pytest.approx(0.15)


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


def test_words_of_a_sentence_are_resampled_together() -> None:
    """Fifty sentences of ten equal words have the interval of fifty items, not of five hundred."""
    each = rng(0, "right").integers(0, 2, 50).astype(float)
    mean, low, high = cluster_bootstrap(np.repeat(each, 10), np.repeat(np.arange(50), 10))
    _, low_50, high_50 = cluster_bootstrap(each, np.arange(50))
    assert mean == each.mean()
    assert (low, high) == (low_50, high_50)
    assert high - low > 0.2


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


def scores_around(values: list[float], chance: np.random.Generator) -> MethodScores:
    return MethodScores("", tuple(values), np.array(values)[:, None] + chance.normal(0, 0.005, (len(values), 1000)))


def test_one_seed_shows_nothing() -> None:
    """However large a change is: its interval is over the texts alone; five seeds show it."""
    chance = np.random.default_rng(0)
    after, before = [0.70, 0.71, 0.69, 0.70, 0.72], [0.90, 0.91, 0.90, 0.89, 0.90]
    [one] = changes_of([(scores_around(after[:1], chance), scores_around(before[:1], chance))], "the test texts")
    [five] = changes_of([(scores_around(after, chance), scores_around(before, chance))], "the test texts")
    assert one.in_percent("The score").startswith("The score did not change significantly: 90.0% before, 70.0% after")
    assert one.in_percent("The score").endswith("over the test texts alone, which shows nothing about other seeds).")
    assert five.in_percent("The score").startswith("The score fell from 90.0% to 70.4% (95% interval of the change -2")
    assert five.in_percent("The score").endswith(" points, over 5 seeds and the test texts).")


def test_several_changes_are_corrected() -> None:
    """A change whose own interval excludes 0 is none among ten, and the corrected p-value beside it says why."""
    chance = np.random.default_rng(0)
    steady, lower = [0.70, 0.71, 0.69, 0.70, 0.72], [0.68, 0.70, 0.68, 0.66, 0.71]
    pairs = [
        (scores_around(lower, chance), scores_around(steady, chance)),
        *((scores_around(steady, chance), scores_around(steady, chance)) for _ in range(9)),
    ]
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
    [change] = changes_of([(scores_around([0.70, 0.85], chance), scores_around([0.74, 0.71], chance))], "the test texts")
    assert change.in_percent("It").endswith("; 2 seeds are too few to detect a difference under 50 points with 80% power.")
    assert re.search(r"; \d\.\d{3} nats would have been detected with 80% power\.$", change.in_nats("It"))


@pytest.mark.proofs
@pytest.mark.parametrize("seeds", [1, 3, 5])
def test_few_equal_scores_are_said_to_have_changed(seeds: int) -> None:
    """Six scores of 75% that did not change, 500 test texts and seeds that differ by 2 points: about 5% of tables claim any."""
    chance, claimed, tables = np.random.default_rng(seeds), 0, repeats(300, 120)
    weights = chance.multinomial(500, np.full(500, 1 / 500), 300).T / 500  # as in a table: the same resamples for all scores
    for _ in range(tables):
        right = chance.random((12, seeds, 500)) < 0.75 + chance.normal(0, 0.02, (12, seeds, 1))
        rows = [MethodScores("", tuple(one.mean(axis=1).tolist()), many) for one, many in zip(right, right @ weights, strict=True)]
        claimed += any(change.sign for change in changes_of([*zip(rows[::2], rows[1::2], strict=True)], "the test texts"))
    print(f"{seeds} seeds: {claimed / tables:.1%} of tables claim a change that does not exist")
    assert claimed / tables <= (0 if seeds == 1 else most(0.05, tables))
