"""From labels to a model: every method that the time allows, chosen within the labels, and the best fitted to all of them.

The labels are all there is: each method predicts each text when it is left out, in twenty folds, or in five where a network trains
or texts without labels are read. These predictions choose, and say how good the chosen method will be
(``stats.selected``). Test texts, if they are given, are scored once, at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from warmstart.baselines.vectors import VECTOR_POOL_LIMIT
from warmstart.config import Config
from warmstart.data.budget import FOLDS, LabelBudget
from warmstart.data.cells import RowText
from warmstart.data.pool import task_pool
from warmstart.data.scorings import ScoringRun
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.data.text_key import key_hash, key_of, text_hashes_wanted
from warmstart.errors import DataError
from warmstart.experiment.beside import OtherColumns, try_columns
from warmstart.experiment.choose import MAJORITY_LABEL
from warmstart.experiment.config import FEW_LABELS, RaceConfig, duration_seconds
from warmstart.experiment.execution import baseline_within
from warmstart.experiment.fit_result import FROZEN_FOLDS, FitResult, least_unlabelled
from warmstart.experiment.inputs import trial_budget
from warmstart.experiment.methods import reads_pool, reads_votes, stack_of
from warmstart.experiment.refit import refit
from warmstart.experiment.stack import combine, trials_of_seed
from warmstart.experiment.store import TrialPredictions, read_predictions
from warmstart.experiment.sweep import Sweep, open_sweep, run_sweep
from warmstart.experiment.trial import Limits, Method, OutOfFold, SweepRuns, Trial
from warmstart.experiment.votes import DifferingVote, UsedVotes
from warmstart.finetuning.calibration import confidence_and_correct, fitted_calibration, threshold_from
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.model.bundle import MOST_LEFT_OUT, Bundle, Calibration, LeftOutAnswers
from warmstart.model.stack import Member, Stack
from warmstart.runs.verdict import ACCURACY, score_words
from warmstart.seeding import rng
from warmstart.stats.calibration import apply_temperature
from warmstart.stats.differences import MethodScores
from warmstart.stats.extrapolation import extrapolate
from warmstart.stats.intervals import Estimate, percentiles
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.shares import FEWEST_LABELLED
from warmstart.system.console import console
from warmstart.system.stopping import Terminated
from warmstart.tasks.predict import predict, raw_predictions
from warmstart.tasks.scoring import score_test
from warmstart.tasks.shares import Shares, shares
from warmstart.tasks.thresholds import (
    at_thresholds,
    chosen_thresholds,
    has_thresholds,
    left_out_at_thresholds,
    scores_left_out,
    thresholds_of,
)
from warmstart.tasks.votes import agreement_of

MOST_WRONG, CONFIDENCE = 0.05, 0.95
"""largest share of wrong answers without a person, and the confidence level of that bound"""
SHARE_OF_CURVE = 0.1
"""share of the time for trials that the curve may take, and then the counting of labels; without it nothing is said of them"""
FEW_ENOUGH = 500
"""labels: with more a fit takes tenths of seconds, and there are fewer folds"""
FIRST_FOLD = 12
"""readings of the labelled texts: what the first fold of a network that trains costs, about"""
SOON, TOKENS_PER_WORD = 1e12, 1.4
"""operations of an encoder that take some 15 seconds on two cores: so many are spent however short the time is"""
MANY_DIFFERENT, MANY_NAMED = 0.5, 0.9
"""a task with more labels per text has no classes; and one whose labels are all words without digits"""
REPETITIONS = 5
"""repetitions of the curve, each with other folds"""
SHARES = (0.35, 0.5, 0.7, 1.0)
"""shares of the labels that learn in each fold"""
ROUND_NUMBERS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""numbers of further labels that may be spoken of"""
MOST_COMPARED, SHOWN_DIFFERING = 300, 10
"""texts whose votes are compared with the model, and the most that are shown"""
MOST_COUNTED = 1000
"""texts without labels of which the labels are counted: with more, an interval from 100 labels would be 5% narrower at most"""


