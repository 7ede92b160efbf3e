"""Krippendorff's alpha."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.figures import repeats
from warmstart.stats.agreement import krippendorff_alpha, krippendorff_interval


def test_alpha_of_the_books_example() -> None:
    """Four observers, twelve units with missing values (Krippendorff 2011, "Computing Krippendorff's alpha-reliability": 0.743)."""
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
    answers = [[row[unit] for row in observers if row[unit]] for unit in range(12)]
    assert krippendorff_alpha(answers) == pytest.approx(0.743, abs=5e-4)


def test_alpha_is_0_by_chance_and_1_in_agreement() -> None:
    """Two people who guess, 20,000 texts; order and single answers do not matter."""
    guesses = np.random.default_rng(0).integers(0, 3, (20_000, 2)).tolist()
    assert abs(krippendorff_alpha(guesses)) < 0.02
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1
    assert all(math.isnan(krippendorff_alpha(answers)) for answers in ([], [["a"]], [["a", "a"], ["a", "a"]])), "nothing to compare"
    assert krippendorff_alpha([[*reversed(one)] for one in guesses] + [[7]]) == pytest.approx(krippendorff_alpha(guesses))


@pytest.mark.proofs
def test_alpha_is_what_two_people_know_together() -> None:
    """People who know a text's label with this probability, and guess it otherwise: alpha is its square, within 0.01.

    Two answers then agree beyond chance exactly if both know (Krippendorff 2004). 40,000 texts with one to five answers each.
    """
    for knows in (0.0, 0.5, 0.8, 1.0):
        chance = np.random.default_rng(int(10 * knows))
        labels, asked = chance.integers(0, 3, 40_000), chance.integers(1, 6, 40_000)
        given = np.where(chance.random((40_000, 5)) < knows, labels[:, None], chance.integers(0, 3, (40_000, 5))).tolist()
        alpha = krippendorff_alpha([row[:count] for row, count in zip(given, asked, strict=True)])
        print(f"people know {knows} of the labels: alpha {alpha:.3f}, expected {knows**2:.3f}")
        assert alpha == pytest.approx(knows**2, abs=0.01)


def test_words_of_a_text_are_drawn_together() -> None:
    """Ten words that agree as one are no more certain than one word; texts with a single answer do not count."""
    texts = [[["a", "a"]], [["b", "b"]], [["a", "b"]]] * 10
    alpha, low, high = krippendorff_interval(texts)
    assert alpha == pytest.approx(krippendorff_alpha([unit for (unit,) in texts]))
    assert low < alpha < high
    long = krippendorff_interval([text * 10 for text in texts])
    assert long.low == pytest.approx(low, abs=0.06)
    assert long.high == pytest.approx(high, abs=0.02)
    assert krippendorff_interval([*texts, [["a"]]]) == (alpha, low, high)
    assert all(map(math.isnan, krippendorff_interval([])))
    assert all(map(math.isnan, krippendorff_interval([[["a", "a"]]])))


@pytest.mark.proofs
def test_intervals_of_alpha_hold_the_truth() -> None:
    """Two people who know 80, 90 or 95% of labels, three equal ones or two of 80 and 20%: 95% intervals hold in 94 to 100%.

    Without the added disagreement 25 to 95% hold, few where 20 texts show no disagreement.
    """
    chance, draws = np.random.default_rng(4), repeats(1000, 100)
    for shares in ((1 / 3,) * 3, (0.8, 0.2)):
        for knows in (0.8, 0.9, 0.95):
            for texts in (20, 50):
                held = known = 0
                for _ in range(draws):
                    labels, guesses = (chance.choice(len(shares), size, p=shares) for size in ((texts, 1), (texts, 2)))
                    given = np.where(chance.random((texts, 2)) < knows, labels, guesses).tolist()
                    alpha, low, high = krippendorff_interval([[one] for one in given])
                    known += not math.isnan(alpha)
                    held += low <= knows**2 <= high
                print(f"{texts} texts, labels {shares}, people know {knows}: {held / known:.3f} of intervals hold the truth")
                assert held / known >= 0.85
