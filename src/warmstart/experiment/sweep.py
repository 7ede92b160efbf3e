"""A sweep: its settings, the methods and seeds, and the order of the trials. ``race`` and ``curve`` are sweeps.

With a number of labels, each seed draws its own, and every method chooses its settings within them: a seed is a user of its own.
With all labels, a run of its own with the first seed chooses the learning rate of each method on the validation split, and is not
scored; the runs that are scored have the seeds after it. All methods try the same rates; those with a frozen backbone also try ten
times each, because a head alone tolerates larger steps and its trials take seconds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import torch
from pydantic import AfterValidator, Field
from tyro.conf import Positional, arg

from warmstart.config import Advanced, Config, Effectless, FileInput, TaskInput
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.budget import LabelBudget, SelectionName, label_budget, selection_or_default
from warmstart.data.encode import cut_sentence
from warmstart.data.pool import NO_POOL, REST, pool_digest, pool_note, task_pool
from warmstart.data.task import Task
from warmstart.data.test_ledger import LedgerSummary, ScoringRun, read_ledger
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.backends import PROCESSES, SlurmConfig, check_backend, known_backend
from warmstart.experiment.estimate import SweepEstimate, estimate_sweep
from warmstart.experiment.execution import run_stack, run_trials
from warmstart.experiment.inputs import prepared, texts_read_before
from warmstart.experiment.methods import (
    CONTINUED,
    OWN,
    learning_rates_for,
    list_methods,
    own_backbone,
    reads_pool,
    with_continued_backbone,
    with_own_pretraining,
)
from warmstart.experiment.ranking import Ranking, rank
from warmstart.experiment.stack import STACK, trials_of_seed
from warmstart.experiment.store import SweepContext, find_result, result_file
from warmstart.experiment.trial import OWN_BACKBONE, Method, SweepRuns, Trial, TrialResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.domain import OwnBackboneConfig
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.schemes import SCHEMES, known_scheme, make_scheme
from warmstart.interop.encoders import encoders_at_hand, find_model
from warmstart.model.already_read import already_read
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle
from warmstart.model.history import seen_labels
from warmstart.model.model import swap_head
from warmstart.registry import Choices
from warmstart.runs.record import read_record_of, write_record
from warmstart.runs.run import open_run, save_settings
from warmstart.runs.state import TRIALS
from warmstart.system.console import console
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task


def duration(text: str) -> str:
    """The text itself if it is a number with s, m or h after it; a number alone means minutes."""
    if not re.fullmatch(r"\d+(\.\d+)?\s*[smh]?", text):
        raise ValueError(f"must be a time such as 90s, 30m or 2h; got {text!r}")
    return text


def duration_seconds(text: str) -> float:
    """``duration_seconds("30m")`` -> 1800."""
    number, unit = float(text.rstrip(" smh")), text[-1]
    return number * {"s": 1, "h": 3600}.get(unit, 60)


FEW_LABELS = 300
"""with fewer, a choice of learning rate and length gains less than it costs (results/other.md)"""
SchemeName = Annotated[str, AfterValidator(known_scheme), Choices(SCHEMES)]
LearningRate = Annotated[float, Field(gt=0)]


class SweepConfig(Config):
    """Methods, learning rates, seeds and time."""

    task: Positional[TaskInput[str]]
    """the task: a manifest (YAML), a table of texts and labels, or a folder with a folder of texts per label"""
    backbones: FileInput[tuple[str, ...]] = ()
    """pretrained models: bundles, folders of runs, or encoders; pool: a small one that is pretrained on the task's own text first;
    default: the encoders that are installed, but no slow one"""
    schemes: tuple[SchemeName, ...] = ("full",)
    """ways to adapt each backbone; a+b combines two"""
    out: Effectless[str] = "runs/sweep"
    """folder of the run; with the folder of an earlier run, continue it"""
    learning_rates: Annotated[tuple[LearningRate, ...], Field(min_length=1)] = (2e-4, 5e-4, 1.5e-3)
    """learning rates that each method chooses from; probe and scalar-mix also try ten times each"""
    selection: SelectionName | None = None
    """how settings are chosen: cross-validation on the labels, holdout (a fifth of them), or none (fixed settings, least time);
    default: with --labels, or without validation texts, none below 300 labels unless several learning rates are named, and
    cross-validation with more; otherwise holdout"""
    pool: FileInput[Advanced[str]] = "rest"
    """text of the task without labels, for methods that read it: rest (also the training texts beyond --labels), none, or a file"""
    seeds: int = Field(5, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: Advanced[int] = Field(0, ge=0)
    """the first seed; a choice of learning rates without --labels has it for itself"""
    budget: Annotated[str, AfterValidator(duration)] | None = None
    """time for all trials, such as 30m; the same command runs the rest later"""
    estimate: bool = False
    """print how long the trials will take and how much memory, and stop"""
    jobs: Effectless[Advanced[int]] = Field(1, gt=0)
    """trials at once; each gets its share of the cores"""
    threads: Effectless[Advanced[int | None]] = Field(None, gt=0)
    """threads of each trial, the same wherever it runs; default: those recorded in the folder, otherwise the share of the cores"""
    backend: Effectless[Advanced[Annotated[str, AfterValidator(known_backend)]]] = PROCESSES
    """where trials run: processes (--jobs of this machine), dask://HOST:PORT, ray, ray://HOST:PORT, or slurm (--jobs jobs)"""
    slurm: Effectless[Advanced[SlurmConfig]] = SlurmConfig()
    """with --backend slurm: what each job asks for"""
    scratch: Advanced[bool] = True
    """also train the same network from scratch"""
    drop_leaks: Advanced[bool] = False
    """drop training texts that are also in validation or test, and validation texts that are also in test"""
    drop_near_leaks: Advanced[bool] = False
    """drop these, and texts that are nearly the same as one of validation or test"""
    sealed: Advanced[bool] = False
    """let this run alone score the test split: refuse to start if another has scored it, and refuse every later one"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()
    own: Advanced[OwnBackboneConfig] = OwnBackboneConfig()
    """with --backbones pool: the backbone that is pretrained on the task's own text"""

    def with_backbones(self) -> Self:
        """The same; if no backbone is named, with the encoders at hand. Raises ``ConfigError`` if there are none."""
        return self if self.backbones else self.model_copy(update={"backbones": encoders_at_hand()})

    def numbers_of_labels(self) -> tuple[int | None, ...]:
        """How many labelled texts the trials get, increasing; None: all."""
        return (None,)

    def selection_with(self, labels: int | None) -> SelectionName:
        """How the settings of a trial with this number of labels are chosen."""
        default_rates = type(self).model_fields["learning_rates"].default
        names_rates = len(self.learning_rates) > 1 and self.learning_rates != default_rates
        if self.selection is None and labels is not None and labels < FEW_LABELS and not names_rates:
            return "none"
        return selection_or_default(self.selection, labels)

    def resamples(self) -> bool:
        """Whether every seed draws its own split of all labelled texts."""
        return False


