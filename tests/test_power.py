"""Power: what a comparison detects, as simulated experiments do; and what more seeds and texts would detect."""

from __future__ import annotations

import math

import numpy as np
import pytest

from warmstart.stats.noise import Noise
from warmstart.stats.power import detection_power, rescaled, smallest_detectable, texts_needed


def test_without_seed_noise_it_is_the_normal_rule() -> None:
    """2.8 standard errors are detected in 80% of experiments, and no difference at all in 5%."""
    noise = Noise(1e-4, 0.0, 5)
    assert smallest_detectable(noise) == pytest.approx(0.02802, rel=1e-3)
    assert detection_power(noise, 0.0) == pytest.approx(0.05, abs=1e-3)
    assert texts_needed(noise, 500, 0.01401) == pytest.approx(2000, rel=0.01)


def test_more_seeds_and_texts_detect_less() -> None:
    """Of either; one seed detects nothing; texts alone cannot make up for the seeds' noise."""
    noise = Noise(1e-4, 1e-4, 3)
    found = [smallest_detectable(rescaled(noise, seeds, factor)) for seeds, factor in ((3, 1), (5, 1), (5, 4), (10, 4))]
    assert found == sorted(found, reverse=True)
    assert smallest_detectable(rescaled(noise, 1, 1.0)) == math.inf
    assert texts_needed(noise, 500, 0.01) is None


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(("of_texts", "of_seeds"), [(4e-4, 0.0), (2e-4, 2e-4), (1e-5, 4e-4)])
def test_simulated_experiments_detect_as_often(seeds: int, of_texts: float, of_seeds: float) -> None:
    """The formula is within 2 points of 8,000 simulated experiments, for small and large differences."""
    chance = np.random.default_rng(seeds)
    noise = Noise(of_texts, of_seeds, seeds)
    for difference in (0.0, 0.03, 0.06, 0.1):
        texts = chance.normal(0, math.sqrt(of_texts), 8000)
        values = difference + texts[:, None] + chance.normal(0, math.sqrt(of_seeds * seeds), (8000, seeds))
        observed = Noise(np.full(8000, of_texts), values.var(axis=1, ddof=1) / seeds, seeds)
        detected = float((observed.p(values.mean(axis=1)) < 0.05).mean())
        assert detection_power(noise, difference) == pytest.approx(detected, abs=0.02)
