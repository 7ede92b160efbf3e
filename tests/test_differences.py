"""Differences with two sources of chance: parity with scipy, coverage on simulated truth, corrections by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score

from warmstart.data.task import Split, Task
from warmstart.seeding import rng
from warmstart.stats import resampling
from warmstart.stats.differences import MethodScores, cheapest_within_noise, paired_difference
from warmstart.stats.multiple_testing import holm
from warmstart.stats.resampling import resample_classification, resample_indices
from warmstart.tasks import TASK_TYPES

DRAWS = 200


def judged(name: str, *scores: float, spread: float = 0.0) -> MethodScores:
    """A method whose scores on resamples lie around its scores."""
    chance = np.random.default_rng(0).normal(0, 1, DRAWS) * spread  # the same resamples for all
    return MethodScores(name, scores, np.array(scores)[:, None] + chance)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_resamples_are_scored_as_scikit_learn_scores_them(metric: str) -> None:
    """Each draw names texts, and its score is the metric of these texts."""
    chance = np.random.default_rng(1)
    labels, answers = chance.integers(0, 4, 50), chance.integers(0, 4, 50)
    found = resample_classification(metric, labels, answers, 5, draws=8)
    for draw in range(8):
        texts = rng(50, "resample", draw).integers(0, 50, 50)
        if metric == "accuracy":
            expected = accuracy_score(labels[texts], answers[texts])
        else:
            # the fifth class stands nowhere, and counts 0 as in the full score; all others were drawn
            expected = f1_score(labels[texts], answers[texts], labels=range(5), average="macro", zero_division=0)
        assert found[draw] == pytest.approx(expected)


@pytest.mark.parametrize("groups", [None, np.arange(50) // 3])
def test_kept_resamples_are_those_drawn_anew(groups: np.ndarray | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For many texts they are not kept; no score depends on that, and nobody can change what is kept."""
    chance = np.random.default_rng(1)
    labels, answers = chance.integers(0, 4, 50), chance.integers(0, 4, 50)
    kept = [resample_classification(metric, labels, answers, 5, groups=groups) for metric in ("accuracy", "macro_f1")]
    assert groups is not None or not next(resample_indices(50)).flags.writeable
    monkeypatch.setattr(resampling, "MOST_KEPT", 0)
    for metric, found in zip(("accuracy", "macro_f1"), kept, strict=True):
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


def test_the_doubt_of_test_texts_is_the_binomial_one() -> None:
    """The bootstrap's standard error of an accuracy is sqrt(p (1 - p) / N), give or take the draws."""
    labels = np.zeros(400, dtype=np.int64)
    answers = (np.arange(400) < 100).astype(np.int64)
    spread = resample_classification("accuracy", labels, answers, 2).std(ddof=1)
    assert spread == pytest.approx(np.sqrt(0.75 * 0.25 / 400), rel=0.08)


def test_without_doubt_of_texts_it_is_students_paired_test() -> None:
    """Parity with scipy: mean, interval and probability, seed by seed."""
    one, other = (0.80, 0.83, 0.79, 0.85, 0.81), (0.78, 0.80, 0.79, 0.80, 0.80)
    gap, expected = paired_difference(judged("a", *one), judged("b", *other)), stats.ttest_rel(one, other)
    assert gap.p == pytest.approx(expected.pvalue)
    assert (gap.low, gap.high) == pytest.approx(tuple(expected.confidence_interval()))


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


def test_intervals_hold_the_truth() -> None:
    """Two methods, one better by 2 points: over 300 experiments with new seeds and new texts, the interval has it in about 95 %."""
    chance, inside, texts = np.random.default_rng(3), 0, 300
    for _ in range(300):
        hard = chance.random(texts)
        rows = []
        for skill in (0.72, 0.70):
            levels = skill + chance.normal(0, 0.02, 5)
            rows.append([hard + chance.normal(0, 0.2, texts) < level for level in levels])
        truth = _truth(0.72) - _truth(0.70)
        draws = chance.integers(0, texts, (150, texts))
        sides = [MethodScores("", tuple(r.mean() for r in row), np.array([r[draws].mean(axis=1) for r in row])) for row in rows]
        gap = paired_difference(*sides)
        inside += gap.low <= truth <= gap.high
    assert 0.92 <= inside / 300 <= 0.99


def _truth(skill: float) -> float:
    """Share of right answers over endless seeds and texts."""
    chance = np.random.default_rng(4)
    return float((chance.random(400_000) + chance.normal(0, 0.2, 400_000) < skill + chance.normal(0, 0.02, 400_000)).mean())


def test_holm_by_hand() -> None:
    """The smallest counts for all, the next for one less, and order never turns round."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_only_raises_and_keeps_order(chances: list[float]) -> None:
    """Corrected probabilities are never smaller, never above one, and rank as before."""
    corrected = holm(chances)
    assert all(raw <= fixed <= 1 for raw, fixed in zip(chances, corrected, strict=True))
    assert np.all(np.diff(np.array(corrected)[np.argsort(chances, kind="stable")]) >= 0)


def test_the_cheapest_within_one_standard_error() -> None:
    """What falls short by less than a standard error may be taken, what falls short by more may not, however cheap.

    Costs that another measurement would order otherwise are equal, and the better method is taken.
    """
    best = judged("best", 0.90, 0.92, 0.88)
    near = judged("near", 0.89, 0.93, 0.87)
    far = judged("far", 0.80, 0.83, 0.77)
    assert cheapest_within_noise([best, near, far], best, [11, 5, 1]) is near
    assert cheapest_within_noise([best, near, far], best, [2, 5, 1]) is best
    assert cheapest_within_noise([near, best, far], best, [5, 9, 1]) is best
    assert cheapest_within_noise([near, best], best, [0.07, 0.9], equal_below=1.0) is best