@dataclass(frozen=True)
class Sweep:
    """All that is settled before the first trial."""

    config: SweepConfig
    task: Task
    audit: Audit
    methods: tuple[Method, ...]
    context: SweepContext
    folder: Path
    estimate: SweepEstimate
    budget: LabelBudget
    """the labelled texts of the first seed, with the smallest number of labels"""

    @property
    def choosing(self) -> int:
        """Labelled texts of the first seed that choose; those of the other seeds are as many, or nearly."""
        return len(self.budget.choosing)

    def finish(self) -> LedgerSummary:
        """All trials that the time allows have run: what the ledger now says of the test split."""
        return read_ledger(self.task)

    def rank(self, runs: SweepRuns) -> Ranking:
        """All methods, best first."""
        return rank(self.methods, runs)


def open_sweep(config: SweepConfig) -> Sweep:
    """Read, audit and check all that the trials need, and open the folder. Only ``pool`` and ``dapt`` train anything yet."""
    started = time.time()
    check_backend(config.backend)
    task, methods = check_sweep(config)
    scoring = ScoringRun.begin([task], config)
    folder = _open_folder(config)
    threads = _threads(config, folder)
    context = _context(config, task, scoring).model_copy(update={"threads": threads})
    context = context.model_copy(update={"jobs": config.jobs, "backend": config.backend})
    labels = config.numbers_of_labels()[0]
    budget = label_budget(task, labels, config.selection_with(labels), config.seed)  # the first seed's labels decide for all
    completed = config
    if OWN_BACKBONE in config.backbones:
        own = own_backbone(budget, config.own, folder, config.pool)
        backbones = tuple(str(own) if path == OWN_BACKBONE else path for path in config.backbones)
        completed = config.model_copy(update={"backbones": backbones})
        methods = [with_own_pretraining(method, own) for method in _methods(completed, task)]
    estimate = _estimate(config, task, methods, context)
    methods = [with_continued_backbone(one, budget, config.tune, folder, config.pool) for one in methods]
    if config.budget:
        context = context.model_copy(update={"deadline": started + duration_seconds(config.budget)})
    _print_pool_notes(config, task, methods)
    audited = _audit(task, completed)
    _print_read_before(config, methods, context)
    (folder / TRIALS).mkdir(exist_ok=True)
    write_record(folder, threads=threads, planned=_count_trials(config, methods))
    return Sweep(config, task, audited, tuple(methods), context, folder, estimate, budget)


