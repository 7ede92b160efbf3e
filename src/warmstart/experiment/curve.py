"""The result of a curve: scores by number of labels, what more labels would give, and where pretraining stops paying.

First, at each number of labels, the best pretrained method is compared with the strongest without pretraining, both chosen on the
texts that choose: if every seed draws its own labels, in each draw within them. Then the chosen pretrained method is compared with
every method that needs no pretraining, at each number of labels. It is what each draw chose, because the method that most draws
choose owes some of its scores to the luck of these draws. Differences count as significant after correction, of the former for all
numbers of labels, of the latter for all methods and numbers of labels (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from warmstart.data.scorings import LedgerSummary
from warmstart.experiment.choose import (
    TRANSFER,
    WITHOUT_PRETRAINING,
    TransferGain,
    as_each_seed_sees,
    best_of,
    most_chosen,
    scores_beside,
    transfer_gain,
)
from warmstart.notebook import Shown
from warmstart.stats.comparison import SIGNIFICANT, limits_of
from warmstart.stats.differences import Difference, MethodScores, corrected_p_values, paired_difference, picked
from warmstart.stats.extrapolation import HORIZON, Extrapolation, backtest, extrapolate, labels_up_to, round_labels
from warmstart.stats.formatting import list_sizes, percent, percent_interval, percent_value, points_interval
from warmstart.stats.scores import metric_range
from warmstart.stats.splits import ONE_SPLIT, share_training_texts

if TYPE_CHECKING:
    from warmstart.data.audit import Audit
    from warmstart.data.task import Task
    from warmstart.experiment.ranking import RankedMethod
    from warmstart.experiment.trial import Method
    from warmstart.stats.intervals import Estimate, Interval

SMALL_LEAD = 0.02
"""a lead that can be no larger is no reason to pretrain"""


class Worth(NamedTuple):
    """The number of labels of a method without pretraining that the pretrained method's labels are worth."""

    labels: int
    """labels of the pretrained method"""
    rival: Method
    needed: Estimate
    """labels with which the rival reaches the same score"""


