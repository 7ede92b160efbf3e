"""Confidence sequences: intervals that hold at every moment."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from warmstart.stats.anytime import BEST_AT, anytime_boundary, asymptotic_half_width, weighted_accuracy


@pytest.mark.proofs
def test_the_running_mean_is_covered_at_every_moment() -> None:
    """Right and wrong answers whose chance changes with time, 1,000 sequences of 1,000; the scale of 1 is exact."""
    for rate in (0.5, 0.9, 0.99):
        chance, missed = np.random.default_rng(7), 0
        chances = np.clip(rate + 0.1 * np.sin(np.arange(1000) / 80), 0, 1)
        counts, truths, looked = np.arange(1, 1001), chances.cumsum(), range(9, 1000, 45)
        for _ in range(1000):
            values = (chance.random(1000) < chances).astype(float)
            predictions = np.concatenate([[0.5], (0.5 + values.cumsum()[:-1]) / counts[1:]])
            squares, sums = ((values - predictions) ** 2).cumsum(), values.cumsum()
            missed += any(abs(sums[n] - truths[n]) > anytime_boundary(squares[n], 1.0, 0.025) for n in looked)
        print(f"chance around {rate}: missed in {missed / 1000:.1%} of the sequences")
        assert missed <= 50


@pytest.mark.proofs
def test_the_asymptotic_interval_nearly_holds_at_every_moment() -> None:
    """Weighted right and wrong answers, skewed, of models that improve: 1,000 sequences of 500, looked at 64 times from 30 on.

    Texts of one half of the pool are preferred, and weigh less.
    """
    for first, last in ((0.4, 0.7), (0.7, 0.9), (0.9, 0.99), (0.95, 0.95)):
        chance, missed, looked = np.random.default_rng(11), 0, [*range(30, 100, 3), *range(100, 501, 10)]
        chances, counts = np.linspace(first, last, 500), np.arange(1, 501)
        truths = chances.cumsum() / counts
        for _ in range(1000):
            preferred = chance.random(500) < 0.6
            weights = np.where(preferred, 0.5 / 0.6, 0.5 / 0.4)
            values = 0.5 + weights * ((chance.random(500) < chances) - 0.5)
            missed += any(abs(values[:n].mean() - truths[n - 1]) > asymptotic_half_width(values[:n], 1.25) for n in looked)
        print(f"from {first:.0%} to {last:.0%} right: missed in {missed / 1000:.1%} of the sequences")
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


def nearest_means(texts: np.ndarray, learned: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N, 3) scores of all texts (N, 8) by class means of those that were learned; a class without texts is never chosen."""
    means = np.stack([texts[learned][labels == one].mean(axis=0) if (labels == one).any() else np.full(8, 1e3) for one in range(3)])
    return -np.linalg.norm(texts[:, None] - means, axis=2)


def chosen_labels(chance: np.random.Generator, noise: float, random: float, count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Choose texts of a pool of 600 by chance and by doubt; OOF hits, probabilities, and the newest model's accuracy on the rest.

    A share ``noise`` of the labels is wrong: what counts is the agreement with the labels that people would give.
    """
    truth = chance.choice(3, 600, p=[0.6, 0.3, 0.1])
    texts = 1.1 * np.eye(3, 8)[truth] + chance.standard_t(5, (600, 8)) * 0.5
    said = np.where(chance.random(600) < noise, chance.integers(0, 3, 600), truth)
    taken, probabilities = np.zeros(0, dtype=int), list[float]()
    for number in range(count):
        left = np.setdiff1d(np.arange(600), taken)
        each = np.full(len(left), 1 / len(left))
        if number >= 10:
            if number % 10 == 0:
                scores = np.sort(nearest_means(texts, taken, said[taken]), axis=1)
                doubt = scores[:, -2] - scores[:, -1]
            unsure = left[np.argsort(doubt[left])[-25:]]
            each = random * each + (1 - random) * np.isin(left, unsure) / len(unsure)
        place = chance.choice(len(left), p=each / each.sum())
        probabilities.append(each[place])
        taken = np.append(taken, left[place])
    hits = np.zeros((3, count))
    for row in hits:
        fold = chance.permutation(count) % 5
        for one in range(5):
            learned = taken[fold != one]
            row[fold == one] = (nearest_means(texts, learned, said[learned]).argmax(axis=1) == said)[taken[fold == one]]
    rest = np.setdiff1d(np.arange(600), taken)
    newest = nearest_means(texts, taken, said[taken]).argmax(axis=1)
    return hits.mean(axis=0), np.array(probabilities), float((newest == said)[rest].mean())


@pytest.mark.proofs
def test_the_newest_model_is_covered_at_one_look() -> None:
    """Texts preferred by doubt, 50 and 150 labels, also with wrong labels: at least 93% of the intervals hold the truth."""
    for noise, random, count in ((0.0, 0.5, 50), (0.0, 0.5, 150), (0.15, 0.5, 50), (0.15, 0.5, 150), (0.15, 0.2, 150)):
        rows = []
        for seed in range(400 if count == 50 else 200):
            right, probabilities, truth = chosen_labels(np.random.default_rng(seed), noise, random, count)
            found = weighted_accuracy(right, 600 - np.arange(count), probabilities)
            rows.append((found.low <= truth <= found.high, found.value - truth, found.high - found.low, right.mean() - truth))
        covered, bias, width, plain = np.mean(rows, axis=0)
        print(
            f"{count} labels, {noise:.0%} wrong, {random:.0%} random: covered {covered:.1%}, bias {100 * bias:+.1f} points "
            f"(unweighted {100 * plain:+.1f}), width {100 * width:.0f}"
        )
        assert covered >= 0.93
        assert abs(bias) <= 0.04
