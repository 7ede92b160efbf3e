"""The result of an adaptation: the comparison with baselines, the runs behind it, and how well the model is calibrated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.budget import LabelBudget, SelectionName, labels_sentence
from warmstart.data.test_ledger import LedgerSummary
from warmstart.finetuning.runs import DISTILLED, PRETRAINED, TEACHER, best_run
from warmstart.notebook import Shown
from warmstart.stats.abstention import area_under_risk_coverage, find_threshold, risk_coverage, smallest_guarantee
from warmstart.stats.calibration import (
    apply_temperature,
    calibration_error_change,
    expected_calibration_error,
    log_losses,
    perfect_calibration_error,
    reliability_bins,
)
from warmstart.stats.changes import Change
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import figure_interval, percent, percent_value, time_span
from warmstart.stats.power import detectable_from_interval
from warmstart.stats.resampling import cluster_bootstrap
from warmstart.stats.splits import ONE_SPLIT, share_training_texts

if TYPE_CHECKING:
    from warmstart.data.audit import Audit
    from warmstart.data.task import Task
    from warmstart.finetuning.ensemble import Averaged
    from warmstart.finetuning.selection import BudgetedRun
    from warmstart.finetuning.teacher import TeacherChoice
    from warmstart.model.bundle import Calibration
    from warmstart.model.history import TeacherRecord
    from warmstart.stats.calibration import ReliabilityBin
    from warmstart.stats.comparison import MethodTable, PairedComparison
    from warmstart.stats.scores import Scores

TARGET_ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""error rates for which the report finds thresholds"""
CONFIDENCE_LEVEL = 0.95
ENSEMBLE_HEADER = ("model", "on the texts that choose", "on the test texts", "parameters", "milliseconds per text")
TEACHING_HEADER = ("model", "on the test texts", "parameters", "milliseconds per text")
THRESHOLD_HEADER = ("guaranteed error rate", "confidence threshold", "test texts labelled", "errors among them")


