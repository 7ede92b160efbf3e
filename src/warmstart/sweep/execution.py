"""How trials are run: independently of each other, by joblib's workers or by the joblib backend in force."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from warmstart.baselines import BASELINES, baselines_for
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.majority import collapsed
from warmstart.console import console
from warmstart.data.budget import label_budget
from warmstart.data.task import Task, resplit, subsample
from warmstart.device import pick_device
from warmstart.errors import DataError, DivergedError, ModelError
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import FineTuneResult, fine_tune, head_config_for, task_model
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.model.bundle import Bundle
from warmstart.model.files import find_bundle, load_bundle
from warmstart.model.model import swap_head
from warmstart.stats.formatting import percent
from warmstart.sweep.estimate import SweepEstimate
from warmstart.sweep.ranking import diverged_at
from warmstart.sweep.store import SweepContext, find_result, save_result, scored_method, trial_settings, write_run_id
from warmstart.sweep.trial import Method, Trial, TrialResult
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.scoring import ScoredPredictions, score_test
from warmstart.training.peak_memory import track_peak_memory

_ONE_AT_A_TIME = threading.Lock()
"""torch's generator belongs to the process: of workers that are threads, one runs at a time"""


def run_trials(trials: Sequence[Trial], context: SweepContext, estimate: SweepEstimate) -> dict[Trial, TrialResult]:
    """The results of the trials; those that the time did not allow are missing. ``estimate`` learns how long they took."""
    results = {trial: found for trial in trials if (found := find_result(trial, context))}
    todo = [trial for trial in trials if trial not in results]
    if results:
        console.print(f"{len(results)} of {len(trials)} trials are done already")
    if todo:
        write_run_id(context)
    for number, (trial, result) in enumerate(_spread(todo, context, estimate.jobs), 1):
        if result is not None:
            results[trial] = result
            estimate.finish(trial, result)
            console.print(f"{number} of {len(todo)}: {trial}: {_outcome(result)}; {estimate.left}")
    return results


def _outcome(result: TrialResult) -> str:
    if result.diverged:
        return "[yellow]diverged[/yellow]"
    return f"{percent(result.score)} in {result.seconds:.1f} s{', [yellow]collapsed[/yellow]' if result.collapsed else ''}"


