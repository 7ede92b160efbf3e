"""What each draw of labelled texts chooses among the methods of a sweep, as a user with these labels would. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from warmstart.experiment.choice import as_each_seed_sees, gains_of, list_choices, most_chosen, not_refused, with_all_seeds
from warmstart.experiment.ranking import EQUAL_SECONDS, RankedMethod
from warmstart.stats.choice import LossGains, choose_within_draw, detectable_lead
from warmstart.stats.comparison import SIGNIFICANT, USEFUL, detection_text
from warmstart.stats.differences import MethodScores, cheapest_within_noise, picked
from warmstart.stats.formatting import percent

MAJORITY_LABEL = "majority"
"""the baseline that learns nothing from the texts"""
LEARNABLE = "Permutation test of whether anything can be learned from the labels, from words, characters and vectors"


@dataclass(frozen=True)
class Draws:
    """The methods of a sweep whose every seed drew its own labelled texts, and what each draw chooses within them."""

    methods: tuple[RankedMethod, ...]
    most_frequent: float
    """the share of the most frequent class, which a stratified draw repeats: the least that a constant prediction scores"""
    by_loss: bool = False
    """the method with the lowest calibrated loss is chosen instead of the one with the best score"""

    @cached_property
    def chosen(self) -> list[RankedMethod]:
        """The best of each draw on its texts that choose; the majority label if nothing is better (``choose_within_draw``)."""
        return [self._chosen(seen, tested=True) for seen in self._seen]

    @cached_property
    def untested(self) -> list[RankedMethod]:
        """The best of each draw, whether or not it is better than the majority label."""
        return [self._chosen(seen, tested=False) for seen in self._seen]

    @cached_property
    def scores(self) -> MethodScores:
        """The test scores of what each draw chose."""
        return picked([one.test_scores for one in self.chosen])

    @property
    def recommended(self) -> RankedMethod:
        """What most draws choose."""
        return most_chosen(self.chosen)

    @cached_property
    def _seen(self) -> list[tuple[RankedMethod, ...]]:
        return [(*not_refused(methods),) for methods in as_each_seed_sees(self.methods, drawn=True)]

    def _chosen(self, seen: Sequence[RankedMethod], *, tested: bool) -> RankedMethod:
        constant = _majority_label(seen) if tested else None
        scores, places = [one.validation_scores for one in seen], [one.place for one in seen]
        index = choose_within_draw(scores, places, constant, self.most_frequent, self._gains(seen))
        return with_all_seeds(self.methods, seen[index])

    def _gains(self, seen: Sequence[RankedMethod]) -> LossGains | None:
        """What the methods of a draw gain over the label frequencies; None if one has no probabilities."""
        combined = frozenset(i for i, one in enumerate(seen) if one.method.combines)
        values = gains_of(seen)
        return LossGains(values, combined, self.by_loss) if values else None

    @property
    def _limit(self) -> str:
        """How much better than the majority label a score had to be, to be detected: a clause."""
        places = [(seen, _majority_label(seen)) for seen in self._seen]
        sizes = [detectable_lead([one.validation_scores for one in seen], i) for seen, i in places if i is not None]
        return detection_text(sizes, most=USEFUL)

    @cached_property
    def no_signal(self) -> list[float]:
        """For each draw with a stack, the p-value against the hypothesis that nothing can be learned from its labels."""
        return [run.no_signal for one in self.methods for run in one.runs if run.no_signal is not None]

    @property
    def unproven(self) -> int:
        """In how many draws that is not rejected at the 5% level."""
        return sum(p >= SIGNIFICANT for p in self.no_signal)

    @property
    def doubtful(self) -> bool:
        """Whether that is so in most draws."""
        return 2 * self.unproven > len(self.chosen)

    @property
    def permuted(self) -> str:
        """What the test says of each draw, as a complete sentence; empty without stacks."""
        p_values = ", ".join(f"{p:.3f}" for p in self.no_signal)
        return f"{LEARNABLE}, p by draw: {p_values}." if p_values else ""

    def recommendation(self, labels: int) -> str:
        """The method to use, and how many users with so many ``labels`` chose it: complete sentences."""
        best, draws = self.recommended, len(self.chosen)
        most = f"{sum(one.method == best.method for one in self.chosen)} of {draws} draws"
        if best.name != MAJORITY_LABEL:
            several = f"{draws} simulated users with {labels:,} labels each"
            users = several if draws > 1 else f"A simulated user with {labels:,} labels"
            decided = f"Use {best.name}. {users} let these choose: {self._counts}."
            return self._doubt(labels) if self.doubtful else decided
        found = f"no method is significantly better than the majority label (5% level); {self._limit}"
        return f"Label more texts first: in {most}, {self._no_gain or found}."

    @property
    def _no_gain(self) -> str:
        """Why a draw takes the majority label, where methods have probabilities: a clause; empty otherwise."""
        return "no method predicts the labels better than their frequencies do" if gains_of(self.methods) else ""

    def _doubt(self, labels: int) -> str:
        """What to do if most draws do not show that anything can be learned: complete sentences."""
        draws, constant = len(self.chosen), _majority_label(self.methods)
        frequent = "" if constant is None else percent(self.methods[constant].test_scores.over_seeds.mean)
        return (
            f"{labels:,} labels do not show that anything can be learned: in {self.unproven} of {draws} draws they are predicted "
            f"no better than permuted labels (5% level). If you must decide now, take {self.recommended.name}; the most frequent "
            f"label reaches {frequent} on the test texts. More labels will tell."
        )

    @property
    def _counts(self) -> str:
        """``"all chose lora"``, or ``"4 chose lora, 1 TF-IDF"``."""
        first, *rest = Counter(one.name for one in self.chosen).most_common()
        if not rest:
            return f"{'all' if len(self.chosen) > 1 else 'it'} chose {first[0]}"
        return ", ".join([f"{first[1]} chose {first[0]}", *(f"{count} {name}" for name, count in rest)])

    @property
    def labels_of_choice(self) -> str:
        """Whose labels chose the recommended method, as a complete sentence; empty with one draw."""
        if len(self.chosen) == 1:
            return ""
        draws = len(self.chosen)
        return f"The method is what most of {draws} draws chose, so that the labels of all of them had a part in its choice."

    @property
    def held_back(self) -> list[str]:
        """What the draws would reach that chose the majority label for want of a significantly better method."""
        count = sum(one.method != other.method for one, other in zip(self.chosen, self.untested, strict=True))
        if not count:
            return []
        score = picked([one.test_scores for one in self.untested]).over_seeds.mean
        limit = f"; {self._limit}" * (self.recommended.name != MAJORITY_LABEL)  # which says so already
        tested = f"no method is significantly better than the majority label, which is chosen instead{limit}"
        why = f"{self._no_gain}, and the majority label is chosen" if self._no_gain else tested
        return [
            f"In {count} of {len(self.chosen)} draws {why}. If each draw chose its best method, they would reach {percent(score)} "
            f"({list_choices(self.untested)})."
        ]

    @property
    def cheapest(self) -> list[str]:
        """The method that is in most draws the cheapest within the noise of the best score, if it is not the recommended one."""
        found = []
        for seen, best in zip(self._seen, self.untested, strict=True):
            rows = [one for one in seen if one.name != MAJORITY_LABEL or one.method == best.method]
            scores = [one.validation_scores for one in rows]
            of_best = next(score for score, one in zip(scores, rows, strict=True) if one.method == best.method)
            near = cheapest_within_noise(scores, of_best, [one.seconds for one in rows], EQUAL_SECONDS)
            found.append(next(one for one in rows if one.validation_scores is near))
        one = most_chosen(found)
        count = sum(other.method == one.method for other in found)
        if one.method == self.recommended.method or 2 * count <= len(found):
            return []
        return [
            f"The cheapest method within one standard error of what a draw chose is {one.name} in {count} of {len(found)} draws."
        ]


def _majority_label(methods: Sequence[RankedMethod]) -> int | None:
    """The index of the majority label, if it is among the methods."""
    return next((i for i, one in enumerate(methods) if one.name == MAJORITY_LABEL), None)
