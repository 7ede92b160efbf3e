"""A sweep: the methods and seeds, and the order of the trials.

With a number of labels, each seed draws its own, and every method chooses its settings within them: a seed is a user of its own.
With all labels, a run of its own with the first seed chooses the learning rate of each method on the validation split, and is not
scored; the runs that are scored have the seeds after it. All methods try the same rates; those with a frozen backbone also try ten
times each, because a head alone tolerates larger steps and its trials take seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warmstart.config import Config
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.encode import cut_sentence
from warmstart.data.pool import NO_POOL, REST, pool_digest, task_pool
from warmstart.data.scorings import ScoringRun
from warmstart.data.source import LabelledTableFlags
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.config import CHEAP_SEEDS, FEW_LABELS, SEEDS, RaceConfig, duration_seconds
from warmstart.experiment.estimate import SweepEstimate, estimate_sweep
from warmstart.experiment.execution import run_stack, run_trials
from warmstart.experiment.inputs import bundle_at, prepared, print_audit, texts_read_before
from warmstart.experiment.methods import (
    OWN,
    keeps_backbone,
    learning_rates_for,
    list_methods,
    only_named,
    own_backbone,
    reads_pool,
    reads_votes,
    with_own_pretraining,
)
from warmstart.experiment.stack import trials_of_seed
from warmstart.experiment.store import HeldTask, SweepContext, find_result, result_file
from warmstart.experiment.trial import OWN_BACKBONE, Limits, Method, SweepRuns, Trial, TrialResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import head_config_for
from warmstart.model.bundle import Bundle
from warmstart.model.files import remove_model
from warmstart.model.model import swap_head
from warmstart.runs.record import read_record_of, write_record
from warmstart.runs.run import Run
from warmstart.runs.state import TRIALS
from warmstart.stats.differences import MethodScores
from warmstart.stats.selected import worse_out_of_fold
from warmstart.system.backends import check_backend
from warmstart.system.console import console
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task


@dataclass(frozen=True)
class Sweep:
    """A planned comparison."""

    config: RaceConfig
    task: Task
    audit: Audit
    methods: tuple[Method, ...]
    context: SweepContext
    folder: Path
    estimate: SweepEstimate

    def budget(self, labels: int | None) -> LabelBudget:
        """The labelled texts of the first seed; of those of the other seeds as many choose, or nearly."""
        return label_budget(self.task, labels, self.config.selection_with(labels), self.config.seed)


def open_sweep(config: RaceConfig, given: Task | None = None, command: Config | None = None, *, measured: bool = True) -> Sweep:
    """Read, audit and check all that the trials need, and open the folder. Only ``pool`` trains anything yet.

    ``given`` is the task if it is in memory already, ``command`` the settings of the command, if it is another than a race. What
    training will cost is known only if it is ``measured``, which takes as long as some steps of each backbone.
    """
    started = time.time()
    check_backend(config.backend)
    config, task, methods = check_sweep(config, given)
    begun = any((Path(config.out) / name).is_dir() for name in (TRIALS, OWN))
    folder = Run.open(config.out, command or config, extend=begun).folder  # which no other process writes
    threads = _threads(config, folder)
    running = {"threads": threads, "jobs": config.jobs, "backend": config.backend, "held": HeldTask.of(given)}
    context = _context(config, task, ScoringRun.of(config), **running)
    labels = config.numbers_of_labels[0]
    budget = label_budget(task, labels, config.selection_with(labels), config.seed)  # the first seed's labels decide for all
    completed = config
    if OWN_BACKBONE in config.backbones:
        own = own_backbone(budget, folder, config.pool)
        backbones = tuple(str(own) if path == OWN_BACKBONE else path for path in config.backbones)
        completed = config.model_copy(update={"backbones": backbones})
        methods = [with_own_pretraining(method, own) for method in _methods(completed, task)]
    estimate = estimate_methods(config, task, methods if measured else (), context)
    if config.budget:
        context = context.model_copy(update={"limits": Limits(started + duration_seconds(config.budget))})
    _print_unread_pool(config, task, methods)
    audited = _audit(task, completed)
    _print_read_before(config, methods, context)
    (folder / TRIALS).mkdir(exist_ok=True)
    other = read_record_of(folder).get("task", task.digest) != task.digest
    if command is None and other and remove_model(folder):  # a fit keeps the old model until it has one
        console.print(f"The model in {folder} was of another task, and is removed.")
    write_record(folder, task=task.digest, threads=threads, planned=_count_trials(config, methods))
    return Sweep(config, task, audited, tuple(methods), context, folder, estimate)


def _threads(config: RaceConfig, folder: Path) -> int:
    """The threads of each trial. With one job it is as many as torch uses; a sweep that has begun keeps its number."""
    threads = read_record_of(folder).get("threads")
    recorded = threads if isinstance(threads, int) and threads > 0 else None
    share = torch.get_num_threads() if config.jobs == 1 else max(1, (os.cpu_count() or 1) // config.jobs)
    return config.threads or recorded or share


def estimate_only(config: RaceConfig) -> SweepEstimate:
    """Print the expected cost of the trials; nothing is written."""
    config, task, methods = check_sweep(config)
    if OWN_BACKBONE in config.backbones:
        console.print("The backbone that would be pretrained on the task's own text, and its trials, are not in the estimate.")
    return estimate_methods(config, task, methods, _context(config, task, ScoringRun(command="estimate")))


def check_sweep(config: RaceConfig, given: Task | None = None) -> tuple[RaceConfig, Task, list[Method]]:
    """The settings with a number of seeds, the task (``given``, or read) and the methods.

    A backbone of the task's own text is not made yet. Trains and writes nothing. Raises ``WarmstartError`` if labels, pool,
    backbones or schemes do not fit the task.
    """
    task = _checked_task(config, given)
    config = _with_contrast(config, task)
    given_backbones = tuple(path for path in config.backbones if path != OWN_BACKBONE)
    methods = _methods(config.model_copy(update={"backbones": given_backbones}), task)
    if config.seeds is None:
        cheap = OWN_BACKBONE not in config.backbones and all(map(keeps_backbone, methods))
        config = config.model_copy(update={"seeds": CHEAP_SEEDS if cheap else SEEDS})
    _check_labels(config, task)
    return config, task, methods


def _with_contrast(config: RaceConfig, task: Task) -> RaceConfig:
    """Settings with the default scheme ``contrast`` added, where there are few labels (results/performance.md)."""
    default, labels = RaceConfig.model_fields["schemes"].default, max(config.labels, default=len(task.train))
    if config.methods or config.schemes != default or labels >= FEW_LABELS or not task_type_of(task).one_label:
        return config
    return config.model_copy(update={"schemes": ("contrast", *default)})


def _checked_task(config: RaceConfig, held: Task | None) -> Task:
    """The task. Raises ``ConfigError`` for settings that do not fit a sweep or it."""
    own = OWN_BACKBONE if OWN_BACKBONE in config.backbones else ""
    if config.resample and own:
        raise ConfigError(
            "--resample needs methods that read no text before the split is drawn, but "
            f"{own} pretrains once, on texts that other splits test on; remove {own} or --resample"
        )
    if own and config.backbones.count(own) > 1:
        raise ConfigError("each backbone must be named once, but --backbones names pool twice; remove the repeated one")
    task = held or load_task(config.task, flags=LabelledTableFlags.of(config))
    if config.drop_leaks or config.drop_near_leaks:
        return drop_leaks(task, near=config.drop_near_leaks)
    return task


def _check_labels(config: RaceConfig, task: Task) -> None:
    """Raise ``ConfigError`` if a seed cannot draw its labels."""
    for labels in config.numbers_of_labels:
        selection = config.selection_with(labels)
        for seed in _seeds(config, config.seed) if labels else [config.seed]:
            try:
                label_budget(task, labels, selection, seed).folds  # noqa: B018
            except DataError as error:
                raise ConfigError(f"--labels {labels}: {error}" if labels else str(error)) from None


def _seeds(config: RaceConfig, first: int) -> range:
    assert config.seeds
    return range(first, first + config.seeds)


def _methods(config: RaceConfig, task: Task) -> list[Method]:
    """All methods on the backbones."""
    pool = _has_pool(config, task)
    methods = list_methods(task, config.backbones, config.schemes, config.fine_tuning, scratch=config.scratch, pool=pool)
    return only_named(methods, config.methods)


def _has_pool(config: RaceConfig, task: Task) -> bool:
    """True if there are texts without labels.

    Raises ``DataError`` if the file that was named or the task's ``unlabelled`` text has none, or if the file holds test texts.
    """
    if config.pool == NO_POOL or (config.pool == REST and not task.has_unlabelled):
        return config.pool == REST and bool(config.numbers_of_labels[0])
    return len(task_pool(task, config.pool)) > 0


def _print_unread_pool(config: RaceConfig, task: Task, methods: Sequence[Method]) -> None:
    """Says that no method reads the file of ``--pool``."""
    if config.pool not in (REST, NO_POOL) and not any(reads_pool(method) for method in methods):
        console.print(f"No method for a {task.type} task reads --pool {config.pool}.")


def _print_read_before(config: RaceConfig, methods: Sequence[Method], context: SweepContext) -> None:
    """Print the number of texts that each frozen backbone need not read, because an earlier run did."""
    frozen = {method.backbone: method for method in methods if method.family == "frozen"}
    for backbone, method in frozen.items():
        if sentence := texts_read_before(_trial(config, method, config.numbers_of_labels[0]), context):
            console.print(f"{backbone}: {sentence}.")


def estimate_methods(config: RaceConfig, task: Task, methods: Sequence[Method], context: SweepContext) -> SweepEstimate:
    """The cost of the trials without a result, as far as it is known before the first has run; printed if there are any."""
    trials = [trial for labels in config.numbers_of_labels for trial in _all_trials(config, methods, labels)]
    trials = [trial for trial in trials if not result_file(trial, context).is_file()]
    estimate = estimate_sweep(trials, config.fine_tuning, config.jobs, task.name, lambda trial: prepared(trial, context))
    if trials:
        console.print(estimate.sentence)
    return estimate


def _all_trials(config: RaceConfig, methods: Sequence[Method], labels: int | None) -> list[Trial]:
    first, seeds = _first_trials(config, methods, labels)
    return [*first, *(_at_seed(trial, seed, None) for seed in seeds for trial in first if _continues(trial, seed))]


def _count_trials(config: RaceConfig, methods: Sequence[Method]) -> int:
    """The number of results that the sweep will have, with those of stacks: a second one, if methods read votes."""
    stacks = len(_seeds(config, 0)) * any(method.combines for method in methods) * (1 + any(map(reads_votes, methods)))
    return sum(len(_all_trials(config, methods, labels)) + stacks for labels in config.numbers_of_labels)


def _first_trials(config: RaceConfig, methods: Sequence[Method], labels: int | None) -> tuple[list[Trial], range]:
    """A trial of every method but the stack, and the seeds that are scored: if some trials only choose, those after theirs."""
    trials = [_trial(config, method, labels) for method in methods if not method.combines]
    start = config.seed + any(trial.chooses_rate for trial in trials)
    first = [each if each.chooses_rate or each.same_for_every_seed else each.model_copy(update={"seed": start}) for each in trials]
    return first, _seeds(config, start)


def _continues(first: Trial, seed: int) -> bool:
    """True if the method of its first trial also has one with this seed."""
    return not first.same_for_every_seed and seed != first.seed


def _trial(config: RaceConfig, method: Method, labels: int | None) -> Trial:
    """The trial of a method with the first seed."""
    selection = config.selection_with(labels)
    rates = learning_rates_for(method, config.learning_rates)
    if selection == "none":
        rates = rates[:1]
    return Trial(
        method=method, seed=config.seed, learning_rates=rates, labels=labels, selection=selection, resample=config.resample
    )


def _at_seed(trial: Trial, seed: int, first: TrialResult | None) -> Trial:
    """The trial with another seed. With all labels it uses the learning rate of the first trial."""
    rates = trial.learning_rates
    if trial.labels is None and rates:
        rates = (first.learning_rate if first else rates[0],)
    return trial.model_copy(update={"seed": seed, "learning_rates": rates})


def _context(config: RaceConfig, task: Task, scoring: ScoringRun, **running: Any) -> SweepContext:
    leaks = {"drop_leaks": config.drop_leaks, "drop_near_leaks": config.drop_near_leaks}
    running["reading"] = LabelledTableFlags.of(config)
    pool = {"pool": config.pool, "pool_digest": pool_digest(task, config.pool)}
    return SweepContext.of(task, config.task, Path(config.out), config.fine_tuning, scoring=scoring, **leaks, **pool, **running)


def run_sweep(sweep: Sweep, labels: int | None) -> SweepRuns:
    """Run the trials that have no result yet, the cheap methods first, seed after seed.

    So all methods have the same number of seeds whenever the budget runs out. If it is too short for all,
    networks that the first seed leaves significantly behind on the texts that choose are not run with the others (Maron and Moore
    1994).
    """
    trials, seeds = _first_trials(sweep.config, sweep.methods, labels)
    results = run_trials(trials, sweep.context, sweep.estimate, first=True)
    limits = sweep.context.limits
    short = not limits.in_turn and time.time() + sweep.estimate.seconds > limits.deadline
    stopped = _cannot_win(results) if short else ()
    alive = [(trial, result) for trial, result in results.items() if labels is not None or not result.diverged]
    sweep.estimate.drop(_at_seed(trial, seed, None) for seed in seeds for trial, _ in alive if trial.method in stopped)
    alive = [(trial, result) for trial, result in alive if trial.method not in stopped]
    rest = [_at_seed(trial, seed, result) for seed in seeds for trial, result in alive if _continues(trial, seed)]
    results = results | run_trials(rest, sweep.context, sweep.estimate)
    searched = all(trial in results for trial in trials if trial.chooses_rate)
    scored = [trial for trial in (*trials, *rest) if not trial.chooses_rate and trial.method not in stopped]
    stacks = _stacks(sweep, scored, results) if searched else {}
    return SweepRuns((*trials, *rest, *stacks), results | stacks, stopped)


def _cannot_win(results: Mapping[Trial, TrialResult]) -> tuple[Method, ...]:
    """The networks that are significantly worse than the best method on the texts that choose, by one seed."""
    seen = {
        trial.method: MethodScores(trial.method.name, (result.validation,), np.asarray(result.resampled_validation)[None])
        for trial, result in results.items()
        if result.resampled_validation
    }
    if not seen:
        return ()
    best = max(seen.values(), key=lambda scores: scores.scores[0])
    return tuple(method for method, scores in seen.items() if method.fine_tunes and worse_out_of_fold(scores, best))


def _stacks(sweep: Sweep, trials: Sequence[Trial], results: Mapping[Trial, TrialResult]) -> dict[Trial, TrialResult]:
    """The combination of the surest methods for each seed with which all have a result."""
    stacks = dict[Trial, TrialResult]()
    for method in [method for method in sweep.methods if method.combines]:
        for seed in sorted({trial.seed for trial in trials if not trial.same_for_every_seed} or {sweep.config.seed}):
            members = [trial for trial in trials_of_seed(trials, seed) if reads_votes(trial.method) <= reads_votes(method)]
            tried = {"learning_rates": sweep.config.learning_rates}  # its members choose from these
            trial = members[0].model_copy(update={"method": method, "seed": seed} | tried)
            if all(member in results for member in members):
                result = find_result(trial, sweep.context)
                if not result or set(result.candidates) != {member.method.id for member in members}:
                    result = run_stack(trial, {member: results[member] for member in members}, sweep.context)
                stacks |= {trial: result} if result else {}
    return stacks


def _audit(task: Task, config: RaceConfig) -> Audit:
    """The audit of the data, printed; also what each backbone cuts off."""
    bundles = {path: bundle_at(path) for path in config.backbones}
    lost = {path: _cut_sentence(task, bundle, config.fine_tuning) for path, bundle in bundles.items()}
    cut = tuple(f"{path}: {sentence}" for path, sentence in lost.items() if sentence)
    return print_audit(replace(audit(task), cut=cut), bundles, task.name)


def _cut_sentence(task: Task, bundle: Bundle, tune: FineTuneConfig) -> str:
    task_type, texts = task_type_of(task), [text for split in task.splits().values() for text in split.texts]
    reader = swap_head(bundle.model, head_config_for(task, tune), 0)
    encoded = task_type.encode(reader, bundle.tokenizer, texts)
    return cut_sentence(encoded, reader.backbone.config.max_length, advice=task_type.pooled and tune.windows == "none")