def fit_task(
    task: Task,
    config: RaceConfig,
    command: Config | None = None,
    *,
    random_sample: bool = False,
    columns: Sequence[str] = (),
) -> FitResult:
    """Compare the methods of ``config`` within the labels of a task and fit the best; its ``model`` is not saved.

    All texts of the task's training split learn; its test split, which may be empty, is scored once. The folder of the run keeps
    the settings of ``command``, if they are given. If the texts are a ``random_sample``, methods learn how frequent classes are,
    too. Other ``columns`` that come with the texts are read if they are named, or if none are and they help. Ctrl-C ends the
    comparison, and the best so far is fitted. Raises ``DataError`` for labels of which no method can learn.
    """
    check_labels(task)
    several = has_thresholds(task)
    if several:
        config = config.model_copy(update={"schemes": tuple(name for name in config.schemes if not make_scheme(name).contrast)})
    alone = replace(task, test=task.test.take(NO_TEXTS))
    config = config.model_copy(update={"selection": "none", "seeds": 1, "labels": ()})
    sweep = open_sweep(config, alone, command, measured=False)
    budget = sweep.budget(None)
    parts = FROZEN_FOLDS if len(budget) <= FEW_ENOUGH else FOLDS
    how = {"parts": parts, "equal_classes": (equal := not (random_sample or several))}
    sweep = replace(sweep, context=sweep.context.model_copy(update=how))
    pool = task_pool(alone, config.pool).without(budget)
    if len(pool) < least_unlabelled(task):
        sweep = replace(sweep, methods=tuple(method for method in sweep.methods if not reads_pool(method)))
    queue = _Queue(sweep, pool.texts, partial(FitResult, task, len(pool)))
    sweep, runs, missing = queue.run()
    tests = (result.no_signal for result in runs.results.values() if result.no_signal is not None)
    result = queue.result(out_of_fold(sweep, runs), budget.choosing, sweep.audit, missing, no_signal=next(tests, None))
    result = replace(result, interrupted=queue.interrupted, votes=(votes := _votes_in(result)))
    if not result.learned:
        return result
    method = next(method for method in sweep.methods if method.name == result.best.name)
    counted = task.metric == ACCURACY
    seconds = SHARE_OF_CURVE * duration_seconds(config.budget or "3m")
    try:
        more, late = more_labels(_cheapest_like(result, sweep), sweep, runs, time.time() + seconds) if counted else None, False
    except TimeoutError:
        more, late = None, True
    console.print(f"fitting {method.name} to all labels")
    done = refit(method, runs, sweep.context)
    budget = trial_budget(done.trial, sweep.context)
    answers = _predicted(done.trial, sweep, runs, budget.choosing)
    beside = try_columns(budget.choosing, answers, fitted_calibration(budget, answers), columns, equal=equal)
    result, model, answers = _with_columns(result, beside, done.model, answers)
    held_out = _held_out(model, budget, answers, random_sample)
    model = replace(model, calibration=held_out)
    tested = _tested(task, model, method.name, command or config) if len(task.test) else None
    sure = None if several else threshold_from(held_out.held_out, MOST_WRONG, CONFIDENCE)
    found_shares = _shares(model, pool.texts, seconds)
    votes = votes and replace(votes, differing=_differing_votes(model, task, pool.texts))
    return replace(result, model=model, more=more, late=late, alone=sure, tested=tested, shares=found_shares, votes=votes)


def _votes_in(result: FitResult) -> UsedVotes | None:
    """The votes of the task of a fit, and what they add to its choice; None without votes."""
    if not (found := agreement_of(result.task)):
        return None
    without = replace(result, candidates=tuple(method for method in result.candidates if not method.votes))
    expected = (result.selected.expected.value, without.selected.expected.value)
    return UsedVotes(found, result.best.votes, result.task.metric, expected)


