"""What a small sweep shows of a larger one: how much differences to its best method vary, and what a seed costs. Needs no torch.

The differences are those that a race claims: to the method that validation chose, cross-fitted, or to what each draw of labels
chose. The noise is the mean over the rivals closest to the best, because that of one pair, from two or three seeds, is a lottery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from warmstart.errors import DataError
from warmstart.experiment.choice import doubt_of_best
from warmstart.experiment.draws import MAJORITY_LABEL
from warmstart.experiment.ranking import RankedMethod
from warmstart.stats.differences import MethodScores, paired_difference
from warmstart.stats.noise import Noise
from warmstart.stats.power import possible_noise, rescaled

CLOSE = 3
"""the rivals with the mean test scores nearest to the best method's, for whose noise a race is planned"""


@dataclass(frozen=True)
class Pilot:
    """The ranked methods of a small sweep on one split."""

    best: RankedMethod
    others: tuple[RankedMethod, ...]
    seeds: int
    texts: int
    """test texts"""
    chosen: MethodScores | None = None
    """the test scores of what each draw of labels chose; None if all seeds chose together"""

    @cached_property
    def rivals(self) -> list[RankedMethod]:
        """The others that are nearest to the best by mean test score.

        The majority label and methods with collapsed runs are left out if others remain: their differences are noisy and plain to
        see. So are methods whose scores are those of the best throughout; ``DataError`` if all are.
        """
        found = [one for one in self.others if self._noise_of(one).error > 0]
        if not found:
            raise DataError(
                f"a pilot must show how much differences vary, but all methods score as {self.best.name} does; use more test texts"
            )
        found = [one for one in found if one.name != MAJORITY_LABEL and not one.collapsed] or found
        mean = self._scores.over_seeds.mean
        return sorted(found, key=lambda one: abs(one.test_scores.over_seeds.mean - mean))[:CLOSE]

    @cached_property
    def noise(self) -> Noise:
        """Of the difference between the best method and a rival, as a fixed pair: the mean over the rivals."""
        found = [self._noise_of(one) for one in self.rivals]
        parts = (float(np.mean([getattr(one, name) for one in found])) for name in ("of_texts", "of_seeds", "of_both"))
        texts, seeds, both = parts
        return Noise(texts, seeds, self.seeds, both)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of its variance over seeds.

        (S - 1) tr(C)^2 / tr(C^2) for the covariances C of the differences to one best method (Satterthwaite 1946), if seeds change
        all methods that depend on them alike: 2 (S - 1) for three rivals, S - 1 if none of them depends on a seed.
        """
        varies = [not one.deterministic for one in (self.best, *self.rivals)]
        shared = np.full((len(self.rivals), len(self.rivals)), float(varies[0])) + np.diag(np.array(varies[1:], dtype=float))
        total = float(np.trace(shared))
        return (self.seeds - 1) * (total**2 / float((shared**2).sum()) if total else 1.0)

    def noise_with(self, seeds: int) -> Noise:
        """What may be the noise of such a difference in a race with so many seeds on the same test texts (``possible_noise``)."""
        doubt = 0.0
        if self.chosen is None:
            doubt = doubt_of_best([one for one in (self.best, *self.others) if one.method.family != "baseline"], seeds)
        return rescaled(possible_noise(self.noise, self.degrees), seeds, 1.0).of_choice(doubt)

    def _noise_of(self, one: RankedMethod) -> Noise:
        return replace(paired_difference(self._scores, one.test_scores).noise, seeds=self.seeds)

    @property
    def _scores(self) -> MethodScores:
        return self.chosen or self.best.test_scores

    def minutes(self, seeds: int) -> float:
        """Of all trials with so many seeds, one at a time, at the pace of this sweep."""
        run = [one for one in self._all if not one.method.combines]  # a stack only combines what others predicted
        once = {one.method.backbone_digest: one.method.continued_pretraining_seconds for one in run}  # methods share a backbone
        search = sum(one.seconds_of_search for one in run) + sum(once.values())
        per_seed = sum(one.seconds + float(np.mean([trial.search_seconds for trial in one.runs])) for one in run)
        return (search + per_seed * seeds) / 60

    @property
    def memory(self) -> int | None:
        """The largest peak of a trial, in bytes."""
        return max((one.memory for one in self._all if one.memory is not None), default=None)

    @property
    def _all(self) -> Sequence[RankedMethod]:
        return (self.best, *self.others)
