"""What more labels would bring: simulated learning curves."""

from __future__ import annotations

import numpy as np
import pytest

from warmstart.labelling.accuracy import Outcomes
from warmstart.labelling.outlook import SMALLEST_GAIN, Outlook, outlook
from warmstart.stats.extrapolation import extrapolate_means


def drawn(chance: np.random.Generator, error: float, scale: float, exponent: float, labels: int) -> Outcomes:
    """Random texts under models whose accuracy follows a power law from 10 labels on."""
    accuracy = 1 - error - scale * (10 + np.arange(1, labels + 1.0)) ** -exponent
    right = chance.random(labels) < accuracy
    confidence = np.clip(accuracy + chance.normal(0, 0.1, labels), 0, 1)
    return Outcomes(right, confidence, accuracy, np.ones(labels), 1.0)


def gain(error: float, scale: float, exponent: float, now: int, more: int) -> float:
    """By the law; without noise the curve finds it."""
    exact = {n: 1 - error - scale * n**-exponent for n in (10, 40, 160, 640)}
    law = extrapolate_means(exact, dict.fromkeys(exact, 1e-6)).law
    assert law.score(now + more) - law.score(now) == pytest.approx(scale * (now**-exponent - (now + more) ** -exponent), abs=1e-3)
    return scale * (now**-exponent - (now + more) ** -exponent)


LAWS = [
    (0.05, 1.0, 0.5),
    (0.1, 0.6, 0.3),
    (0.0, 0.9, 0.25),
    (0.2, 1.5, 0.8),
    (0.05, 2.0, 1.0),
    (0.01, 0.4, 0.5),
    (0.01, 0.8, 0.5),
    (0.02, 0.6, 0.4),
]
STILL_PAYS = [
    (*law, labels) for law in LAWS for labels in (100, 400, 1600) if gain(*law, labels + 10, labels + 10) >= SMALLEST_GAIN
]


@pytest.mark.proofs
def test_labels_that_still_pay_are_seldom_called_useless() -> None:
    """Where as many labels again gain more than a point, at most 10% of 200 sessions say that they hardly pay."""
    for error, scale, exponent, labels in STILL_PAYS:
        useless = 0
        for seed in range(200):
            outcomes = drawn(np.random.default_rng(seed), error, scale, exponent, labels)
            found = outlook(outcomes, 11 + np.arange(labels), 10 * labels, seed)
            assert found is not None
            useless += not found.pays
        print(f"{labels} labels of {error}, {scale}, {exponent}: called useless in {useless / 200:.1%}")
        assert useless <= 20, (error, scale, exponent, labels)


def test_a_flat_curve_says_that_labels_hardly_pay() -> None:
    """And few outcomes have no outlook: the law has three unknowns."""
    found = outlook(drawn(np.random.default_rng(0), 0.03, 0.0, 1.0, 3000), 11 + np.arange(3000), 5000)
    assert found is not None
    assert not found.pays
    assert found.sentence().startswith("More labels hardly pay: 3,010 more would bring at most ")
    for labels in (0, 5, 30):
        assert outlook(drawn(np.random.default_rng(0), 0.1, 1.0, 0.5, labels), 11 + np.arange(labels), 5000) is None


def test_outcomes_of_a_former_model_are_no_part_of_the_outlook() -> None:
    """Before so many outcomes of the model in use there is none."""
    outcomes, labels = drawn(np.random.default_rng(0), 0.1, 1.0, 0.5, 1500), 11 + np.arange(1500)
    assert [len(found.points) if (found := outlook(outcomes, labels, 5000, since=since)) else 0 for since in (0, 100, 1490)] == [
        7,
        4,
        0,
    ]


def test_prices_are_those_of_a_point() -> None:
    """In money, hours, both or neither."""
    found = Outlook((), 200, 200, 0.02, 0.01, 0.03)
    assert found.sentence() == "200 more labels would bring about 2.0 points (1.0 to 3.0 in 9 of 10 refits)."
    assert found.price_sentence(0.1, 18.0) == "200 more labels cost 20.00 and 1.0 hours: 10.00 and 0.5 hours for each point."
    assert found.price_sentence(0.1, None) == "200 more labels cost 20.00: 10.00 for each point."
    assert found.price_sentence(None, None) == ""
    flat = Outlook((), 200, 200, 0.0, 0.0, 0.02)
    assert flat.price_sentence(0.1, 18.0) == "200 more labels cost 20.00 and 1.0 hours, for next to nothing."
    assert Outlook((), 200, 0, 0.0, 0.0, 0.0).sentence() == "Every text has been shown."