@dataclass(frozen=True)
class AdaptResult(Shown, view="commands.adapt.page:adapt_view"):
    """A pretrained model, fine-tuned on a task over several seeds, and compared with baselines."""

    task: Task
    """with the texts of the first seed's budget"""
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
    """what chose the settings"""
    set_apart: int = 0
    """further labels, which chose nothing"""
    confidence: ConfidenceResult | None = None
    """of the saved run; None before it is saved, and for tasks without one label per text"""
    ledger: LedgerSummary = field(default_factory=LedgerSummary)
    """how often the test split was scored"""
    method: str = PRETRAINED
    """the trained method that is saved"""
    ensemble: EnsembleResult | None = None
    """all seeds as one model, if that was wanted"""
    teaching: TeachingResult | None = None
    """what a teacher changed, if there was one"""

    @property
    def best(self) -> BudgetedRun:
        """The pretrained run that is saved: with the best score on the texts that choose.

        The first one if no text chooses, or if every seed drew its own labels: to choose among draws would look at all of these.
        """
        return self.runs[self.method][0] if self.drawn else best_run(self.runs, self.method)

    @property
    def averaged(self) -> Averaged | None:
        """The model of all seeds, if that is saved."""
        return self.ensemble.kept(self._single_scores) if self.ensemble else None

    @property
    def test_predictions(self) -> Any:
        """What the saved model predicts for the test texts, before calibration."""
        return self.averaged.test_predictions if self.averaged else self.best.final.test_predictions

    @property
    def drawn(self) -> bool:
        """Whether every seed drew its own labels."""
        return len({budget.train.tobytes() for budget in self.budgets.values()}) > 1

    @property
    def saved(self) -> str:
        """Which run is saved, and why."""
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
        """What the saved model's own test figures say of the method, if it was chosen among several runs.

        No test text chose, so they are right for this model; but a seed that is lucky on validation is lucky on the test texts too.
        """
        if self.drawn or self.averaged or self.selection == "none" or len(self.runs[self.method]) < 2:
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
        """What the labels of a run are for, and what choosing cost."""
        budget, runs = self.budgets[next(iter(self.budgets))], self.runs[self.method]
        baselines = "the settings of baselines" if {row.name for row in self.comparison.rows} - {*self.runs, TEACHER} else ""
        found = [labels_sentence(budget, self.selection, baselines)]
        if self.selection == "cross-validation":
            spent, whole = (float(np.mean([getattr(run, name) for run in runs])) for name in ("selection_seconds", "seconds"))
            found.append(f"Cross-validation took {time_span(spent)} of the {time_span(whole)} of a {self.method} run.")
        if self.set_apart:
            least = percent(smallest_guarantee(self.set_apart, CONFIDENCE_LEVEL))
            found.append(f"{self.set_apart:,} further labels choose nothing; they can guarantee no error rate below {least}.")
        return found

    @property
    def _single_scores(self) -> tuple[float, ...]:
        """Of the seeds of the saved method, on the texts that choose."""
        return self.validation_scores.get(self.method, ())

    @property
    def ensemble_findings(self) -> list[str]:
        """What the texts that choose say of all seeds as one model."""
        return [self.ensemble.sentence(self._single_scores, self.task.metric)] if self.ensemble else []

    @property
    def model_findings(self) -> list[str]:
        """What the texts that choose say of the teacher, and of all seeds as one model."""
        return [*(self.teaching.findings if self.teaching else ()), *self.ensemble_findings]

    @property
    def best_scores(self) -> Scores:
        """The test scores of the saved model."""
        if self.averaged:
            return self.scores[self.averaged.name][0]
        pairs = zip(self.runs[self.method], self.scores[self.method], strict=True)
        return next(scores for run, scores in pairs if run is self.best)

    @cached_property
    def transfer(self) -> PairedComparison | None:
        """The pretrained model against the strongest method without pretraining; the p-value is that of the whole comparison."""
        others = {DISTILLED, TEACHER, *(one.name for one in (self.ensemble.models if self.ensemble else ()))}
        return next((pair for pair in self.comparison.compared() if pair.names[1] not in others), None)

    @property
    def comparison_findings(self) -> list[str]:
        """The pretrained model against each other method, or its score if there is none; then what the intervals leave out."""
        first = self.comparison.rows[0]
        found = self.comparison.findings() or [f"The {first.name} model reaches {first.interval} {self.comparison.metric}."]
        return [*found, *self.one_split_caution]

    @property
    def one_split(self) -> bool:
        """Whether the intervals hold for one split only, because seeds share too many training texts."""
        seeds = len(self.runs[PRETRAINED])
        return (seeds > 1 and not self.drawn) or share_training_texts(len(self.task.train), self.available, seeds)

    @property
    def one_split_caution(self) -> list[str]:
        """What a reader of the intervals should know, if ``one_split``."""
        return [ONE_SPLIT] if self.one_split else []

    @property
    def findings(self) -> list[str]:
        """The comparison, what the labels were for, teacher and ensemble, and how often the test split was scored."""
        return [*self.comparison_findings, *self.label_findings, *self.model_findings, *self.ledger.findings]

    @property
    def ensemble_rows(self) -> list[tuple[str, ...]]:
        """Single seeds and all seeds as one model, side by side, under ``ENSEMBLE_HEADER``; empty if that was not wanted."""
        if self.ensemble is None:
            return []
        single = ("single seeds, mean", self._single_scores, self.ensemble.parameters, self.ensemble.seconds)
        rows = [single] + [(one.name, (one.score,), one.parameters, one.seconds) for one in self.ensemble.models]
        tested = {row.name: percent(row.interval.mean) for row in self.comparison.rows}
        return [
            (
                name,
                percent(float(np.mean(chosen))) if len(chosen) and not np.isnan(chosen).any() else "-",
                tested[self.method if name == single[0] else name],
                f"{parameters:,}",
                f"{1000 * seconds:.2f}",
            )
            for name, chosen, parameters, seconds in rows
        ]

    @property
    def teaching_rows(self) -> list[tuple[str, ...]]:
        """Teacher and student under ``TEACHING_HEADER``; empty without a teacher."""
        tested = {row.name: percent(row.interval.mean) for row in self.comparison.rows}
        costs = self.teaching.costs if self.teaching else {}
        rows = {"teacher": TEACHER, "student without it": PRETRAINED, "student with it": DISTILLED} if costs else {}
        return [
            (name, tested[row], f"{parameters:,}", f"{1000 * seconds:.2f}")
            for name, row in rows.items()
            for parameters, seconds in [costs.get(row, costs[PRETRAINED])]
        ]

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
            "ensemble": self.ensemble_rows,
            "teacher": self.teaching_rows,
            "test_split": self.ledger.to_dict(),
            "audit": [{"severity": finding.severity, "sentence": finding.sentence} for finding in self.audit.findings()],
            "confidence": self.confidence.to_dict() if self.confidence else None,
        }


