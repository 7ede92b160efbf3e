"""The result of training a language model to answer questions: the comparison, and when the model should abstain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.scorings import LedgerSummary
from warmstart.finetuning.runs import PRETRAINED, best_run
from warmstart.notebook import Shown
from warmstart.stats.abstention import area_under_risk_coverage, risk_coverage
from warmstart.stats.comparison import MethodResult, compare_pairs
from warmstart.stats.differences import MethodScores
from warmstart.stats.formatting import percent, percent_range, sources_of_chance
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.resampling import resample_indices
from warmstart.stats.splits import THIS_SPLIT

if TYPE_CHECKING:
    from warmstart.finetuning.answering import AnswerPredictions, AnswerRun
    from warmstart.stats.abstention import Threshold
    from warmstart.stats.comparison import MethodTable
    from warmstart.tasks.answers import AnswerTask

EXAMPLE_HEADER = ("question", "answer", "right answer", "confidence", "correct")


@dataclass(frozen=True)
class AnswersResult(Shown, view="commands.adapt.page:answers_view"):
    """A language model that was trained to answer questions over several seeds, and compared with baselines."""

    task: AnswerTask
    comparison: MethodTable
    runs: Mapping[str, tuple[AnswerRun, ...]]
    """the runs of each trained method, one per seed"""
    held_out: AnswerPredictions
    """answers of the best run to the calibration questions, which chose neither weights nor seed"""
    threshold: Threshold
    """found on these"""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """number of scorings of the test split"""

    @property
    def best(self) -> AnswerRun:
        """The pretrained run with the best validation score, which is saved."""
        return best_run(self.runs)

    @property
    def saved(self) -> str:
        """The run that is saved, with the reason, as a sentence."""
        return f"The saved model is that of seed {self.best.seed}, the best one on validation."

    @property
    def notes(self) -> list[str]:
        """Notes on the intervals, the guarantee of the threshold, and the scorings of the test split."""
        return [THIS_SPLIT, self.threshold.sentence(), *self.ledger.findings]

    @property
    def findings(self) -> list[str]:
        """The pretrained model against each other method; then the ``notes``."""
        return [*self.comparison.findings(), *self.notes]

    def risk_coverage(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Coverage and risk at each threshold on the test questions, for the first seed of each trained method."""
        first = {f"{name}, seed {runs[0].seed}": runs[0].test for name, runs in self.runs.items()}
        return {name: risk_coverage(test.confidence, test.correct) for name, test in first.items()}

    def coverage(self) -> float | None:
        """The fraction of the test questions that the best run answers above the threshold; None: it always abstains."""
        if math.isinf(self.threshold.threshold):
            return None
        return float((self.best.test.confidence >= self.threshold.threshold).mean())

    def abstention_findings(self) -> list[str]:
        """The guarantee, what the threshold does on the test questions, which it never saw, and the mean risk."""
        test = self.best.test
        answered = test.confidence >= self.threshold.threshold
        findings = [self.threshold.sentence()]
        if answered.any():
            wrong, independent = int((~test.correct[answered]).sum()), len(np.unique(self.task.test.units[answered]))
            rate, low, high = wilson_interval(wrong / int(answered.sum()), independent)
            findings.append(
                f"Of the {len(test.correct)} test questions the saved model, whose seed is the best on validation, answers "
                f"{int(answered.sum())} ({percent(answered.mean(), 0)}), {wrong} of them wrongly: "
                f"{percent(rate)} (95% interval {percent_range(low, high)}, over the questions)."
            )
        return [*findings, self._mean_risks()]

    def _mean_risks(self) -> str:
        """The mean error rate over all thresholds of each trained method, and how they differ, as complete sentences."""
        scores = {name: self._mean_risk(runs) for name, runs in self.runs.items()}
        over = sources_of_chance(len(self.runs[PRETRAINED]), "the test questions")
        each = [f"{name} {one.over_both.within(0, 1)}" for name, one in scores.items()]
        # what is better has the lower error rate, so the rates of right answers are compared
        right = [MethodResult(name, tuple(1 - s for s in one.scores), resampled=1 - one.resampled) for name, one in scores.items()]
        compared = compare_pairs([(right[0], other) for other in right[1:]], "the test questions")
        first = f"Mean error rate over all thresholds (AURC), 95% over {over}: {', '.join(each)}."
        return " ".join([first, *(f"AURC: {one.sentence}" for one in compared)])

    def _mean_risk(self, runs: Sequence[AnswerRun]) -> MethodScores:
        """The scores of each seed, and on resamples of the test questions, copies and groups together."""

        def mean_risk(test: AnswerPredictions, chosen: np.ndarray | slice) -> float:
            return area_under_risk_coverage(*risk_coverage(test.confidence[chosen], test.correct[chosen]))

        units = self.task.test.units
        drawn = [*resample_indices(len(units), groups=units)]
        resampled = np.array([[mean_risk(run.test, chosen) for chosen in drawn] for run in runs])
        return MethodScores("", tuple(mean_risk(run.test, slice(None)) for run in runs), resampled)

    def example_table(self, count: int) -> list[tuple[str, str, str, str, str]]:
        """The first test questions with the answers of the first pretrained run, under ``EXAMPLE_HEADER``."""
        test, predictions = self.task.test, self.runs[PRETRAINED][0].test
        rows = zip(test.questions, predictions.answers, test.answers, predictions.confidence, predictions.correct, strict=True)
        return [
            (question, answer, right, percent(confidence), "yes" if correct else "no")
            for question, answer, right, confidence, correct in rows
        ][:count]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the models as plain values, fit for JSON; a threshold that does not exist is None."""
        threshold = asdict(self.threshold)
        threshold["threshold"] = None if math.isinf(self.threshold.threshold) else self.threshold.threshold
        return {
            "task": self.task.name,
            "findings": self.findings,
            "comparison": self.comparison.to_dict(),
            "validation": {name: [run.validation_score for run in runs] for name, runs in self.runs.items()},
            "best_seed": self.best.seed,
            "threshold": threshold,
            "test_split": self.ledger.to_dict(),
        }
