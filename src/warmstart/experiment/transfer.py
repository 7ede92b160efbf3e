"""What transfer bought: the best method with a pretrained backbone against the strongest without, both chosen by one rule.

Needs no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from warmstart.experiment.choose import (
    TRANSFER,
    WITHOUT_PRETRAINING,
    as_each_seed_sees,
    best_of,
    doubt_of_best,
    most_chosen,
    scores_beside,
    with_all_seeds,
)
from warmstart.experiment.ranking import RankedMethod
from warmstart.stats.comparison import PairedComparison
from warmstart.stats.differences import Difference, corrected_p_values, difference_to_choice, paired_difference, picked


def list_choices(chosen: Sequence[RankedMethod]) -> str:
    """``"lp-ft in 3 of 5 draws, TF-IDF in 2"``; the name alone if all draws choose the same."""
    counts = Counter(one.method for one in chosen).most_common()
    if len(counts) == 1:
        return chosen[0].name
    first, *rest = [f"{method.name} in {count}" for method, count in counts]
    return ", ".join([f"{first} of {len(chosen)} draws", *rest])


@dataclass(frozen=True)
class TransferGain:
    """The test scores of the chosen method with a pretrained backbone less those of the strongest without pretraining."""

    transfer: tuple[RankedMethod, ...]
    """what each draw chose; a single one if all seeds chose together"""
    rivals: tuple[RankedMethod, ...]
    """the strongest without pretraining, likewise"""
    difference: Difference
    drawn: bool
    """whether each draw chose for itself"""
    splits: bool = False
    """whether every seed drew its own split"""

    @property
    def p(self) -> float:
        """The p-value of the difference; 1 if one seed can claim nothing."""
        return corrected_p_values([self.difference])[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        gap, sides = self.difference, {"transfer": self.transfer, "rivals": self.rivals}
        return {name: [one.method.id for one in side] for name, side in sides.items()} | {
            "difference": gap.mean,
            "low": gap.low,
            "high": gap.high,
            "p": self.p,
        }

    def sentence(self, *, bounded: bool) -> str:
        """Which is better, by how much, and who chose them: complete sentences. ``bounded`` scores lie between 0 and 1.

        -> ``"Lp-ft is better than naive Bayes (the strongest rival without pretraining) by 3.1 points (…). Both are chosen …"``
        """
        one, rival = (most_chosen(side).name if _is_one(side) else "" for side in (self.transfer, self.rivals))
        strongest = "the strongest rival without pretraining"
        names = (
            one or "the pretrained method that each draw chose",
            f"{rival} ({strongest})" if rival else f"{strongest} that each draw chose",
        )
        gap = self.difference
        gap = replace(gap, low=max(-1.0, gap.low), high=min(1.0, gap.high)) if bounded else gap
        compared = PairedComparison(names, gap, over_texts=True, p=self.p, bounded=bounded, splits=self.splits).sentence
        return f"{compared} {self._who_chose}"

    @property
    def _who_chose(self) -> str:
        if not self.drawn:
            return "Both are chosen on validation."
        chosen = " against ".join(list_choices(side) for side in (self.transfer, self.rivals))
        who = f"Both are chosen in each draw within its labels, by the best score on texts not learned from: {chosen}."
        if _is_one(self.transfer) and _is_one(self.rivals):
            return who
        return f"{who} The difference is the mean over what the draws chose, not that of one pair of methods."


def _is_one(side: Sequence[RankedMethod]) -> bool:
    """Whether all draws chose the same method."""
    return len({one.method for one in side}) == 1


def transfer_gain(methods: Sequence[RankedMethod], *, drawn: bool) -> TransferGain | None:
    """What transfer bought; both sides are chosen on the texts that choose, never by test score. None if one side has no method.

    Simulation: tests/test_draws.py: ``test_few_sweeps_of_equal_methods_claim_that_transfer_helps``.
    """
    sides = [_of(methods, names) for names in (TRANSFER, WITHOUT_PRETRAINING)]
    if not all(sides):
        return None
    seen = as_each_seed_sees(methods, drawn=drawn)
    by_seed = [[with_all_seeds(methods, best_of(_of(view, names))) for view in seen] for names in (TRANSFER, WITHOUT_PRETRAINING)]
    chosen = by_seed if drawn else [[best_of(side)] for side in sides]
    table = scores_beside(methods, [*chosen[0], *chosen[1]])
    one, other = (picked([method.test_scores for method in side]) if drawn else side[0].test_scores for side in chosen)
    if drawn or not seen:
        gap = paired_difference(one, other, table)
    else:
        pairs = [(a.test_scores, b.test_scores) for a, b in zip(*by_seed, strict=True)]
        gap = difference_to_choice(one, other, pairs, max(map(doubt_of_best, sides)), table)
    return TransferGain((*chosen[0],), (*chosen[1],), gap, drawn, methods[0].test_scores.overlap is not None)


def _of(methods: Sequence[RankedMethod], families: Sequence[str]) -> list[RankedMethod]:
    return [one for one in methods if one.method.family in families]