def _open_folder(config: SweepConfig) -> Path:
    """The folder of the run, which no other process writes."""
    begun = any((Path(config.out) / name).is_dir() for name in (TRIALS, CONTINUED, OWN))
    folder = open_run(config.out, config, resume=begun)
    save_settings(folder, config)
    return folder


def _threads(config: SweepConfig, folder: Path) -> int:
    """The threads of each trial. With one job it is as many as torch uses; a sweep that has begun keeps its number."""
    found = read_record_of(folder).get("threads")
    recorded = found if isinstance(found, int) and found > 0 else None
    share = torch.get_num_threads() if config.jobs == 1 else max(1, (os.cpu_count() or 1) // config.jobs)
    return config.threads or recorded or share


def estimate_only(config: SweepConfig) -> SweepEstimate:
    """What the trials will cost, printed; nothing is written."""
    task, methods = check_sweep(config)
    if OWN_BACKBONE in config.backbones:
        console.print("The backbone that would be pretrained on the task's own text, and its trials, are not in the estimate.")
    return _estimate(config, task, methods, _context(config, task, ScoringRun(command="estimate")))


def check_sweep(config: SweepConfig) -> tuple[Task, list[Method]]:
    """The task and the methods, of which one on a backbone of the task's own text is not made yet.

    Trains and writes nothing. Raises ``WarmstartError`` if labels, pool, backbones or schemes do not fit the task.
    """
    task = _checked_task(config)
    return task, _methods(_given_backbones(config), task)


def _given_backbones(config: SweepConfig) -> SweepConfig:
    """The same without the backbone that is still to be pretrained on the task's own text."""
    given = tuple(path for path in config.backbones if path != OWN_BACKBONE)
    return config.model_copy(update={"backbones": given})


def _checked_task(config: SweepConfig) -> Task:
    """The task, of which every seed can draw its labels. Raises ``ConfigError`` for settings that do not fit a sweep or it."""
    _refuse_single_values(config.tune)
    own = OWN_BACKBONE if OWN_BACKBONE in config.backbones else ""
    once = own or ("dapt" if any(make_scheme(scheme).continued_pretraining for scheme in config.schemes) else "")
    if config.resamples() and once:
        raise ConfigError(
            "--resample needs methods that read no text before the split is drawn, but "
            f"{once} pretrains once, on texts that other splits test on; remove {once} or --resample"
        )
    if own and config.backbones.count(own) > 1:
        raise ConfigError("each backbone must be named once, but --backbones names pool twice; remove the repeated one")
    task = load_task(config.task)
    if config.drop_leaks or config.drop_near_leaks:
        task = drop_leaks(task, near=config.drop_near_leaks)
    for labels in config.numbers_of_labels():
        selection = config.selection_with(labels)
        for seed in range(config.seed, config.seed + (config.seeds if labels else 1)):
            try:
                label_budget(task, labels, selection, seed).folds  # noqa: B018
            except DataError as error:
                raise ConfigError(f"--labels {labels}: {error}" if labels else str(error)) from None
    return task


def _methods(config: SweepConfig, task: Task) -> list[Method]:
    """All methods on the backbones."""
    pool = _has_pool(config, task)
    return list_methods(task, config.backbones, config.schemes, config.tune, scratch=config.scratch, pool=pool)


def _has_pool(config: SweepConfig, task: Task) -> bool:
    """Whether there are texts without labels.

    Raises ``DataError`` if the file that was named or the task's ``unlabelled`` text has none, or if the file holds test texts.
    """
    if config.pool == NO_POOL or (config.pool == REST and not task.unlabelled):
        return config.pool == REST and bool(config.numbers_of_labels()[0])
    return len(task_pool(task, config.pool)) > 0


def _print_pool_notes(config: SweepConfig, task: Task, methods: Sequence[Method]) -> None:
    """What somebody should know of the texts without labels that they gave."""
    if note := pool_note(task, config.pool):
        console.print(note)
    if config.pool not in (REST, NO_POOL) and not any(reads_pool(method) for method in methods):
        console.print(f"No method for a {task.type} task reads --pool {config.pool}.")


def _print_read_before(config: SweepConfig, methods: Sequence[Method], context: SweepContext) -> None:
    """How many texts each frozen backbone need not read, because an earlier run did."""
    frozen = {method.backbone: method for method in methods if method.family == "frozen"}
    for backbone, method in frozen.items():
        if found := texts_read_before(_trial(config, method, config.numbers_of_labels()[0]), context):
            console.print(f"{backbone}: {found}.")


def _estimate(config: SweepConfig, task: Task, methods: Sequence[Method], context: SweepContext) -> SweepEstimate:
    """What the trials without a result will cost, printed if there are any."""
    trials = [trial for labels in config.numbers_of_labels() for trial in _planned(config, methods, labels, context)]
    estimate = estimate_sweep(trials, config.tune, config.jobs, task.name, lambda trial: prepared(trial, context)[::2])
    if trials:
        console.print(estimate.sentence)
    return estimate


def _planned(config: SweepConfig, methods: Sequence[Method], labels: int | None, context: SweepContext) -> list[Trial]:
    """The trials without a result, as far as they are known before the first one has run."""
    return [trial for trial in _all_trials(config, methods, labels) if not result_file(trial, context).is_file()]


def _all_trials(config: SweepConfig, methods: Sequence[Method], labels: int | None) -> list[Trial]:
    first, seeds = _first_trials(config, methods, labels)
    return [*first, *(_at_seed(trial, seed, None) for seed in seeds for trial in first if _continues(trial, seed))]


def _count_trials(config: SweepConfig, methods: Sequence[Method]) -> int:
    """How many results the sweep will have, with those of stacks."""
    stacks = config.seeds * any(method.family == STACK for method in methods)
    return sum(len(_all_trials(config, methods, labels)) + stacks for labels in config.numbers_of_labels())


def _first_trials(config: SweepConfig, methods: Sequence[Method], labels: int | None) -> tuple[list[Trial], range]:
    """One trial of every method but the stack, and the seeds that are scored: if some trials only choose, those after theirs."""
    trials = [_trial(config, method, labels) for method in methods if method.family != STACK]
    start = config.seed + any(trial.chooses_rate for trial in trials)
    found = [one if one.chooses_rate or one.same_for_every_seed else one.model_copy(update={"seed": start}) for one in trials]
    return found, range(start, start + config.seeds)


def _continues(first: Trial, seed: int) -> bool:
    """Whether the method of its first trial also has one with this seed."""
    return not first.same_for_every_seed and seed != first.seed


def _trial(config: SweepConfig, method: Method, labels: int | None) -> Trial:
    """The trial of a method with the first seed."""
    selection = config.selection_with(labels)
    rates = learning_rates_for(method, config.learning_rates)
    if selection == "none":
        rates = rates[:1]
    return Trial(
        method=method, seed=config.seed, learning_rates=rates, labels=labels, selection=selection, resample=config.resamples()
    )


def _at_seed(trial: Trial, seed: int, first: TrialResult | None) -> Trial:
    """The same with another seed. With all labels it uses the learning rate of the first trial."""
    rates = trial.learning_rates
    if trial.labels is None and rates:
        rates = (first.learning_rate if first else rates[0],)
    return trial.model_copy(update={"seed": seed, "learning_rates": rates})


def _context(config: SweepConfig, task: Task, scoring: ScoringRun) -> SweepContext:
    leaks = {"drop_leaks": config.drop_leaks, "drop_near_leaks": config.drop_near_leaks}
    context = SweepContext.of(task, config.task, Path(config.out), config.tune, **leaks)
    return context.model_copy(update={"scoring": scoring, "pool": config.pool, "pool_digest": pool_digest(task, config.pool)})


def run_sweep(sweep: Sweep, labels: int | None) -> SweepRuns:
    """Run the trials that have no result yet, seed after seed.

    So all methods have the same number of seeds whenever the budget runs out.
    """
    trials, seeds = _first_trials(sweep.config, sweep.methods, labels)
    results = run_trials(trials, sweep.context, sweep.estimate, sweep.config.slurm)
    alive = [(trial, found) for trial, found in results.items() if labels is not None or not found.diverged]
    rest = [_at_seed(trial, seed, found) for seed in seeds for trial, found in alive if _continues(trial, seed)]
    results = results | run_trials(rest, sweep.context, sweep.estimate, sweep.config.slurm)
    searched = all(trial in results for trial in trials if trial.chooses_rate)
    scored = [trial for trial in (*trials, *rest) if not trial.chooses_rate]
    stacks = _stacks(sweep, scored, results) if searched else {}
    return SweepRuns((*trials, *rest, *stacks), results | stacks)


def _stacks(sweep: Sweep, trials: Sequence[Trial], results: Mapping[Trial, TrialResult]) -> dict[Trial, TrialResult]:
    """For each seed with which all methods have a result, the combination of the surest of them."""
    found = dict[Trial, TrialResult]()
    for method in [method for method in sweep.methods if method.family == STACK]:
        for seed in sorted({trial.seed for trial in trials if not trial.same_for_every_seed} or {sweep.config.seed}):
            members = trials_of_seed(trials, seed)
            tried = {"learning_rates": sweep.config.learning_rates}  # its members choose from these
            trial = members[0].model_copy(update={"method": method, "seed": seed} | tried)
            if all(one in results for one in members):
                result = find_result(trial, sweep.context) or run_stack(
                    trial, {one: results[one] for one in members}, sweep.context
                )
                found |= {trial: result} if result else {}
    return found


def _audit(task: Task, config: SweepConfig) -> Audit:
    """The audit of the data, printed; also which backbones have seen labels of the task before, and what each cuts off."""
    seen, cut, known = list[str](), list[str](), list[str]()
    for path in config.backbones:
        bundle = load_bundle(find_model(path))
        seen += [path] if seen_labels(bundle, task.name) else []
        known += already_read(bundle.history, path, task.name)
        cut += [f"{path}: {lost}"] if (lost := _cut_sentence(task, bundle, config.tune)) else []
    result = replace(audit(task), already_trained=tuple(seen), already_read=tuple(known), cut=tuple(cut))
    for finding in result.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}")
    return result


def _cut_sentence(task: Task, bundle: Bundle, tune: FineTuneConfig) -> str:
    task_type, texts = task_type_of(task), [text for split in task.splits().values() for text in split.texts]
    reader = swap_head(bundle.model, head_config_for(task, tune), 0)
    encoded = task_type.encode(reader, bundle.tokenizer, texts)
    return cut_sentence(encoded, reader.backbone.config.max_length, advice=task_type.pooled and tune.windows == "none")


def _refuse_single_values(tune: FineTuneConfig) -> None:
    """A sweep sets the scheme and the learning rate of each trial: one value for all of them is a mistake."""
    default = FineTuneConfig()
    if tune.scheme != default.scheme:
        raise ConfigError(f"a sweep compares several schemes: use --schemes {tune.scheme}, not --scheme")
    if tune.train.learning_rate != default.train.learning_rate:
        rate = f"{tune.train.learning_rate:g}"
        raise ConfigError(f"each method chooses its learning rate: use --learning-rates {rate}, not --learning-rate")