@dataclass(frozen=True)
class EnsembleResult:
    """All seeds as one model, and what a single seed costs beside it."""

    wanted: str
    models: tuple[Averaged, ...]
    parameters: int
    """of a single seed"""
    seconds: float
    """of a single seed for a text"""

    @property
    def asked(self) -> Averaged:
        """The one to save, if it is no worse."""
        return next(one for one in self.models if one.kind == self.wanted)

    def kept(self, singles: Sequence[float]) -> Averaged | None:
        """The one to save; None if it scores below the mean of ``singles``, the scores of single seeds on the texts that choose."""
        return None if len(singles) and self.asked.score < float(np.mean(singles)) else self.asked

    def sentence(self, singles: Sequence[float], metric: str) -> str:
        """What was found on the texts that choose, and whether it is saved."""
        name = self.asked.name
        if not len(singles):
            return f"The {name} is saved: no label chooses."
        single, kept = percent(float(np.mean(singles))), "saved" if self.kept(singles) else "not saved"
        return (
            f"On the texts that choose, the {name} scores {percent(self.asked.score)} {metric}, and single seeds {single} on "
            f"average; it is {kept}."
        )


@dataclass(frozen=True)
class TeachingResult:
    """What a teacher changed."""

    choice: TeacherChoice
    record: TeacherRecord
    """of the saved model's history, if it is kept"""
    own_labels: int | None
    """labelled texts that it learned from, if its history says so"""
    costs: Mapping[str, tuple[float, float]]
    """of the teacher, and of the student: parameters, and seconds for a text"""

    @property
    def findings(self) -> list[str]:
        """What the texts that choose say, and what they cannot know."""
        choice = self.choice
        found = (
            f"With the teacher the student labels {percent(choice.taught)} of the texts that choose correctly, without it "
            f"{percent(choice.without)} (standard error of the difference: {percent_value(choice.error)} points); the one "
            f"{'with' if choice.kept else 'without'} the teacher is saved."
        )
        why = {
            "others": "The teacher learned from none of these texts.",
            "these": "The teacher learned from these texts too, which flatters it, so the gain had to exceed one standard error.",
            "unknown": "Whether the teacher learned from these texts is unknown, so the gain had to exceed one standard error.",
        }
        unknown = choice.learned == "unknown" and self.own_labels
        more = f"The {self.own_labels:,} labelled texts that the teacher learned from are not counted above." if unknown else ""
        return [found, why[choice.learned], *([more] if more else [])]


