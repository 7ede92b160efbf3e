"""The running accuracy of a labelling session: covered at every moment, whatever is drawn next."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.figures import repeats
from warmstart.app.accuracy import Outcomes, accuracy_starts, running_accuracy
from warmstart.app.choosing import Distances, Mixture, draw_text
from warmstart.app.learner import Beliefs

MOSTLY_UNCERTAIN = Mixture(random=0.2, uncertain=0.8, diverse=0.0)


def quick_beliefs(vectors: np.ndarray, texts: list[int], labels: np.ndarray, version: int) -> Beliefs | None:
    """Nearest class means, in microseconds; too sure of itself, on purpose."""
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    means = np.stack([vectors[texts][labels == one].mean(axis=0) for one in classes])
    scores = -3 * ((vectors[:, None] - means) ** 2).sum(axis=2)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return Beliefs(version, classes, scores / scores.sum(axis=1, keepdims=True), np.zeros(len(vectors)), len(texts))


def session(seed: int, mixture: Mixture, noise: float = 0.0, texts: int = 400, labels: int = 200) -> tuple[Outcomes, np.ndarray]:
    """Label some texts; what was seen, and the true accuracy (n,) of the model at each draw on the texts without a label.

    A share ``noise`` of the labels is wrong: accuracy is the agreement with what people say.
    """
    chance = np.random.default_rng(seed)
    truth = chance.integers(0, 3, texts)
    vectors = np.eye(3, 6)[truth] * chance.uniform(0.5, 1.2) + chance.normal(0, 0.6, (texts, 6))
    truth = np.where(chance.random(texts) < noise, chance.integers(0, 3, texts), truth)
    distances, beliefs = Distances(vectors), None
    seen, rows, accuracies = list[int](), list[tuple[bool, float, float, float]](), list[float]()
    for number in range(labels):
        remaining = np.setdiff1d(np.arange(texts), seen)
        chosen = draw_text(remaining, beliefs, distances.squared, mixture, chance)
        if beliefs is not None:
            right, confidence = beliefs.predicted == truth, beliefs.confidence
            ratio = 1 / (len(remaining) * chosen.probability)
            rows.append((right[chosen.text], confidence[chosen.text], confidence[remaining].mean(), ratio))
            accuracies.append(right[remaining].mean())
        seen.append(chosen.text)
        distances.add(chosen.text)
        if number % 10 == 9:
            beliefs = quick_beliefs(vectors, seen, truth[seen], number)
    right, confidence, mean_confidence, ratio = (np.array(column) for column in zip(*rows, strict=True))
    return Outcomes(right, confidence, mean_confidence, ratio, mixture.random), np.array(accuracies)


def first(outcomes: Outcomes, count: int) -> Outcomes:
    """What was known after some of the draws."""
    parts = (outcomes.right, outcomes.confidence, outcomes.mean_confidence, outcomes.ratio)
    return Outcomes(*(part[:count] for part in parts), random_share=outcomes.random_share)


@pytest.mark.proofs
@pytest.mark.parametrize(
    ("mixture", "noise", "left_open"),
    [*((mixture, noise, 0.0) for mixture in (Mixture(), MOSTLY_UNCERTAIN) for noise in (0.0, 0.15)), (Mixture(), 0.15, 0.5)],
)
def test_the_accuracy_is_covered_at_every_moment_of_a_session(mixture: Mixture, noise: float, left_open: float) -> None:
    """Looked at after every fifth label, at most 5% of sessions are told more than what is so.

    Also where people leave open half of the texts on which the model is wrong, and some others, which count as wrong meanwhile.
    """
    wrongly, below, sessions = 0, list[float](), repeats(300, 150)
    for seed in range(sessions):
        outcomes, accuracies = session(seed, mixture, noise)
        left = np.random.default_rng(seed).random(len(accuracies)) < np.where(outcomes.right, left_open / 25, left_open)
        outcomes = replace(outcomes, right=outcomes.right & ~left)
        looks = [(running_accuracy(first(outcomes, n)), n) for n in range(30, len(accuracies) + 1, 5)]
        over = [found.low - accuracies[found.first - 1 : count].mean() for found, count in looks if found is not None]
        wrongly += max(over) > 0
        below.append(-over[-1])
    far = 100 * np.mean(below)
    print(f"{noise:.0%} wrong labels: proven wrongly {wrongly / sessions:.1%}; at the end {far:.0f} points below the truth")
    assert wrongly <= 0.05 * sessions


@pytest.mark.proofs
def test_the_estimate_is_unbiased_although_hard_texts_are_preferred() -> None:
    """Within noise, where the plain share of right answers is too low by several points."""
    off, plain = list[float](), list[float]()
    for seed in range(repeats(300, 150)):
        outcomes, accuracies = session(seed, MOSTLY_UNCERTAIN)
        off.append(outcomes.values.mean() - accuracies.mean())
        plain.append(outcomes.right.mean() - accuracies.mean())
    assert abs(np.mean(off)) <= 3 * np.std(off) / math.sqrt(len(off))
    assert np.mean(plain) < -0.05


def test_the_number_of_labels_that_a_proof_needs_is_said() -> None:
    right = np.tile(np.arange(20) > 0, 8)  # 95% right
    one = Outcomes(right, np.full(160, 0.95), np.full(160, 0.95), np.ones(160), 1.0)
    found = running_accuracy(one, 0.9)
    assert found is not None
    assert not found.proves(0.9)
    assert found.first == 1
    assert 0 < found.needed[0.9] < 1000
    assert "Not proven yet: if the accuracy stays as it is, about " in found.target_sentence(0.9)
    assert running_accuracy(one, 0.96).needed[0.96] == math.inf  # type: ignore[union-attr]
    assert accuracy_starts(200) == [0, 50, 100]


def test_no_value_is_below_its_floor() -> None:
    """Whatever the confidences and the preferences; a sure and rare text that is wrong comes near."""
    for seed in range(5):
        outcomes, _ = session(seed, MOSTLY_UNCERTAIN, 0.3)
        assert (outcomes.values >= outcomes.floors).all()
    rare = Outcomes(np.zeros(1, dtype=bool), np.ones(1), np.full(1, 0.7), np.full(1, 2.0), 0.5)
    assert rare.values == pytest.approx(rare.floors)
