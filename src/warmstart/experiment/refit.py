"""The model of a method of a sweep, for a user: its trial is fitted once more, compared with what was scored, and calibrated.

A sweep keeps scores and predictions, no weights. A baseline is run again; a network is fitted once, with the learning rate and
for the steps that the trial chose. What it then predicts for the test texts must be what the trial predicted. No label is looked
at that the trial did not look at, and the test split is not scored.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from warmstart.baselines.choice import fitted_baseline
from warmstart.errors import ConfigError, ModelError, UncheckedWarning, suggest
from warmstart.experiment.choose import MAJORITY_LABEL, RECOMMENDED
from warmstart.experiment.execution import baseline_within, constant_of
from warmstart.experiment.inputs import bundle_at, prepared, trial_budget
from warmstart.experiment.stack import trials_in
from warmstart.experiment.store import SweepContext, TrialPredictions, read_predictions, trial_settings
from warmstart.experiment.sweep import Sweep
from warmstart.experiment.trial import Method, SweepRuns, Trial, TrialResult
from warmstart.finetuning.calibration import fitted_calibration
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.history import DataRecord, Record
from warmstart.model.known import KnownTexts
from warmstart.model.model import swap_head
from warmstart.model.rows import VectorRows
from warmstart.model.stack import Member, Stack
from warmstart.runs.run import provenance
from warmstart.tasks import task_type_of
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tasks.thresholds import has_thresholds

PARITY = 1e-4
"""largest difference of a probability of the saved model from what the sweep scored; of a number, as a fraction of the largest"""


@dataclass(frozen=True)
class Refit:
    """A method of a sweep as a model."""

    model: Bundle | Stack
    trial: Trial
    difference: float
    """the largest one of its predictions for the test texts, before its own temperature, from those that were scored"""
    chosen: str = ""
    """origin of the labels that chose the method beside those of its draw, as a complete sentence"""

    @property
    def sentence(self) -> str:
        """The fit that was saved, and whether it predicts what was scored, as complete sentences."""
        labels = "its labels" if self.trial.labels else "all labels"
        kept = "It predicts what was scored" if self.difference <= PARITY else "It does not predict what was scored"
        return (
            f"Saved {self.trial.method.name}, fitted again to {labels} with seed {self.trial.seed}. {kept}: before calibration, "
            f"predictions differ by at most {self.difference:.1g}.{self.chosen and ' ' + self.chosen}"
        )

    def save(self, folder: Path) -> Path:
        """Write it as a bundle or as a stack; warns with ``UncheckedWarning`` if it does not predict what was scored."""
        saved = save(self.model, folder)
        if not self.difference <= PARITY:
            warnings.warn(
                f"{saved} is saved, but its predictions differ by up to {self.difference:.2g} from those that were scored: "
                "training does not repeat itself here (a GPU, other versions, or minutes as the budget of a fit); `warmstart "
                "evaluate` scores it",
                UncheckedWarning,
                stacklevel=2,
            )
        return saved


@dataclass(frozen=True)
class FinishedTrials:
    """The trials behind a comparison, of which any method can be fitted again."""

    sweep: Sweep
    runs: Mapping[int, SweepRuns]
    """finished trials by number of labels"""
    labels: int
    """the number of labels of the comparison"""

    def fit(self, method: Method | str, chosen: str = "") -> Refit:
        """Fit a method, or the one of this name, as ``refit`` does. Raises ``ModelError`` if it ignores the texts."""
        method = named_method(method, self.sweep.methods) if isinstance(method, str) else method
        if method.name == MAJORITY_LABEL:
            raise ModelError(
                f"{method.name} ignores the texts, so no model of it is saved; label more texts, or name another method with --save"
            )
        return refit(method, self.runs[self.labels], self.sweep.context, chosen)

    def test_predictions(self, method: Method) -> np.ndarray | None:
        """Predictions of a method for the test texts in its first run; None if they are no numbers."""
        predictions = read_predictions(self.runs[self.labels].of(method)[0], self.sweep.context)
        return predictions.test if predictions else None


def named_method(name: str, methods: Sequence[Method]) -> Method:
    """The method of this name. Raises ``ConfigError`` if there is none."""
    known = {method.name: method for method in reversed(methods)}
    if name not in known:
        raise ConfigError(f"--save {name}: no method of this race has this name; {suggest(name, (RECOMMENDED, *known))}")
    return known[name]


def refit(method: Method, runs: SweepRuns, context: SweepContext, chosen: str = "") -> Refit:
    """Fit the trial of a method with its first seed once more. Raises ``ModelError`` with the reason if it cannot be saved.

    ``chosen`` says which labels chose the method beside those of its draw; it is kept with the model.
    """
    done = [trial for trial in runs.of(method) if trial in runs.results]
    if not done:
        raise ModelError(f"{method.name} has no finished run that could be saved; give the race more time")
    trial = min(done, key=lambda trial: trial.seed)
    scored, budget = _predictions(trial, context), trial_budget(trial, context)
    labelled = task_type_of(budget.task).one_label or has_thresholds(budget.task)
    calibration = fitted_calibration(budget, scored.choosing if len(scored.choosing) else None) if labelled else None
    record = _record(trial, runs.results[trial], context)
    record = record.model_copy(update={"notes": (*record.notes, *([chosen] if chosen else []))})
    model: Bundle | Stack | FittedBaseline
    model = refit_stack(trial, runs, context) if method.combines else _fitted(trial, runs.results[trial], context)
    if isinstance(model, FittedBaseline):
        model = Stack((Member(method.name, model),), budget.task.type, budget.task.labels)
    model = replace(model, history=(*model.history, record), calibration=calibration)
    predictions = uncalibrated_predictions(model, budget.whole.test.texts) if len(budget.whole.test) else scored.test
    return Refit(model, trial, _difference(predictions, scored.test), chosen)


def refit_stack(trial: Trial, runs: SweepRuns, context: SweepContext) -> Stack:
    """The members that were combined for the seed of ``trial``, each fitted again."""
    task, members = trial_budget(trial, context).task, list[Member]()
    stacked = runs.results[trial]
    for member, (_, weight, temperature) in zip(trials_in(trial, stacked, runs.trials), stacked.members, strict=True):
        result = runs.results[member]
        model = _fitted(member, result, context)
        if isinstance(model, Bundle):
            model = replace(model, history=(*model.history, _record(member, result, context)))
        members.append(Member(member.method.name, model, temperature, weight))
    return Stack(tuple(members), task.type, task.labels)


def _fitted(trial: Trial, result: TrialResult, context: SweepContext) -> Bundle | FittedBaseline:
    """The model of a trial; of one that diverged, the constant prediction that stands for it."""
    if result.diverged:
        trial = constant_of(trial, context)
    threads = torch.get_num_threads()
    torch.set_num_threads(result.threads or threads)
    try:
        return _fit_network(trial, result, context) if trial.method.fine_tunes else _fit_baseline(trial, result, context)
    finally:
        torch.set_num_threads(threads)


def _fit_baseline(trial: Trial, result: TrialResult, context: SweepContext) -> FittedBaseline:
    budget, run, _ = baseline_within(trial, context, setting=result.setting)
    if trial.method.family != "frozen":
        return fitted_baseline(run)
    baseline = fitted_baseline(run, _reader(trial.method.backbone, trial.method.backbone_digest, context))
    learned = budget.task.train
    every = len(np.unique(learned.labels)) == len(budget.task.labels)  # texts of a label without one would count as unknown
    if not (every and budget.task.single_label and isinstance(run.reading.saved, VectorRows) and baseline.rows):
        return baseline
    vectors = run.reading.saved.vectors(learned.texts)
    return replace(baseline, known=KnownTexts.of(vectors, learned.labels, learned.units, len(budget.task.labels)))


@functools.lru_cache(maxsize=4)
def _reader(backbone: str, digest: str, context: SweepContext) -> Bundle:
    """The backbone with the head that gives vectors, one for all members that read it; a changed one has another digest."""
    bundle = bundle_at(backbone)
    head = EmbeddingHeadConfig(pooling=context.tune.pooling, normalize=False, **dict(context.tune.unweighted))
    return Bundle(swap_head(bundle.model, head, 0), bundle.tokenizer, history=bundle.history)


def _fit_network(trial: Trial, result: TrialResult, context: SweepContext) -> Bundle:
    """Fit a network with as many steps as the trial's last fit."""
    bundle, encoded = prepared(trial, context)
    budget, scratch = trial_budget(trial, context), trial.method.family == "scratch"
    config = trial_settings(trial, context).at_learning_rate(result.learning_rate)
    choice = SelectionSettings(trial.selection, (result.learning_rate,), choose=True)
    if budget.cross_validated:
        if result.steps:
            train = config.train.model_copy(update={"steps": result.steps, "tokens": None, "epochs": None, "minutes": None})
            config = config.model_copy(update={"train": train})
        choice = SelectionSettings("none")
    done = fine_tune_within(bundle, encoded, budget, config, choice, scratch=scratch)
    return Bundle(done.final.model, bundle.tokenizer, budget.task.labels, () if scratch else bundle.history)


def _record(trial: Trial, result: TrialResult, context: SweepContext) -> Record:
    task = trial_budget(trial, context).task
    trained = trial_settings(trial, context).at_learning_rate(result.learning_rate) if trial.method.fine_tunes else None
    scores = {task.metric: result.score, f"{task.metric} on the texts that choose": result.validation}
    return Record(
        command=f"fit {trial.method.name}",
        settings=trained.to_dict() if trained else {},
        seed=trial.seed,
        data=(DataRecord.of(task, context.load_task()),),
        provenance=provenance(),
        scores={name: value for name, value in scores.items() if not math.isnan(value)},
        notes=(result.budget,) if result.budget else (),
    )


def _predictions(trial: Trial, context: SweepContext) -> TrialPredictions:
    predictions = read_predictions(trial, context)
    if predictions is None:
        raise ModelError(
            f"{trial.method.name} cannot be saved: it must be compared with the predictions that were scored, but the run has "
            "none of them (of tags it never has); `warmstart adapt` fits and saves one network"
        )
    return predictions


def _difference(refitted: np.ndarray, scored: np.ndarray) -> float:
    return float(np.abs(refitted - scored).max() / max(1.0, float(np.abs(scored).max()))) if len(scored) else 0.0
