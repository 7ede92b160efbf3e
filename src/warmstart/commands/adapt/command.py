"""Adaptation: a bundle and a labelled task in; a bundle for the task, a comparison with baselines and a report out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.baselines import baselines_for
from warmstart.baselines.choice import BaselineRun, run_baseline
from warmstart.baselines.majority import collapsed
from warmstart.commands.adapt.page import write_adapt_page
from warmstart.commands.adapt.result import AdaptResult, ConfidenceResult, head_swap_lines
from warmstart.config import Advanced, Config
from warmstart.console import console, print_comparison
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.budget import label_budget
from warmstart.data.task import Split, Task
from warmstart.data.test_ledger import Ledger, ScoredMethod, ScoringRun
from warmstart.finetuning.calibration import calibrate, split_calibration_texts
from warmstart.finetuning.compose import make_scheme
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.continued import continue_pretraining
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.estimate import Estimator, cost_sentence
from warmstart.finetuning.finetune import FineTuneResult, check_scheme, fine_tune, head_config_for, task_model
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.finetuning.runs import PRETRAINED, SCRATCH
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest, save
from warmstart.model.history import AdaptRecord, ComparisonRecord, FindingRecord, ScoresRecord, TaskRecord, seen_labels
from warmstart.model.model import Model, swap_head
from warmstart.run import open_run, provenance
from warmstart.stats.comparison import Comparison, MethodResult
from warmstart.stats.formatting import percent
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.scoring import ScoredPredictions, score_test


class AdaptConfig(Config):
    """Swap a model's head, fine-tune it on labels over several seeds, and compare it with methods that need no pretraining."""

    renamed: ClassVar[dict[str, str]] = {"calibration": "calibration_fraction"}

    model: Positional[str]
    """the pretrained model: a bundle, or the folder of a run"""
    task: Positional[str]
    """manifest of the task (YAML)"""
    out: str = "runs/adapt"
    """folder of the run"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()
    seeds: int = Field(3, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    scratch: bool = True
    """also train the same network from scratch"""
    baselines: bool = True
    """also run the majority label and TF-IDF + logistic regression"""
    calibration_fraction: float = Field(0.0, ge=0, lt=1)
    """fraction of the validation texts that chooses nothing, so that `predict --target-error` can give a guarantee"""
    drop_leaks: bool = False
    """drop training texts that are also in validation or test, and validation texts that are also in test"""
    drop_near_leaks: Advanced[bool] = False
    """drop these, and texts that are nearly the same as one of validation or test"""
    sealed: bool = False
    """let this run alone score the test split: refuse to start if another has scored it, and refuse every later one"""


def adapt(config: AdaptConfig) -> AdaptResult:
    """Audit, fine-tune over seeds, compare, save the best run as a bundle, write the report; the ``adapt`` command."""
    bundle = load_model(config.model)
    check_scheme(bundle, config.tune)
    task = load_task(config.task)  # its splits never depend on the seed: `evaluate` must find the same test texts
    scoring = ScoringRun.begin([task], config)
    if config.drop_leaks or config.drop_near_leaks:
        task = drop_leaks(task, near=config.drop_near_leaks)
    task, calibration_texts = split_calibration_texts(task, config.calibration_fraction)
    folder = open_run(config.out, config, resume=False)
    if make_scheme(config.tune.scheme).continued_pretraining:
        bundle = continue_pretraining(bundle, task, config.tune.options, config.seed, excluded=calibration_texts).bundle
    result = compare_methods(bundle, task, config, scoring)
    scoring.finish([task])
    print_comparison(f"{task.name}: {task.metric} on {len(task.test)} test texts", result.comparison)
    for sentence in result.ledger.findings:
        console.print(sentence, markup=False)
    adapted = adapted_bundle(bundle, result, config, calibration_texts)
    save(adapted, folder / "bundle")
    confidence = None
    if adapted.calibration:
        confidence = ConfidenceResult(adapted.calibration, result.best.test_predictions, task.test.labels, task.test.units)
        result = replace(result, confidence=confidence)
    page = write_adapt_page(result, confidence, adapted, config, folder)
    console.print(f"bundle: {folder / 'bundle'} (seed {result.best.seed}, best on validation)\nreport: {page}")
    return result


def compare_methods(bundle: Bundle, task: Task, config: AdaptConfig, scoring: ScoringRun, labels: int | None = None) -> AdaptResult:
    """Run every method on the same splits and seeds; ``scoring`` is the run of the command that asks.

    With ``labels``, each seed draws its own stratified subset of that many training texts, the same for every method, so that the
    intervals also cover other choices of texts.
    """
    seeds = range(config.seed, config.seed + config.seeds)
    swapped = swap_head(bundle.model, head_config_for(task, config.tune), config.seed)
    full = EncodedTask.of(task, swapped, bundle.tokenizer)
    encoded = {seed: full.sample(labels, seed) if labels else full for seed in seeds}
    first = encoded[config.seed].task
    findings = _audit(first, bundle, config.model)
    for line in _head_swap(bundle.model, swapped):
        console.print(line, markup=False)
    # from scratch, all of the backbone must train: a frozen one would stay random
    settings = {PRETRAINED: config.tune} | ({SCRATCH: config.tune.model_copy(update={"scheme": "full"})} if config.scratch else {})
    if len(seeds) > 1:
        estimator = Estimator(bundle, encoded[config.seed], config.tune)
        costs = [estimator.run_cost(tune.scheme) for tune in settings.values()]
        seconds = sum(cost.once + cost.seconds * len(seeds) for cost in costs)
        sentence = cost_sentence(f"{len(costs) * len(seeds)} runs", seconds, max(cost.memory for cost in costs))
        console.print(sentence, markup=False)
    families, origin = {PRETRAINED: "adapted", SCRATCH: "scratch"}, model_digest(config.model)  # the words of a race
    runs, scored = dict[str, tuple[FineTuneResult, ...]](), dict[str, tuple[ScoredPredictions, ...]]()
    for name, tune in settings.items():
        described = tune.scheme if name == PRETRAINED else name
        described += f" at learning rate {tune.train.learning_rate:g}{_with_labels(labels)}"
        method = scoring.method(described, [families[name], origin, tune.to_dict(), labels])
        runs[name], scored[name] = zip(*(_run(name, bundle, encoded[seed], tune, (seed, method)) for seed in seeds), strict=True)
    rows = [_trained_row(name, results, scored[name], task) for name, results in runs.items()]
    for name, predicted in _baselines(first, encoded if labels else {config.seed: full}).items() if config.baselines else ():
        method = scoring.method(f"{name}{_with_labels(labels)}", ["baseline", name, labels])
        scored[name] = tuple(score_test(task, one.test, method, seed if labels else None) for seed, one in predicted.items())
        rows.append(replace(_row(name, scored[name], task), note="; ".join(dict.fromkeys(one.note for one in predicted.values()))))
    scores = {name: tuple(one.scores for one in found) for name, found in scored.items()}
    return AdaptResult(
        first, Comparison(task.metric, tuple(rows)), runs, scores, findings, len(task.train), ledger=Ledger.of(task).read()
    )


def adapted_bundle(origin: Bundle, result: AdaptResult, config: AdaptConfig, calibration_texts: Split | None = None) -> Bundle:
    """The best run as a bundle, with its history; its confidence is calibrated."""
    best, task = result.best, result.task
    record = AdaptRecord(
        task=TaskRecord.of(task),
        audit=tuple(map(FindingRecord.of, result.audit.findings())),
        settings=config.tune.to_dict(),
        seed=best.seed,
        test=ScoresRecord.of(result.best_scores.to_dict()),
        validation={name: tuple(run.validation_score for run in runs) for name, runs in result.runs.items()},
        comparison=ComparisonRecord.of(result.comparison, result.ledger.findings),
        provenance=provenance(),
    )
    calibration = calibrate(best.model, origin.tokenizer, task, calibration_texts) if task_type_of(task).one_label else None
    return Bundle(best.model, origin.tokenizer, task.labels, (*origin.history, record), calibration)


def _audit(task: Task, bundle: Bundle, model: str) -> Audit:
    """The audit of the data, printed; also whether the model has seen labels of the task before."""
    result = audit(task, bundle.tokenizer, bundle.model.backbone.config.max_length)
    result = replace(result, already_trained=(model,) if seen_labels(bundle, task.name) else ())
    for finding in result.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}", markup=False)
    return result


def _head_swap(before: Model, after: Model) -> list[str]:
    old, new = before.weights(), after.weights()
    kept = [name for name in old if name.startswith("backbone.")]
    sizes = {name: tensor.numel() for name, tensor in new.items() if name not in kept}
    dropped = [name for name in old if name not in kept]
    return head_swap_lines(len(kept), sum(parameter.numel() for parameter in before.backbone.parameters()), sizes, dropped)


def _run(
    name: str, bundle: Bundle, encoded: EncodedTask, config: FineTuneConfig, scored: tuple[int, ScoredMethod]
) -> tuple[FineTuneResult, ScoredPredictions]:
    """One run and its test scores; ``scored`` is (seed, what the ledger calls it)."""
    seed, method = scored
    model = task_model(bundle, encoded.task, config, seed, scratch=name == SCRATCH)
    result = fine_tune(model, encoded, config, seed, title=f"{name}, seed {seed}", language=LanguageTask.of(bundle))
    test = score_test(encoded.task, result.test_predictions, method, seed)
    console.print(f"{name}, seed {seed}: {encoded.task.metric} {percent(test.score)} in {result.training.seconds:.0f} s")
    return result, test


def _trained_row(name: str, runs: Sequence[FineTuneResult], scored: Sequence[ScoredPredictions], task: Task) -> MethodResult:
    """The row of a trained method."""
    lost = sum(collapsed(task, one.scores) for one in scored)
    note = f"{lost} of {len(runs)} runs collapsed" if lost else ""
    seconds = float(np.mean([run.training.seconds for run in runs]))
    row = _row(name, scored, task)
    return replace(row, seconds=seconds, trainable=runs[0].trainable, note=note)


def _baselines(task: Task, encoded: Mapping[int, EncodedTask]) -> dict[str, dict[int, BaselineRun]]:
    """What each baseline predicts, by the seed that drew its training texts."""
    budgets = {seed: label_budget(one.task, None, "holdout", seed) for seed, one in encoded.items()}
    chosen = {name: baseline for name, baseline in baselines_for(task).items() if not baseline.race_only}
    return {name: {seed: run_baseline(one, budget) for seed, budget in budgets.items()} for name, one in chosen.items()}


def _row(name: str, scored: Sequence[ScoredPredictions], task: Task) -> MethodResult:
    """The scores of each run, also on resamples of the test split."""
    resampled = np.array([one.resampled for one in scored])
    return MethodResult(name, tuple(one.score for one in scored), resampled=resampled, bounded=task_type_of(task).bounded)


def _with_labels(labels: int | None) -> str:
    return f", {labels} labels" if labels else ""
