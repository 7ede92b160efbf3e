"""The choice of labels among the methods of a sweep: the best score on texts that a method did not learn from (``choose``).

If every seed drew its own labelled texts, each draw stands for a user who sees the scores of that draw alone, and the figure is the
mean test score of what they chose. Otherwise all seeds choose on one validation split, a fold that is left out once, and each seed
scores what the others choose, so that being chosen flatters nothing. Test texts choose nothing. What transfer bought is the best
method with a pretrained backbone against the strongest without, both chosen by the same rule. Needs no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from warmstart.experiment.ranking import RankedMethod
from warmstart.stats.comparison import SIGNIFICANT, PairedComparison
from warmstart.stats.differences import (
    Difference,
    MethodScores,
    corrected_p_values,
    difference_to_choice,
    paired_difference,
    picked,
    score_of_choice,
)
from warmstart.stats.intervals import Estimate, Interval
from warmstart.stats.selected import needed_lead, selected_method, worse_out_of_fold

TRANSFER = ("adapted", "frozen")
"""families that start from a pretrained backbone"""
WITHOUT_PRETRAINING = ("baseline", "scratch")
"""methods that know nothing but the task"""
MAJORITY_LABEL = "majority"
"""the baseline that learns nothing from the texts"""
RECOMMENDED = "recommended"
"""the name by which ``--save`` takes the recommended method"""
LEARNABLE = "Permutation test of whether anything can be learned from the labels, from words, characters and vectors"
EQUAL_SECONDS = 1.0
"""below this, and up to twice the fewest, measured seconds do not make a method cheaper: the next time they would not"""


def choose(methods: Sequence[RankedMethod]) -> RankedMethod:
    """The best on the texts that choose; the majority label if no method gains anything over the label frequencies.

    Any gain decides, and proves nothing: a false choice costs a point or two, a false majority label many.
    """
    constant = next((ranked for ranked in methods if ranked.name == MAJORITY_LABEL), None)
    return constant if constant and gains_nothing(methods) else best_of(methods)


def gains_nothing(methods: Sequence[RankedMethod]) -> bool:
    """True if all have a calibrated loss on the texts that choose, none below that of the label frequencies.

    A stack is made of the others on these same texts, and so is no evidence of its own.
    """
    others = [ranked.gain for ranked in methods if not (ranked.method.combines or ranked.name == MAJORITY_LABEL)]
    return all(gain is not None and gain <= 0 for gain in others)


def best_of(methods: Sequence[RankedMethod]) -> RankedMethod:
    """The best on the texts that choose; of equals, the first of the sweep's methods.

    Another than the stack must be ahead of it beyond chance, as in a fit.
    """
    resampled = np.stack([ranked.validation_scores.resampled.mean(axis=0) for ranked in methods], axis=1)  # (R, K)
    needed = needed_lead(resampled, place_of_stack([ranked.family for ranked in methods])).tolist()
    return min(zip(methods, needed, strict=True), key=lambda pair: (pair[1] - pair[0].validation, pair[0].place))[0]


def place_of_stack(families: Sequence[str]) -> int | None:
    """The place of the stack among methods of these families; None if there is none."""
    return families.index("stack") if "stack" in families else None


def other_side(family: str) -> tuple[tuple[str, ...], str]:
    """The families of a method's rivals, and the best one's role: without pretraining if it has that itself, otherwise with it."""
    side, families = ("with", TRANSFER) if family in WITHOUT_PRETRAINING else ("without", WITHOUT_PRETRAINING)
    return families, f"best {side} pretraining"


def doubt_of_best(methods: Sequence[RankedMethod]) -> float:
    """The largest p-value, on validation, of another method that could be the best."""
    best = best_of(methods)
    others = [ranked for ranked in methods if ranked is not best]
    return max((paired_difference(ranked.validation_scores, best.validation_scores).p for ranked in others), default=0.0)


def as_each_seed_sees(methods: Sequence[RankedMethod], *, drawn: bool) -> list[tuple[RankedMethod, ...]]:
    """The methods for each seed with the trials that choose for it: of its own draw, or of all other seeds; none with one seed."""
    seeds = max((ranked.seeds for ranked in methods), key=len)
    if not drawn and len(seeds) < 2:
        return []
    choosing = [{seed} if drawn else {*seeds} - {seed} for seed in seeds]
    return [tuple(ranked.with_seeds(kept) if len(ranked.runs) > 1 else ranked for ranked in methods) for kept in choosing]


def with_all_seeds(methods: Sequence[RankedMethod], one: RankedMethod) -> RankedMethod:
    """The method of ``as_each_seed_sees`` with the trials of all seeds."""
    return next(other for other in methods if other.method == one.method)


def scores_beside(methods: Sequence[RankedMethod], compared: Sequence[RankedMethod]) -> list[MethodScores]:
    """The test scores of all methods but those that are ``compared``, whose variance over seeds they support."""
    used = {ranked.method for ranked in compared}
    return [ranked.test_scores for ranked in methods if ranked.method not in used]


def most_chosen(chosen: Sequence[RankedMethod]) -> RankedMethod:
    """The method that most draws choose; of equals, the first of the sweep's methods."""
    counts = Counter(ranked.method for ranked in chosen)
    return min(chosen, key=lambda ranked: (-counts[ranked.method], ranked.place))


