"""Differences with two sources of chance: parity with scipy, coverage on simulated truth, corrections by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from warmstart.data.task import Split, Task
from warmstart.seeding import rng
from warmstart.stats import resampling
from warmstart.stats.differences import MethodScores, cheapest_within_noise, paired_difference
from warmstart.stats.resampling import resample_classification, resample_indices
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
