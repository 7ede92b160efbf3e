"""Which method all seeds together recommend by one validation split, and test scores without the luck of the seeds that chose.

The rule is that of ``commands/race/result.py``. Every test score of a choice is cross-fitted: seed s scores what is chosen without
seed s, be it the best method or the recommended one. Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from warmstart.experiment.choice import as_each_seed_sees, best_of, doubt_of_best, with_all_seeds
from warmstart.experiment.ranking import EQUAL_SECONDS, RankedMethod
from warmstart.stats.differences import (
    Difference,
    MethodScores,
    cheapest_within_noise,
    difference_to_choice,
    paired_difference,
    score_of_choice,
)
from warmstart.stats.intervals import Interval

ALONE_BY_CHANCE = 0.20
"""of races of equal methods, about so many find no cheaper method within one standard error of the best; simulated in
tests/test_choice.py: ``test_few_races_of_equal_methods_claim_that_every_cheaper_one_is_worse``"""

RECOMMENDED = "recommended"
"""as ``--save`` names the recommended method"""


@dataclass(frozen=True)
class Recommendation:
    """What is chosen among the methods of a sweep, all of whose seeds share one validation split or draw their own."""

    methods: tuple[RankedMethod, ...]

    @cached_property
    def best(self) -> RankedMethod:
        """The trained method that is best on validation; a baseline, if no other has been tried within the budget."""
        return best_of(self._candidates)

    @cached_property
    def recommended(self) -> RankedMethod:
        """The method within the noise of the best that needs the fewest seconds per run, with those of continued pretraining."""
        return self._cheapest(seconds_with_pretraining, equal_below=EQUAL_SECONDS)

    @property
    def smallest(self) -> RankedMethod:
        """The method within the noise of the best that needs the fewest bytes per task, of those whose networks all learned."""
        return self._cheapest(lambda one: float(one.runs[0].disk) if one.method.fine_tunes and not one.collapsed else math.inf)

    @cached_property
    def folds(self) -> list[Recommendation]:
        """For each seed what the others choose; none with one seed."""
        return [Recommendation(methods) for methods in as_each_seed_sees(self.methods, drawn=False)]

    @property
    def score_of_best(self) -> Interval:
        """The test score of the best method, not flattered by having been chosen."""
        return self._score(self.best, [fold.best for fold in self.folds])

    @property
    def score_of_recommended(self) -> Interval:
        """The test score of the recommended method, not flattered by having been chosen.

        Simulation: tests/test_choice.py: ``test_the_score_of_the_recommended_method_is_not_flattered``.
        """
        return self._score(self.recommended, [fold.recommended for fold in self.folds])

    @property
    def gap_of_recommended(self) -> Difference:
        """The test score of the recommended method less that of the best; neither flattered."""
        return self._against_best(self.recommended, [fold.recommended for fold in self.folds])

    def against_best(self, one: RankedMethod) -> Difference:
        """The test score of a method less that of the best, whose place it takes where it is a fold's choice."""
        return self._against_best(one, [self.best if fold.best.method == one.method else one for fold in self.folds])

    @property
    def _candidates(self) -> list[RankedMethod]:
        return [one for one in self.methods if one.method.family != "baseline"] or [*self.methods]

    @cached_property
    def _doubt(self) -> float:
        """How uncertain the choice of the best method is, on validation."""
        return doubt_of_best(self._candidates)

    def _cheapest(self, cost: Callable[[RankedMethod], float], equal_below: float = 0.0) -> RankedMethod:
        methods = sorted((one for one in self.methods if not one.refused), key=lambda one: one.place)
        scores = [one.validation_scores for one in methods]
        chosen = cheapest_within_noise(scores, self.best.validation_scores, [cost(one) for one in methods], equal_below)
        return next(one for one in methods if one.validation_scores is chosen)

    def _full(self, one: RankedMethod) -> MethodScores:
        """The test scores on all seeds of a method of a fold."""
        return with_all_seeds(self.methods, one).test_scores

    def _score(self, one: RankedMethod, in_folds: Sequence[RankedMethod]) -> Interval:
        """The test score of ``one``, each fold with the method that stands for it."""
        return score_of_choice([*map(self._full, in_folds)]) if in_folds else one.test_scores.over_both

    def _against_best(self, one: RankedMethod, in_folds: Sequence[RankedMethod]) -> Difference:
        """The test score of ``one`` less that of the best, each fold with the method that stands for ``one``."""
        table = [method.test_scores for method in self.methods]
        if not self.folds:
            return paired_difference(one.test_scores, self.best.test_scores, table)
        folds = [(self._full(other), self._full(fold.best)) for other, fold in zip(in_folds, self.folds, strict=True)]
        return difference_to_choice(one.test_scores, self.best.test_scores, folds, self._doubt, table)


def seconds_with_pretraining(one: RankedMethod) -> float:
    """Seconds per run of a method, with those of its continued pretraining."""
    return one.seconds + one.method.continued_pretraining_seconds