def _spread(trials: Sequence[Trial], context: SweepContext, jobs: int) -> Iterator[tuple[Trial, TrialResult | None]]:
    """The results as they come. One job runs here; more run in processes that share the cores."""
    if jobs == 1 or not trials:
        yield from ((trial, run_trial(trial, context)) for trial in trials)
        return
    shared = context.model_copy(update={"threads": max(1, (os.cpu_count() or 1) // jobs), "jobs": jobs})
    work: Iterable[Any] = (joblib.delayed(_numbered)(i, trial, shared) for i, trial in enumerate(trials))
    for i, result in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(work):
        yield trials[i], result


def _numbered(i: int, trial: Trial, context: SweepContext) -> tuple[int, TrialResult | None]:
    return i, run_trial(trial, context)


def run_trial(trial: Trial, context: SweepContext) -> TrialResult | None:
    """Run one trial and keep its result; None after the deadline. Any process that sees the files can run it.

    A trial that diverges has the result of the constant prediction. Raises ``ModelError``, which names the trial, if the model does
    not fit.
    """
    with _ONE_AT_A_TIME:
        if context.deadline is not None and time.time() > context.deadline:
            return None
        if context.threads:
            torch.set_num_threads(context.threads)
        try:
            result = _run_baseline(trial, context) if trial.method.family == "baseline" else _fine_tune(trial, context)
        except DivergedError:
            result = _diverged(trial, context)
        except ModelError as error:
            raise ModelError(f"{trial}: {error}") from None
    sizes = tuple(map(len, _task(trial, context).splits().values())) if trial.resample else ()
    result = replace(result, threads=torch.get_num_threads(), jobs=context.jobs, split_sizes=sizes)
    save_result(trial, context, result)
    return result


def _run_baseline(trial: Trial, context: SweepContext, named_as: Trial | None = None) -> TrialResult:
    """The result of a baseline; the ledger calls it ``named_as`` if it stands for another trial."""
    task = _task(trial, context)
    if trial.labels:
        task = subsample(task, trial.labels, trial.seed)
    started = time.perf_counter()
    result = run_baseline(BASELINES[trial.method.name], label_budget(task, None, "holdout", trial.seed))
    seconds = time.perf_counter() - started
    scored = _scored(task, result.test, named_as or trial, context)
    return TrialResult(
        score=scored.score,
        resampled=_rounded(scored.resampled),
        seconds=seconds,
        validation=_score(task, result.choosing),
        resampled_validation=_resampled(task, result.choosing),
        note=result.note,
    )


def _diverged(trial: Trial, context: SweepContext) -> TrialResult:
    constant = Method(name=next(iter(baselines_for(_task(trial, context)))), family="baseline")
    result = _run_baseline(trial.model_copy(update={"method": constant}), context, named_as=trial)
    return replace(result, collapsed=True, diverged=True, note=diverged_at(trial.learning_rate))


def _fine_tune(trial: Trial, context: SweepContext) -> TrialResult:
    bundle, shared, encoded = prepared(trial, context)
    encoded = encoded.sample(trial.labels, trial.seed) if trial.labels else encoded
    config, features = trial_settings(trial, context), encoded.features
    with track_peak_memory(pick_device()) as peak:
        started, saved = time.perf_counter(), features.seconds_saved
        model = task_model(bundle, encoded.task, config, trial.seed, scratch=trial.method.family == "scratch")
        done = fine_tune(model, encoded, config, trial.seed, "", LanguageTask.of(bundle))
        seconds, saved = time.perf_counter() - started, features.seconds_saved - saved
    test = _scored(encoded.task, done.test_predictions, trial, context)
    result = _result(done, test, encoded.task, shared)
    return replace(result, seconds=seconds + saved, seconds_saved=saved, memory=peak.bytes)


def _result(done: FineTuneResult, test: ScoredPredictions, task: Task, shared: Bundle) -> TrialResult:
    """Scores and sizes, without costs; weights are new or changed by comparison with the bundle that all tasks share."""
    old = {f"backbone.{name}": tensor for name, tensor in shared.model.backbone.state_dict().items()}
    weights = done.model.weights()
    new = {name: tensor for name, tensor in weights.items() if name not in old}
    changed = [tensor for name, tensor in weights.items() if name in old and not torch.equal(tensor, old[name])]
    return TrialResult(
        score=test.score,
        resampled=_rounded(test.resampled),
        seconds=0.0,
        validation=_score(task, done.validation_predictions),
        resampled_validation=_resampled(task, done.validation_predictions),
        trainable=done.trainable,
        new=sum(tensor.numel() for tensor in new.values()),
        disk=sum(tensor.numel() * tensor.element_size() for tensor in (*new.values(), *changed)),
        collapsed=collapsed(task, test.scores),
    )


def _scored(task: Task, predictions: Any, trial: Trial, context: SweepContext) -> ScoredPredictions:
    """The test scores of a trial; a split that its seed drew counts for the task's own, whose texts are in it or in training."""
    return score_test(task, predictions, scored_method(trial, context), trial.seed, counted=_read_task(context, None))


def _score(task: Task, predictions: Any) -> float:
    """The metric on the validation split."""
    return task_type_of(task).scores(task.validation, predictions, task).score(task.metric)


def _resampled(task: Task, predictions: Any) -> tuple[float, ...]:
    return _rounded(task_type_of(task).resampled_scores(task.validation, predictions, task))


def _rounded(resampled: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in resampled)


def _task(trial: Trial, context: SweepContext) -> Task:
    return _read_task(context, trial.seed if trial.resample else None)


@functools.lru_cache(maxsize=2)
def _read_task(context: SweepContext, split_seed: int | None) -> Task:
    """The task, or the split that a seed draws of its texts, made once in each process.

    Leaks are dropped from each split. Raises ``DataError`` if the task is no longer the one with the context's digest.
    """
    given = load_task(context.task)
    task = context.without_leaks(given)
    if task.digest != context.digest:
        raise DataError(f"the texts of {context.task} changed while trials were running; start again")
    return task if split_seed is None else context.without_leaks(resplit(given, split_seed))


def prepared(trial: Trial, context: SweepContext) -> tuple[Bundle, Bundle, EncodedTask]:
    """The bundle of a trial, the one that all tasks share, and the texts as they read them; kept in this process."""
    method, split_seed = trial.method, trial.seed if trial.resample else None
    return _prepare(method.backbone, method.backbone_digest, method.shared_backbone, split_seed, context)


@functools.lru_cache(maxsize=4)
def _prepare(
    backbone: str, digest: str, shared_backbone: str, split_seed: int | None, context: SweepContext
) -> tuple[Bundle, Bundle, EncodedTask]:
    """The bundle, the one that all tasks share, and the encoded texts, made once in each process.

    Features of a frozen backbone are shared by all processes through the disk. The digest makes a changed bundle another entry of
    the cache.
    """
    bundle = load_bundle(find_bundle(backbone))
    task = _read_task(context, split_seed)
    encoded = EncodedTask.of(task, swap_head(bundle.model, head_config_for(task, context.tune), 0), bundle.tokenizer)
    shared = load_bundle(find_bundle(shared_backbone)) if shared_backbone else bundle
    return bundle, shared, replace(encoded, features=FeatureCache(Path(context.folder) / "features"))
