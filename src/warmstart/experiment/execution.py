"""The runs of trials: independent of each other, here, or wherever a backend calls."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warmstart.baselines import BASELINES, baselines_for
from warmstart.baselines.choice import BaselineRun, run_baseline
from warmstart.baselines.simple import collapsed
from warmstart.data.budget import FOLDS, LabelBudget, labels_sentence
from warmstart.data.pool import Pool
from warmstart.data.task import Task
from warmstart.errors import DivergedError, ModelError
from warmstart.experiment.estimate import SweepEstimate
from warmstart.experiment.inputs import pool_of, prepared, task_of, trial_budget, trial_task, trial_vectors
from warmstart.experiment.stack import combine, stackable_trials
from warmstart.experiment.store import (
    SweepContext,
    TrialPredictions,
    find_result,
    read_predictions,
    save_result,
    scored_method,
    selection_settings,
    trial_settings,
)
from warmstart.experiment.trial import Limits, Method, Trial, TrialResult
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import FineTuneResult
from warmstart.finetuning.selection import fine_tune_within
from warmstart.model.bundle import Bundle
from warmstart.model.rows import plain_texts, word_vectorizer
from warmstart.seeding import rng
from warmstart.stats.calibration import loss_gain
from warmstart.stats.formatting import percent
from warmstart.stats.permutation import p_of_no_signal
from warmstart.stats.selected import out_of_reach
from warmstart.system.backends import spread_calls
from warmstart.system.console import console
from warmstart.tasks import task_type_of
from warmstart.tasks.scoring import ScoredPredictions, score_test
from warmstart.tasks.thresholds import at_thresholds, chosen_thresholds, left_out_at_thresholds

MOST_PERMUTED = 1500
"""texts whose labels are permuted, over the root of the number of classes"""
_ONE_AT_A_TIME = threading.Lock()
"""torch's generator belongs to the process: of workers that are threads, one runs at a time"""


def run_trials(
    trials: Sequence[Trial], context: SweepContext, estimate: SweepEstimate, *, first: bool = False
) -> dict[Trial, TrialResult]:
    """The results of the trials; those that the time did not allow are missing. ``estimate`` learns how long they took.

    The ``first`` of each method is a step for a log.
    """
    results = {trial: result for trial in trials if (result := find_result(trial, context))}
    todo = [trial for trial in trials if trial not in results]
    if results:
        console.print(f"{len(results)} of {len(trials)} trials are done already")
    if not todo:
        return results
    Path(context.folder).mkdir(parents=True, exist_ok=True)
    known = len(results)
    calls = [(trial, context) for trial in todo]
    with closing(spread_calls(result_of, calls, context.backend, jobs=estimate.jobs)) as spread:
        for number, result in spread:
            trial = todo[number]
            if result is not None:
                results[trial] = result
                estimate.finish(trial, result)
                left = f"; {estimate.left}" if estimate.planned.total() > 0 else ""
                console.print(f"{len(results) - known} of {len(todo)}: {trial}: {outcome(result)}{left}")
                if first:
                    console.step(f"{trial.method.name}: {outcome(result)}")
    return results


def result_of(trial: Trial, context: SweepContext) -> TrialResult | None:
    """The result that the folder holds, as after a cluster called twice, or that of running the trial; None after the deadline."""
    return find_result(trial, context) or run_trial(trial, context)


def _deadline(limits: Limits) -> float:
    return limits.deadline - limits.refits


def outcome(result: TrialResult) -> str:
    """A trial's score and time, for the terminal."""
    if result.diverged:
        return "diverged"
    if math.isnan(result.score):
        rate = f"{result.learning_rate:g}, " if result.learning_rate else ""
        return f"{rate}{percent(result.validation)} on the texts that choose, in {result.seconds:.1f} s"
    return f"{percent(result.score)} in {result.seconds:.1f} s{', collapsed' if result.collapsed else ''}"


def run_trial(trial: Trial, context: SweepContext) -> TrialResult | None:
    """Run one trial and keep its result; None after the deadline. Any process that sees the files can run it.

    A trial that diverges has the result of the constant prediction. Raises ``ModelError``, which names the trial, if the model does
    not fit.
    """
    with _ONE_AT_A_TIME:
        if time.time() > _deadline(context.limits):
            return None
        if context.threads:
            torch.set_num_threads(context.threads)
        try:
            result, predictions = _fine_tune(trial, context) if trial.method.fine_tunes else _run_baseline(trial, context)
        except DivergedError:
            result, predictions = _diverged(trial, context)
        except TimeoutError:
            return None
        except ModelError as error:
            raise ModelError(f"{trial}: {error}") from None
    return _saved(trial, context, result, predictions)


