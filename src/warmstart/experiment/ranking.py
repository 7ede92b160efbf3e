"""The ranking of a sweep's methods. This file needs no torch."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from warmstart.experiment.trial import Method, SweepRuns, TrialResult
from warmstart.stats.differences import MethodScores
from warmstart.stats.formatting import merged_notes


@dataclass(frozen=True)
class RankedMethod:
    """A method with its trials."""

    method: Method
    runs: tuple[TrialResult, ...]
    """trials, one per seed"""
    seeds: tuple[int, ...]
    """the seeds of these trials"""
    place: int = 0
    """position in the sweep's methods, which breaks ties: measured seconds would break them differently every time"""
    deterministic: bool = False
    """nothing in it depends on the seed, so that it has one trial"""
    search: TrialResult | None = None
    """the trial that chose the learning rate of all seeds and is not scored; None if there is none"""

    def with_seeds(self, seeds: Set[int]) -> RankedMethod:
        """The method with the trials of these seeds alone."""
        kept = [i for i, seed in enumerate(self.seeds) if seed in seeds]
        return replace(self, runs=tuple(self.runs[i] for i in kept), seeds=tuple(self.seeds[i] for i in kept))

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.method.name

    @property
    def family(self) -> str:
        """The family of the method: its starting point."""
        return self.method.family

    @cached_property
    def test_scores(self) -> MethodScores:
        """Scores on the test split, and on resamples of it."""
        resampled = np.array([run.resampled for run in self.runs])
        scores = tuple(run.score for run in self.runs)
        return MethodScores(self.name, scores, resampled, self._overlap(2), self.deterministic, self.collapsed > 0)

    @cached_property
    def validation_scores(self) -> MethodScores:
        """Scores on the validation split, and on resamples of it."""
        resampled = np.array([run.resampled_validation for run in self.runs])
        return MethodScores(self.name, tuple(run.validation for run in self.runs), resampled, self._overlap(1), self.deterministic)

    def _overlap(self, part: int) -> float | None:
        """Texts of a part of the split per training text, mean over runs; None if the split is the task's."""
        ratios = [run.split_sizes[part] / run.split_sizes[0] for run in self.runs if run.split_sizes]
        return float(np.mean(ratios)) if ratios else None

    @property
    def validation(self) -> float:
        """Validation score, mean over seeds."""
        return float(np.mean([run.validation for run in self.runs]))

    @property
    def gain(self) -> float | None:
        """Nats per text that chooses over the label frequencies, mean over seeds; None if a run has none."""
        gains = [run.gain[0] for run in self.runs if run.gain]
        return float(np.mean(gains)) if len(gains) == len(self.runs) else None

    @property
    def seconds(self) -> float:
        """Mean over seeds."""
        return float(np.mean([run.seconds for run in self.runs]))

    @property
    def collapsed(self) -> int:
        """Trials that learned nothing."""
        return sum(run.collapsed for run in self.runs)

    @property
    def tried(self) -> dict[float, float]:
        """The score of each learning rate on the texts that choose, mean over the runs that tried several."""
        searched = [dict(run.tried) for run in self._all_runs if len(run.tried) + len(run.diverged_rates) > 1]
        rates = sorted({rate for scores in searched for rate in scores})
        return {rate: float(np.mean([scores[rate] for scores in searched if rate in scores])) for rate in rates}

    @property
    def diverged(self) -> tuple[float, ...]:
        """Learning rates at which a run diverged."""
        return tuple(sorted({rate for run in self._all_runs for rate in run.diverged_rates}))

    @property
    def _all_runs(self) -> tuple[TrialResult, ...]:
        return (self.search, *self.runs) if self.search else self.runs

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """Learning rates that the seeds chose, rising; none if the method has none."""
        return tuple(sorted({run.learning_rate for run in self.runs if run.learning_rate}))

    @property
    def rates(self) -> str:
        """The chosen learning rates for people: ``"0.0005, 0.0015"``."""
        return ", ".join(f"{rate:g}" for rate in self.learning_rates)

    @property
    def search_seconds(self) -> float:
        """Spent on choosing, all runs together."""
        return float(sum(run.search_seconds for run in self.runs)) + self.seconds_of_search

    @property
    def seconds_of_search(self) -> float:
        """Seconds of the trial that chose the learning rate of all seeds; 0 if there is none."""
        search = self.search
        return search.search_seconds + search.seconds - search.seconds_saved if search else 0.0

    @property
    def note(self) -> str:
        """Remarks that a reader should know beside the figures."""
        rates, chosen = (*self.tried, *self.diverged), self.learning_rates
        edge = len(rates) > 1 and bool({*chosen} & {min(rates), max(rates)})
        several = "" if len(chosen) < 2 else "s"
        parts = [
            f"{self.collapsed} of {len(self.runs)} runs collapsed" if self.collapsed else "",
            self.method.own_pretraining,
            f"learning rate{several} {self.rates}{' (at the edge of those tried)' if edge else ''}" if chosen else "",
            *dict.fromkeys(map(diverged_at, self.diverged)),
            *merged_notes([run.note for run in self.runs]),
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
    """number of seeds that every method that depends on one has run; 0 if none does"""
    drawn: bool = False
    """every seed drew its own labelled texts, which also chose"""
    stopped: tuple[Method, ...] = ()
    """methods that could no longer win after their first seed, where the time is too short for all"""

    @property
    def complete(self) -> bool:
        """True if every method has a trial."""
        return bool(self.methods) and not self.missing


def rank(methods: Sequence[Method], runs: SweepRuns) -> Ranking:
    """All methods, best first. What is the same for every seed has one trial.

    If nothing else has one, and a backbone is read, these alone are ranked, with a stack of them.
    """
    by_method = {method: rank_method(method, runs) for method in methods if method not in runs.stopped}
    ranked = [replace(row, place=place) for place, row in enumerate(by_method.values()) if row]
    if all(row.deterministic for row in ranked if not row.method.combines):
        ranked = [replace(row, deterministic=True) for row in ranked if any(other.method.family == "frozen" for other in ranked)]
    trained = [set(row.seeds) for row in ranked if not row.deterministic]
    seeds = set.intersection(*trained) if trained else set[int]()
    comparable = [row if row.deterministic else row.with_seeds(seeds) for row in ranked if seeds or not trained]
    diverged = {trial.method for trial in runs.trials if trial in runs.results and runs.results[trial].diverged}
    unranked = [method for method, row in by_method.items() if row is None]
    return Ranking(
        tuple(sorted(comparable, key=lambda row: -row.test_scores.over_seeds.mean)),
        missing=tuple(method for method in unranked if method not in diverged and not method.combines),
        diverged=tuple(method for method in unranked if method in diverged),
        seeds=len(seeds),
        drawn=any(trial.labels is not None for trial in runs.trials),
        stopped=runs.stopped,
    )


def rank_method(method: Method, runs: SweepRuns) -> RankedMethod | None:
    """A method with its finished trials; None if its first seed has none, or if it diverged at every learning rate.

    That is seen in the trial that chose the rate; where none did, in that of the first seed.
    """
    planned, search = runs.of(method), runs.search_of(method)
    done = sorted((trial for trial in planned if trial in runs.results), key=lambda trial: trial.seed)
    if not done or done[0].seed != min(trial.seed for trial in planned) or (search or runs.results[done[0]]).diverged:
        return None
    results, seeds = tuple(runs.results[trial] for trial in done), tuple(trial.seed for trial in done)
    return RankedMethod(method, results, seeds, deterministic=done[0].same_for_every_seed, search=search)


def diverged_at(learning_rate: float) -> str:
    """The note on a learning rate at which a trial diverged."""
    return f"diverged at learning rate {learning_rate:g}"