def seconds_with_pretraining(one: RankedMethod) -> float:
    """Seconds per run of a method, with those of pretraining on the task's text."""
    return one.seconds + one.method.pretraining_seconds


@dataclass(frozen=True)
class Choice:
    """The choice among the methods of a sweep, by each draw of labels for itself or by all seeds together."""

    methods: tuple[RankedMethod, ...]
    texts: int
    """number of texts that choose, in each draw or for all seeds"""
    drawn: bool = False
    """every seed drew its own labelled texts"""

    @cached_property
    def _seen(self) -> list[tuple[RankedMethod, ...]]:
        return as_each_seed_sees(self.methods, drawn=True) if self.drawn else [self.methods]

    @cached_property
    def chosen(self) -> list[RankedMethod]:
        """The method that each draw chose; a single one if all seeds chose together."""
        return [with_all_seeds(self.methods, choose(seen)) for seen in self._seen]

    @cached_property
    def scored(self) -> list[RankedMethod]:
        """The method that each seed scores: the choice of its own draw, or of the other seeds; none if there are no other seeds."""
        if self.drawn:
            return self.chosen
        return [with_all_seeds(self.methods, choose(seen)) for seen in as_each_seed_sees(self.methods, drawn=False)]

    @property
    def recommended(self) -> RankedMethod:
        """The method that was chosen, by most draws if each chose for itself."""
        return most_chosen(self.chosen)

    @cached_property
    def scores(self) -> MethodScores:
        """The test scores of what each draw chose."""
        return picked([ranked.test_scores for ranked in self.scored]) if self.scored else self.recommended.test_scores

    @property
    def score(self) -> Interval:
        """The test score of what was chosen, which no test text chose, nor the seed that is scored.

        Simulation: tests/test_draws.py: ``test_the_score_of_what_draws_choose_is_not_flattered``; tests/test_choice.py:
        ``test_the_score_of_the_choice_is_not_flattered``.
        """
        together = self.scored and not self.drawn
        return score_of_choice([ranked.test_scores for ranked in self.scored]) if together else self.scores.over_both

    def difference(self, one: RankedMethod) -> Difference:
        """The test score of a method less that of what was chosen, whose place the best takes where a fold chose the method."""
        if self.drawn:
            return paired_difference(one.test_scores, self.scores, scores_beside(self.methods, [one, *self.chosen]))
        best, table = self.recommended, [method.test_scores for method in self.methods]
        if not self.scored:
            return paired_difference(one.test_scores, best.test_scores, table)
        folds = [((best if fold is one else one).test_scores, fold.test_scores) for fold in self.scored]
        return difference_to_choice(one.test_scores, best.test_scores, folds, doubt_of_best(self.methods), table)

    @cached_property
    def expected(self) -> list[Estimate]:
        """The score that each draw, or all seeds together, can expect of its choice by its labels alone; between 0 and 1."""
        estimates = []
        for seen in self._seen:
            rows, nothing = sorted(seen, key=lambda ranked: ranked.place), choose(seen).name == MAJORITY_LABEL
            rows = [ranked for ranked in rows if not nothing or ranked.name == MAJORITY_LABEL]
            stack = place_of_stack([ranked.family for ranked in rows])
            estimates.append(selected_method([ranked.validation_scores for ranked in rows], self.texts, stack).expected)
        return estimates

    @cached_property
    def alike(self) -> list[RankedMethod]:
        """The other methods that the labels, or those of most draws, cannot tell from the best; without the majority label.

        Significance is corrected for the number of methods, so that the truly best one is among them and the best.
        """
        counts = Counter[str]()
        for seen in self._seen:
            best, compared = choose(seen).validation_scores, max(1, len(seen) - 1)
            counts.update(row.method.id for row in seen if not worse_out_of_fold(row.validation_scores, best, comparisons=compared))
        others = [ranked for ranked in self.methods if ranked.method != self.recommended.method and ranked.name != MAJORITY_LABEL]
        return [ranked for ranked in others if 2 * counts[ranked.method.id] > len(self._seen)]

    @property
    def cheapest(self) -> RankedMethod | None:
        """The method alike with the fewest seconds per run, if they are fewer than the choice's; of equal ones the better."""
        costs = [*map(seconds_with_pretraining, [self.recommended, *self.alike])]
        most = max(2 * min(costs), EQUAL_SECONDS)
        near = [ranked for ranked in self.alike if seconds_with_pretraining(ranked) <= most < costs[0]]
        return best_of(near) if near else None

    @property
    def smallest(self) -> RankedMethod | None:
        """The network with the fewest bytes per task among those alike that all learned, if the chosen method has more."""
        networks = [ranked for ranked in self.alike if ranked.method.fine_tunes and not ranked.collapsed]
        lightest = min(networks, key=lambda ranked: ranked.runs[0].disk, default=self.recommended)
        return lightest if 0 < lightest.runs[0].disk < self.recommended.runs[0].disk else None

    @cached_property
    def no_signal(self) -> list[float]:
        """The p-value of each stack against the hypothesis that nothing can be learned from its labels."""
        return [run.no_signal for ranked in self.methods for run in ranked.runs if run.no_signal is not None]

    @property
    def unproven(self) -> int:
        """Number of draws in which this hypothesis is not rejected at the 5% level."""
        return sum(p >= SIGNIFICANT for p in self.no_signal)

    @property
    def doubtful(self) -> bool:
        """True if most draws fail the test that something can be learned."""
        return self.drawn and 2 * self.unproven > len(self.chosen)

    @property
    def permuted(self) -> str:
        """The result of the permutation test for each draw, as a complete sentence; empty without stacks."""
        p_values = ", ".join(f"{p:.3f}" for p in self.no_signal)
        return f"{LEARNABLE}, p by draw: {p_values}." if p_values else ""

    @property
    def labels_of_choice(self) -> str:
        """The draw whose labels chose the recommended method, as a complete sentence; empty unless several draws did."""
        if len(self.chosen) == 1:
            return ""
        draws = len(self.chosen)
        return f"The method is what most of {draws} draws chose, so that the labels of all of them had a part in its choice."


