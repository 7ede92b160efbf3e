"""Races detect a lead as often as the formula of their power says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from helpers.simulation import accuracies, accuracy, answers, seed_effects
from helpers.tasks import cats
from warmstart.data.audit import audit
from warmstart.experiment.choice import doubt_of_best
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.ranking import RankedMethod, Ranking
from warmstart.experiment.trial import Method, TrialResult
from warmstart.stats.differences import paired_difference
from warmstart.stats.noise import Noise
from warmstart.stats.power import detection_power

METHODS, VALIDATION_TEXTS = 4, 300


class World(NamedTuple):
    """Four methods, the first of which leads."""

    spread: float
    """of each method's seeds"""
    lead: float

    @property
    def truth(self) -> float:
        """The difference over endless seeds and texts."""
        return accuracy(self.spread, self.lead) - accuracy(self.spread)


def rankings(chance: np.random.Generator, count: int, seeds: int, world: World, texts: int) -> Iterator[Ranking]:
    """Races on new texts."""
    while count > 0:
        size = min(count, max(1, 10_000_000 // (METHODS * seeds * texts)))
        count -= size
        effects = seed_effects(chance, (size, METHODS, seeds), world.spread)
        parts = [accuracies(chance, answers(chance, effects, n, world.lead), draws=150) for n in (VALIDATION_TEXTS, texts)]
        for one in range(size):
            (chosen, by), (scores, resampled) = ((part[0][one].tolist(), part[1][one].tolist()) for part in parts)
            yield Ranking(tuple(ranked(m, scores[m], resampled[m], chosen[m], by[m]) for m in range(METHODS)), (), (), seeds)


def ranked(m: int, *scores: list[float]) -> RankedMethod:
    """A method with these test scores, resamples of them, and the same of validation."""
    method = Method(name=f"{m}", family="adapted", backbone_digest=f"{m}", scheme="full")
    runs = tuple(TrialResult(one, tuple(many), 1.0, val, tuple(vals)) for one, many, val, vals in zip(*scores, strict=True))
    return RankedMethod(method, runs, tuple(range(len(runs))), place=m)


@pytest.mark.proofs
def test_races_detect_what_their_power_says() -> None:
    """The table of a race finds a lead as often as ``detection_power`` says, within 5 points, in 120 races.

    Cross-fitted to the choice, from its own noise, where validation chose the best method; the formula knows the mean noise and the
    mean doubt about the choice. The figures are printed.
    """
    task, audited, worlds = cats(), audit(cats()), (World(0.01, 0.05), World(0.01, 0.03), World(0.02, 0.06), World(0.02, 0.04))
    for world, seeds, texts in zip(worlds, (5, 10, 10, 20), (536, 1350, 389, 960), strict=True):
        hits, doubt, noises = list[float](), list[float](), list[Noise]()
        for ranking in rankings(np.random.default_rng(seeds), 120, seeds, world, texts):
            race = Comparison(task, 60, 20, ranking, audited, 0.5)
            if race.best.name == "0":
                gaps = [row.difference for row in race.differences]
                hits.append(float(np.mean([gap.p < 0.05 / len(gaps) for gap in gaps])))
                doubt.append(doubt_of_best(ranking.methods))
                noises += [paired_difference(one.test_scores, race.best.test_scores).noise for one in ranking.methods[1:]]
        of_texts, of_seeds = (float(np.mean([getattr(one, name) for one in noises])) for name in ("of_texts", "of_seeds"))
        noise = Noise(of_texts, of_seeds, seeds)
        expected = detection_power(noise.of_choice(float(np.mean(doubt))), world.truth, 0.05 / (METHODS - 1))
        print(f"{seeds} seeds, {texts} texts, {world}: found in {np.mean(hits):.3f}, expected {expected:.3f}")
        assert np.mean(hits) == pytest.approx(expected, abs=0.05)
