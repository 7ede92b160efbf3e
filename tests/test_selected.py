"""The score of a method that its own labels chose (``stats.selected``)."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.figures import repeats
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.selected import selected_accuracy, selected_f1

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


@pytest.mark.proofs
@pytest.mark.parametrize("texts", [100, 300])
def test_one_repetition_of_unequal_networks_is_covered(texts: int) -> None:
    """The same for a dozen networks, fitted once in each fold, some of which differ by two points from fit to fit."""
    chance, missed, bias, count = np.random.default_rng(texts), 0, [], repeats(400, 200)
    steadiness = np.repeat([0.02, 0.05, 0.1], 4)
    for _ in range(count):
        skill = chance.normal(0.8, 0.2, len(steadiness))
        luck = chance.normal(0, steadiness, (5, len(steadiness)))[np.arange(texts) % 5].T
        difficulty, taste = chance.standard_t(5, texts), chance.normal(0, 0.8, (len(steadiness), texts))
        found = selected_accuracy((skill[:, None] + luck + taste > difficulty).astype(float), 1)
        again = skill[found.index] + chance.normal(0, steadiness[found.index])
        true = np.mean(again + chance.normal(0, 0.8, 5000) > chance.standard_t(5, 5000))
        missed += not found.expected.low <= true <= found.expected.high
        bias.append(found.expected.value - true)
    print(f"a dozen networks, {texts} labels: held in {1 - missed / count:.1%}, bias {100 * np.mean(bias):+.1f} points")
    assert missed <= count * 0.05 + 3 * np.sqrt(count * 0.05 * 0.95)


SHARES = np.array([0.6, 0.2, 0.15, 0.05])
"""of four classes"""


def ridge(inputs: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """(D, C) weights of ridge regression."""
    return np.linalg.solve(inputs.T @ inputs + strength * np.eye(inputs.shape[1]), inputs.T @ targets)


def labelled(chance: np.random.Generator, means: np.ndarray, texts: int, several: bool) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) inputs, of which the last is 1, and (N, C) labels: one of four unequal classes, or any number of them."""
    if several:
        labels = (chance.random((texts, len(SHARES))) < SHARES / 2 + 0.05).astype(float)
    else:
        labels = np.eye(len(SHARES))[chance.choice(len(SHARES), texts, p=SHARES)]
    noise = chance.standard_t(4, (texts, means.shape[1]))
    return np.hstack([labels @ means + noise, np.ones((texts, 1))]), labels


def said(outputs: np.ndarray, several: bool) -> np.ndarray:
    """(N, C) 1 where a label is predicted."""
    return (outputs > 0.35).astype(float) if several else np.eye(outputs.shape[1])[outputs.argmax(axis=1)]


@pytest.mark.proofs
@pytest.mark.parametrize(("several", "average"), [(False, "macro"), (True, "micro"), (True, "macro")])
@pytest.mark.parametrize("texts", [100, 300])
def test_f1_of_what_was_selected_is_covered(texts: int, several: bool, average: str) -> None:
    """F1 of regressions that really learn, where classes are rare or texts have several, is seldom below its interval.

    With few texts of a class it may be above: what learns from all texts does better than what learned from four fifths of them.
    """
    chance, above, below, bias, width, count = np.random.default_rng(texts), 0, 0, [], [], repeats(300, 120)
    features = [slice(0, size) for size in (4, 8, 16)]
    methods = [(columns, strength) for columns in features for strength in (0.3, 10.0, 100.0)]
    for _ in range(count):
        means = chance.normal(0, 0.7, (len(SHARES), 15))
        (inputs, labels), (others, true_labels) = (labelled(chance, means, n, several) for n in (texts, 4000))
        predicted = np.zeros((len(methods), REPETITIONS, *labels.shape))
        for repetition in range(REPETITIONS):
            for held in np.array_split(chance.permutation(texts), 5):
                rest = np.setdiff1d(np.arange(texts), held)
                for number, (columns, strength) in enumerate(methods):
                    weights = ridge(inputs[rest][:, columns], labels[rest], strength)
                    predicted[number, repetition, held] = said(inputs[held][:, columns] @ weights, several)
        found = selected_f1(predicted.mean(axis=1), labels, average, REPETITIONS)
        columns, strength = methods[found.index]
        answers = said(others[:, columns] @ ridge(inputs[:, columns], labels, strength), several)
        hits, total = (answers * true_labels).sum(axis=0), answers.sum(axis=0) + true_labels.sum(axis=0)
        true = float((2 * hits / total).mean() if average == "macro" else 2 * hits.sum() / total.sum())
        above += true > found.expected.high
        below += true < found.expected.low
        bias.append(found.expected.value - true)
        width.append(found.expected.high - found.expected.low)
    kind = "several labels" if several else "unequal classes"
    print(
        f"{average} F1, {kind}, {texts} texts: held in {1 - (above + below) / count:.1%}, below in {below / count:.1%}, "
        f"bias {100 * np.mean(bias):+.1f} points, width {100 * np.mean(width):.0f}"
    )
    assert below <= count * 0.025 + 3 * np.sqrt(count * 0.025 * 0.975)
    assert above + below <= count * 0.15
    assert -0.04 < np.mean(bias) < 0.02


def test_f1_is_that_of_scikit_learn() -> None:
    """Of a single repetition."""
    from sklearn.metrics import f1_score

    chance = np.random.default_rng(0)
    labels, predicted = chance.random((50, 3)) < 0.4, chance.random((50, 3)) < 0.4
    for average in ("macro", "micro"):
        found = selected_f1(predicted[None].astype(float), labels.astype(float), average, 1)
        assert found.out_of_fold == pytest.approx(f1_score(labels, predicted, average=average))


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


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_method_that_is_always_right_or_never_is_as_certain_as_its_texts_allow(value: float) -> None:
    """Its resamples do not differ, which is no sign of few texts."""
    found = selected_accuracy(np.full((1, 120), value), 5).expected
    assert found == pytest.approx(wilson_interval(value, 100))
