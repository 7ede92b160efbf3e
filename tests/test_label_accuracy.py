"""The running accuracy of a labelling session, and confidence sequences: covered at every moment, whatever is drawn next."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from warmstart.labelling.accuracy import Outcomes, running_accuracy, window_starts
from warmstart.labelling.learner import Beliefs
from warmstart.labelling.selection import Distances, Mixture, draw_text
from warmstart.stats.anytime import BEST_AT, anytime_boundary, anytime_interval


def quick_beliefs(vectors: np.ndarray, texts: list[int], labels: np.ndarray, version: int) -> Beliefs | None:
    """Nearest class means, in microseconds; too sure of itself, on purpose."""
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    means = np.stack([vectors[texts][labels == one].mean(axis=0) for one in classes])
    scores = -3 * ((vectors[:, None] - means) ** 2).sum(axis=2)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return Beliefs(version, classes, scores / scores.sum(axis=1, keepdims=True), np.zeros(len(vectors)), len(texts))


def session(seed: int, mixture: Mixture, texts: int = 400, labels: int = 200) -> tuple[Outcomes, np.ndarray]:
    """Label some texts; what was seen, and the true accuracy (n,) of the model at each draw on the texts without a label."""
    chance = np.random.default_rng(seed)
    truth = chance.integers(0, 3, texts)
    vectors = np.eye(3, 6)[truth] * chance.uniform(0.5, 1.2) + chance.normal(0, 0.6, (texts, 6))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "mixture", [Mixture(), Mixture(random=0.2, uncertain=0.8, diverse=0.0)], ids=["default", "mostly uncertain"]
)
def test_the_accuracy_is_covered_at_every_moment_of_a_session(mixture: Mixture) -> None:
    """Looked at after every fifth label, at least 95% of 1,000 sessions never miss the truth, and few prove what is not so."""
    missed, wrongly_proven = 0, 0
    for seed in range(1000):
        outcomes, accuracies = session(seed, mixture)
        looks = [(running_accuracy(first(outcomes, count)), count) for count in range(5, len(accuracies) + 1, 5)]
        truths = [(found, accuracies[found.first - 1 : count].mean()) for found, count in looks if found is not None]
        missed += any(not found.low <= truth <= found.high for found, truth in truths)
        wrongly_proven += any(found.proves(truth + 1e-9) for found, truth in truths)
    assert missed <= 50
    assert wrongly_proven <= 25


@pytest.mark.slow
def test_an_interval_of_one_moment_would_not_hold() -> None:
    """The same looks with ordinary intervals of 95%: every fourth session or more is misled, so the looks are a real test."""
    missed = 0
    for seed in range(300):
        outcomes, accuracies = session(seed, Mixture())
        means = [
            (outcomes.values[:count].mean(), outcomes.values[:count].std() / math.sqrt(count), accuracies[:count].mean())
            for count in range(20, len(accuracies) + 1, 5)
        ]
        missed += any(abs(mean - truth) > 1.96 * error for mean, error, truth in means)
    assert missed >= 75


@pytest.mark.slow
def test_the_estimate_is_unbiased_although_hard_texts_are_preferred() -> None:
    """Within noise, where the plain share of right answers is too low by several points."""
    off, plain = list[float](), list[float]()
    for seed in range(400):
        outcomes, accuracies = session(seed, Mixture(random=0.2, uncertain=0.8, diverse=0.0))
        off.append(outcomes.values.mean() - accuracies.mean())
        plain.append(outcomes.right.mean() - accuracies.mean())
    assert abs(np.mean(off)) <= 3 * np.std(off) / math.sqrt(len(off))
    assert np.mean(plain) < -0.05


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_the_running_mean_is_covered_at_every_moment(rate: float) -> None:
    """Right and wrong answers whose chance changes with time, 1,000 sequences of 1,000; the scale of 1 is exact."""
    chance = np.random.default_rng(7)
    chances = np.clip(rate + 0.1 * np.sin(np.arange(1000) / 80), 0, 1)
    counts, truths = np.arange(1, 1001), chances.cumsum()
    missed = 0
    for _ in range(1000):
        values = (chance.random(1000) < chances).astype(float)
        predictions = np.concatenate([[0.5], (0.5 + values.cumsum()[:-1]) / counts[1:]])
        looked = range(9, 1000, 45)
        found = [anytime_interval(values[: n + 1], predictions[: n + 1], 1.0) for n in looked]
        missed += any(not one.low <= truths[n] / (n + 1) <= one.high for one, n in zip(found, looked, strict=True))
    assert missed <= 50


def test_the_boundary_is_that_of_the_mixture_over_all_rates() -> None:
    """Against numerical integration of the gamma mixture that proposition 9 of Howard et al. (2021) solves."""
    squares, scale, error = 12.0, 1.5, 0.05
    goal = -math.log(error)
    prior = BEST_AT / (2 * goal + math.log(1 + 2 * goal))
    end = anytime_boundary(squares, scale, error)
    weight = stats.gamma(prior / scale**2, scale=scale**2 / prior)

    def density(share: float) -> float:  # of 1 - scale * rate, a gamma variable that is at most 1
        return float(weight.pdf(share) / weight.cdf(1))

    def exponential(share: float) -> float:
        rate = (1 - share) / scale
        return math.exp(rate * end - (-math.log(share) - scale * rate) / scale**2 * squares)

    total, _ = integrate.quad(lambda share: density(share) * exponential(share), 1e-12, 1)
    assert total == pytest.approx(1 / error, rel=1e-5)


def test_boundaries_grow_with_squares_scale_and_certainty() -> None:
    assert anytime_boundary(20, 1, 0.05) < anytime_boundary(40, 1, 0.05) < anytime_boundary(40, 2, 0.05)
    assert anytime_boundary(20, 1, 0.05) < anytime_boundary(20, 1, 0.01)
    nothing = anytime_interval(np.array([]), np.array([]), 1.0)
    assert (nothing.low, nothing.high) == (0, 1)


def test_the_number_of_labels_that_a_proof_needs_is_enough() -> None:
    """If the same goes on, the target is proven then, and not one text before."""
    right = np.tile(np.arange(20) > 0, 8)  # 95% right
    one = Outcomes(right, np.full(160, 0.95), np.full(160, 0.95), np.ones(160), 1.0)
    found = running_accuracy(one, 0.9)
    assert found is not None
    assert not found.proves(0.9)
    assert found.first == 1
    more = found.needed[0.9]
    assert 0 < more < 1000
    assert "Not proven yet: if the accuracy stays as it is, about " in found.target_sentence(0.9)
    assert running_accuracy(one, 0.96).needed[0.96] == math.inf  # type: ignore[union-attr]
    assert window_starts(200) == [0, 50, 100]
