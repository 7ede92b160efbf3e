"""A sweep: its settings, the methods and seeds, and the order of the trials. ``race`` and ``curve`` are sweeps.

The learning rate of each method is chosen on the validation split with the first seed; the other seeds run at the chosen rate. All
methods try the same rates; those with a frozen backbone also try ten times each, because a head alone tolerates larger steps and
its trials take seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field
from tyro.conf import Positional, arg

from warmstart.config import Advanced, Config
from warmstart.console import console
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.task import Task, subsample
from warmstart.data.test_ledger import Ledger, LedgerSummary, ScoringRun
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.compose import known_scheme, make_scheme
from warmstart.finetuning.config import FineTuneConfig
from warmstart.model.files import find_bundle, load_bundle
from warmstart.model.history import seen_labels
from warmstart.run import open_run, save_settings
from warmstart.sweep.estimate import SweepEstimate, estimate_sweep
from warmstart.sweep.execution import prepared, run_trials
from warmstart.sweep.methods import CONTINUED, learning_rates_for, list_methods, with_continued_backbone
from warmstart.sweep.ranking import Ranking, choose_learning_rate, rank, validation_scores
from warmstart.sweep.store import TRIALS, SweepContext, find_result, read_run_id
from warmstart.sweep.trial import Method, SweepRuns, Trial
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


SchemeName = Annotated[str, AfterValidator(known_scheme)]
LearningRate = Annotated[float, Field(gt=0)]


class SweepConfig(Config):
    """Methods, learning rates, seeds and time."""

    renamed: ClassVar[dict[str, str]] = {"rates": "learning_rates"}

    task: Positional[str]
    """manifest of the task (YAML)"""
    backbones: Annotated[tuple[str, ...], Field(min_length=1)]
    """pretrained models: bundles, or folders of runs"""
    schemes: tuple[SchemeName, ...] = ("full",)
    """ways to adapt each backbone; a+b combines two"""
    out: str = "runs/sweep"
    """folder of the run; with the folder of an earlier run, continue it"""
    learning_rates: Annotated[tuple[LearningRate, ...], Field(min_length=1)] = (2e-4, 5e-4, 1.5e-3)
    """learning rates that each method chooses from, on the validation split with the first seed; probe and scalar-mix also try ten
    times each"""
    seeds: int = Field(5, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: Advanced[int] = Field(0, ge=0)
    """the first seed"""
    budget: Annotated[str, AfterValidator(duration)] | None = None
    """time for all trials, such as 30m; the same command runs the rest later"""
    estimate: bool = False
    """print how long the trials will take and how much memory, and stop"""
    jobs: Advanced[int] = Field(1, gt=0)
    """trials at once; each gets its share of the cores"""
    scratch: Advanced[bool] = True
    """also train the same network from scratch"""
    drop_leaks: bool = False
    """drop training texts that are also in validation or test, and validation texts that are also in test"""
    drop_near_leaks: Advanced[bool] = False
    """drop these, and texts that are nearly the same as one of validation or test"""
    sealed: bool = False
    """let this run alone score the test split: refuse to start if another has scored it, and refuse every later one"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()

    def numbers_of_labels(self) -> tuple[int | None, ...]:
        """How many labelled texts the trials get, increasing; None: all."""
        return (None,)

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

    def finish(self) -> LedgerSummary:
        """All trials that the time allows have run: what the ledger now says of the test split."""
        self.context.scoring.finish([self.task])
        return Ledger.of(self.task).read()

    def rank(self, runs: SweepRuns) -> Ranking:
        """All methods, best first."""
        return rank(self.methods, runs, self.default_rate)

    @property
    def default_rate(self) -> float:
        """Of equally good learning rates, the one nearest to this is chosen."""
        return self.config.tune.train.learning_rate


def open_sweep(config: SweepConfig) -> Sweep:
    """Read, audit and check all that the trials need, and open the folder. Only ``dapt`` trains anything yet."""
    started = time.time()
    task, methods = _task_and_methods(config)
    scoring = ScoringRun.begin([task], config, read_run_id(Path(config.out)))
    folder = open_run(config.out, config, resume=any((Path(config.out) / name).is_dir() for name in (TRIALS, CONTINUED)))
    save_settings(folder, config)
    context = _context(config, task, scoring)
    estimate = _estimate(config, task, methods, context)
    labels = config.numbers_of_labels()[0]
    methods = [with_continued_backbone(one, task, config.tune, folder, seed=config.seed, labels=labels) for one in methods]
    if config.budget:
        context = context.model_copy(update={"deadline": started + duration_seconds(config.budget)})
    return Sweep(config, task, _audit(task, config.backbones), tuple(methods), context, folder, estimate)


