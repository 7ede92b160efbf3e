"""The result of training a language model to answer questions: the comparison, and when the model should abstain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.test_ledger import LedgerSummary
from warmstart.finetuning.runs import PRETRAINED, best_run
from warmstart.stats.abstention import area_under_risk_coverage, risk_coverage
from warmstart.stats.formatting import percent
from warmstart.stats.splits import THIS_SPLIT

if TYPE_CHECKING:
    from warmstart.finetuning.answering import AnswerPredictions, AnswerRun
    from warmstart.stats.abstention import Threshold
    from warmstart.stats.comparison import Comparison
    from warmstart.tasks.answers import AnswerTask

EXAMPLE_HEADER = ("question", "answer", "right answer", "confidence", "correct")


@dataclass(frozen=True)
class AnswersResult:
    """A language model that was trained to answer questions over several seeds, and compared with baselines."""

    task: AnswerTask
    comparison: Comparison
    runs: Mapping[str, tuple[AnswerRun, ...]]
    """the runs of each trained method, one per seed"""
    held_out: AnswerPredictions
    """of the best run to the calibration questions, which chose neither weights nor seed"""
    threshold: Threshold
    """found on these"""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """how often the test split was scored"""

    @property
    def best(self) -> AnswerRun:
        """The pretrained run with the best validation score, which is saved."""
        return best_run(self.runs)

    @property
    def findings(self) -> list[str]:
        """The pretrained model against each other method, what its threshold guarantees, and how often test was scored."""
        return [*self.comparison.findings(), THIS_SPLIT, self.threshold.sentence(), *self.ledger.findings]

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
            wrong = int((~test.correct[answered]).sum())
            findings.append(
                f"Of the {len(test.correct)} test questions the model answers {int(answered.sum())} "
                f"({percent(answered.mean(), 0)}), {wrong} of them wrongly ({percent(wrong / answered.sum())})."
            )
        areas = [f"{name}: {area_under_risk_coverage(*curve):.3f}" for name, curve in self.risk_coverage().items()]
        findings.append(f"Mean error rate over all thresholds (AURC), lower is better: {'; '.join(areas)}.")
        return findings

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