def _differing_votes(model: Bundle | Stack, task: Task, pool: Sequence[str]) -> tuple[DifferingVote, ...]:
    """The texts on whose votes the model believes least, of a random sample of those of the pool that have votes."""
    voted = [text for text in _readable_by(model, pool) if text in task.votes.answers]
    texts = [voted[place] for place in rng(0, "votes that are compared").permutation(len(voted))[:MOST_COMPARED]]
    if not texts:
        return ()
    probabilities, votes = raw_predictions(model, texts), task.votes.of(texts)
    best, believed = probabilities.argmax(axis=1), probabilities[np.arange(len(texts)), votes]
    order = [place for place in np.argsort(believed, kind="stable").tolist() if best[place] != votes[place]]
    return tuple(
        DifferingVote(texts[place], task.labels[votes[place]], task.labels[best[place]], float(probabilities[place].max()))
        for place in order[:SHOWN_DIFFERING]
    )


def _readable_by(model: Bundle | Stack, pool: Sequence[str]) -> Sequence[str]:
    """The texts of a pool that a model can read: all, but of one that reads other columns those that come with them."""
    whole = isinstance(model, Stack) and model.beside
    return [text for text in pool if isinstance(text, RowText)] if whole else pool


def _shares(model: Bundle | Stack, pool: Sequence[str], seconds: float) -> Shares | None:
    """The shares of the labels among the texts without labels, of which a random sample is read, as large as the time allows.

    None if few texts are known, or can be read.
    """
    pool = _readable_by(model, pool)
    few = not model.calibration or not model.calibration.left_out or len(model.calibration.left_out.labels) < FEWEST_LABELLED
    if few or len(pool) < FEWEST_LABELLED:
        return None
    drawn = [pool[place] for place in rng(0, "texts that are counted").permutation(len(pool))[:MOST_COUNTED]]
    started = time.monotonic()
    predict(model, drawn[:FEWEST_LABELLED])
    drawn = drawn[: int(seconds / (time.monotonic() - started) * FEWEST_LABELLED)]
    return replace(shares(model, drawn), asked=len(pool)) if len(drawn) >= FEWEST_LABELLED else None


def more_labels(method: Method, sweep: Sweep, runs: SweepRuns, until: float) -> tuple[int, Estimate] | None:
    """A number of further labels, at most as many as there are, and the points of accuracy that they add, with a 90% interval.

    None if it learned nothing from more labels. ``method`` is a cheap one. Raises ``TimeoutError`` if ``until`` (seconds since
    1970) is over before all is known.
    """
    first = next(trial for trial in runs.of(method) if trial in runs.results)
    trials = [first.model_copy(update={"seed": first.seed + number}) for number in range(REPETITIONS)]
    scores, units = dict[int, MethodScores](), trial_budget(first, sweep.context).choosing.units
    count = len(trial_budget(first, sweep.context))
    for share in SHARES:
        right, sizes = list[np.ndarray](), list[int]()
        for trial in trials:
            if time.time() > until:
                raise TimeoutError
            budget, run, _ = baseline_within(trial, sweep.context, share)
            right.append(np.asarray(run.choosing.argmax(axis=1) == budget.choosing.labels))
            sizes += [len(fold.learn) for fold in budget.folds]
        # one of each class is more than a small share
        scores[round(float(np.mean(sizes)))] = MethodScores.from_texts("", np.stack(right), units)
    curve = extrapolate(scores, pool=count)
    further = max((number for number in ROUND_NUMBERS if number <= count), default=0)
    return (further, curve.gain(count, count + further)) if curve and further else None


def _cheapest_like(result: FitResult, sweep: Sweep) -> Method:
    """The chosen method, if it is fitted in a moment; else the best of those that are, whose curve is much like its own."""
    quick = {candidate.name: candidate.score for candidate in result.candidates if candidate.family in ("baseline", "frozen")}
    best = result.best.name if result.best.name in quick else max(quick, key=lambda name: quick[name])
    return next(method for method in sweep.methods if method.name == best)