def list_choices(chosen: Sequence[RankedMethod]) -> str:
    """``"lp-ft in 3 of 5 draws, TF-IDF in 2"``; the name alone if all draws choose the same."""
    counts = Counter(ranked.method for ranked in chosen).most_common()
    if len(counts) == 1:
        return chosen[0].name
    first, *rest = [f"{method.name} in {count}" for method, count in counts]
    return ", ".join([f"{first} of {len(chosen)} draws", *rest])


@dataclass(frozen=True)
class TransferGain:
    """The gain from transfer: test scores of the best method with a pretrained backbone less those of the best without."""

    transfer: tuple[RankedMethod, ...]
    """the method that each draw chose; a single one if all seeds chose together"""
    rivals: tuple[RankedMethod, ...]
    """the strongest without pretraining, likewise"""
    difference: Difference
    drawn: bool
    """True if each draw chose for itself"""
    splits: bool = False
    """True if every seed drew its own split"""

    @property
    def p(self) -> float:
        """The p-value of the difference; 1 if one seed can claim nothing."""
        return corrected_p_values([self.difference])[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        gap, sides = self.difference, {"transfer": self.transfer, "rivals": self.rivals}
        return {name: [ranked.method.id for ranked in side] for name, side in sides.items()} | {
            "difference": gap.mean,
            "low": gap.low,
            "high": gap.high,
            "p": self.p,
        }

    def sentence(self, *, bounded: bool) -> str:
        """The better side, its lead, and who chose the two: complete sentences. ``bounded`` scores lie between 0 and 1.

        -> ``"Lp-ft is better than naive Bayes (the strongest rival without pretraining) by 3.1 points (…). Both are chosen …"``
        """
        best, rival = (most_chosen(side).name if _is_one(side) else "" for side in (self.transfer, self.rivals))
        strongest = "the strongest rival without pretraining"
        names = (
            best or "the pretrained method that each draw chose",
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
    """True if all draws chose the same method."""
    return len({ranked.method for ranked in side}) == 1


def transfer_gain(methods: Sequence[RankedMethod], *, drawn: bool) -> TransferGain | None:
    """The gain from transfer; both sides are chosen on the texts that choose, never by test score. None if one side has no method.

    Simulation: tests/test_draws.py: ``test_few_sweeps_of_equal_methods_claim_that_transfer_helps``.
    """
    sides = [_of(methods, names) for names in (TRANSFER, WITHOUT_PRETRAINING)]
    if not all(sides):
        return None
    seen = as_each_seed_sees(methods, drawn=drawn)
    by_seed = [[with_all_seeds(methods, best_of(_of(view, names))) for view in seen] for names in (TRANSFER, WITHOUT_PRETRAINING)]
    chosen = by_seed if drawn else [[best_of(side)] for side in sides]
    table = scores_beside(methods, [*chosen[0], *chosen[1]])
    transfer, rival = (picked([method.test_scores for method in side]) if drawn else side[0].test_scores for side in chosen)
    if drawn or not seen:
        gap = paired_difference(transfer, rival, table)
    else:
        pairs = [(a.test_scores, b.test_scores) for a, b in zip(*by_seed, strict=True)]
        gap = difference_to_choice(transfer, rival, pairs, max(map(doubt_of_best, sides)), table)
    return TransferGain((*chosen[0],), (*chosen[1],), gap, drawn, methods[0].test_scores.overlap is not None)


def _of(methods: Sequence[RankedMethod], families: Sequence[str]) -> list[RankedMethod]:
    return [ranked for ranked in methods if ranked.method.family in families]