@dataclass(frozen=True)
class CurveResult(Shown, view="commands.race.page:curve_view"):
    """A comparison of all methods at each number of labels."""

    task: Task
    rankings: Mapping[int, tuple[RankedMethod, ...]]
    """ranked methods by number of labels, rising; best mean first"""
    incomplete: tuple[int, ...]
    """numbers of labels for which the time was too short for every method and learning rate"""
    diverged: Mapping[Method, tuple[int, ...]]
    """numbers of labels at which a method diverged at every learning rate"""
    goal: float | None
    """the score asked for"""
    audit: Audit
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """earlier scorings of the test split"""
    drawn: bool = False
    """every seed drew its own labelled texts, which also chose"""

    @cached_property
    def largest(self) -> int:
        """The largest number of labels."""
        return max(self.rankings)

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """Methods with a score at every number of labels, best at the largest first; without the majority label."""
        everywhere = set.intersection(*({row.method for row in ranked} for ranked in self.rankings.values()))
        last = self.rankings[self.largest]
        return tuple(row.method for row in last if row.method in everywhere and row.name != "majority")

    @cached_property
    def pretrained(self) -> Method:
        """The pretrained method that is best on validation, or in most draws, with the most labels."""
        return self._best([method for method in self.methods if method.family in TRANSFER])

    def _best(self, methods: Sequence[Method]) -> Method:
        """The method of these that is best on validation, or in most draws, with the most labels."""
        last = [self.at(method, self.largest) for method in methods]
        return most_chosen([*map(best_of, as_each_seed_sees(last, drawn=True) if self.drawn else [last])]).method

    @cached_property
    def others(self) -> tuple[Method, ...]:
        """The methods that it is compared with: those without pretraining."""
        return tuple(method for method in self.methods if method.family in WITHOUT_PRETRAINING)

    @cached_property
    def gains(self) -> dict[int, TransferGain]:
        """The gain from transfer against the strongest rival without pretraining, by number of labels."""
        compared = {n: [self.at(method, n) for method in self.methods] for n in self.rankings}
        by_labels = {n: transfer_gain(methods, drawn=self.drawn) for n, methods in compared.items()}
        return {n: gain for n, gain in by_labels.items() if gain}

    @cached_property
    def target(self) -> float:
        """The score asked for; otherwise the one with half the error that the pretrained method makes with the most labels."""
        error = 1 - self.mean(self.pretrained, self.largest)
        return self.goal or 1 - float(f"{error / 2:.2g}")

    def at(self, method: Method, labels: int) -> RankedMethod:
        """The ranked method with this number of labels."""
        return next(ranked for ranked in self.rankings[labels] if ranked.method == method)

    def mean(self, method: Method, labels: int) -> float:
        """The mean test score of a method with so many labels."""
        return self.at(method, labels).test_scores.over_seeds.mean

    def interval(self, method: Method, labels: int) -> Interval:
        """The test score over seeds and test texts with so many labels, cut to the range of the metric."""
        return self.at(method, labels).test_scores.over_both.within(*metric_range(self.task.metric))

    def over_seeds(self, method: Method, labels: int) -> Interval:
        """The test scores of a method with their interval over seeds alone, for the same test texts."""
        return self.at(method, labels).test_scores.over_seeds.within(*metric_range(self.task.metric))

    def scores(self, method: Method) -> dict[int, MethodScores]:
        """Test scores of all seeds by number of labels."""
        return {labels: self.at(method, labels).test_scores for labels in self.rankings}

    @cached_property
    def extrapolations(self) -> dict[Method, Extrapolation]:
        """The power law of each method, if there are enough numbers of labels and seeds to fit one."""
        curves = {method: extrapolate(self.scores(method), len(self.task.train)) for method in self.methods}
        return {method: curve for method, curve in curves.items() if curve}

    @cached_property
    def worth(self) -> Worth | None:
        """The number of the rival's labels that those of the pretrained method are worth; no test score chooses what is compared.

        The rival is the best without pretraining with the most labels, the number of labels the smallest with which the pretrained
        method is ahead of it; both on the texts that choose. None if it is nowhere ahead, or there are no curves. Simulation:
        tests/test_extrapolation.py: ``test_labels_that_were_chosen_are_worth_what_is_said``.
        """
        pretrained, others = self.pretrained, [method for method in self.others if method in self.extrapolations]
        if not others or pretrained not in self.extrapolations:
            return None
        rival = self._best(others)
        ahead = [n for n in self.rankings if self.at(pretrained, n).validation > self.at(rival, n).validation]
        if not ahead:
            return None
        return Worth(ahead[0], rival, self.extrapolations[pretrained].equivalent_labels(self.extrapolations[rival], ahead[0]))

    def lead(self, other: Method, labels: int) -> Difference:
        """The scores of the chosen pretrained method less those of another with this number of labels.

        Each draw scores what it chose within them; if all seeds chose together, it is ``pretrained``.
        """
        rival = self.at(other, labels)
        chosen = self.gains[labels].transfer if self.drawn else (self.at(self.pretrained, labels),)
        table = scores_beside([self.at(method, labels) for method in self.methods], [*chosen, rival])
        scores = picked([ranked.test_scores for ranked in chosen]) if self.drawn else chosen[0].test_scores
        return paired_difference(scores, rival.test_scores, table)

    @property
    def _chosen_name(self) -> str:
        """The pretrained method of the comparisons."""
        chosen = {ranked.method for gain in self.gains.values() for ranked in gain.transfer} if self.drawn else {self.pretrained}
        return next(iter(chosen)).name if len(chosen) == 1 else "the pretrained method that each draw chose"

    @cached_property
    def significant(self) -> dict[tuple[Method, int], Difference]:
        """The leads that are significant, by method and number of labels; none on one seed."""
        leads = {(other, labels): self.lead(other, labels) for other in self.others for labels in self.rankings}
        corrected = corrected_p_values([*leads.values()])
        return {key: lead for (key, lead), p in zip(leads.items(), corrected, strict=True) if p < SIGNIFICANT}

    @property
    def findings(self) -> list[str]:
        """Findings on where pretraining helps, the gain from more labels, and what is missing."""
        findings = [*self._transfer(), *self._comparisons()]
        if curve := self.extrapolations.get(self.pretrained):
            findings += [curve.sentence(self.pretrained.name, self.target), *self._backtest(curve), *self._worth()]
        else:
            findings.append("An extrapolation to more labels needs at least three numbers of labels and two seeds.")
        findings += self._labels()
        if shared := [n for n in self.rankings if share_training_texts(n, len(self.task.train), self.seeds)]:
            intervals = f"The intervals with {list_sizes(shared, [*self.rankings])} labels"
            findings.append(ONE_SPLIT.replace("These intervals", intervals))
        for method, sizes in self.diverged.items():
            findings.append(
                f"{method.name} is left out: with {', '.join(map(str, sizes))} labels it diverged at every learning rate. Lower "
                "learning rates may help."
            )
        if self.incomplete:
            counts = ", ".join(map(str, self.incomplete))
            findings.append(f"The time was too short for {counts} labels; run the same command again to continue.")
        return findings + self.ledger.findings

    def _labels(self) -> list[str]:
        """The use of the labels, as sentences."""
        fewest, *more = self.rankings.values()
        budget = fewest[0].runs[0].budget
        return [f"{budget}{' Larger numbers of labels likewise.' if more else ''}"] if budget else []

    @property
    def seeds(self) -> int:
        """Runs of each method at each number of labels."""
        return len(self.at(self.pretrained, self.largest).runs)

    @cached_property
    def _bought(self) -> tuple[dict[int, Difference], list[int]]:
        """The gain from transfer by number of labels, and the numbers where it is significant; none for a single pair."""
        if not self.gains or (len(self.others) == 1 and sum(method.family in TRANSFER for method in self.methods) == 1):
            return {}, []
        leads = {n: gain.difference for n, gain in self.gains.items()}
        corrected = zip(leads, corrected_p_values([*leads.values()]), strict=True)
        return leads, [n for n, p in corrected if p < SIGNIFICANT]

    def _transfer(self) -> list[str]:
        """The gain from transfer at each number of labels, and who chose the methods, as sentences; none for a single pair."""
        (leads, significant), gains = self._bought, self.gains
        if not leads:
            return []
        rivals = ("the best pretrained method", "the strongest rival without pretraining")
        findings = self._verdicts(rivals, leads, significant, len(leads))
        who = "in each draw within its labels, by the best score on texts not learned from" if self.drawn else "on validation"
        pairs = {n: " against ".join(most_chosen(side).name for side in (gain.transfer, gain.rivals)) for n, gain in gains.items()}
        groups = {pair: [n for n in pairs if pairs[n] == pair] for pair in dict.fromkeys(pairs.values())}
        places = "; ".join(f"{pair} with {list_sizes(group, [*gains])} labels" for pair, group in groups.items())
        return [*findings, f"Both are chosen {who}{', most often ' if self.drawn else ': '}{places}."]

    def _comparisons(self) -> list[str]:
        """The pretrained method against each without pretraining; those that never differ significantly share a sentence."""
        apart = {other for other, _ in self.significant}
        findings = [sentence for other in self.others if other in apart for sentence in self._comparison(other)]
        if alike := [other for other in self.others if other not in apart]:
            leads = dict(enumerate(self.lead(other, labels) for other in alike for labels in self.rankings))
            names = "any of " * (len(alike) > 1) + ", ".join(other.name for other in alike)
            findings += self._verdicts((self._chosen_name, names), leads, [], len(self.others) * len(self.rankings))
        return findings

    def _comparison(self, other: Method) -> list[str]:
        """Findings on where the pretrained method is better than another, where it is worse, and where that stops."""
        sizes = list(self.rankings)
        leads = {labels: self.lead(other, labels) for labels in sizes}
        significant = [labels for method, labels in self.significant if method == other]
        better = [n for n in significant if leads[n].mean > 0]
        findings = self._verdicts((self._chosen_name, other.name), leads, significant, len(self.others) * len(sizes))
        return findings + self._stops_paying(other, [n for n in sizes if better and n > max(better)])

    def _verdicts(
        self, names: tuple[str, str], leads: Mapping[int, Difference], significant: Sequence[int], comparisons: int
    ) -> list[str]:
        """Findings on the numbers of labels with which the first method is better, worse, or not significantly different.

        What a run of this size can find is said once, of what transfer bought.
        """
        (first, other), sizes = names, [*leads]
        if not any(lead.claimable for lead in leads.values()):
            return [f"One seed cannot show whether {first} and {other} differ; use more seeds."]
        bounded = metric_range(self.task.metric) == (0, 1)
        rest = [n for n in sizes if n not in significant]
        bought, decided = self._bought
        covered = leads is not bought and len(decided) < len(bought)
        limit = f" {limits_of([leads[n] for n in rest], comparisons, bounded=bounded)}" if rest and not covered else ""
        if not significant:
            return [f"No significant difference between {first} and {other} at any number of labels.{limit}"]
        findings = []
        for verdict, sign in (("better", 1), ("worse", -1)):
            if clear := [n for n in sizes if n in significant and sign * leads[n].mean > 0]:
                text = _points(leads[clear[0]])
                if len(clear) > 1:
                    text += f" with {clear[0]:,}, {_points(leads[clear[-1]])} with {clear[-1]:,}"
                findings.append(f"With {list_sizes(clear, sizes)} labels, {first} is {verdict} than {other}: {text}.")
        if rest:
            findings.append(f"No significant difference between {first} and {other} with {list_sizes(rest, sizes)} labels.{limit}")
        return findings

    def _stops_paying(self, other: Method, beyond: Sequence[int]) -> list[str]:
        """The number of labels where pretraining stops paying: the upper end of the lead over training from scratch is small.

        ``beyond`` are the numbers of labels after the last at which it is significantly better.
        """
        if other.family != "scratch" or not beyond:
            return []
        small = [n for n in beyond if all(self.lead(other, m).high <= SMALL_LEAD for m in beyond if m >= n)]
        labels = small[0] if small else beyond[0]
        lead = f"the lead over {other.name} is {_points(self.lead(other, labels))}"
        if small:
            return [f"Pretraining stops paying at {labels:,} labels: {lead}."]
        return [f"Whether pretraining stops paying at {labels:,} labels is uncertain: {lead}."]

    def _backtest(self, curve: Extrapolation) -> list[str]:
        """A test of the smaller numbers of labels by the largest, and its effect on the intervals."""
        test = backtest(self.scores(self.pretrained), len(self.task.train))
        if test is None:
            return []
        inside = test.predicted.low <= test.score <= test.predicted.high
        verdict = "inside that interval" if inside else "outside that interval, which puts the power law in doubt"
        return [
            f"Tried on what is known: the smaller numbers of labels foretell {percent_interval(*test.predicted)} with "
            f"{test.labels:,} labels, and {percent(test.score)} was measured, {verdict}. The intervals allow for a further miss "
            f"of {percent_value(curve.miss)} points with each doubling of the labels."
        ]

    def _worth(self) -> list[str]:
        """The number of labels that the rival needs for the score that the pretrained method reaches with few, as a sentence."""
        if not self.worth:
            return []
        labels, rival, (needed, low, high) = self.worth
        most = HORIZON * self.largest
        worth = f"about {round_labels(needed)}" if needed <= most else f"more than {round_labels(most)}"
        ends = f"{labels_up_to(low, most)} to {labels_up_to(high, most)}" if low <= most else labels_up_to(low, most)
        return [f"{labels} labels with {self.pretrained.name} are worth {worth} with {rival.name} (90% interval {ends})."]

    def predicted(self, method: Method) -> list[tuple[float, float, float, float]]:
        """(labels, score, low, high) predicted from the largest number of labels measured to four times as many."""
        curve = self.extrapolations[method]
        places = [curve.largest * 2 ** (step / 4) for step in range(9)]
        return [(labels, *curve.score(labels)) for labels in places]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return {
            "task": self.task.summary(),
            "methods": [self._method_values(method) for method in self.methods],
            "target": self.target,
            "drawn": self.drawn,
            "transfer": {str(labels): gain.to_dict() for labels, gain in self.gains.items()},
            "findings": self.findings,
            "test_split": self.ledger.to_dict(),
        }

    def _method_values(self, method: Method) -> dict[str, Any]:
        curve = self.extrapolations.get(method)
        return {
            "method": method.name,
            "id": method.id,
            "scores": {str(labels): list(scores.scores) for labels, scores in self.scores(method).items()},
            "over_both": {str(labels): self.interval(method, labels).to_dict() for labels in self.rankings},
            "over_seeds": {str(labels): self.over_seeds(method, labels).to_dict() for labels in self.rankings},
            "law": vars(curve.law) if curve else None,
            "labels_for_target": [None if math.isinf(n) else n for n in curve.labels(self.target)] if curve else None,
        }


def _points(lead: Difference) -> str:
    return points_interval(lead.mean, lead.low, lead.high)