def _with_columns(
    result: FitResult, columns: OtherColumns | None, model: Bundle | Stack, answers: np.ndarray
) -> tuple[FitResult, Bundle | Stack, np.ndarray]:
    """The result, the model and its answers (N, C) out of fold, with other columns if they help."""
    result = replace(result, columns=columns)
    if not columns or columns.model is None or columns.answers is None:
        return result, model, answers
    text, answers = result.best, columns.answers
    given, right = _given(result.task, result.left_out, answers)
    score = scores_left_out(result.task, result.left_out, answers).score(result.task.metric)
    name = f"{text.name} + columns"
    candidate = text._replace(name=name, columns=True, probabilities=answers, predicted=given, right=right, score=score)
    if isinstance(model, Bundle):
        model = Stack((Member(text.name, model),), result.task.type, result.task.labels, model.history)
    model = replace(
        model, beside=columns.model, calibration=Calibration(thresholds=chosen_thresholds(result.task, result.left_out, answers))
    )
    return replace(result, candidates=(*result.candidates, candidate)), model, answers


def _held_out(model: Bundle | Stack, budget: LabelBudget, predicted: np.ndarray, random_sample: bool) -> Calibration:
    """The calibration of a model by its answers (N, C) out of fold, and these answers, of copies one.

    Where texts have one label each, also the confidence and correctness of each answer.
    """
    split = budget.choosing
    single, several = np.unique(split.units, return_index=True)[1], has_thresholds(budget.task)
    calibration = (model.calibration or Calibration()) if several else fitted_calibration(budget, predicted)
    probabilities = apply_temperature(predicted, calibration.temperature, several)
    kept = {"left_out": _left_out_answers(split.take(single), probabilities[single], None if random_sample else budget.whole)}
    if several:
        return calibration.model_copy(update=kept)
    confidence, right = confidence_and_correct(probabilities, split.labels)
    pairs = zip(confidence[single].tolist(), right[single].tolist(), strict=True)
    return calibration.model_copy(update=kept | {"held_out": tuple(pairs)})


def _left_out_answers(split: Split, probabilities: np.ndarray, task: Task | None) -> LeftOutAnswers:
    """What a model keeps of its answers (N, C) to the labelled texts: of many, a random sample.

    The task tells which texts were drawn at random; without it all were.
    """
    rows = np.sort(rng(0, "answers that are kept").permutation(len(split))[:MOST_LEFT_OUT])
    hashes = [key_hash(key_of(split.texts[row])).hex() for row in rows]
    random = {*hashes} if task is None else task.random_texts
    labels = [np.flatnonzero(row) if np.ndim(row) else [row] for row in split.labels[rows]]
    return LeftOutAnswers(
        labels=tuple(tuple(map(int, numbers)) for numbers in labels),
        probabilities=tuple(map(tuple, probabilities[rows].round(4).tolist())),
        hashes=tuple(hashes) if text_hashes_wanted() else (),
        random=() if random is None else tuple(code in random for code in hashes),
    )


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


