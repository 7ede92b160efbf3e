"""Adaptation: a bundle and a labelled task in; a bundle for the task, a comparison with baselines and a report out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from warmstart.commands.adapt.page import adapt_verdict, answers_view, write_adapt_page, write_answers_page
from warmstart.data.audit import drop_leaks
from warmstart.data.budget import LabelBudget
from warmstart.data.scorings import ScoringRun, ledger_file
from warmstart.data.source import LabelledTableFlags
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError
from warmstart.experiment.adaptation import adapted_bundle, compare_methods, draw_budgets
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.experiment.answers import adapt_to_answers
from warmstart.experiment.config import AdaptConfig
from warmstart.finetuning.answers_result import AnswersResult
from warmstart.finetuning.calibration import split_calibration_texts
from warmstart.finetuning.finetune import check_scheme
from warmstart.finetuning.saved import warn_of_other_predictions
from warmstart.inspection.confidence import ConfidenceResult
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.report.sections import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.run import Run
from warmstart.runs.verdict import verdict_lines
from warmstart.system.console import console, print_table, progress_line
from warmstart.tasks import task_type_of
from warmstart.tasks.load import ANSWERS_TYPE, load_task, read_spec
from warmstart.tasks.thresholds import at_thresholds, thresholds_of
from warmstart.training.log import events_folder


def adapt(config: AdaptConfig) -> AdaptResult | AnswersResult:
    """Audit, fine-tune over seeds, compare, save the best run as a bundle, write the report; the ``adapt`` command.

    A task of type answers gives an ``AnswersResult``.
    """
    flags = LabelledTableFlags.of(config)
    spec = read_spec(config.task, flags)[1]
    if spec.type == ANSWERS_TYPE:
        found, bundle, run = adapt_to_answers(config)
        with model_is_saved(save(bundle, run.folder / "bundle")):
            console.print(answers_view(found).sentence)
            _record(found, "questions", details=config.details, folder=run.folder)
            console.print(_places(found, run.folder, write_answers_page(found, config, run.folder)))
        return found
    if config.selection is None and config.labels is None and spec.validation is None:
        config = config.model_copy(update={"selection": "cross-validation"})  # as with --labels
    ready = _prepare(config)
    bundle, budgets = ready.bundle, ready.budgets
    with progress_line("comparing methods", details=config.details):
        result = compare_methods(bundle, budgets, config, (ScoringRun.of(config), ready.run))
    result = replace(result, set_apart=len(ready.calibration_texts or ()))
    return replace(result, confidence=_finish(bundle, result, config, ready))


@dataclass(frozen=True)
class _Ready:
    """The checked inputs of an adaptation."""

    run: Run
    bundle: Bundle
    loaded: Task
    """The task as it was read, with the texts that are dropped or set apart"""
    budgets: dict[int, LabelBudget]
    calibration_texts: Split | None


def _prepare(config: AdaptConfig) -> _Ready:
    """Read and check everything, and open the run's folder."""
    events_folder(config.out, wanted=config.tensorboard)
    bundle = load_model(config.model)
    # its splits never depend on the seed: `evaluate` must find the same test texts
    loaded = task = load_task(config.task, flags=LabelledTableFlags.of(config))
    check_scheme(bundle, task, config.tune)
    if config.scratch and bundle.model.backbone.config.ngrams:
        raise ConfigError("a network from scratch must have blocks, but this one (USE) is only read; add --no-scratch")
    if config.drop_leaks or config.drop_near_leaks:
        task = drop_leaks(task, near=config.drop_near_leaks)
    task, calibration_texts = split_calibration_texts(task, config.calibration_fraction, config.labels)
    budgets = draw_budgets(task, config, len(calibration_texts or ()))
    run = Run.open(config.out, config)
    if (ledger := ledger_file(task)) and os.access(ledger.parent, os.W_OK):
        console.print(f"What is scored on the test texts will be counted in {ledger}.")
    return _Ready(run, bundle, loaded, budgets, calibration_texts)


def _finish(bundle: Bundle, result: AdaptResult, config: AdaptConfig, ready: _Ready) -> ConfidenceResult | None:
    """Save the bundle, print what was found, write the report."""
    folder, task = ready.run.folder, result.task
    adapted = adapted_bundle(bundle, result, config, ready.loaded, ready.calibration_texts)
    with model_is_saved(save(adapted, folder / "bundle")):
        warn_of_other_predictions(folder / "bundle", task, at_thresholds(result.test_predictions, thresholds_of(adapted)))
        if adapted.calibration and task_type_of(task).one_label:
            texts = task.test.labels, task.test.units
            confidence = ConfidenceResult(adapted.calibration, result.test_predictions, *texts, config.chosen_selection)
            result = replace(result, confidence=confidence)
        network = adapted if isinstance(adapted, Bundle) else adapted.networks[0]
        verdict = adapt_verdict(result, folder, config)
        _record(result, "texts", details=config.details, folder=folder)
        places = _places(result, folder, write_adapt_page(result, network, config, folder))
        for line in verdict_lines(verdict, places):
            console.print(line)
    return result.confidence


def _record(result: AdaptResult | AnswersResult, scored: str, *, details: bool, folder: Path) -> None:
    """Record the score, and print the table of scores, the tests and the notes; ``scored`` names what the test split holds."""
    compared, task, row = result.comparison, result.task, result.comparison.rows[0]
    write_record(folder, score=(row.name, row.interval.mean))
    if details:
        print_table(f"{task.name}: {compared.metric} on {len(task.test)} test {scored}", compared.table(), compared.header)
        for sentence in (*compared.findings(), *result.notes):
            console.print(sentence)


def _places(result: AdaptResult | AnswersResult, folder: Path, page: Path) -> str:
    """The saved model and its place, as a sentence."""
    return f"{result.saved}\nbundle: {folder / 'bundle'}, report: {page}"