def run_stack(trial: Trial, members: Mapping[Trial, TrialResult], context: SweepContext) -> TrialResult | None:
    """The result of combining the best of ``members``, on the same labels; None if there are fewer than two."""
    candidates, budget = stackable_trials(members), trial_budget(trial, context)
    predictions = [part for part in (read_predictions(trial, context) for trial in candidates) if part]
    if len(candidates) < 2 or len(predictions) < len(candidates):
        return None
    shares, stacked = combine(predictions, budget.choosing.labels)
    chosen = [(candidates[share.member], share) for share in shares]
    runs = [members[member] for member, _ in chosen]
    result = TrialResult(
        **_scored(budget, stacked, trial, context),
        seconds=sum(run.seconds for run in runs),
        search_seconds=sum(run.search_seconds for run in runs),
        trainable=sum(run.trainable for run in runs),
        new=sum(run.new for run in runs),
        disk=sum(run.disk for run in runs),
        note=", ".join(f"{percent(share.weight, 0)} {member.method.name}" for member, share in chosen),
        members=tuple((member.method.id, share.weight, share.temperature) for member, share in chosen),
        candidates=tuple(member.method.id for member in members),
        no_signal=_p_of_no_signal(trial, members, budget, context),
        **_chosen(budget, trial, stacked.choosing),
    )
    return _saved(trial, context, result, stacked)


def _p_of_no_signal(trial: Trial, members: Iterable[Trial], budget: LabelBudget, context: SweepContext) -> float:
    """The p-value of a test that the labels of texts that learn can be learned: by words, characters, and frozen members' vectors.

    Of copies one counts, and of many texts as many as permutations take about a second for.
    """
    split, chance = budget.task.train, rng(trial.seed, "permuted labels")
    kept = chance.permutation(np.unique(split.units, return_index=True)[1])[: int(MOST_PERMUTED / len(budget.task.labels) ** 0.5)]
    texts, kernels = [split.texts[i] for i in kept], list[np.ndarray]()
    for characters in (False, True):
        with suppress(ValueError):  # no words
            rows = word_vectorizer(word_pairs=False, weighted=True, characters=characters, min_df=1).fit_transform(
                plain_texts(texts)
            )
            kernels.append((rows @ rows.T).toarray())
    for member in {each.method.backbone_digest: each for each in members if each.method.family == "frozen"}.values():
        if read := trial_vectors(member, context):
            vectors = read(texts)
            kernels.append(vectors @ vectors.T)
    return p_of_no_signal(kernels, split.labels[kept], chance)


def _saved(trial: Trial, context: SweepContext, result: TrialResult, predictions: TrialPredictions) -> TrialResult:
    """The result with what is common to all of this process, written."""
    sizes = tuple(map(len, trial_task(trial, context).splits().values())) if trial.resample else ()
    result = replace(result, threads=torch.get_num_threads(), jobs=context.jobs, split_sizes=sizes)
    save_result(trial, context, result, predictions)
    return result


def _run_baseline(trial: Trial, context: SweepContext, named_as: Trial | None = None) -> tuple[TrialResult, TrialPredictions]:
    """The result of a baseline, or of a classifier on a frozen backbone's vectors; the ledger calls it ``named_as``, if given."""
    features = prepared(trial, context)[1].features if trial.method.family == "frozen" else FeatureCache()
    features.begin_count()
    started = time.perf_counter()
    budget, run, pool = baseline_within(trial, context)
    left_out = f"{pool.left_out:,} like a test or validation text left out" if pool.left_out else ""
    result = TrialResult(
        **_scored(budget, TrialPredictions(run.choosing, run.test), named_as or trial, context),
        seconds=time.perf_counter() - started + features.seconds_saved,
        seconds_saved=features.seconds_saved,
        note="; ".join(part for part in (run.note, left_out) if part),
        setting=run.setting,
        **_chosen(budget, trial, run.choosing),
    )
    return result, TrialPredictions(run.choosing, run.test)


def baseline_within(
    trial: Trial, context: SweepContext, share: float | None = None, setting: float | None = None
) -> tuple[LabelBudget, BaselineRun, Pool]:
    """The labels of a trial, its baseline run within them, and the pool that it read.

    A ``share`` of the labels learns in each of five folds. With a ``setting`` that the trial chose before, only the model is
    fitted.
    """
    budget, baseline = trial_budget(trial, context), BASELINES[trial.method.scheme or trial.method.name]
    budget = budget if share is None else replace(budget, share=share, parts=FOLDS)
    pool = pool_of(context, trial.split_seed).without(budget) if baseline.reads_pool else Pool(())
    vectors = trial_vectors(trial, context)
    return budget, run_baseline(baseline, budget, pool.texts, vectors, setting, equal=context.equal_classes), pool


def constant_of(trial: Trial, context: SweepContext) -> Trial:
    """The trial of the constant prediction on the same labels, which stands for one that diverged."""
    name = next(iter(baselines_for(trial_task(trial, context))))
    return trial.model_copy(update={"method": Method(name=name, family="baseline")})


