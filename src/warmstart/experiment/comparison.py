"""The result of a race: all methods ranked, and the one to use.

The recommendation (``Comparison.recommended``) is made on the validation split; test scores are reported and choose nothing:

1. The best method is the trained one with the highest mean validation score.
2. A method is within the noise of the best if its mean validation score falls short by at most one standard error of the paired
   difference, over seeds and validation texts (the one-standard-error rule of Breiman et al. 1984).
3. Of the methods within the noise, baselines included, the cheapest is recommended: the fewest seconds per run, with those of
   continued pretraining.

This decides; a claim needs more. "Every cheaper method is significantly worse" is said only if each of them is, on validation (5%
level). The test scores of the best and of the recommended method, and the differences to the best, are cross-fitted: each seed
scores what the other seeds choose, so that the luck that made the choice is not in the score.

If every seed draws its own labelled texts (``Ranking.drawn``), each draw is a user who sees these labels alone, and chooses by
their out-of-fold scores (``choose_within_draw``). The race's figure is the mean test score of what the draws chose, and the
recommended method the one that most draws chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from warmstart.data.scorings import LedgerSummary
from warmstart.errors import ModelError
from warmstart.experiment.choice import (
    TRANSFER,
    TransferGain,
    choice_findings,
    chooses_by_loss,
    scores_beside,
    transfer_gain,
)
from warmstart.experiment.draws import Draws
from warmstart.experiment.recommendation import ALONE_BY_CHANCE, RECOMMENDED, Recommendation, seconds_with_pretraining
from warmstart.notebook import Shown
from warmstart.stats.comparison import SIGNIFICANT, detection_limit
from warmstart.stats.differences import Difference, corrected_p_values, paired_difference
from warmstart.stats.formatting import (
    file_size,
    percent,
    percent_interval,
    percent_range,
    points,
    points_interval,
    sentence_case,
    sources_of_chance,
    with_ends,
)
from warmstart.stats.intervals import FEW_SEEDS, NO_SEEDS, ONE_SEED, Interval
from warmstart.stats.scores import metric_range
from warmstart.stats.splits import NEW_SPLITS, ONE_SPLIT, share_training_texts

if TYPE_CHECKING:
    from warmstart.data.audit import Audit
    from warmstart.data.task import Task
    from warmstart.experiment.curve import CurveResult
    from warmstart.experiment.ranking import RankedMethod, Ranking
    from warmstart.experiment.refit import FinishedTrials, Refit
    from warmstart.model.bundle import Bundle
    from warmstart.stack.stack import Stack
    from warmstart.types import SelectionName


class DifferenceToBest(NamedTuple):
    """The test scores of a method less those of the best method."""

    ranked: RankedMethod
    difference: Difference
    p: float
    """corrected for the number of ``comparisons`` (Holm 1979)"""
    comparisons: int
    """of which it is one; 1 for the one question, what transfer bought"""

    @property
    def significant(self) -> bool:
        """Whether the difference is unlikely to be chance; never on one seed."""
        return self.p < SIGNIFICANT


@dataclass(frozen=True)
class Comparison(Shown, view="commands.race.page:race_view"):
    """All methods on one task, and the one to use."""

    task: Task
    labels: int
    """labelled texts of each run"""
    choosing: int
    """those of them that choose, in folds or because they are set apart; without a number of labels, the validation texts"""
    ranking: Ranking
    audit: Audit
    constant_score: float
    """the test score of a constant prediction"""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """how often the test split was scored"""
    budget: str = ""
    """what the labels of each seed are for, as a complete sentence"""
    selection: SelectionName = "holdout"
    """what chose the settings"""
    most_frequent: float = 0.0
    """of the labels of the first seed's budget, the share of the most frequent class; 0 where the metric is not accuracy"""
    curve: CurveResult | None = None
    """the methods at several numbers of labels, of which ``labels`` is the largest"""
    trials: FinishedTrials | None = field(default=None, repr=False, compare=False)
    """what it was made of; None if that is not at hand"""

    @property
    def table(self) -> pl.DataFrame:
        """One row per method, best mean score on the test texts first."""
        return self.tables["methods"]

    def fit(self, method: str = RECOMMENDED) -> Bundle | Stack:
        """A method as a model, fitted once more with the first seed: the recommended one, or the one of this name in the table.

        Raises ``ConfigError`` if no method has the name, ``ModelError`` if it cannot be fitted again.
        """
        return self.refit(method).model

    def refit(self, method: str = RECOMMENDED) -> Refit:
        """The same, with the trial that it repeats, and how far its predictions are from those that were scored."""
        if self.trials is None:
            raise ModelError("a method is fitted again from its trials, but this comparison has none; compare again")
        if method != RECOMMENDED:
            return self.trials.fit(method)
        return self.trials.fit(self.recommended.method, self.draws.labels_of_choice if self.ranking.drawn else "")

    @cached_property
    def choice(self) -> Recommendation:
        """What all seeds together choose."""
        return Recommendation(self.ranking.methods)

    @property
    def best(self) -> RankedMethod:
        """The trained method that is best on validation; if every seed drew its own labels, the one that most draws chose."""
        return self.draws.recommended if self.ranking.drawn else self.choice.best

    @cached_property
    def draws(self) -> Draws:
        """What each draw chose within its labels, if every seed drew its own."""
        by_loss = chooses_by_loss(self.task.metric, drawn=self.ranking.drawn)
        return Draws(self.ranking.methods, self.most_frequent, by_loss)

    @property
    def transfer(self) -> TransferGain | None:
        """What transfer bought against the strongest rival without pretraining."""
        return transfer_gain(self.ranking.methods, drawn=self.ranking.drawn, by_loss=self.draws.by_loss)

    @property
    def recommended(self) -> RankedMethod:
        """The method within the noise of the best that needs the fewest seconds per run; with draws, what most of them chose."""
        return self.best if self.ranking.drawn else self.choice.recommended

    @property
    def resampled(self) -> bool:
        """Whether every seed drew its own split of all labelled texts."""
        return self.best.test_scores.overlap is not None

    @property
    def sources(self) -> str:
        """What the intervals cover."""
        seeds = self.ranking.seeds
        return "splits and seeds" if self.resampled and seeds > 1 else sources_of_chance(seeds)

    def interval(self, one: RankedMethod) -> Interval:
        """The test score of a method with its interval over what ``sources`` says, cut to the range of the metric."""
        return one.test_scores.over_both.within(*metric_range(self.task.metric))

    def over_seeds(self, one: RankedMethod) -> Interval:
        """The same over seeds alone."""
        return one.test_scores.over_seeds.within(*metric_range(self.task.metric))

    @cached_property
    def differences(self) -> list[DifferenceToBest]:
        """Every other method against the best on the test split, paired by seed and text; not flattered by the choice.

        If every seed drew its own labels, every method that not all draws chose, against what they chose.
        """
        if self.ranking.drawn:
            others = [one for one in self.ranking.methods if any(one.method != other.method for other in self.draws.chosen)]
            found = [self._against_draws(one) for one in others]
        else:
            others = [one for one in self.ranking.methods if one is not self.best]
            found = [self.choice.against_best(one) for one in others]
        primary = self._primary(others)
        sizes = [1 if i == primary else len(others) - (primary is not None) for i in range(len(others))]
        return [DifferenceToBest(*row) for row in zip(others, found, corrected_p_values(found, primary), sizes, strict=True)]

    @property
    def has_primary(self) -> bool:
        """Whether one of the differences is what transfer bought, whose p-value is not corrected."""
        return self._primary([row.ranked for row in self.differences]) is not None

    def _primary(self, others: Sequence[RankedMethod]) -> int | None:
        """The method of ``others`` whose difference is what transfer bought, the one question; None if none is."""
        if not self.transfer or {one.method for one in self.transfer.transfer} != {one.method for one in self._best_of_seeds}:
            return None
        rivals = {one.method for one in self.transfer.rivals}
        return next((i for i, one in enumerate(others) if {one.method} == rivals), None)

    @property
    def _best_of_seeds(self) -> list[RankedMethod]:
        """What the seeds choose, each or all together."""
        return self.draws.chosen if self.ranking.drawn else [self.best]

    @cached_property
    def score_of_best(self) -> Interval:
        """The test score of the best method, not flattered by having been chosen: each seed scores what the others choose.

        If every seed drew its own labels, that of what each draw chose, for which no test text played a part.
        """
        found = self.draws.scores.over_both if self.ranking.drawn else self.choice.score_of_best
        return found.within(*metric_range(self.task.metric))

    @cached_property
    def score_of_recommended(self) -> Interval:
        """The same of the recommended method."""
        if self.ranking.drawn:
            return self.score_of_best
        return self.choice.score_of_recommended.within(*metric_range(self.task.metric))

    @property
    def of_one_user(self) -> Interval:
        """If every seed drew its own labels: what a single user with as many, who chooses alike, should expect."""
        return self.draws.scores.of_one_user.within(*metric_range(self.task.metric))

    @property
    def gap_of_recommended(self) -> Difference:
        """The test score of the recommended method less that of the best, or of what the draws chose; neither flattered."""
        if self.ranking.drawn:
            return self._against_draws(self.recommended)
        return self.choice.gap_of_recommended

    def _against_draws(self, one: RankedMethod) -> Difference:
        """The test score of a method less that of what the draws chose."""
        return paired_difference(one.test_scores, self.draws.scores, scores_beside(self.ranking.methods, [one, *self.draws.chosen]))

    @property
    def cheaper(self) -> list[DifferenceToBest]:
        """The methods that need fewer seconds than the best, on validation; p is not corrected: all of them must be worse."""
        most = seconds_with_pretraining(self.best)
        others = [one for one in self.ranking.methods if seconds_with_pretraining(one) < most]
        found = [paired_difference(one.validation_scores, self.best.validation_scores) for one in others]
        return [DifferenceToBest(one, gap, gap.p if gap.claimable else 1.0, 1) for one, gap in zip(others, found, strict=True)]

    @property
    def findings(self) -> list[str]:
        """The recommendation first, then the scores behind it, then what a reader should know about them."""
        first = self._choice_of_draws() if self.ranking.drawn else self._recommendation()
        others = [
            *self._labels_and_choice(),
            *self._better_on_test(),
            *self._failed_runs(),
            *self._cautions(),
        ]
        return [*first, *others, *self.ledger.findings]

    def _recommendation(self) -> list[str]:
        best, chosen = self.best, self.recommended
        interval = self.score_of_best
        score = percent_interval(interval.mean, interval.low, interval.high)
        reached = f"On the test texts, {best.name} reaches {score}, over {self.sources}, in {best.seconds:.1f} seconds per run."
        if self.choice.folds:
            reached += " Each seed scores the method that is best on the other seeds, so that being chosen does not flatter it."
        elif not best.deterministic:
            reached += " This one seed chose the method on validation; other seeds would score lower on average."
        if chosen is best:
            findings = [f"Use {best.name}: it is the best on validation, {self._beside_cheaper()}.", reached]
        else:
            gap = self.gap_of_recommended
            fair, recommended = ", without the luck of being chosen" * bool(self.choice.folds), self.score_of_recommended
            findings = [
                f"Use {chosen.name}, the cheapest method within the noise of {best.name}, which is the best on validation.",
                reached,
                f"{sentence_case(chosen.name)} reaches {with_ends(recommended, percent_interval)} in {chosen.seconds:.1f} seconds "
                f"per run, {points_interval(gap.mean, gap.low, gap.high)} against {best.name}{fair}.",
            ]
            if chosen.method.family not in TRANSFER:
                gain = paired_difference(best.validation_scores, chosen.validation_scores)
                bounded = metric_range(self.task.metric) == (0, 1)
                limit = f", where {detection_limit([gain], len(self.differences), bounded=bounded)}" * (gain.error > 0)
                findings.append(f"Transfer brought no significant gain on validation{limit}.")
        findings += self._bought_by_transfer()
        smallest, size = self.choice.smallest, chosen.runs[0].disk
        if chosen.method.fine_tunes and 0 < smallest.runs[0].disk < size:
            sizes = f"{file_size(smallest.runs[0].disk)} per task beside the backbone, against {file_size(size)}"
            findings.append(f"The smallest network within the noise is {smallest.name}: {sizes}.")
        return findings

    def _choice_of_draws(self) -> list[str]:
        """The recommendation if every seed drew its own labels, which also chose."""
        draws, interval, user = self.draws, self.score_of_best, self.of_one_user
        expect = f"; a single user should expect {percent_range(user.low, user.high, digits=0)}%" if user.low < user.high else ""
        return [
            draws.recommendation(self.labels),
            f"On test texts that no draw has seen, what the draws chose reaches {percent(interval.mean)} on average (95% interval "
            f"of that average {percent_range(interval.low, interval.high)}, over {self.sources}){expect}.",
            *self._bought_by_transfer(),
            *draws.held_back,
            *draws.cheapest,
        ]

    def _labels_and_choice(self) -> list[str]:
        """What the labels were for, and what choosing cost."""
        spent = sum(one.search_seconds for one in self.ranking.methods)
        return [*([self.budget] if self.budget else []), *choice_findings(self.selection, self.choosing, spent)]

    def _bought_by_transfer(self) -> list[str]:
        """The chosen method with a pretrained backbone against the strongest without pretraining."""
        gain = self.transfer
        return [gain.sentence(bounded=metric_range(self.task.metric) == (0, 1))] if gain else []

    def _beside_cheaper(self) -> str:
        """What can be said of the cheaper methods if the best one is recommended."""
        if not (cheaper := self.cheaper):
            return "and no method is cheaper"
        if all(row.significant for row in cheaper):
            return "and every cheaper method is significantly worse there (5% level)"
        rate = f": about {percent(ALONE_BY_CHANCE, 0)} of races of equal methods end so" if not self.resampled else ""
        weak = f"which is weak evidence{rate}"
        if self.ranking.seeds < 2:  # nothing was simulated without seeds
            weak = "from which nothing follows with one seed" if self.ranking.seeds else "which is weak evidence"
        return f"and every cheaper method falls short by more than one standard error, {weak}"

    def _better_on_test(self) -> list[str]:
        """Methods that are better on the test texts than the best on validation, or than what the draws chose."""
        findings = []
        if self.ranking.drawn:
            ahead = [row for row in self.differences if row.significant and row.difference.mean > 0]
            return [
                f"On the test texts, {one.name} in every draw is better than what the draws chose: "
                f"{points_interval(gap.mean, gap.low, gap.high)}."
                for one, gap, *_ in ahead
            ]
        for one, gap, *_ in [row for row in self.differences if row.significant and row.difference.mean > 0]:
            lead = one.validation - self.best.validation
            on_validation = f"also better: {points(lead)}" if lead > 0 else "not better"
            findings.append(
                f"On the test texts, {one.name} is better than {self.best.name}: "
                f"{points_interval(gap.mean, gap.low, gap.high)}; on validation it was {on_validation}."
            )
        return findings

    def _failed_runs(self) -> list[str]:
        """Runs that collapsed or diverged."""
        methods, findings = self.ranking.methods, []
        if collapsed := [f"{one.name} ({one.collapsed} of {len(one.runs)})" for one in methods if one.collapsed]:
            findings.append(f"Some runs are no better than the majority label: {', '.join(collapsed)}.")
        rates = [f"{one.name} at {' and '.join(f'{rate:g}' for rate in sorted(one.diverged))}" for one in methods if one.diverged]
        later = [(one, sum(run.diverged for run in one.runs)) for one in methods]
        runs = [f"{one.name} at its chosen learning rate ({count} of {len(one.runs)} runs)" for one, count in later if count]
        if diverged := [*rates, *runs, *(f"{method.name} at every learning rate" for method in self.ranking.diverged)]:
            findings.append(f"The loss became NaN or infinite (lower learning rates may help): {', '.join(diverged)}.")
        return findings

    def _cautions(self) -> list[str]:
        """What was cut short, and what does not compare."""
        methods, seeds, findings = self.ranking.methods, self.ranking.seeds, []
        if len(shares := sorted({(run.jobs, run.threads) for one in methods for run in one.runs})) > 1:
            used = " or ".join(f"{threads} thread{'' if threads == 1 else 's'} with {jobs} at once" for jobs, threads in shares)
            findings.append(f"Seconds are not comparable, because runs had {used}.")
        if stopped := [method.name for method in self.ranking.stopped]:
            findings.append(
                f"Stopped after one seed, which left them significantly behind on the texts that choose: {', '.join(stopped)}."
            )
        if missing := [method.name for method in self.ranking.missing]:
            findings.append(f"The time was too short for {', '.join(missing)}; run the same command again to continue.")
        if seeds == 0:
            findings.append(NO_SEEDS)
        elif seeds < FEW_SEEDS:
            findings.append(f"{seeds} seeds say little about other seeds." if seeds > 1 else ONE_SEED)
        if self.resampled:
            findings.append(NEW_SPLITS)
        elif share_training_texts(self.labels, len(self.task.train), max(1, seeds)):
            findings.append(ONE_SPLIT)
        return findings

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The numbers behind the findings: ``methods`` with scores and costs, and the ``differences`` to the best method."""
        return {"methods": plain_frame(self._method_rows()), "differences": plain_frame(self._difference_rows())}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return {
            "task": self.task.summary(),
            "labels": self.labels,
            "seeds": self.ranking.seeds,
            "resampled": self.resampled,
            "drawn": self.ranking.drawn,
            "budget": self.budget,
            "chosen": [one.method.id for one in self.draws.chosen] if self.ranking.drawn else None,
            "untested": [one.method.id for one in self.draws.untested] if self.ranking.drawn else None,
            "no_signal": self.draws.no_signal,
            "transfer": self.transfer.to_dict() if self.transfer else None,
            "best": self.best.name,
            "score_of_best": self.score_of_best.to_dict(),
            "score_of_one_user": self.of_one_user.to_dict() if self.ranking.drawn else None,
            "recommended": self.recommended.name,
            "score_of_recommended": self.score_of_recommended.to_dict(),
            "best_id": self.best.method.id,
            "findings": self.findings,
            "missing": [method.name for method in self.ranking.missing],
            "stopped": [method.name for method in self.ranking.stopped],
            "diverged": [method.name for method in self.ranking.diverged],
            "methods": self._method_rows(),
            "against_best": self._difference_rows(),
            "test_split": self.ledger.to_dict(),
        }

    def _method_rows(self) -> list[dict[str, Any]]:
        return [*map(self._row_of, self.ranking.methods)]

    def _row_of(self, one: RankedMethod) -> dict[str, Any]:
        return {
            "method": one.name,
            "id": one.method.id,
            "scores": list(one.test_scores.scores),
            "over_seeds": self.over_seeds(one).to_dict(),
            "over_texts": one.test_scores.over_texts.to_dict(),
            "over_both": self.interval(one).to_dict(),
            "validation": one.validation,
            "validations": [run.validation for run in one.runs],
            "seconds": one.seconds,
            "search_seconds": one.search_seconds,
            "trainable": one.runs[0].trainable,
            "new": one.runs[0].new,
            "disk": one.runs[0].disk if one.method.fine_tunes else None,
            "learning_rates": list(one.learning_rates),
            "tried": {f"{rate:g}": score for rate, score in one.tried.items()},
            "learning_rates_diverged": list(one.diverged),
            "collapsed": one.collapsed,
            "refused": one.refused,
        }

    def _difference_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "method": one.name,
                "id": one.method.id,
                "difference": gap.mean,
                "low": gap.low,
                "high": gap.high,
                "p": gap.p,
                "p_corrected": p,
                "at_most": gap.at_most if gap.claimable else None,
                "detectable": gap.detectable(comparisons) if gap.claimable else None,
            }
            for one, gap, p, comparisons in self.differences
        ]


def plain_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A table of the single values in each row; lists and groups are left out."""
    flat = [{name: value for name, value in row.items() if not isinstance(value, list | dict)} for row in rows]
    return pl.DataFrame(flat, infer_schema_length=None)