class _Queue:
    """The methods in the order in which they run, until the time is over: what is cheap and good comes first.

    Words and the smallest encoder come first, whatever the time, as does each encoder that reads the labelled texts in seconds;
    then larger ones. Networks that train follow, on the encoder first whose vectors are best: one that would not end in time, or
    that can hardly win any more, is left after a fold. Last, where labels are few, networks read the texts without labels.
    """

    def __init__(self, sweep: Sweep, pool: Sequence[str], result: Callable[..., FitResult]) -> None:
        few = len(sweep.budget(None)) < FEW_LABELS
        alone = (
            method for method in sweep.methods if not method.combines and (few or reads_votes(method) or not _reads_much(method))
        )
        self.methods = sorted(alone, key=lambda method: (method.fine_tunes, _reads_much(method)))
        self.until, self.limits, self.result = sweep.context.limits.deadline, Limits(in_turn=True), result
        self.sweep = replace(sweep, context=sweep.context.model_copy(update={"limits": self.limits}))
        self.words = _words(sweep.task.train.texts)
        self.pool_words = _words(pool) * min(1.0, VECTOR_POOL_LIMIT / max(1, len(pool)))
        self.interrupted, self.so_far, self.frozen = False, "", dict[str, OutOfFold]()  # by backbone, what its vectors reach

    def run(self) -> tuple[Sweep, SweepRuns, tuple[str, ...]]:
        """The sweep of the methods that had their time, their trials, and the names of those that had none.

        Ctrl-C ends it, and the process, if nothing has learned yet or where it is asked to by SIGTERM.
        """
        try:
            for methods, deadline in self._turns():
                self._take(methods, deadline)
        except Terminated:
            raise
        except KeyboardInterrupt:
            self.interrupted = True
            console.print("stopping: what has run is combined and saved")
        runs = self._finished(self.methods)
        finished = [method for method in self.methods if any(trial in runs.results for trial in runs.of(method))]
        if self.interrupted and all(method.name == MAJORITY_LABEL for method in finished):
            raise KeyboardInterrupt
        missing = (method.name for method in self.methods if method not in finished and method.name not in self.limits.beaten)
        plain = [method for method in finished if not reads_votes(method)]
        methods = (*finished, stack_of(plain), *([stack_of(finished)] if len(plain) < len(finished) else []))
        return replace(self.sweep, methods=methods), self._finished(methods), tuple(missing)

    def _finished(self, methods: Sequence[Method]) -> SweepRuns:
        """The trials of methods that have run, and their stack, if it is among the methods."""
        self.limits.deadline = time.time()
        return run_sweep(replace(self.sweep, methods=tuple(methods)), None)

    def _turns(self) -> Iterator[tuple[Sequence[Method], float]]:
        """The methods to run next, and the moment until which they may run."""
        ready = [method for method in self.methods if not method.fine_tunes and not _reads_much(method)]
        smallest = min((method.backbone_parameters for method in ready if method.family == "frozen"), default=0)
        operations = {method: 2 * method.backbone_parameters * TOKENS_PER_WORD * self.words for method in ready}
        small = [method for method in ready if method.family == "frozen" and method.backbone_parameters <= smallest]
        soon = [method for method in ready if operations[method] < SOON and method not in small]
        yield small, math.inf if small and operations[small[0]] < SOON else self.until
        yield soon, math.inf
        yield [method for method in ready if method not in small and method not in soon], self.until
        self.so_far = self._best_so_far()
        for method in sorted((tuned for tuned in self.methods if tuned.fine_tunes), key=self._promise):
            if self._ends_in_time(method, FIRST_FOLD):
                yield [method], self.until
        for method in filter(_reads_much, self.methods):
            if self._ends_in_time(method, self.pool_words / max(1, self.words)):
                yield [method], self.until

    def _ends_in_time(self, method: Method, readings: float) -> bool:
        """True if there is time for a network to read the labelled texts this often, by its seconds for their vectors."""
        seconds = self.frozen[method.backbone].seconds if method.backbone in self.frozen else math.inf
        return time.time() + readings * seconds < self.until - self.limits.refits

    def _promise(self, method: Method) -> tuple[float, int]:
        """The order of networks that train: by the vectors of their encoders, then by size."""
        return -self.frozen[method.backbone].score if method.backbone in self.frozen else 0.0, method.backbone_parameters

    def _take(self, methods: Sequence[Method], deadline: float) -> None:
        """Run some methods; say what runs now, and how good the best so far is likely to be."""
        if not methods:
            return
        console.print(f"{self.so_far}now {', '.join(method.name for method in methods[:2])}{' and others' * (len(methods) > 2)}")
        self.limits.deadline = deadline
        run_sweep(replace(self.sweep, methods=tuple(methods)), None)
        if any(method.fine_tunes for method in methods):
            self.so_far = self._best_so_far()

    def _best_so_far(self) -> str:
        """The best method that has run, in words; networks must still be able to beat it."""
        split = self.sweep.budget(None).choosing
        result = self.result(out_of_fold(self.sweep, self._finished(self.methods)), split, self.sweep.audit)
        paths = {method.name: method.backbone for method in self.methods if method.family == "frozen" and not _reads_much(method)}
        self.frozen = {paths[candidate.name]: candidate for candidate in result.candidates if candidate.name in paths}
        self.limits.right, self.limits.units = result.best.right, split.units
        return f"so far {score_words(result.task.metric, result.expected.value)} with {result.best.name}; " if result.told else ""


