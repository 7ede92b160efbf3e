"""Learning curves: a known law is found again, its interval holds the truth, and what cannot be estimated is not reported."""

from __future__ import annotations

import math

import numpy as np
import pytest

from warmstart.stats import extrapolation
from warmstart.stats.extrapolation import PowerLaw, backtest, extrapolate, fit_power_law, round_labels

SIZES = (16, 32, 64, 128, 256, 512)
LAW = PowerLaw(irreducible_error=0.05, scale=1.5, exponent=0.5)


def measured(
    law: PowerLaw, spread: float, seeds: int, sizes: tuple[int, ...] = SIZES, draw: int = 0
) -> dict[int, tuple[float, ...]]:
    chance = np.random.default_rng(draw)
    return {n: tuple(law.score(n) + chance.normal(0, spread, seeds)) for n in sizes}


def test_a_law_without_noise_is_found_again() -> None:
    """Floor, scale and exponent, within the grid of exponents."""
    found = fit_power_law(measured(LAW, 0, 2))
    assert found.exponent == pytest.approx(LAW.exponent, rel=0.06)
    assert found.score(2048) == pytest.approx(LAW.score(2048), abs=0.003)


def test_labels_and_scores_are_inverse() -> None:
    """The labels that a score takes give this score; what lies under the floor takes no number of labels."""
    assert LAW.score(LAW.labels(0.9)) == pytest.approx(0.9)
    assert LAW.labels(0.96) == math.inf


def test_intervals_hold_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the labels foretold from three seeds: the 90 % interval has the truth in about nine of ten experiments."""
    monkeypatch.setattr(extrapolation, "REFITS", 50)
    inside = 0
    for draw in range(40):
        law = extrapolate(measured(LAW, 0.015, 3, draw=draw))
        assert law
        _, low, high = law.score(2048)
        inside += low <= LAW.score(2048) <= high
    assert inside >= 31  # 36 are due, give or take two standard errors


def test_hindsight_counts_the_noise_of_what_was_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the law holds, the mean of three seeds lies inside in about nine of ten experiments: it strays as they do."""
    monkeypatch.setattr(extrapolation, "REFITS", 50)
    inside = 0
    for draw in range(40):
        _, score, (_, low, high) = backtest(measured(LAW, 0.02, 3, draw=draw)) or pytest.fail("enough sizes were given")
        inside += low <= score <= high
    assert inside >= 31


def test_hindsight_hides_the_largest_size() -> None:
    """The smaller sizes foretell it where the law holds, and miss it where the curve breaks."""
    scores = measured(LAW, 0.002, 5)
    labels, score, (predicted, low, high) = backtest(scores) or pytest.fail("enough sizes were given")
    assert labels == 512
    assert score == pytest.approx(LAW.score(512), abs=0.01)
    assert low <= predicted <= high
    assert predicted == pytest.approx(score, abs=0.02)
    broken = scores | {512: (0.5, 0.5, 0.5, 0.5, 0.5)}
    *_, (_, low, _) = backtest(broken) or pytest.fail("enough sizes were given")
    assert low > 0.7


def test_too_few_sizes_or_seeds_say_nothing() -> None:
    """Three unknowns need three sizes, and doubt needs two seeds."""
    assert extrapolate(measured(LAW, 0.01, 5, (16, 32))) is None
    assert extrapolate(measured(LAW, 0.01, 1)) is None
    assert backtest(measured(LAW, 0.01, 5, (16, 32, 64))) is None


def test_sentences_say_how_sure_they_are() -> None:
    """Reached already, a number with its interval, or out of sight."""
    law = extrapolate(measured(LAW, 0.005, 5))
    assert law
    assert law.sentence("full", 0.80).startswith("Full reaches 80.0% with about 1")
    assert law.sentence("full", 0.90).startswith("Full needs about ")
    assert " more labels for 90.0% (" in law.sentence("full", 0.90)
    assert law.sentence("full", 0.90).endswith(" more in 9 of 10 refits).")
    assert law.sentence("full", 0.99).startswith(
        "Full is not expected to reach 99.0% with less than 10 times the 512 labels at hand"
    )


def test_two_digits_say_enough() -> None:
    """By example."""
    assert [round_labels(value) for value in (0.4, 7, 12, 123, 1234, math.inf)] == ["0", "7", "12", "120", "1,200", "no number"]
