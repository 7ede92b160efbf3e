"""The result of an adaptation: the comparison with baselines, and the runs behind it. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.budget import LabelBudget, labels_sentence
from warmstart.data.scorings import LedgerSummary
from warmstart.finetuning.runs import PRETRAINED, ControlBudget, best_run
from warmstart.inspection.confidence import CONFIDENCE_LEVEL, ConfidenceResult
from warmstart.notebook import Shown
from warmstart.stats.abstention import smallest_guarantee
from warmstart.stats.formatting import percent, time_span
from warmstart.stats.splits import ONE_SPLIT, share_training_texts
from warmstart.types import SelectionName

if TYPE_CHECKING:
    from warmstart.data.audit import Audit
    from warmstart.data.task import Task
    from warmstart.finetuning.ensemble import Averaged
    from warmstart.finetuning.selection import BudgetedRun
    from warmstart.stats.comparison import MethodTable, PairedComparison
    from warmstart.stats.scores import Scores


@dataclass(frozen=True)
class AdaptResult(Shown, view="commands.adapt.page:adapt_view"):
    """A pretrained model, fine-tuned on a task over several seeds, and compared with baselines."""

    task: Task
    """the task with the texts of the first seed's budget"""
    comparison: MethodTable
    runs: Mapping[str, tuple[BudgetedRun, ...]]
    """the runs of each trained method, one per seed"""
    scores: Mapping[str, tuple[Scores, ...]]
    """the test scores of each method: one per run; of a baseline one, or one for each draw of training texts"""
    audit: Audit
    available: int
    """training texts that there are, of which every seed draws those it uses"""
    budgets: Mapping[int, LabelBudget]
    """the labels of each seed"""
    selection: SelectionName = "holdout"
    """the procedure that chose the settings"""
    set_apart: int = 0
    """further labels, which chose nothing"""
    confidence: ConfidenceResult | None = None
    """confidence of the saved run; None before it is saved, and for tasks without one label per text"""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """earlier scorings of the test split"""
    ensemble: Averaged | None = None
    """all seeds as one model, if that was wanted"""
    control: ControlBudget | None = None
    """the steps of the runs from scratch, if these are not all"""

    @property
    def best(self) -> BudgetedRun:
        """The pretrained run that is saved: with the best score on the texts that choose.

        The first one if no text chooses, or if every seed drew its own labels: to choose among draws would look at all of these.
        """
        return self.runs[PRETRAINED][0] if self.drawn else best_run(self.runs)

    @property
    def averaged(self) -> Averaged | None:
        """The model of all seeds, if that is saved."""
        return self.ensemble if self.ensemble and self.ensemble.kept(self._single_scores) else None

    @property
    def test_predictions(self) -> Any:
        """Predictions of the saved model for the test texts, before calibration."""
        return self.averaged.test_predictions if self.averaged else self.best.final.test_predictions

    @property
    def drawn(self) -> bool:
        """True if every seed drew its own labels."""
        return len({budget.train.tobytes() for budget in self.budgets.values()}) > 1

    @property
    def saved(self) -> str:
        """The run that is saved, with the reason, as a sentence."""
        if self.averaged:
            return f"The saved model is the {self.averaged.name}."
        why = {
            "cross-validation": "the best one out of fold",
            "holdout": "the best one on validation",
            "none": "the first one, because no label chooses",
        }[self.selection]
        if self.drawn and self.selection != "none":
            why = "the first one, because a choice among draws would look at the labels of all of them"
        return f"The saved model is that of seed {self.best.seed}, {why}."

    @property
    def caution_of_choice(self) -> list[str]:
        """A caution about the saved model's own test figures, if it was chosen among several runs.

        No test text chose, so they are right for this model; but a seed that is lucky on validation is lucky on the test texts too.
        """
        if self.drawn or self.averaged or self.selection == "none" or len(self.runs[PRETRAINED]) < 2:
            return []
        best = "These figures are those of the saved model, whose seed did best on the texts that choose"
        return [f"{best}; another seed would do worse on average."]

    @property
    def labels(self) -> int:
        """Labelled texts that a run may look at."""
        return len(self.budgets[next(iter(self.budgets))]) + self.set_apart

    @property
    def validation_scores(self) -> dict[str, tuple[float, ...]]:
        """The score of each run on the texts that choose, by method; empty if none choose."""
        if self.selection == "none":
            return {}
        return {name: tuple(run.validation_score for run in runs) for name, runs in self.runs.items()}

    @property
    def label_findings(self) -> list[str]:
        """The use of the labels of a run, and the cost of choosing."""
        budget, runs = self.budgets[next(iter(self.budgets))], self.runs[PRETRAINED]
        baselines = "the settings of baselines" if {row.name for row in self.comparison.rows} - {*self.runs} else ""
        found = [labels_sentence(budget, self.selection, baselines)]
        if self.selection == "cross-validation":
            spent, whole = (float(np.mean([getattr(run, name) for run in runs])) for name in ("selection_seconds", "seconds"))
            found.append(f"Cross-validation took {time_span(spent)} of the {time_span(whole)} of a {PRETRAINED} run.")
        if self.set_apart:
            least = percent(smallest_guarantee(self.set_apart, CONFIDENCE_LEVEL))
            found.append(f"{self.set_apart:,} further labels choose nothing; they can guarantee no error rate below {least}.")
        return found

    @property
    def _single_scores(self) -> tuple[float, ...]:
        """Scores of the pretrained seeds on the texts that choose."""
        return self.validation_scores.get(PRETRAINED, ())

    @property
    def ensemble_findings(self) -> list[str]:
        """A sentence about all seeds as one model, by the texts that choose."""
        return [self.ensemble.sentence(self._single_scores, self.task.metric)] if self.ensemble else []

    @property
    def best_scores(self) -> Scores:
        """The test scores of the saved model."""
        if self.averaged:
            return self.scores[self.averaged.name][0]
        pairs = zip(self.runs[PRETRAINED], self.scores[PRETRAINED], strict=True)
        return next(scores for run, scores in pairs if run is self.best)

    @cached_property
    def transfer(self) -> PairedComparison | None:
        """The pretrained model against the strongest method without pretraining; the p-value is that of the whole comparison."""
        mean = self.ensemble.name if self.ensemble else ""
        return next((pair for pair in self.comparison.compared() if pair.names[1] != mean), None)

    @property
    def one_split(self) -> bool:
        """True if the intervals hold for one split only, because seeds share too many training texts."""
        seeds = len(self.runs[PRETRAINED])
        return (seeds > 1 and not self.drawn) or share_training_texts(len(self.task.train), self.available, seeds)

    @property
    def one_split_caution(self) -> list[str]:
        """A caution about the intervals, if ``one_split``."""
        return [ONE_SPLIT] if self.one_split else []

    @property
    def cautions(self) -> list[str]:
        """Cautions about the differences: steps that the control lacked, and chance that the intervals leave out."""
        return [*([self.control.sentence] if self.control else []), *self.one_split_caution]

    @property
    def notes(self) -> list[str]:
        """The ``cautions``, what the labels were for, the ensemble, and how often the test split was scored."""
        return [*self.cautions, *self.label_findings, *self.ensemble_findings, *self.ledger.findings]

    @property
    def findings(self) -> list[str]:
        """The pretrained model against each other method, or its score if there is none; then the ``notes``."""
        return [*self.comparison.findings(), *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Everything but models and predictions as plain values, fit for JSON."""
        return {
            "task": self.task.summary(),
            "findings": self.findings,
            "comparison": self.comparison.to_dict(),
            "labels": {"selection": self.selection, "looked_at": self.labels, "set_apart": self.set_apart},
            "selection_seconds": {name: [run.selection_seconds for run in runs] for name, runs in self.runs.items()},
            "validation": {name: [*scores] for name, scores in self.validation_scores.items()},
            "best_seed": self.best.seed,
            "test_split": self.ledger.to_dict(),
            "audit": [{"severity": finding.severity, "sentence": finding.sentence} for finding in self.audit.findings()],
            "confidence": self.confidence.to_dict() if self.confidence else None,
        }
