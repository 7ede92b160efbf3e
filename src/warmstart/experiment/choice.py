"""Who chooses among the methods of a sweep, on which scores; and what transfer bought by that choice. Needs no torch.

If every seed drew its own labelled texts, each draw stands for a user who sees the scores of that draw alone. Otherwise all seeds
choose on one validation split, and each seed scores what the others choose, so that being chosen flatters nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from warmstart.experiment.ranking import RankedMethod
from warmstart.stats.comparison import PairedComparison
from warmstart.stats.differences import (
    Difference,
    MethodScores,
    corrected_p_values,
    difference_to_choice,
    paired_difference,
    picked,
)
from warmstart.stats.formatting import time_span
from warmstart.types import SelectionName

FEW_TEXTS = 30
"""with fewer texts that choose, the choice is uncertain"""
TRANSFER = ("adapted", "frozen")
"""families that start from a pretrained backbone"""
WITHOUT_PRETRAINING = ("baseline", "scratch")
"""families that know nothing but the task"""


def choice_findings(selection: SelectionName, choosing: int, seconds: float) -> list[str]:
    """Whether few texts choose, and what ``seconds`` beside the runs went into, as complete sentences."""
    verb = "label chooses" if choosing == 1 else "labels choose"
    few = [f"Only {choosing} {verb}, which is few."] if choosing < FEW_TEXTS else []
    out_of_fold = "Predicting the texts out of fold with each network, to choose the method,"
    did = out_of_fold if selection == "none" else "Choosing settings"
    return [*few, *([f"{did} took {time_span(seconds)} in all, beside the runs themselves."] if seconds else [])]


def as_each_seed_sees(methods: Sequence[RankedMethod], *, drawn: bool) -> list[tuple[RankedMethod, ...]]:
    """For each seed the methods with the trials that choose for it: of its own draw, or of all other seeds; none with one seed."""
    seeds = max((one.seeds for one in methods), key=len)
    if not drawn and len(seeds) < 2:
        return []
    choosing = [{seed} if drawn else {*seeds} - {seed} for seed in seeds]
    return [tuple(one.with_seeds(kept) if len(one.runs) > 1 else one for one in methods) for kept in choosing]


def with_all_seeds(methods: Sequence[RankedMethod], one: RankedMethod) -> RankedMethod:
    """The method of ``as_each_seed_sees`` with the trials of all seeds."""
    return next(other for other in methods if other.method == one.method)


def list_choices(chosen: Sequence[RankedMethod]) -> str:
    """``"lp-ft in 3 of 5 draws, TF-IDF in 2"``; the name alone if all draws choose the same."""
    counts = Counter(one.method for one in chosen).most_common()
    if len(counts) == 1:
        return chosen[0].name
    first, *rest = [f"{method.name} in {count}" for method, count in counts]
    return ", ".join([f"{first} of {len(chosen)} draws", *rest])


def most_chosen(chosen: Sequence[RankedMethod]) -> RankedMethod:
    """The one that most draws choose; of equals, the first of the sweep's methods."""
    counts = Counter(one.method for one in chosen)
    return min(chosen, key=lambda one: (-counts[one.method], one.place))


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
    by_loss: bool = False
    """whether the lowest calibrated loss was chosen, not the best score"""

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
        by = "lowest calibrated log loss" if self.by_loss else "best score"
        who = f"Both are chosen in each draw within its labels, by the {by} on texts not learned from: {chosen}."
        if _is_one(self.transfer) and _is_one(self.rivals):
            return who
        return f"{who} The difference is the mean over what the draws chose, not that of one pair of methods."


def _is_one(side: Sequence[RankedMethod]) -> bool:
    """Whether all draws chose the same method."""
    return len({one.method for one in side}) == 1


def transfer_gain(methods: Sequence[RankedMethod], *, drawn: bool, by_loss: bool = False) -> TransferGain | None:
    """What transfer bought; both sides are chosen on the texts that choose, never by test score. None if one side has no method.

    With ``by_loss`` each draw chooses the lowest calibrated loss instead of the best score.

    Simulation: tests/test_draws.py: ``test_few_sweeps_of_equal_methods_claim_that_transfer_helps``.
    """
    sides = [_of(methods, names) for names in (TRANSFER, WITHOUT_PRETRAINING)]
    if not all(sides):
        return None
    seen, splits = as_each_seed_sees(methods, drawn=drawn), methods[0].test_scores.overlap is not None
    chosen = [
        [with_all_seeds(methods, best_of(_of(view, names), by_loss=by_loss)) for view in seen]
        for names in (TRANSFER, WITHOUT_PRETRAINING)
    ]
    if drawn:
        one, other = (picked([method.test_scores for method in side]) for side in chosen)
        table = scores_beside(methods, [*chosen[0], *chosen[1]])
        by_loss = by_loss and all(gains_of(not_refused(side)) for side in sides)
        return TransferGain((*chosen[0],), (*chosen[1],), paired_difference(one, other, table), drawn, splits, by_loss)
    best = [best_of(side) for side in sides]
    one, other = (method.test_scores for method in best)
    table = scores_beside(methods, best)
    gap = paired_difference(one, other, table)
    if seen:
        pairs = [(a.test_scores, b.test_scores) for a, b in zip(*chosen, strict=True)]
        gap = difference_to_choice(one, other, pairs, max(map(doubt_of_best, sides)), table)
    return TransferGain((best[0],), (best[1],), gap, drawn, splits)


def scores_beside(methods: Sequence[RankedMethod], compared: Sequence[RankedMethod]) -> list[MethodScores]:
    """The test scores of all methods but those that are ``compared``, whose variance over seeds they support."""
    used = {one.method for one in compared}
    return [one.test_scores for one in methods if one.method not in used]


def _of(methods: Sequence[RankedMethod], families: Sequence[str]) -> list[RankedMethod]:
    return [one for one in methods if one.method.family in families]


def chooses_by_loss(metric: str, *, drawn: bool) -> bool:
    """Whether methods are chosen by calibrated loss: in draws, where it stands for accuracy and for no other metric."""
    return drawn and metric == "accuracy"


def best_of(methods: Sequence[RankedMethod], *, by_loss: bool = False) -> RankedMethod:
    """The best on the texts that choose, of those that are not refused; of equals, the first of the sweep's methods.

    With ``by_loss`` the one with the lowest calibrated loss; the best score all the same where a method has no probabilities.
    """
    methods = not_refused(methods)
    order = (gains_of(methods) if by_loss else []) or [one.validation for one in methods]
    return methods[min(range(len(methods)), key=lambda i: (-order[i], methods[i].place))]


def not_refused(methods: Sequence[RankedMethod]) -> list[RankedMethod]:
    """Without those that texts without labels hurt on the texts that choose; all of them if they hurt all."""
    return [one for one in methods if not one.refused] or [*methods]


def gains_of(methods: Sequence[RankedMethod]) -> list[float]:
    """What each method gains over the label frequencies on the texts that choose; empty if one has none."""
    found = [one.gain for one in methods if one.gain is not None]
    return found if len(found) == len(methods) else []


def doubt_of_best(methods: Sequence[RankedMethod]) -> float:
    """How uncertain it is which method is best: the largest p-value, on validation, of another that could be it."""
    best = best_of(methods)
    others = [one for one in not_refused(methods) if one is not best]
    return max((paired_difference(one.validation_scores, best.validation_scores).p for one in others), default=0.0)
