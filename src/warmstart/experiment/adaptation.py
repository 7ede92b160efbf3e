"""A pretrained model, adapted with several seeds, beside methods that need no pretraining: trials whose networks are kept.

The trials are those of a race: a method, a seed, labels that it may look at. But the method in question is known before, so nothing
is chosen among methods; each has one learning rate; and every training run is a step of the run's folder, with its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.baselines import baselines_for
from warmstart.baselines.simple import collapsed
from warmstart.data.audit import audit
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.scorings import ScoringRun, read_ledger
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.experiment.config import AdaptConfig
from warmstart.experiment.estimate import SweepEstimate, estimate_sweep
from warmstart.experiment.execution import baseline_within, score_trial
from warmstart.experiment.inputs import print_audit
from warmstart.experiment.store import HeldTask, SweepContext, selection_settings, trial_settings
from warmstart.experiment.trial import Method, Trial
from warmstart.finetuning.calibration import calibrate
from warmstart.finetuning.ensemble import (
    Averaged,
    average_probabilities,
    check_ensemble,
)
from warmstart.finetuning.estimate import cost_sentence
from warmstart.finetuning.finetune import check_patience, head_config_for, run_length
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.runs import PRETRAINED, SCRATCH, ControlBudget, most_seconds, share_within
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.finetuning.selection import BudgetedRun, fine_tune_within
from warmstart.model.bundle import Bundle
from warmstart.model.folder import model_digest
from warmstart.model.history import DataRecord, FindingRecord, Record, ScoreTable, compared
from warmstart.model.model import Model, swap_head
from warmstart.model.stack import Stack
from warmstart.runs.run import Run, provenance
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.formatting import merged_notes, percent
from warmstart.stats.scores import ClassificationScores
from warmstart.system.console import console
from warmstart.tasks import task_type_of
from warmstart.tasks.scoring import ScoredPredictions
from warmstart.tasks.thresholds import at_thresholds, chosen_thresholds, has_thresholds
from warmstart.training.log import events_folder


def draw_budgets(task: Task, config: AdaptConfig, set_apart: int = 0) -> dict[int, LabelBudget]:
    """The labels that each seed may look at, beside those ``set_apart``; with ``--labels`` each draws its own.

    So the intervals also cover other choices of texts. With ``ensemble`` all have the labels and the folds of the first. Raises
    ``ConfigError`` or ``DataError`` if the labels cannot choose.
    """
    labels, seeds = config.labels and config.labels - set_apart, range(config.seed, config.seed + config.seeds)
    if config.ensemble:
        check_ensemble(task.type, config.seeds)
    try:
        draws = {seed: config.seed if config.ensemble else seed for seed in seeds}
        budgets = {seed: label_budget(task, labels, config.chosen_selection, draws[seed]).for_seed(seed) for seed in seeds}
        if config.chosen_selection != "none" or config.baselines:
            for budget in budgets.values():
                budget.folds  # noqa: B018  too few labels are refused before training, not after
    except DataError as error:
        apart = f", of which {set_apart} are set apart for calibration" if set_apart else ""
        without = "; with --no-baselines nothing has to choose" if config.chosen_selection == "none" and config.baselines else ""
        raise ConfigError(f"--labels {config.labels}{apart}: {error}{without}" if labels else str(error)) from None
    check_patience(budgets[config.seed].task, config.tune)
    return budgets


def compare_methods(
    bundle: Bundle,
    budgets: Mapping[int, LabelBudget],
    config: AdaptConfig,
    asks: tuple[ScoringRun, Run],
) -> AdaptResult:
    """Run every method within the budget of each seed; ``asks`` holds the run that scores, and the one that keeps weights."""
    task, first = budgets[config.seed].whole, budgets[config.seed].task
    swapped = swap_head(bundle.model, head_config_for(first, config.tune), config.seed)
    encoded = EncodedTask.of(task, swapped, bundle.tokenizer)
    windows = config.tune.window_settings if task_type_of(task).pooled else None
    audited = audit(first, bundle.tokenizer, bundle.model.backbone.config.max_length, windows=windows)
    audited = print_audit(audited, {config.model: bundle}, task.name)
    _print_head_swap(bundle.model, swapped)
    trials = _Trials(bundle, budgets, config, asks)
    trials.add_networks(encoded)
    ensemble = trials.ensemble() if config.ensemble else None
    if config.baselines:
        trials.add_baselines()
    return AdaptResult(
        task=first,
        comparison=trials.table(),
        runs=trials.runs,
        scores={name: tuple(scores.scores for scores in by_seed) for name, by_seed in trials.scored.items()},
        audit=audited,
        available=len(task.train),
        budgets=budgets,
        selection=config.chosen_selection,
        ledger=read_ledger(task),
        ensemble=ensemble,
        control=trials.control,
    )


class _Trials:
    """The trials of an adaptation, in the order in which they are scored; the networks are kept."""

    def __init__(
        self, bundle: Bundle, budgets: Mapping[int, LabelBudget], config: AdaptConfig, asks: tuple[ScoringRun, Run]
    ) -> None:
        self.bundle, self.budgets, self.config, (scoring, self.run) = bundle, budgets, config, asks
        self.first = budgets[config.seed]
        self.task = self.first.whole
        held = {"held": HeldTask.of(self.task), "scoring": scoring}
        self.context = SweepContext.of(self.task, config.task, Path(config.out), config.tune, **held)
        self.runs = dict[str, tuple[BudgetedRun, ...]]()
        self.scored = dict[str, tuple[ScoredPredictions, ...]]()
        self._methods = dict[str, Method]()
        self._notes = dict[str, list[str]]()
        self.control: ControlBudget | None = None

    def add_networks(self, encoded: EncodedTask) -> None:
        """Train the pretrained network of each seed, and one from scratch: a frozen backbone would stay random there."""
        self.encoded = encoded
        scheme, digest = self.config.tune.scheme, model_digest(self.config.model)
        method = Method(name=scheme, family="adapted", scheme=scheme, backbone=self.config.model, backbone_digest=digest)
        self._methods[PRETRAINED] = method
        if self.config.scratch:
            self._methods[SCRATCH] = method.model_copy(update={"name": SCRATCH, "family": "scratch", "scheme": ""})
        planned = [self._trial(method, seed) for method in self._methods.values() for seed in self.budgets]
        estimate = None
        if len(self.budgets) > 1 or self._limited:
            estimate = estimate_sweep(planned, self.config.tune, 1, self.task.name, lambda _: (self.bundle, encoded))
        if estimate and len(self.budgets) > 1:
            console.print(cost_sentence(f"{len(planned)} runs", self._expected_seconds(estimate), estimate.trained))
        kept = {"run": self.run, "events": events_folder(self.config.out, wanted=self.config.tensorboard)}
        for name in self._methods:
            if estimate and name == SCRATCH and self._limited:
                self.control = self._control(estimate)
            trained = [self._trained(name, seed, kept) for seed in self.budgets]
            self.runs[name], self.scored[name] = zip(*trained, strict=True)

    @property
    def _limited(self) -> bool:
        """True if the time of the runs from scratch is limited."""
        return self.config.scratch and self.config.scratch_time > 0

    def _expected_seconds(self, estimate: SweepEstimate) -> float:
        """Expected seconds of all runs, those from scratch within their limit."""
        pretrained, *scratch = (estimate.seconds_of(method) or 0.0 for method in self._methods.values())
        most = most_seconds(pretrained, self.config.scratch_time)
        return estimate.seconds - len(self.budgets) * sum(max(0.0, seconds - most) for seconds in scratch)

    def _control(self, estimate: SweepEstimate) -> ControlBudget | None:
        """The steps of a run from scratch, if these are not all; a run that goes on has those that it began with."""

        def measured(_step: Run) -> dict[str, float]:
            pretrained = float(np.mean([run.seconds for run in self.runs[PRETRAINED]]))
            most = most_seconds(pretrained, self.config.scratch_time)
            return {"share": share_within(estimate.seconds_of(self._methods[SCRATCH]) or 0.0, most)}

        share = self.run.step("share of the steps from scratch", measured)["share"]
        settings = trial_settings(self._trial(self._methods[SCRATCH], self.config.seed), self.context)
        scheme = make_scheme(settings.scheme, settings.options)
        planned, _ = run_length(self.encoded.within(self.first), settings.train, scheme)
        return ControlBudget(max(1, round(share * planned)), planned) if planned and share < 1 else None

    def add_baselines(self) -> None:
        """Fit the methods that need no network."""
        for name in [name for name, baseline in baselines_for(self.task).items() if not baseline.race_only]:
            self._add_baseline(Method(name=name, family="baseline"))

    def _add_baseline(self, method: Method) -> None:
        """Fit a baseline for each seed, or once if all seeds have the same labels."""
        drawn = self.config.labels is not None and not self.config.ensemble
        trials = [self._trial(method, seed) for seed in (self.budgets if drawn else [self.config.seed])]
        runs = [run for _, run, _ in (baseline_within(trial, self.context) for trial in trials)]
        self.scored[method.name] = tuple(
            self._scored(trial, run.test, run.choosing) for trial, run in zip(trials, runs, strict=True)
        )
        self._notes[method.name] = [run.note for run in runs]

    def ensemble(self) -> Averaged:
        """The scored mean of the predictions of all seeds of the pretrained model."""
        runs = self.runs[PRETRAINED]
        mean = average_probabilities(self.encoded, self.first, runs, [*map(self._network, runs)])
        method = self._methods[PRETRAINED].model_copy(update={"name": mean.name, "family": "stack", "scheme": ""})
        self.scored[mean.name] = (self._scored(self._trial(method, self.config.seed), mean.test_predictions, mean.choosing),)
        return mean

    def table(self) -> MethodTable:
        """All methods, the pretrained one first."""
        return MethodTable(self.task.metric, tuple(map(self._row, self.scored)), rival=SCRATCH)

    def _trial(self, method: Method, seed: int) -> Trial:
        config = self.config
        return Trial(
            method=method,
            seed=seed,
            draw=config.seed if config.ensemble else None,
            learning_rates=(config.tune.train.learning_rate,) if method.fine_tunes else (),
            labels=config.labels and len(self.budgets[seed]),
            selection=config.chosen_selection,
            competes=False,
        )

    def _trained(self, name: str, seed: int, kept: Mapping[str, Any]) -> tuple[BudgetedRun, ScoredPredictions]:
        method, title = self._methods[name], f"{name}, seed {seed}"
        trial, scratch = self._trial(method, seed), method.family == "scratch"
        choice, settings = replace(selection_settings(trial), title=title, **kept), trial_settings(trial, self.context)
        if scratch and self.control:
            train = settings.train.model_copy(update={"steps": self.control.steps, "tokens": None, "epochs": None})
            settings = settings.model_copy(update={"train": train})
        run = fine_tune_within(self.bundle, self.encoded, self.budgets[seed], settings, choice, scratch=scratch)
        test = self._scored(trial, run.final.test_predictions, run.choosing)
        console.print(f"{title}: {self.task.metric} {percent(test.score)} in {run.seconds:.0f} s")
        return run, test

    def _scored(self, trial: Trial, predictions: Any, choosing: Any = None) -> ScoredPredictions:
        """Scores of predictions; of several labels at the thresholds by ``choosing``, predictions for texts that were left out."""
        if choosing is not None:
            predictions = at_thresholds(predictions, chosen_thresholds(self.task, self.budgets[trial.seed].choosing, choosing))
        return score_trial(self.task, predictions, trial, self.context, *trial.learning_rates)

    def _network(self, run: BudgetedRun) -> Bundle:
        """The network of one seed, as a member of a stack."""
        settings, data = self.config.tune.to_dict(), (DataRecord.of(self.first.task),)
        record = Record(command="adapt", settings=settings, seed=run.seed, data=data, provenance=provenance())
        return Bundle(run.final.model, self.bundle.tokenizer, self.task.labels, (*self.bundle.history, record))

    def _row(self, name: str) -> MethodResult:
        """The scores of each run, also on resamples of the test split."""
        scored, runs = self.scored[name], self.runs.get(name, ())
        lost = sum(collapsed(self.task, scores.scores) for scores in scored) if runs else 0
        notes = [f"{lost} of {len(runs)} runs collapsed"] if lost else merged_notes(self._notes.get(name, []))
        notes = [*notes, *([self.control.note] if self.control and name == SCRATCH else [])]
        return MethodResult(
            name,
            tuple(scores.score for scores in scored),
            seconds=float(np.mean([run.seconds for run in runs])) if runs else 0.0,
            trainable=runs[0].final.trainable if runs else 0,
            note="; ".join(notes),
            resampled=np.array([scores.resampled for scores in scored]),
            bounded=task_type_of(self.task).bounded,
            collapsed=lost > 0,
        )


def adapted_bundle(
    origin: Bundle, result: AdaptResult, config: AdaptConfig, loaded: Task, calibration_texts: Split | None = None
) -> Bundle | Stack:
    """The best run, or what was averaged over all, with its history; its confidence is calibrated.

    ``loaded`` is the task as it was read, before any text was dropped or set apart.
    """
    best, task = result.best, result.task
    audit = tuple(map(FindingRecord.of, result.audit.findings()))
    data = DataRecord.of(task, loaded, calibration_texts).model_copy(update={"audit": audit})
    comparison = compared(result.comparison, [*result.cautions, *result.ledger.findings])
    record = Record(
        command="adapt",
        settings=config.tune.to_dict(),
        seed=best.seed,
        data=(data,),
        provenance=provenance(),
        scores={name: value for name, value in result.best_scores.to_dict().items() if isinstance(value, int | float)},
        tables=(*comparison["tables"], *_score_tables(result)),
        notes=(*comparison["notes"], *result.label_findings, *result.ensemble_findings),
    )
    kept = result.averaged
    model = kept.model if kept else Bundle(best.final.model, origin.tokenizer, task.labels)
    history = (record,) if isinstance(model, Stack) else (*origin.history, record)
    model = replace(model, history=history)
    if not (task_type_of(task).one_label or has_thresholds(task)):
        return model
    choosing = kept.choosing if kept else best.choosing
    return replace(model, calibration=calibrate(model, result.budgets[best.seed], choosing, calibration_texts))


def _score_tables(result: AdaptResult) -> Iterator[ScoreTable]:
    """The scores of each label, and those of each seed on the texts that choose, if there are any."""
    if isinstance(scores := result.best_scores, ClassificationScores):
        more = ", whose seed did best on the texts that choose; another seed would do worse on average"
        title = f"Each label, for the run that is saved here{more * bool(result.caution_of_choice)}"
        header = ("label", "precision", "recall", "F1", "test texts")
        yield ScoreTable.build({"title": title, "header": header, "rows": scores.table()}, "scores")
    if validation := result.validation_scores:
        rows = [(name, ", ".join(map(percent, values))) for name, values in validation.items()]
        title = f"{result.task.metric} on the texts that choose"
        yield ScoreTable.build({"title": title, "header": ("method", "each seed"), "rows": rows}, "scores")


def _print_head_swap(before: Model, after: Model) -> None:
    """Print the parts that a model keeps, gains and loses when its head is swapped, one line each."""
    old, new = before.weights(), after.weights()
    kept = [name for name in old if name.startswith("backbone.")]
    sizes = {name: tensor.numel() for name, tensor in new.items() if name not in kept}
    dropped = {name: tensor.numel() for name, tensor in old.items() if name not in kept}
    parameters = sum(parameter.numel() for parameter in before.backbone.parameters())
    console.print(f"kept:    {len(kept)} tensors of the backbone, {parameters:,} parameters")
    console.print(f"new:     {', '.join(sizes)} ({sum(sizes.values()):,} parameters)")
    lost = f"{', '.join(dropped)} ({sum(dropped.values()):,} parameters)"
    console.print(f"dropped: {lost if dropped else 'no tensor (the language head shares the weight of the embedding)'}")
