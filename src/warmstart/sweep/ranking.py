"""The ranking of a sweep's methods, each with its trials at the learning rate that was chosen for it. This file needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from warmstart.stats.differences import MethodScores
from warmstart.sweep.trial import Method, SweepRuns, Trial, TrialResult


@dataclass(frozen=True)
class RankedMethod:
    """One method's trials, at the learning rate that was chosen for it."""

    method: Method
    runs: tuple[TrialResult, ...]
    """one per seed"""
    seeds: tuple[int, ...]
    """of these trials"""
    learning_rate: float
    """0 if the method has none"""
    tried: dict[float, float]
    """validation score of the first seed at each learning rate"""
    diverged: tuple[float, ...]
    """learning rates at which the first seed diverged"""
    planned: int
    """how many learning rates were to be tried"""
    search_seconds: float
    """spent on learning rates that were not chosen"""

    def with_seeds(self, seeds: Set[int]) -> RankedMethod:
        """The same with the trials of these seeds only."""
        kept = [i for i, seed in enumerate(self.seeds) if seed in seeds]
        return replace(self, runs=tuple(self.runs[i] for i in kept), seeds=tuple(self.seeds[i] for i in kept))

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.method.name

    @cached_property
    def test_scores(self) -> MethodScores:
        """Scores on the test split, and on resamples of it."""
        resampled = np.array([run.resampled for run in self.runs])
        return MethodScores(self.name, tuple(run.score for run in self.runs), resampled, self._overlap(2))

    @cached_property
    def validation_scores(self) -> MethodScores:
        """Scores on the validation split, and on resamples of it."""
        resampled = np.array([run.resampled_validation for run in self.runs])
        return MethodScores(self.name, tuple(run.validation for run in self.runs), resampled, self._overlap(1))

    def _overlap(self, part: int) -> float | None:
        """Texts of a part of the split per training text, mean over runs; None if the split is the task's."""
        ratios = [run.split_sizes[part] / run.split_sizes[0] for run in self.runs if run.split_sizes]
        return float(np.mean(ratios)) if ratios else None

    @property
    def validation(self) -> float:
        """Validation score, mean over seeds."""
        return float(np.mean([run.validation for run in self.runs]))

    @property
    def seconds(self) -> float:
        """Mean over seeds."""
        return float(np.mean([run.seconds for run in self.runs]))

    @property
    def memory(self) -> int | None:
        """The smallest over seeds: the first trial in a process also loads the library's code."""
        return min((run.memory for run in self.runs if run.memory is not None), default=None)

    @property
    def collapsed(self) -> int:
        """Trials that learned nothing."""
        return sum(run.collapsed for run in self.runs)

    @property
    def search(self) -> str:
        """How many learning rates were tried: ``"1 of 3 learning rates tried"``."""
        return f"{len(self.tried) + len(self.diverged)} of {self.planned} learning rates tried"

    @property
    def search_complete(self) -> bool:
        """Whether every learning rate was tried; otherwise a better one may be among the others."""
        return len(self.tried) + len(self.diverged) >= self.planned

    @property
    def note(self) -> str:
        """What a reader should know beside the figures."""
        rates = (*self.tried, *self.diverged)
        edge = len(rates) > 1 and self.learning_rate in (min(rates), max(rates))
        before = self.method.continued_pretraining_seconds
        parts = [
            "" if self.search_complete else self.search,
            f"{self.collapsed} of {len(self.runs)} runs collapsed" if self.collapsed else "",
            f"after {before:.0f} s of continued pretraining, once" if before else "",
            f"learning rate {self.learning_rate:g}{' (at the edge of those tried)' if edge else ''}" if self.learning_rate else "",
            *dict.fromkeys((*map(diverged_at, self.diverged), *(run.note for run in self.runs))),
        ]
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True)
class Ranking:
    """All methods with one number of labels, compared on the seeds that every one of them has run."""

    methods: tuple[RankedMethod, ...]
    """best mean test score first"""
    missing: tuple[Method, ...]
    """methods for which the time was too short"""
    diverged: tuple[Method, ...]
    """methods that diverged at every learning rate"""
    seeds: int

    @property
    def complete(self) -> bool:
        """Whether every method tried all its learning rates."""
        return bool(self.methods) and not self.missing and all(ranked.search_complete for ranked in self.methods)


def rank(methods: Sequence[Method], runs: SweepRuns, default_rate: float) -> Ranking:
    """All methods, best first; of equally good learning rates, the one nearest to ``default_rate`` is chosen.

    A baseline on all texts of one split is deterministic, so one trial is enough.
    """
    found = {method: rank_method(method, runs, default_rate) for method in methods}
    ranked = [one for one in found.values() if one]
    fixed = {trial.method for trial in runs.trials if trial.same_for_every_seed}
    trained = any(one.method.family != "baseline" for one in ranked)
    seeds = set.intersection(*(set(one.seeds) for one in ranked if one.method not in fixed)) if trained else set[int]()
    comparable = [one if one.method in fixed else one.with_seeds(seeds) for one in ranked if seeds]
    started = {trial.method for trial in runs.trials if trial in runs.results}
    unranked = [method for method, one in found.items() if one is None]
    return Ranking(
        tuple(sorted(comparable, key=lambda one: -one.test_scores.over_seeds.mean)),
        missing=tuple(method for method in unranked if method not in started),
        diverged=tuple(method for method in unranked if method in started),
        seeds=len(seeds),
    )


def rank_method(method: Method, runs: SweepRuns, default_rate: float) -> RankedMethod | None:
    """One method, from its finished trials; None if its first seed has none, or diverged at every learning rate.

    The chosen learning rate is the one at which the first seed is best on validation.
    """
    planned = runs.of(method)
    search = [trial for trial in planned if trial.seed == min(other.seed for other in planned)]
    tried = validation_scores(search, runs.results)
    if not tried:
        return None
    chosen = choose_learning_rate(tried, default_rate)
    results = {trial: runs.results[trial] for trial in planned if trial in runs.results}
    kept = sorted((trial for trial in results if trial.learning_rate == chosen), key=lambda trial: trial.seed)
    spent = sum(one.seconds - one.seconds_saved for trial, one in results.items() if trial.learning_rate != chosen)
    ranked = RankedMethod(
        method, tuple(results[trial] for trial in kept), tuple(trial.seed for trial in kept), chosen, {}, (), 0, spent
    )
    if method.family == "baseline":
        return ranked
    diverged = tuple(trial.learning_rate for trial in search if trial in results and trial.learning_rate not in tried)
    return replace(ranked, tried=tried, diverged=diverged, planned=len(search))


def validation_scores(search: Sequence[Trial], results: Mapping[Trial, TrialResult]) -> dict[float, float]:
    """The validation score at each learning rate tried; a trial that diverged has none."""
    return {trial.learning_rate: results[trial].validation for trial in search if trial in results and not results[trial].diverged}


def choose_learning_rate(tried: Mapping[float, float], default_rate: float) -> float:
    """The learning rate with the highest validation score; of equals, the one nearest to ``default_rate``."""
    return max(tried, key=lambda rate: (tried[rate], -abs(math.log(rate / default_rate)) if rate else 0.0))


def diverged_at(learning_rate: float) -> str:
    """The note on a trial that diverged."""
    return f"diverged at learning rate {learning_rate:g}"
