"""How trials are run: independently of each other, by joblib's workers or by the joblib backend in force."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from warmstart.data.budget import LabelBudget, label_budget, labels_sentence
from warmstart.data.pool import Pool, task_pool
from warmstart.data.task import Task, resplit
from warmstart.device import pick_device
from warmstart.errors import DataError, DivergedError, ModelError
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import FineTuneResult, head_config_for
from warmstart.finetuning.selection import fine_tune_within
from warmstart.model.bundle import Bundle
from warmstart.model.files import find_bundle, load_bundle
from warmstart.model.model import swap_head
from warmstart.stats.calibration import loss_gain
from warmstart.stats.formatting import percent
from warmstart.sweep.estimate import SweepEstimate
from warmstart.sweep.stack import average, stacked_trials
from warmstart.sweep.store import (
    SweepContext,
    TrialPredictions,
    find_result,
    read_predictions,
    save_result,
    scored_method,
    selection_settings,
    trial_settings,
    write_run_id,
)
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
            result, predictions = _fine_tune(trial, context) if trial.method.fine_tunes else _run_baseline(trial, context)
        except DivergedError:
            result, predictions = _diverged(trial, context)
        except ModelError as error:
            raise ModelError(f"{trial}: {error}") from None
    return _saved(trial, context, result, predictions)


def run_stack(trial: Trial, members: Mapping[Trial, TrialResult], context: SweepContext) -> TrialResult | None:
    """The result of combining the surest of ``members``, on the same labels; None if there are fewer than two."""
    chosen = stacked_trials(members)
    found = [one for one in (read_predictions(trial, context) for trial in chosen) if one]
    if len(chosen) < 2 or len(found) < len(chosen):
        return None
    budget, runs = _budget(trial, context), [members[one] for one in chosen]
    stacked = average(found, budget.choosing.labels)
    scored = _scored(budget.task, stacked.test, trial, context)
    result = TrialResult(
        score=scored.score,
        resampled=_rounded(scored.resampled),
        seconds=sum(run.seconds for run in runs),
        search_seconds=sum(run.search_seconds for run in runs),
        memory=max((run.memory for run in runs if run.memory is not None), default=None),
        trainable=sum(run.trainable for run in runs),
        new=sum(run.new for run in runs),
        disk=sum(run.disk for run in runs),
        note=f"mean of {', '.join(one.method.name for one in chosen)}",
        **_chosen(budget, trial, stacked.choosing),
    )
    return _saved(trial, context, result, stacked)


def _saved(trial: Trial, context: SweepContext, result: TrialResult, predictions: TrialPredictions) -> TrialResult:
    """The result with what is common to all of this process, written."""
    sizes = tuple(map(len, _task(trial, context).splits().values())) if trial.resample else ()
    result = replace(result, threads=torch.get_num_threads(), jobs=context.jobs, split_sizes=sizes)
    save_result(trial, context, result, predictions)
    return result


def _run_baseline(trial: Trial, context: SweepContext, named_as: Trial | None = None) -> tuple[TrialResult, TrialPredictions]:
    """The result of a baseline, or of a classifier on a frozen backbone's vectors; the ledger calls it ``named_as``, if given."""
    budget, baseline = _budget(trial, context), BASELINES[trial.method.scheme or trial.method.name]
    started = time.perf_counter()
    vectors = _vectors_of(trial, context) if trial.method.family == "frozen" else None
    pool = _read_pool(context, _split_seed(trial)).without(budget) if baseline.reads_pool else Pool(())
    run = run_baseline(baseline, budget, pool.texts, vectors)
    scored = _scored(budget.task, run.test, named_as or trial, context)
    result = TrialResult(
        score=scored.score,
        resampled=_rounded(scored.resampled),
        seconds=time.perf_counter() - started,
        note=f"{run.note}; {pool.left_out:,} like a test or validation text left out" if pool.left_out else run.note,
        **_chosen(budget, trial, run.choosing),
    )
    return result, TrialPredictions(run.choosing, run.test)


def _diverged(trial: Trial, context: SweepContext) -> tuple[TrialResult, TrialPredictions]:
    constant = Method(name=next(iter(baselines_for(_task(trial, context)))), family="baseline")
    result, predictions = _run_baseline(trial.model_copy(update={"method": constant}), context, named_as=trial)
    return replace(result, collapsed=True, diverged=True, diverged_rates=trial.learning_rates), predictions