def _diverged(trial: Trial, context: SweepContext) -> tuple[TrialResult, TrialPredictions]:
    result, predictions = _run_baseline(constant_of(trial, context), context, named_as=trial)
    return replace(result, collapsed=True, diverged=True, diverged_rates=trial.learning_rates), predictions


def _fine_tune(trial: Trial, context: SweepContext) -> tuple[TrialResult, TrialPredictions]:
    bundle, encoded = prepared(trial, context)
    budget, features = trial_budget(trial, context), encoded.features
    choice, config = selection_settings(trial), trial_settings(trial, context)
    if context.limits.in_turn:
        choice = replace(choice, after_fold=partial(_go_on, trial, budget, context), last=False)
    started = time.perf_counter()
    done = fine_tune_within(bundle, encoded, budget, config, choice, scratch=trial.method.family == "scratch")
    seconds, saved = time.perf_counter() - started, features.seconds_saved
    test = done.choosing[:0] if done.final.test_predictions is None else done.final.test_predictions
    last = done.final.training
    if not choice.last:
        seconds = last.seconds + done.selection_seconds
        context.limits.refits += last.seconds
    predictions = TrialPredictions(test[:0] if done.choosing is None else done.choosing, test)
    result = TrialResult(
        **_scored(budget, predictions, trial, context, done.learning_rate),
        seconds=seconds + saved - done.selection_seconds,
        seconds_saved=saved,
        search_seconds=done.selection_seconds,
        learning_rate=done.learning_rate,
        steps=last.steps if choice.last else 0,
        tried=tuple(done.tried.items()),
        diverged_rates=done.diverged,
        **_sizes(done.final, bundle),
        **({"validation": math.nan} if done.choosing is None else _chosen(budget, trial, done.choosing)),
    )
    return result, predictions


def _go_on(trial: Trial, budget: LabelBudget, context: SweepContext, predictions: Sequence[Any], seconds: float) -> None:
    """Raise ``TimeoutError`` after a fold if the others would not end in time, or if the method can hardly win any more."""
    done, limits = len(predictions), context.limits
    if time.time() + seconds / done * (len(budget.folds) - done + 1) > _deadline(context.limits):
        raise TimeoutError
    if limits.right is None or not budget.task.single_label:
        return
    seen = np.concatenate([fold.choose for fold in budget.folds[:done]])
    places = np.searchsorted(np.sort(np.concatenate([fold.choose for fold in budget.folds])), seen)
    right = np.concatenate(predictions).argmax(axis=1) == budget.whole.train.labels[seen]
    if out_of_reach(right, limits.right[places], limits.units[places]):
        limits.beaten.append(trial.method.name)
        raise TimeoutError


def _chosen(budget: LabelBudget, trial: Trial, predictions: Any) -> dict[str, Any]:
    """The fields of a result that say how the texts that choose were predicted."""
    task_type = task_type_of(budget.task)
    decided = left_out_at_thresholds(budget.task, budget.choosing, predictions)
    scores = task_type.scores(budget.choosing, decided, budget.task)
    resampled = task_type.resampled_scores(budget.choosing, decided, budget.task)
    calibrated = task_type.probabilistic and (budget.task.single_label or task_type.several_labels)
    return {
        "gain": loss_gain(predictions, budget.choosing.labels, budget.labels) if calibrated else None,
        "validation": scores.score(budget.task.metric),
        "resampled_validation": _rounded(resampled),
        "budget": labels_sentence(budget, trial.selection, "the method and the settings of baselines"),
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


def _scored(
    budget: LabelBudget, predictions: TrialPredictions, trial: Trial, context: SweepContext, learning_rate: float = 0.0
) -> dict[str, Any]:
    """The fields of a result that the test split gives; of a trial that only chooses, or without test texts, nothing is scored."""
    task = budget.task
    if trial.chooses_rate or not len(task.test):
        return {"score": math.nan, "resampled": ()}
    decided = at_thresholds(predictions.test, chosen_thresholds(task, budget.choosing, predictions.choosing))
    scores = score_trial(task, decided, trial, context, learning_rate)
    lost = trial.method.fine_tunes and collapsed(task, scores.scores)
    return {"score": scores.score, "resampled": _rounded(scores.resampled), "collapsed": lost}


def score_trial(task: Task, predictions: Any, trial: Trial, context: SweepContext, learning_rate: float = 0.0) -> ScoredPredictions:
    """The predictions of a trial for the test texts of its ``task``, scored.

    A split that the seed drew counts for the task's own, whose texts are in it or in training.
    """
    method, counted = scored_method(trial, context, learning_rate), task_of(context, None)
    scores = score_test(task, predictions, method, trial.seed, counted).scores
    return ScoredPredictions(task, predictions, scores)


def _rounded(resampled: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in resampled)
