"""From labels to a model: every method that the time allows, chosen within the labels, and the best fitted to all of them.

The labels are all there is: each method predicts each text when it is left out (five repetitions of five folds), these predictions
choose, and say how good the chosen method will be (``stats.selected``). Test texts, if they are given, are scored once, at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from warmstart.config import Config
from warmstart.data.pool import task_pool
from warmstart.data.scorings import ScoringRun
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.experiment.config import RaceConfig, duration_seconds
from warmstart.experiment.fit_result import FitResult, OutOfFold, least_unlabelled
from warmstart.experiment.inputs import trial_budget
from warmstart.experiment.methods import keeps_backbone, reads_pool, stack_of
from warmstart.experiment.more_labels import more_labels
from warmstart.experiment.refit import Refit, refit
from warmstart.experiment.several_labels_result import SeveralLabelsResult
from warmstart.experiment.stack import combine, trials_of_seed
from warmstart.experiment.store import TrialPredictions, read_predictions
from warmstart.experiment.sweep import Sweep, estimate_methods, open_sweep, run_sweep
from warmstart.experiment.trial import Method, SweepRuns, Trial
from warmstart.finetuning.calibration import confidence_and_correct, threshold_from
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.model.bundle import Bundle, Calibration
from warmstart.runs.verdict import ACCURACY
from warmstart.seeding import rng
from warmstart.stack.stack import Stack
from warmstart.stats.calibration import apply_temperature
from warmstart.stats.intervals import Estimate, percentiles
from warmstart.stats.proportions import wilson_interval
from warmstart.tasks.predict import predict
from warmstart.tasks.scoring import score_test
from warmstart.tasks.thresholds import (
    at_thresholds,
    has_thresholds,
    left_out_at_thresholds,
    scores_left_out,
    thresholds_of,
)

REPETITIONS = 5
"""of cross-validation, each with other folds"""
MOST_WRONG, CONFIDENCE = 0.05, 0.95
"""of the answers that a fit gives without a person, so many may be wrong; and how sure that is"""
SHARE_OF_CURVE = 0.1
"""of the time for trials: what more labels would bring is not said if it takes longer"""
LEAST_READINGS = 12
"""of all texts: a network in five folds costs at least as much, since a step is three and four fifths learn each time"""
SOON, TOKENS_PER_WORD = 1e12, 1.4
"""operations of an encoder that take some 15 seconds on two cores: so many are spent however short the time is"""
MANY_DIFFERENT, MANY_NAMED = 0.5, 0.9
"""a task with more labels per text has no classes; and one whose labels are all words without digits"""


def fit_task(task: Task, config: RaceConfig, command: Config | None = None) -> FitResult:
    """Compare the methods of ``config`` within the labels of a task and fit the best; its ``model`` is not saved.

    All texts of the task's training split learn; its test split, which may be empty, is scored once. The folder of the run keeps
    the settings of ``command``, if they are given. Raises ``DataError`` for labels of which no method can learn.
    """
    check_labels(task)
    several = has_thresholds(task)
    if several:
        config = config.model_copy(update={"schemes": tuple(one for one in config.schemes if not make_scheme(one).contrast)})
    alone = replace(task, test=task.test.take(NO_TEXTS))
    config = config.model_copy(update={"selection": "none", "seeds": REPETITIONS, "labels": ()})
    sweep = open_sweep(config, alone, command, measured=False)
    budget = sweep.budget(None)
    pool = task_pool(alone, config.pool).without(budget)
    if len(pool) < least_unlabelled(task):
        sweep = replace(sweep, methods=tuple(one for one in sweep.methods if not reads_pool(one)))
    sweep, runs, missing = _run_cheapest_first(sweep)
    candidates = out_of_fold(sweep, runs)
    tests = (one.no_signal for one in runs.results.values() if one.no_signal is not None)
    kind = SeveralLabelsResult if several else FitResult
    found = kind(task, len(pool), candidates, budget.choosing, sweep.audit, missing, no_signal=next(tests, None))
    if not found.learned:
        return found
    method = next(one for one in sweep.methods if one.name == found.best.name)
    counted = task.metric == ACCURACY
    until = time.time() + SHARE_OF_CURVE * duration_seconds(config.budget or "3m")
    try:
        more, late = more_labels(_cheapest_like(found, sweep), sweep, runs, until) if counted else None, False
    except TimeoutError:
        more, late = None, True
    done = refit(method, runs, sweep.context)
    held_out = done.model.calibration or Calibration() if several else _held_out(done, sweep, runs)
    model = replace(done.model, calibration=held_out)
    tested = _tested(task, model, method.name, command or config) if len(task.test) else None
    sure = None if several else threshold_from(held_out.held_out, MOST_WRONG, CONFIDENCE)
    return replace(found, model=model, more=more, late=late, alone=sure, tested=tested)


def _cheapest_like(found: FitResult, sweep: Sweep) -> Method:
    """The chosen method, if it is fitted in a moment; else the best of those that are, whose curve is much like its own."""
    quick = {one.name: float(np.mean(one.scores)) for one in found.candidates if one.family in ("baseline", "frozen")}
    best = found.best.name if found.best.name in quick else max(quick, key=lambda name: quick[name])
    return next(one for one in sweep.methods if one.name == best)


def _held_out(done: Refit, sweep: Sweep, runs: SweepRuns) -> Calibration:
    """The calibration of the model with what its trial's folds predicted: the confidence and whether it was right.

    One repetition, since a mean over several is surer than one model, and one text of each group of copies.
    """
    split, calibration = trial_budget(done.trial, sweep.context).choosing, done.model.calibration or Calibration()
    left_out = apply_temperature(_predicted(done.trial, sweep, runs, split), calibration.temperature)
    confidence, right = confidence_and_correct(left_out, split.labels)
    single = np.unique(split.units, return_index=True)[1]
    pairs = zip(confidence[single].tolist(), right[single].tolist(), strict=True)
    return calibration.model_copy(update={"held_out": tuple(pairs)})


def check_labels(task: Task) -> None:
    """Raise ``DataError`` if there is nothing to tell apart: another task type, one class, or nearly as many labels as texts."""
    several = has_thresholds(task)
    if not (task.single_label or several) or not all(isinstance(text, str) for text in task.train.texts):
        kind = "of pairs of texts" if task.single_label or several else f"a {task.type} task"
        raise DataError(f"fit learns labels of single texts, but this is {kind}; `warmstart adapt` trains it")
    if several:
        _check_several(task)
        return
    counts = np.bincount(task.train.labels, minlength=len(task.labels))
    if np.count_nonzero(counts) < 2:
        only = task.labels[counts.argmax()]
        raise DataError(f"there must be texts of at least two labels, but all {counts.max()} have '{only}'; label some of another")
    if np.count_nonzero(counts > 1) < 2:
        raise DataError("at least two labels must have two texts each, but nearly every text has a label of its own; label more")
    named = all(task.label_meanings) and not any(sign.isdigit() for name in task.labels for sign in name)
    if np.count_nonzero(counts) > max(10, (MANY_NAMED if named else MANY_DIFFERENT) * len(task.train)):
        raise DataError(
            f"labels must repeat, but {len(task.train)} texts have {np.count_nonzero(counts)} different ones; numbers are learned "
            "by `warmstart adapt` (type: regression), and a column of ids is no label: name another with --label-column"
        )


def _check_several(task: Task) -> None:
    """Raise ``DataError`` unless some label is on two texts and not on two others, and labels repeat."""
    counts, texts = task.train.labels.sum(axis=0), len(task.train)
    if not ((counts > 1) & (counts < texts - 1)).any():
        raise DataError("there must be a label that two texts have and two have not, but there is none; label more texts")
    if np.count_nonzero(counts) > max(10, MANY_DIFFERENT * texts):
        raise DataError(
            f"labels must repeat, but {texts} texts have {np.count_nonzero(counts)} different ones; name another column with "
            "--label-column"
        )


def _run_cheapest_first(sweep: Sweep) -> tuple[Sweep, SweepRuns, tuple[str, ...]]:
    """The sweep of the methods for which there was time, their trials, and the names of the others.

    The vectors of the smallest encoder come first, since they are often the best. Words have one repetition whatever the time, as
    have the vectors of each encoder that reads in seconds, or has read. They and those of the smallest have all of theirs before a
    larger one reads a text. Then each network reads the labelled texts, then those without labels. Last, each that can is trained
    in one repetition, the cheapest first, if that is expected to end in time.
    """
    alone = sorted((one for one in sweep.methods if not one.combines), key=lambda one: (one.fine_tunes, _reads_much(one)))
    smallest = min((one.backbone_parameters for one in alone if one.family == "frozen"), default=0)
    tokens = TOKENS_PER_WORD * sum(len(str(text).split()) for text in sweep.task.train.texts)
    ready = [one for one in alone if not one.fine_tunes and not _reads_much(one)]
    small = tuple(one for one in ready if one.family == "frozen" and one.backbone_parameters <= smallest)
    once = replace(sweep, config=sweep.config.model_copy(update={"seeds": 1}))
    read = run_sweep(replace(once, methods=small), None).results
    soon = tuple(one for one in ready if 2 * one.backbone_parameters * tokens < SOON or (read and one in small))
    run_sweep(replace(once, methods=soon, context=sweep.context.model_copy(update={"deadline": None})), None)
    for part in ({*small, *soon}, {one for one in alone if keeps_backbone(one)}):
        runs = run_sweep(replace(sweep, methods=tuple(one for one in alone if one in part)), None, racing=True)
    _train_in_time(once, [one for one in alone if not keeps_backbone(one)], runs)
    sweep = replace(sweep, context=sweep.context.model_copy(update={"deadline": time.time()}))  # only a stack runs after it
    runs = run_sweep(replace(sweep, methods=tuple(alone)), None)
    found = [method for method in alone if any(trial in runs.results for trial in runs.of(method))]
    whole = replace(sweep, methods=(*found, stack_of(found)))
    return whole, run_sweep(whole, None, racing=True), tuple(method.name for method in alone if method not in found)


def _train_in_time(sweep: Sweep, methods: Sequence[Method], frozen: SweepRuns) -> None:
    """The trials of networks that are expected to end before the deadline, the cheapest first.

    Steps are measured of those alone whose ``frozen`` vectors took little enough of what is left.
    """
    deadline, reading = sweep.context.deadline or math.inf, dict[str, float]()
    for trial, result in frozen.results.items():
        reading[trial.method.backbone] = min(result.seconds, reading.get(trial.method.backbone, math.inf))
    near = [one for one in methods if time.time() + LEAST_READINGS * reading.get(one.backbone, math.inf) < deadline]
    estimate = estimate_methods(sweep.config, sweep.task, near, sweep.context)
    costs = {one: seconds for one in near if (seconds := estimate.seconds_of(one)) is not None}
    for method in sorted(costs, key=lambda one: costs[one]):
        if time.time() + costs[method] <= deadline:
            run_sweep(replace(sweep, methods=(method,)), None)


def _reads_much(method: Method) -> bool:
    """Whether a network reads the texts without labels."""
    return method.family == "frozen" and reads_pool(method)


def out_of_fold(sweep: Sweep, runs: SweepRuns) -> tuple[OutOfFold, ...]:
    """What each method that has run predicts for texts that were left out, in the order of the sweep's methods."""
    found = []
    for method in sweep.methods:
        trials = [trial for trial in runs.of(method) if trial in runs.results]
        if trials:
            split = trial_budget(trials[0], sweep.context).choosing
            parts = [_predicted(trial, sweep, runs, split) for trial in trials]
            given = [_given(sweep.task, split, part) for part in parts]
            results = [runs.results[trial] for trial in trials]
            found.append(
                OutOfFold(
                    method.name,
                    method.family,
                    np.mean(parts, axis=0),
                    np.mean([labels for labels, _ in given], axis=0),
                    np.mean([right for _, right in given], axis=0),
                    tuple(scores_left_out(sweep.task, split, part).score(sweep.task.metric) for part in parts),
                    float(np.mean([one.gain[0] for one in results if one.gain] or [0.0])),
                    float(np.mean([one.seconds for one in results])),
                    float(np.mean([~labels.any(axis=1) for labels, _ in given])),
                )
            )
    return tuple(found)