def _fine_tune(trial: Trial, context: SweepContext) -> tuple[TrialResult, TrialPredictions]:
    bundle, shared, encoded = prepared(trial, context)
    budget, features = _budget(trial, context), encoded.features
    choice, config = selection_settings(trial), trial_settings(trial, context)
    with track_peak_memory(pick_device()) as peak:
        started, saved = time.perf_counter(), features.seconds_saved
        scratch = trial.method.family == "scratch"
        done = fine_tune_within(bundle, encoded, budget, config, choice, scratch=scratch)
        seconds, saved = time.perf_counter() - started, features.seconds_saved - saved
    test = _scored(budget.task, done.final.test_predictions, trial, context, done.learning_rate)
    result = TrialResult(
        score=test.score,
        resampled=_rounded(test.resampled),
        seconds=seconds + saved - done.selection_seconds,
        seconds_saved=saved,
        search_seconds=done.selection_seconds,
        memory=peak.bytes,
        learning_rate=done.learning_rate,
        tried=tuple(done.tried.items()),
        diverged_rates=done.diverged,
        collapsed=collapsed(budget.task, test.scores),
        **_sizes(done.final, shared),
        **_chosen(budget, trial, done.choosing),
    )
    return result, TrialPredictions(done.choosing, done.final.test_predictions)


def _chosen(budget: LabelBudget, trial: Trial, predictions: Any) -> dict[str, Any]:
    """The fields of a result that say how the texts that choose were predicted."""
    task_type = task_type_of(budget.task)
    scores = task_type.scores(budget.choosing, predictions, budget.task)
    resampled = task_type.resampled_scores(budget.choosing, predictions, budget.task)
    calibrated, known = budget.task.single_label and task_type.probabilistic, (budget.task.train, budget.task.validation)
    return {
        "gain": loss_gain(predictions, budget.choosing.labels, np.concatenate([split.labels for split in known]))
        if calibrated
        else None,
        "validation": scores.score(budget.task.metric),
        "resampled_validation": _rounded(resampled),
        "budget": labels_sentence(budget, trial.selection),
    }


def _sizes(done: FineTuneResult, shared: Bundle) -> dict[str, Any]:
    """The fields of a result that say what trained, and what must be kept beside the bundle that all tasks share."""
    old = {f"backbone.{name}": tensor for name, tensor in shared.model.backbone.state_dict().items()}
    weights = done.model.weights()
    new = {name: tensor for name, tensor in weights.items() if name not in old}
    changed = [tensor for name, tensor in weights.items() if name in old and not torch.equal(tensor, old[name])]
    return {
        "trainable": done.trainable,
        "new": sum(tensor.numel() for tensor in new.values()),
        "disk": sum(tensor.numel() * tensor.element_size() for tensor in (*new.values(), *changed)),
    }


def _scored(task: Task, predictions: Any, trial: Trial, context: SweepContext, learning_rate: float = 0.0) -> ScoredPredictions:
    """The test scores of a trial; a split that its seed drew counts for the task's own, whose texts are in it or in training."""
    method = scored_method(trial, context, learning_rate)
    return score_test(task, predictions, method, trial.seed, counted=_read_task(context, None))


def _rounded(resampled: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in resampled)


def _split_seed(trial: Trial) -> int | None:
    """The seed that draws the split of a trial; None: the task's own split."""
    return trial.seed if trial.resample else None


def _task(trial: Trial, context: SweepContext) -> Task:
    return _read_task(context, _split_seed(trial))


def _budget(trial: Trial, context: SweepContext) -> LabelBudget:
    return label_budget(_task(trial, context), trial.labels, trial.selection, trial.seed)


@functools.lru_cache(maxsize=2)
def _read_pool(context: SweepContext, split_seed: int | None) -> Pool:
    return task_pool(_read_task(context, split_seed), context.pool)


def _vectors_of(trial: Trial, context: SweepContext) -> Callable[[Sequence[Any]], np.ndarray]:
    """Inputs -> (N, D), their vectors by the frozen backbone of a trial, which reads each text once."""
    bundle, _, encoded = prepared(trial, context)
    model, task_type = swap_head(bundle.model, head_config_for(encoded.task, context.tune), 0), task_type_of(encoded.task)

    def vectors(inputs: Sequence[Any]) -> np.ndarray:
        rows = task_type.encode(model, bundle.tokenizer, inputs)
        return encoded.features.get(model, rows, encoded.pad_id)[:, -1].cpu().numpy()

    return vectors


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
    method = trial.method
    return _prepare(method.backbone, method.backbone_digest, method.shared_backbone, _split_seed(trial), context)


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
