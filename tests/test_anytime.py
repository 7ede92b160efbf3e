"""Confidence sequences: intervals that hold at every moment."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.figures import repeats
from warmstart.stats.proportions import proven_mean, values_to_prove, weighted_accuracy


def one_labelling(chance: np.random.Generator, first: float, last: float, noise: float) -> tuple[np.ndarray, ...]:
    """The values of 400 texts of which doubtful ones are preferred, their floors, and the models' true accuracies (400,).

    One value: the mean confidence, and what is wrong with that of the text, by its weight. Models improve, and know which of their
    answers are doubtful, but not how much; a share ``noise`` of the labels is wrong.
    """
    wrong = 1 - np.linspace(first, last, 400)[:, None]
    sure = 1 - wrong * np.where(chance.random((400, 50)) < 0.5, 0.4, 1.6)
    agrees = chance.random((400, 50)) < (1 - noise) * sure + noise / 4
    stated = 0.5 + 0.5 * sure
    each = 0.6 / 50 + 0.4 * (1 - sure) / (1 - sure).sum(axis=1, keepdims=True)
    drawn = (each.cumsum(axis=1) < chance.random((400, 1))).sum(axis=1).clip(max=49)
    right, told, probability = (part[np.arange(400), drawn] for part in (agrees, stated, each))
    mean = stated.mean(axis=1)
    return mean + (right - told) / (50 * probability), mean - 1 / 0.6, agrees.mean(axis=1)


@pytest.mark.proofs
def test_what_is_proven_holds_at_every_moment() -> None:
    """At most 5% of 200 sessions are misled at any look, where ends of one moment mislead far more often."""
    looks = (10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300, 400)
    for first, last, noise in ((0.6, 0.6, 0.0), (0.8, 0.8, 0.0), (0.95, 0.95, 0.0), (0.6, 0.9, 0.15)):
        misled, far = np.zeros(2), dict[int, list[float]]()
        for seed in range(200):
            values, floors, accuracy = one_labelling(np.random.default_rng(seed), first, last, noise)
            over = np.zeros(2, dtype=bool)
            for n in looks:
                some, truth = values[:n], accuracy[:n].mean()
                low = proven_mean(some, floors[:n])
                over |= [low > truth, some.mean() - 1.645 * some.std() / math.sqrt(n) > truth]
                far.setdefault(n, []).append(truth - low)
            misled += over
        widths = ", ".join(f"{n}: {100 * np.mean(far[n]):.1f}" for n in (100, 200, 400))
        print(
            f"{first:.0%} to {last:.0%} right, {noise:.0%} wrong labels: misled {misled[0] / 200:.1%} (ends of one moment "
            f"{misled[1] / 200:.0%}); points below the truth after {widths} labels"
        )
        assert misled[0] <= 10
        assert misled[1] >= 30


def test_what_is_proven_is_where_the_stakes_win_enough() -> None:
    """Against the definition, product by product."""
    values, floors = np.array([1.0, 0.4, -0.3, 1.2, 0.9] * 6), np.array([-0.5, -0.6, -0.4, -0.5, -0.5] * 6)
    low = proven_mean(values, floors, 0.1)
    winnings = []
    for power in range(-2, 6):
        won = 1.0
        for value, floor in zip(values, floors, strict=True):
            won *= (1 + 2**power * (value - floor)) / (1 + 2**power * (low - floors.mean()))
        winnings.append(won)
    assert sum(winnings) / 8 == pytest.approx(10)
    assert proven_mean(values[:2], floors[:2], 0.001) == floors[:2].mean()


def test_the_values_that_a_proof_needs_are_enough() -> None:
    """If the same goes on, the mean is proven then, and not one value before."""
    values, floors = np.tile(np.arange(20) > 0, 200).astype(float), np.full(4000, -0.1)
    more = values_to_prove(values[:160], floors[:160], 0.9)
    assert 0 < more < 1000
    often = [(160 + int(more) + by) // 20 * 20 for by in (0, 20)]  # there is one wrong value among 20
    ends = [proven_mean(values[:n], floors[:n]) for n in often]
    assert ends[0] < 0.9 < ends[1]
    assert values_to_prove(values[:160], floors[:160], 0.96) == math.inf
    assert values_to_prove(values[:160], floors[:160], 0.5) == 0


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
        for seed in range(repeats(400, 120) if count == 50 else repeats(200, 60)):
            right, probabilities, truth = chosen_labels(np.random.default_rng(seed), noise, random, count)
            found = weighted_accuracy(right, 600 - np.arange(count), probabilities)
            rows.append((found.low <= truth <= found.high, found.value - truth, found.high - found.low, right.mean() - truth))
        covered, bias, width, plain = np.mean(rows, axis=0)
        print(
            f"{count} labels, {noise:.0%} wrong, {random:.0%} random: covered {covered:.1%}, bias {100 * bias:+.1f} points "
            f"(unweighted {100 * plain:+.1f}), width {100 * width:.0f}"
        )
        assert covered >= 0.93 - 2 * math.sqrt(0.07 * 0.93 / len(rows))
        assert abs(bias) <= 0.04