def _given(task: Task, split: Split, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, C) 1 for each label that a text is given, else 0; and (N,) whether that is right."""
    if has_thresholds(task):
        labels = left_out_at_thresholds(task, split, probabilities)
        return labels, (labels == split.labels).all(axis=1)
    predicted = probabilities.argmax(axis=1)
    return np.eye(len(task.labels))[predicted], predicted == split.labels


def _predicted(trial: Trial, sweep: Sweep, runs: SweepRuns, split: Split) -> np.ndarray:
    """(N, C) what a trial predicts for each text of the split when it is left out, also when the weights of a stack are chosen."""
    if trial.method.combines:
        return _left_out(_members(trial, sweep, runs), split)
    found = read_predictions(trial, sweep.context)
    assert found is not None, "methods of one label for each text have probabilities"
    return np.asarray(found.choosing)


def _members(trial: Trial, sweep: Sweep, runs: SweepRuns) -> list[TrialPredictions]:
    """The predictions of what a stack consists of."""
    names = {name for name, *_ in runs.results[trial].members}
    same = [one for one in trials_of_seed(runs.trials, trial.seed) if one.method.id in names]
    return [found for one in same if (found := read_predictions(one, sweep.context))]


def _left_out(members: Sequence[TrialPredictions], split: Split) -> np.ndarray:
    """(N, C) what a stack predicts for texts that did not choose its weights: those of a fifth are chosen by the others.

    Copies are in the same fifth.
    """
    found = np.zeros_like(members[0].choosing)
    for units in np.array_split(rng(0, "left out of a stack").permutation(np.unique(split.units)), 5):
        held = np.isin(split.units, units)
        _, mean = combine([TrialPredictions(one.choosing[~held], one.choosing[held]) for one in members], split.labels[~held])
        found[held] = mean.test
    return found


def _tested(task: Task, model: Bundle | Stack, name: str, config: Config) -> Estimate:
    """The task's metric on the test split, which the ledger counts."""
    probabilities = at_thresholds(predict(model, task.test.texts).probabilities, thresholds_of(model))
    scored = score_test(task, probabilities, ScoringRun.of(config).method(name, [task.digest]), None)
    if task.metric == ACCURACY:
        return wilson_interval(scored.score, len(np.unique(task.test.units)))
    return Estimate(scored.score, *percentiles(scored.resampled).tolist())