@dataclass(frozen=True)
class ConfidenceResult:
    """The confidence of a saved model on the test split, before and after calibration.

    Letters: N test texts, C classes.
    """

    calibration: Calibration
    probabilities: np.ndarray
    """(N, C) before calibration"""
    labels: np.ndarray
    """(N,)"""
    units: np.ndarray
    """(N,) which texts are resampled together: each alone, or those of one group"""
    selection: SelectionName = "holdout"
    """what chose the settings; the temperature is fitted on the same predictions"""

    @property
    def correct(self) -> np.ndarray:
        """(N,) whether the most probable class is the label; calibration changes none."""
        return self.probabilities.argmax(axis=1) == self.labels

    def confidences(self) -> dict[str, np.ndarray]:
        """(N,) the highest probability of each text, rounded as bundles store it, before and after calibration."""
        after = apply_temperature(self.probabilities, self.calibration.temperature)
        return {
            "before calibration": self.probabilities.max(axis=1).round(6),
            "after calibration": after.max(axis=1).round(6),
        }

    def bins(self) -> dict[str, list[ReliabilityBin]]:
        """The texts in bins of equal size by confidence, before and after calibration."""
        return {name: reliability_bins(confidence, self.correct) for name, confidence in self.confidences().items()}

    def risk_coverage(self) -> tuple[np.ndarray, np.ndarray]:
        """Coverage and risk at each threshold, after calibration."""
        return risk_coverage(self.confidences()["after calibration"], self.correct)

    @cached_property
    def findings(self) -> list[str]:
        """Whether the model is miscalibrated, what calibration changes, and what thresholds can guarantee."""
        findings = [
            " ".join([self._miscalibration(), *self._changes()]),
            f"Averaged over all thresholds, {percent(area_under_risk_coverage(*self.risk_coverage()))} of the predicted labels are "
            "wrong (AURC).",
        ]
        if self.calibration.held_out:
            count, level = len(self.calibration.held_out), percent(CONFIDENCE_LEVEL, trim=True)
            findings.append(
                f"Thresholds found on {count} held-out texts that chose nothing guarantee an error rate with {level} confidence "
                f"for new texts from the same distribution, but none below {percent(smallest_guarantee(count, CONFIDENCE_LEVEL))}, "
                "which takes more texts."
            )
        return findings

    def to_dict(self) -> dict[str, Any]:
        """What calibration changes and what thresholds do, as plain values, fit for JSON."""
        thresholds = self.threshold_table() if self.calibration.held_out else []
        return {"findings": self.findings, "header": THRESHOLD_HEADER, "thresholds": thresholds}

    def _miscalibration(self) -> str:
        """What the temperature says, if its interval excludes 1."""
        temperature, interval = self.calibration.temperature, self.calibration.interval
        if interval is None:
            why = {
                "cross-validation": "all texts are classified correctly out of fold",
                "holdout": "all validation texts are classified correctly",
                "none": "no label chooses, which leaves no text to fit it on",
            }
            return f"No temperature was fitted, because {why[self.selection]}; no probability changes."
        low, high = interval
        out_of_fold = "out-of-fold predictions for the texts that learn"
        fitted_on = out_of_fold if self.selection == "cross-validation" else "the validation texts"
        fitted = f"the temperature fitted on {fitted_on} is {figure_interval(temperature, low, high, digits=2)}"
        if low <= 1 <= high:
            detected = detection_text([detectable_from_interval(low, high)], "a distance of {:.2f} from 1".format, "")
            return f"No significant miscalibration: {fitted}, and the interval includes 1; {detected}."
        return f"The model was {'overconfident' if low > 1 else 'underconfident'}: {fitted}."

    def _changes(self) -> list[str]:
        """What the temperature changes on the test texts."""
        if self.calibration.interval is None:
            return []
        calibrated = apply_temperature(self.probabilities, self.calibration.temperature)
        before, after = (log_losses(one, self.labels) for one in (self.probabilities, calibrated))
        _, low, high = cluster_bootstrap(after - before, self.units)
        loss = Change(float(before.mean()), float(after.mean()), low, high, "the test texts")
        confidence, calibrated_confidence = self.confidences().values()
        both = (confidence, calibrated_confidence)
        errors = [percent_value(expected_calibration_error(one, self.correct)) for one in both]
        by_chance = [percent_value(perfect_calibration_error(one)) for one in both]
        sign = calibration_error_change(confidence, calibrated_confidence, self.correct, self.units)
        verb = ("did not change significantly", "rose", "fell")[sign]
        return [
            loss.in_nats("With it, the log loss on the test texts"),
            f"The expected calibration error there {verb}: {errors[0]} points before, {errors[1]} after; on as many texts a "
            f"perfectly calibrated model would show {by_chance[0]} and {by_chance[1]}. No predicted label changes.",
        ]

    def threshold_table(self) -> list[tuple[str, str, str, str]]:
        """What the threshold for each target does on the test texts, which it never saw; one row per ``TARGET_ERRORS``."""
        confidence, correct = (np.array(column) for column in zip(*self.calibration.held_out, strict=True))
        return [self._threshold_row(target, confidence, correct.astype(bool)) for target in TARGET_ERRORS]

    def _threshold_row(self, target: float, confidence: np.ndarray, correct: np.ndarray) -> tuple[str, str, str, str]:
        threshold = find_threshold(confidence, correct, target, CONFIDENCE_LEVEL).threshold
        name = f"at most {percent(target, trim=True)}"
        if math.isinf(threshold):
            return name, "none", percent(0.0), "-"
        labelled = self.confidences()["after calibration"] >= threshold
        errors = percent((~self.correct[labelled]).mean()) if labelled.any() else "-"
        return name, f"{threshold:.3f}", percent(labelled.mean()), errors


def head_swap_lines(kept: int, parameters: int, new: Mapping[str, int], dropped: Sequence[str]) -> list[str]:
    """What a model keeps when its head is swapped, one line each.

    ``kept`` backbone tensors have ``parameters`` parameters; ``new`` maps the new head's tensors to their sizes.
    """
    return [
        f"kept:    {kept} tensors of the backbone, {parameters:,} parameters",
        f"new:     {', '.join(new)} ({sum(new.values()):,} parameters)",
        f"dropped: {', '.join(dropped) or 'no tensor (the language head shares the weight of the embedding)'}",
    ]
