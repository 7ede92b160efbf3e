"""The learning rate that a sweep chooses without ``--labels`` flatters no score: made-up fits, through the real plan of trials."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.figures import show
from warmstart.sweep import sweep as sweeps
from warmstart.sweep.ranking import rank_method
from warmstart.sweep.sweep import SweepConfig, run_sweep
from warmstart.sweep.trial import Method, Trial, TrialResult

RATES = (2e-4, 5e-4, 1.5e-3)
TRUTH = 0.8
"""expected accuracy at every learning rate"""
SPREAD = 0.04
"""of seeds; validation and test share it, as they share the fitted model"""
TEXTS = 500
"""that choose"""
SEARCHES = 4000
METHOD = Method(name="full", family="adapted", backbone="lm", backbone_digest="lm", scheme="full")


class Fits:
    """Made-up results: a fit is as good as its seed and learning rate are lucky, on validation and on test texts alike."""

    def __init__(self, chance: np.random.Generator, common: float) -> None:
        self.chance, self.common = chance, common
        self.luck: dict[int, float] = {}
        self.quality: dict[tuple[int, float], tuple[float, float]] = {}
        self.chosen = 0.0
        """test score of the fit that was the best of several learning rates"""

    def of(self, seed: int, rate: float) -> tuple[float, float]:
        """Expected accuracy and validation accuracy of one fit; ``common`` is the part of the variance that all rates share."""
        shared = self.luck.setdefault(seed, float(self.chance.normal(0, SPREAD * self.common**0.5)))
        quality = TRUTH + shared + float(self.chance.normal(0, SPREAD * (1 - self.common) ** 0.5))
        found = min(0.99, quality), float(self.chance.binomial(TEXTS, min(0.99, quality)) / TEXTS)
        return self.quality.setdefault((seed, rate), found)

    def run(self, trials: Iterable[Trial], *_: Any) -> dict[Trial, TrialResult]:
        """What ``run_trials`` gives."""
        return {trial: self.result(trial) for trial in trials}

    def result(self, trial: Trial) -> TrialResult:
        """The fit with the best validation score is the one that is reported."""
        found = {rate: self.of(trial.seed, rate) for rate in trial.learning_rates}
        rate = max(found, key=lambda one: found[one][1])
        test, validation = found[rate]
        self.chosen = test if len(found) > 1 else self.chosen
        tried = tuple((one, score) for one, (_, score) in found.items())
        return TrialResult(test, (test, test), 1.0, validation, (validation,) * 2, learning_rate=rate, tried=tried)


@pytest.mark.proofs
@pytest.mark.parametrize("common", [0.0, 0.5])
@pytest.mark.parametrize("seeds", [3, 5])
def test_a_chosen_learning_rate_does_not_flatter_the_score(seeds: int, common: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three equal rates, seeds that spread by 4 points, 500 texts that choose: the mean over seeds is off by at most 0.2 points."""
    config = SweepConfig(task="task.yaml", backbones=("lm",), learning_rates=RATES, seeds=seeds, selection="holdout")
    chance, found, flattered = np.random.default_rng([seeds, int(10 * common)]), [], []
    for _ in range(SEARCHES):
        fits = Fits(chance, common)
        monkeypatch.setattr(sweeps, "run_trials", fits.run)
        sweep: Any = SimpleNamespace(config=config, methods=(METHOD,), context=None, estimate=None, folder=Path())
        one = rank_method(METHOD, run_sweep(sweep, None)) or pytest.fail("every trial has a result")
        assert len(one.runs) == seeds
        scores = [run.score for run in one.runs]
        found.append(np.mean(scores))
        flattered.append(np.mean([fits.chosen, *scores[1:]]))
    bias, error = 100 * (np.mean(found) - TRUTH), 100 * np.std(found) / SEARCHES**0.5
    own = float(np.mean(flattered)) - TRUTH
    show(
        f"{seeds} seeds, {common:.0%} of the variance common to all rates: bias {bias:+.2f} points, give or take {error:.2f}, with "
        f"the fit that chose {100 * own:+.2f}",
        **{"seeds": seeds, "common": common, "bias": bias / 100, "own": own},
    )
    assert abs(bias) <= 0.2