def estimate_only(config: SweepConfig) -> SweepEstimate:
    """What the trials will cost, printed; nothing is written."""
    task, methods = _task_and_methods(config)
    return _estimate(config, task, methods, _context(config, task, ScoringRun(command="estimate")))


def _task_and_methods(config: SweepConfig) -> tuple[Task, list[Method]]:
    _refuse_single_values(config.tune)
    if config.resamples() and any(make_scheme(scheme).continued_pretraining for scheme in config.schemes):
        raise ConfigError(
            "--resample needs schemes that read no text before the split is drawn, but dapt pretrains once, on texts that other "
            "splits test on; remove dapt or --resample"
        )
    task = load_task(config.task)
    if config.drop_leaks or config.drop_near_leaks:
        task = drop_leaks(task, near=config.drop_near_leaks)
    for labels in filter(None, config.numbers_of_labels()):
        try:
            subsample(task, labels, config.seed)
        except DataError as error:
            raise ConfigError(f"--labels {labels}: {error}") from None
    return task, list_methods(task, config.backbones, config.schemes, config.tune, scratch=config.scratch)


def _estimate(config: SweepConfig, task: Task, methods: Sequence[Method], context: SweepContext) -> SweepEstimate:
    """What the trials without a result will cost, printed if there are any."""
    trials = [trial for labels in config.numbers_of_labels() for trial in _planned(config, methods, labels, context)]
    estimate = estimate_sweep(trials, config.tune, config.jobs, task.name, lambda trial: prepared(trial, context)[::2])
    if trials:
        console.print(estimate.sentence, markup=False)
    return estimate


def _planned(config: SweepConfig, methods: Sequence[Method], labels: int | None, context: SweepContext) -> list[Trial]:
    """What has no result of the search, and of a trial of each further seed, whose learning rate is not known yet."""
    search = _search(config, methods, labels)
    planned = [trial for trial in search if find_result(trial, context) is None]
    for seed in range(config.seed + 1, config.seed + config.seeds):
        again = [trial.model_copy(update={"seed": seed}) for trial in search if not trial.same_for_every_seed]
        done = {trial.method for trial in again if find_result(trial, context) is not None}
        planned += {trial.method: trial for trial in again if trial.method not in done}.values()
    return planned


def _search(config: SweepConfig, methods: Sequence[Method], labels: int | None) -> list[Trial]:
    """Every learning rate of every method, with the first seed."""
    return [
        Trial(method=method, seed=config.seed, learning_rate=rate, labels=labels, resample=config.resamples())
        for method in methods
        for rate in learning_rates_for(method, config.learning_rates, config.tune.train.learning_rate)
    ]


def _context(config: SweepConfig, task: Task, scoring: ScoringRun) -> SweepContext:
    leaks = {"drop_leaks": config.drop_leaks, "drop_near_leaks": config.drop_near_leaks}
    context = SweepContext.of(task, config.task, Path(config.out), config.tune, **leaks)
    return context.model_copy(update={"scoring": scoring})


def run_sweep(sweep: Sweep, labels: int | None) -> SweepRuns:
    """Run the trials that have no result yet: first the learning-rate search, on the first seed; then seed after seed.

    So all methods have the same number of seeds whenever the budget runs out.
    """
    config, first = sweep.config, sweep.config.seed
    search = _search(config, sweep.methods, labels)
    results = run_trials(search, sweep.context, sweep.estimate)
    rest = list[Trial]()
    for seed in range(first + 1, first + config.seeds):
        for method in sweep.methods:
            own = [trial for trial in search if trial.method == method]
            if own[0].same_for_every_seed:
                continue
            if tried := validation_scores(own, results):
                rate = choose_learning_rate(tried, sweep.default_rate)
                rest.append(own[0].model_copy(update={"seed": seed, "learning_rate": rate}))
    return SweepRuns((*search, *rest), results | run_trials(rest, sweep.context, sweep.estimate))


def _audit(task: Task, backbones: tuple[str, ...]) -> Audit:
    """The audit of the data, printed; also which backbones have seen labels of the task before."""
    seen = tuple(path for path in backbones if seen_labels(load_bundle(find_bundle(path)), task.name))
    result = replace(audit(task), already_trained=seen)
    for finding in result.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}", markup=False)
    return result


def _refuse_single_values(tune: FineTuneConfig) -> None:
    """A sweep sets the scheme and the learning rate of each trial: one value for all of them is a mistake."""
    default = FineTuneConfig()
    if tune.scheme != default.scheme:
        raise ConfigError(f"a sweep compares several schemes: use --schemes {tune.scheme}, not --scheme")
    if tune.train.learning_rate != default.train.learning_rate:
        rate = f"{tune.train.learning_rate:g}"
        raise ConfigError(f"each method chooses its learning rate: use --learning-rates {rate}, not --learning-rate")