def _words(texts: Sequence[Any]) -> int:
    return sum(len(str(text).split()) for text in texts)


def _reads_much(method: Method) -> bool:
    """True if a network reads the texts without labels."""
    return method.family == "frozen" and reads_pool(method)


def out_of_fold(sweep: Sweep, runs: SweepRuns) -> tuple[OutOfFold, ...]:
    """Predictions of each method that has run for left-out texts, in the order of the sweep's methods."""
    predictions, results = list[OutOfFold](), runs.results
    for trial, result in ((trial, results[trial]) for method in sweep.methods for trial in runs.of(method) if trial in results):
        split = trial_budget(trial, sweep.context).choosing
        probabilities = _predicted(trial, sweep, runs, split)
        labels, right = _given(sweep.task, split, probabilities)
        score = scores_left_out(sweep.task, split, probabilities).score(sweep.task.metric)
        method, gain = trial.method, result.gain[0] if result.gain else 0.0
        voted = {member.method.id for member in (runs.trials if method.combines else [trial]) if reads_votes(member.method)}
        votes = bool(voted & {method.id, *(name for name, *_ in result.members)})
        predictions.append(OutOfFold(method.name, method.family, probabilities, labels, right, score, gain, result.seconds, votes))
    return tuple(predictions)


def _given(task: Task, split: Split, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, C) 1 for each label that a text is given, else 0; and (N,) 1 where that is right."""
    if has_thresholds(task):
        labels = left_out_at_thresholds(task, split, probabilities)
        return labels, (labels == split.labels).all(axis=1).astype(np.float64)
    predicted = probabilities.argmax(axis=1)
    return np.eye(len(task.labels))[predicted], (predicted == split.labels).astype(np.float64)


def _predicted(trial: Trial, sweep: Sweep, runs: SweepRuns, split: Split) -> np.ndarray:
    """(N, C) what a trial predicts for each text of the split when it is left out, also when the weights of a stack are chosen."""
    if trial.method.combines:
        return _left_out(_members(trial, sweep, runs), split)
    predictions = read_predictions(trial, sweep.context)
    assert predictions is not None, "methods of one label for each text have probabilities"
    return np.asarray(predictions.choosing)


def _members(trial: Trial, sweep: Sweep, runs: SweepRuns) -> list[TrialPredictions]:
    """The predictions of what a stack consists of."""
    names = {name for name, *_ in runs.results[trial].members}
    same = [member for member in trials_of_seed(runs.trials, trial.seed) if member.method.id in names]
    return [predictions for member in same if (predictions := read_predictions(member, sweep.context))]


def _left_out(members: Sequence[TrialPredictions], split: Split) -> np.ndarray:
    """(N, C) predictions of a stack for texts that did not choose its weights: those of a fifth are chosen by the others.

    Copies are in the same fifth.
    """
    probabilities = np.zeros_like(members[0].choosing)
    for units in np.array_split(rng(0, "left out of a stack").permutation(np.unique(split.units)), 5):
        held = np.isin(split.units, units)
        _, mean = combine([TrialPredictions(part.choosing[~held], part.choosing[held]) for part in members], split.labels[~held])
        probabilities[held] = mean.test
    return probabilities


def _tested(task: Task, model: Bundle | Stack, name: str, config: Config) -> Estimate:
    """The task's metric on the test split, which the ledger counts."""
    probabilities = at_thresholds(predict(model, task.test.texts).probabilities, thresholds_of(model))
    scored = score_test(task, probabilities, ScoringRun.of(config).method(name, [task.digest]), None)
    if task.metric == ACCURACY:
        return wilson_interval(scored.score, len(np.unique(task.test.units)))
    return Estimate(scored.score, *percentiles(scored.resampled).tolist())
