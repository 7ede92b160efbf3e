"""The result of a race: all methods ranked, and the one to use.

The recommendation is what the labels choose (``experiment/choose.py``); test scores are reported and choose nothing. If every seed
draws its own labelled texts (``Ranking.drawn``), the race's figure is the mean test score of what the draws chose, and the
recommended method the one that most draws chose; otherwise it is cross-fitted: each seed scores what the other seeds choose, so
that the luck that made the choice is not in the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from warmstart.data.scorings import LedgerSummary
from warmstart.errors import ModelError
from warmstart.experiment.choose import (
    MAJORITY_LABEL,
    RECOMMENDED,
    Choice,
    TransferGain,
    gains_nothing,
    list_choices,
    seconds_with_pretraining,
    transfer_gain,
)
from warmstart.notebook import Shown
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import Difference, corrected_p_values
from warmstart.stats.formatting import (
    file_size,
    percent,
    percent_interval,
    percent_range,
    points_interval,
    sources_of_chance,
    time_span,
)
from warmstart.stats.intervals import FEW_SEEDS, NO_SEEDS, ONE_SEED, Estimate, Interval
from warmstart.stats.scores import metric_range
from warmstart.stats.splits import NEW_SPLITS, ONE_SPLIT, share_training_texts

if TYPE_CHECKING:
    from warmstart.data.audit import Audit
    from warmstart.data.task import Task
    from warmstart.experiment.curve import CurveResult
    from warmstart.experiment.ranking import RankedMethod, Ranking
    from warmstart.experiment.refit import FinishedTrials, Refit
    from warmstart.model.bundle import Bundle
    from warmstart.model.stack import Stack
    from warmstart.types import SelectionName


FEW_TEXTS = 30
"""number of choosing texts below which the choice is uncertain"""


class DifferenceToChoice(NamedTuple):
    """The test scores of a method less those of the chosen one."""

    ranked: RankedMethod
    difference: Difference
    p: float
    """corrected for the number of ``comparisons`` (Holm 1979)"""
    comparisons: int
    """number of comparisons of its family; 1 for the gain from transfer, which is tested alone"""

    @property
    def significant(self) -> bool:
        """True if the difference is unlikely to be chance; never on one seed."""
        return self.p < SIGNIFICANT


@dataclass(frozen=True)
class Comparison(Shown, view="commands.race.page:race_view"):
    """A comparison of all methods on one task, and the recommended one."""

    task: Task
    labels: int
    """labelled texts of each run"""
    choosing: int
    """labelled texts that choose, in folds or because they are set apart; without a number of labels, the validation texts"""
    ranking: Ranking
    audit: Audit
    constant_score: float
    """the test score of a constant prediction"""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """earlier scorings of the test split"""
    budget: str = ""
    """use of the labels of each seed, as a complete sentence"""
    selection: SelectionName = "holdout"
    """the procedure that chose the settings"""
    curve: CurveResult | None = None
    """the methods at several numbers of labels, of which ``labels`` is the largest"""
    trials: FinishedTrials | None = field(default=None, repr=False, compare=False)
    """finished trials for refitting, or None"""

    @property
    def table(self) -> pl.DataFrame:
        """One row per method, best mean score on the test texts first."""
        rows = map(self._row_of, self.ranking.methods)
        flat = [{name: value for name, value in row.items() if not isinstance(value, list | dict)} for row in rows]
        return pl.DataFrame(flat, infer_schema_length=None)

    def fit(self, method: str = RECOMMENDED) -> Bundle | Stack:
        """A method as a model, fitted once more with the first seed: the recommended one, or the one of this name in the table.

        Raises ``ConfigError`` if no method has the name, ``ModelError`` if it cannot be fitted again.
        """
        return self.refit(method).model

    def refit(self, method: str = RECOMMENDED) -> Refit:
        """The model of ``fit``, with the trial that it repeats, and the largest difference of its predictions from those scored."""
        if self.trials is None:
            raise ModelError("a method is fitted again from its trials, but this comparison has none; compare again")
        if method != RECOMMENDED:
            return self.trials.fit(method)
        return self.trials.fit(self.recommended.method, self.choice.labels_of_choice)

    @cached_property
    def choice(self) -> Choice:
        """The choice that the labels make among the methods."""
        return Choice(self.ranking.methods, self.choosing, self.ranking.drawn)

    @property
    def recommended(self) -> RankedMethod:
        """The best method on the texts that choose; if every seed drew its own labels, the one that most draws chose."""
        return self.choice.recommended

    @cached_property
    def transfer(self) -> TransferGain | None:
        """The gain from transfer against the strongest rival without pretraining."""
        return transfer_gain(self.ranking.methods, drawn=self.ranking.drawn)

    @property
    def resampled(self) -> bool:
        """True if every seed drew its own split of all labelled texts."""
        return self.recommended.test_scores.overlap is not None

    @property
    def sources(self) -> str:
        """The sources of chance that the intervals cover."""
        seeds = self.ranking.seeds
        return "splits and seeds" if self.resampled and seeds > 1 else sources_of_chance(seeds)

    def interval(self, one: RankedMethod) -> Interval:
        """The test score of a method with its interval over what ``sources`` says, cut to the range of the metric."""
        return one.test_scores.over_both.within(*metric_range(self.task.metric))

    def over_seeds(self, one: RankedMethod) -> Interval:
        """The test score of a method with its interval over seeds alone."""
        return one.test_scores.over_seeds.within(*metric_range(self.task.metric))

    @cached_property
    def differences(self) -> list[DifferenceToChoice]:
        """Every other method against what was chosen, on the test split, paired by seed and text; not flattered by the choice.

        If every seed drew its own labels, every method that not all draws chose, against what they chose.
        """
        others = [ranked for ranked in self.ranking.methods if any(ranked.method != other.method for other in self.choice.chosen)]
        gaps = [self.choice.difference(ranked) for ranked in others]
        primary = self._primary(others)
        sizes = [1 if i == primary else len(others) - (primary is not None) for i in range(len(others))]
        return [DifferenceToChoice(*row) for row in zip(others, gaps, corrected_p_values(gaps, primary), sizes, strict=True)]

    @property
    def has_primary(self) -> bool:
        """True if one of the differences is the gain from transfer, whose p-value is not corrected."""
        return self._primary([row.ranked for row in self.differences]) is not None

    def _primary(self, others: Sequence[RankedMethod]) -> int | None:
        """The method of ``others`` whose difference is what transfer bought, the one question; None if none is."""
        if not self.transfer or {row.method for row in self.transfer.transfer} != {row.method for row in self.choice.chosen}:
            return None
        rivals = {ranked.method for ranked in self.transfer.rivals}
        return next((i for i, ranked in enumerate(others) if {ranked.method} == rivals), None)

    @cached_property
    def score_of_recommended(self) -> Interval:
        """The test score of what was chosen, not flattered by having been chosen: each seed scores what the others choose.

        If every seed drew its own labels, that of what each draw chose, for which no test text played a part.
        """
        return self.choice.score.within(*metric_range(self.task.metric))

    @property
    def of_one_user(self) -> Interval:
        """The score that a single user with as many labels, who chooses alike, should expect, if every seed drew its own."""
        return self.choice.scores.of_one_user.within(*metric_range(self.task.metric))

    @property
    def bounded(self) -> bool:
        """True if scores lie between 0 and 1."""
        return metric_range(self.task.metric) == (0, 1)

    @property
    def expected(self) -> list[Estimate]:
        """The score that each draw, or all seeds together, can expect of its choice by its labels alone; empty unless ``bounded``.

        Nothing follows from one seed that shares its split with others: the luck of its fit is not known.
        """
        known = self.choice.scored or self.recommended.deterministic
        return self.choice.expected if self.bounded and known else []

    @property
    def findings(self) -> list[str]:
        """The recommendation first, then the scores behind it, then what a reader should know about them."""
        first = [self._recommendation(), self._reached(), *self._bought_by_transfer(), *self._alike(), *self._expected()]
        others = [
            *self._labels_and_choice(),
            *self._better_on_test(),
            *self._failed_runs(),
            *self._cautions(),
        ]
        return [*first, *others, *self.ledger.findings]

    def _recommendation(self) -> str:
        """The method to use, and who chose it; or why none is."""
        choice, draws = self.choice, len(self.choice.chosen)
        name, count = self.recommended.name, sum(ranked.name == self.recommended.name for ranked in choice.chosen)
        if name == MAJORITY_LABEL:
            nothing = gains_nothing(choice.methods)
            than = "predicts the labels better than their frequencies do" if nothing else "scores better than the majority label"
            return f"Label more texts first: {f'in {count} of {draws} draws, ' * choice.drawn}no method {than}."
        if not choice.drawn:
            return f"Use {name}, the best of {len(choice.methods)} methods on validation."
        if choice.doubtful:
            return self._doubt()
        users = f"{draws} simulated users with {self.labels:,} labels each" if draws > 1 else "A simulated user with these labels"
        return f"Use {name}. {users} chose {list_choices(choice.chosen)}."

    def _doubt(self) -> str:
        """Advice if most draws do not show that anything can be learned: complete sentences."""
        choice = self.choice
        frequent = [percent(ranked.test_scores.over_seeds.mean) for ranked in choice.methods if ranked.name == MAJORITY_LABEL]
        reaches = f"; the most frequent label reaches {frequent[0]} on the test texts" if frequent else ""
        return (
            f"{self.labels:,} labels do not show that anything can be learned: in {choice.unproven} of {len(choice.chosen)} draws "
            f"they are predicted no better than permuted labels (5% level). If you must decide now, take "
            f"{self.recommended.name}{reaches}. More labels will tell."
        )

    def _reached(self) -> str:
        """The test score of what was chosen."""
        best, score = self.recommended, self.score_of_recommended
        if self.ranking.drawn:
            user = self.of_one_user
            expect = (
                f"; a single user should expect {percent_range(user.low, user.high, digits=0)}%" if user.low < user.high else ""
            )
            return (
                f"On test texts that no draw has seen, what the draws chose reaches {percent(score.mean)} on average (95% interval "
                f"of that average {percent_range(score.low, score.high)}, over {self.sources}){expect}."
            )
        reached = percent_interval(score.mean, score.low, score.high)
        line = f"On the test texts, {best.name} reaches {reached}, over {self.sources}, in {best.seconds:.1f} seconds per run."
        if self.choice.scored:
            return f"{line} Each seed scores the method that is best on the other seeds, so that being chosen does not flatter it."
        chose = "This one seed chose the method on validation; other seeds would score lower on average."
        return line if best.deterministic else f"{line} {chose}"

    def _expected(self) -> list[str]:
        """The score that the labels alone lead to expect, as sentences."""
        if not self.expected or self.recommended.name == MAJORITY_LABEL:
            return []
        several = f"{percent(float(np.mean([estimate.value for estimate in self.expected])))} on average"
        figure = several if len(self.expected) > 1 else percent_interval(*self.expected[0])
        luck = f"the luck of being the best of {len(self.choice.methods)} methods is taken off"
        return [f"By the labels alone one would expect {figure}; {luck}."]

    def _alike(self) -> list[str]:
        """The methods that the labels cannot tell from the chosen one, and the cheapest and the smallest of them."""
        choice, best = self.choice, self.recommended
        if best.name == MAJORITY_LABEL:
            return []
        others = sum(ranked.name != MAJORITY_LABEL for ranked in choice.methods) - 1
        several, level = len(choice.chosen) > 1, "(5% level, corrected for their number)"
        who, where = "what a draw chose" if several else best.name, " in most draws" * several
        if not choice.alike:
            return [f"Every other method is significantly worse on the texts that choose{where} {level}."] if others else []
        cheapest, seconds = "none of them is cheaper", f"{seconds_with_pretraining(best):.1f} seconds per run"
        if cheap := choice.cheapest:
            cheapest = f"the cheapest is {cheap.name}, with {seconds_with_pretraining(cheap):.1f} against {seconds}"
        findings = [f"The labels cannot tell {who} from {len(choice.alike)} of {others} other methods{where} {level}; {cheapest}."]
        if smallest := choice.smallest:
            size = f"{file_size(smallest.runs[0].disk)} per task beside the backbone, against {file_size(best.runs[0].disk)}"
            findings.append(f"The smallest network of these is {smallest.name}: {size}.")
        return findings

    def _labels_and_choice(self) -> list[str]:
        """The use of the labels, whether few of them choose, and the cost of choosing beside the runs."""
        spent = sum(ranked.search_seconds for ranked in self.ranking.methods)
        verb = "label chooses" if self.choosing == 1 else "labels choose"
        few = f"Only {self.choosing} {verb}, which is few." if self.choosing < FEW_TEXTS else ""
        out_of_fold = "Predicting the texts out of fold with each network, to choose the method,"
        did = out_of_fold if self.selection == "none" else "Choosing settings"
        cost = f"{did} took {time_span(spent)} in all, beside the runs themselves." if spent else ""
        return [*filter(None, [self.budget, few, cost])]

    def _bought_by_transfer(self) -> list[str]:
        """The chosen method with a pretrained backbone against the strongest without pretraining."""
        return [self.transfer.sentence(bounded=self.bounded)] if self.transfer else []

    def _better_on_test(self) -> list[str]:
        """Methods that are better on the test texts than what was chosen."""
        drawn = self.ranking.drawn
        return [
            f"On the test texts, {ranked.name} {'in every draw ' * drawn}is better than "
            f"{'what the draws chose' if drawn else self.recommended.name}: {points_interval(gap.mean, gap.low, gap.high)}."
            for ranked, gap, *_ in [row for row in self.differences if row.significant and row.difference.mean > 0]
        ]

    def _failed_runs(self) -> list[str]:
        """Runs that collapsed or diverged."""
        methods, findings = self.ranking.methods, []
        if collapsed := [f"{row.name} ({row.collapsed} of {len(row.runs)})" for row in methods if row.collapsed]:
            findings.append(f"Some runs are no better than the majority label: {', '.join(collapsed)}.")
        rates = [f"{row.name} at {' and '.join(f'{rate:g}' for rate in sorted(row.diverged))}" for row in methods if row.diverged]
        later = [(row, sum(run.diverged for run in row.runs)) for row in methods]
        runs = [f"{row.name} at its chosen learning rate ({count} of {len(row.runs)} runs)" for row, count in later if count]
        if diverged := [*rates, *runs, *(f"{method.name} at every learning rate" for method in self.ranking.diverged)]:
            findings.append(f"The loss became NaN or infinite (lower learning rates may help): {', '.join(diverged)}.")
        return findings

    def _cautions(self) -> list[str]:
        """Warnings about parts that were cut short, and figures that do not compare."""
        methods, seeds, findings = self.ranking.methods, self.ranking.seeds, []
        if len(shares := sorted({(run.jobs, run.threads) for ranked in methods for run in ranked.runs})) > 1:
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

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return {
            "task": self.task.summary(),
            "labels": self.labels,
            "seeds": self.ranking.seeds,
            "resampled": self.resampled,
            "drawn": self.ranking.drawn,
            "budget": self.budget,
            "chosen": [ranked.method.id for ranked in self.choice.chosen],
            "no_signal": self.choice.no_signal,
            "transfer": self.transfer.to_dict() if self.transfer else None,
            "recommended": self.recommended.name,
            "recommended_id": self.recommended.method.id,
            "alike": [ranked.method.id for ranked in self.choice.alike],
            "expected": [estimate._asdict() for estimate in self.expected],
            "score_of_recommended": self.score_of_recommended.to_dict(),
            "score_of_one_user": self.of_one_user.to_dict() if self.ranking.drawn else None,
            "findings": self.findings,
            "missing": [method.name for method in self.ranking.missing],
            "stopped": [method.name for method in self.ranking.stopped],
            "diverged": [method.name for method in self.ranking.diverged],
            "methods": [*map(self._row_of, self.ranking.methods)],
            "against_choice": self._difference_rows(),
            "test_split": self.ledger.to_dict(),
        }

    def _row_of(self, ranked: RankedMethod) -> dict[str, Any]:
        return {
            "method": ranked.name,
            "id": ranked.method.id,
            "scores": list(ranked.test_scores.scores),
            "over_seeds": self.over_seeds(ranked).to_dict(),
            "over_texts": ranked.test_scores.over_texts.to_dict(),
            "over_both": self.interval(ranked).to_dict(),
            "validation": ranked.validation,
            "validations": [run.validation for run in ranked.runs],
            "seconds": ranked.seconds,
            "search_seconds": ranked.search_seconds,
            "trainable": ranked.runs[0].trainable,
            "new": ranked.runs[0].new,
            "disk": ranked.runs[0].disk if ranked.method.fine_tunes else None,
            "learning_rates": list(ranked.learning_rates),
            "tried": {f"{rate:g}": score for rate, score in ranked.tried.items()},
            "learning_rates_diverged": list(ranked.diverged),
            "collapsed": ranked.collapsed,
        }

    def _difference_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "method": ranked.name,
                "id": ranked.method.id,
                "difference": gap.mean,
                "low": gap.low,
                "high": gap.high,
                "p": gap.p,
                "p_corrected": p,
                "at_most": gap.at_most if gap.claimable else None,
                "detectable": gap.detectable(comparisons) if gap.claimable else None,
            }
            for ranked, gap, p, comparisons in self.differences
        ]
