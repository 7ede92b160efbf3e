"""The accuracy of a method that its own labels chose (``stats.selected``)."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.figures import repeats
from warmstart.stats.selected import selected_accuracy

METHODS, REPETITIONS = 10, 5


def out_of_fold(chance: np.random.Generator, texts: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """(M, R, N) whether each method is right out of fold, and its (M,) true accuracies.

    A text is right if a method's skill exceeds the text's difficulty, with a text's own taste for each method, and noise of each
    repetition. Skills belong to the fit to these labels, whose luck is common to all repetitions.
    """
    skill = chance.normal(0.8, spread, METHODS)
    difficulty, taste = chance.standard_t(5, texts), chance.normal(0, 0.8, (METHODS, texts))
    noise = chance.laplace(0, 0.4, (METHODS, REPETITIONS, texts))
    right = skill[:, None, None] + taste[:, None] + noise > difficulty
    other = (
        chance.standard_t(5, 20_000)[None] - chance.normal(0, 0.8, (METHODS, 20_000)) - chance.laplace(0, 0.4, (METHODS, 20_000))
    )
    return right, (skill[:, None] > other).mean(axis=1)


@pytest.mark.proofs
@pytest.mark.parametrize("texts", [50, 100, 300])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_the_accuracy_of_what_was_selected_is_covered(texts: int, spread: float) -> None:
    """The interval holds the true accuracy of the selected method in 95% of cases, also where all methods are equal."""
    chance, missed, bias, naive = np.random.default_rng(texts), 0, [], []
    count = repeats(400, 120)
    for _ in range(count):
        right, truth = out_of_fold(chance, texts, spread)
        found = selected_accuracy(right.mean(axis=1), REPETITIONS)
        true = truth[found.index]
        missed += not found.expected.low <= true <= found.expected.high
        bias.append(found.expected.value - true)
        naive.append(found.out_of_fold - true)
    print(
        f"{texts} labels, spread {spread}: held in {1 - missed / count:.1%}, bias {100 * np.mean(bias):+.1f} points, "
        f"of the winner's own score {100 * np.mean(naive):+.1f}"
    )
    assert missed <= count * 0.05 + 3 * np.sqrt(count * 0.05 * 0.95)
    assert abs(np.mean(bias)) < abs(np.mean(naive)), "the luck of having been chosen is taken off"
    assert abs(np.mean(bias)) < 0.03


def test_copies_are_one_text() -> None:
    """Texts that depend on each other widen the interval as if there were fewer."""
    right = np.random.default_rng(0).random((3, 100)) < 0.8
    doubled = np.repeat(right, 2, axis=1)
    apart, same = (selected_accuracy(doubled.astype(float), 5, units) for units in (None, np.repeat(np.arange(100), 2)))
    plain = selected_accuracy(right.astype(float), 5)
    assert same.expected == pytest.approx(plain.expected)
    assert apart.expected.high - apart.expected.low < same.expected.high - same.expected.low


def test_one_repetition_is_less_certain_than_five() -> None:
    """The folds of a single one may be lucky."""
    right = (np.random.default_rng(0).random((3, 100)) < 0.8).astype(float)
    once, often = (selected_accuracy(right, repetitions).expected for repetitions in (1, 5))
    assert once.high - once.low > often.high - often.low
