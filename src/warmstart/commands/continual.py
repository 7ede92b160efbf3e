"""``continual``: tasks one after another on the same backbone, and what each one does to those before it.

Beside learning in turn stand two references on the same seeds: all tasks learned jointly, and each alone on a backbone of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from warmstart.config import Config
from warmstart.data.scorings import LedgerSummary, findings_by_task
from warmstart.data.task import Task
from warmstart.finetuning.config import ContinualConfig
from warmstart.finetuning.continual import STRATEGIES, PretrainingLoss, learn_tasks
from warmstart.finetuning.task_suite import MultitaskModel, TaskSuite, load_tasks
from warmstart.interop.load import load_model
from warmstart.model.files import save
from warmstart.model.history import DataRecord, Record, ScoreTable
from warmstart.notebook import Shown
from warmstart.report.parts import Figure, Report, Section, Table, headline
from warmstart.report.sections import model_is_saved, write_run_page
from warmstart.runs.run import Run, provenance
from warmstart.stats.changes import Change, changes_of
from warmstart.stats.comparison import MethodResult, PairedComparison, compare_pairs, detectable_points
from warmstart.stats.differences import MethodScores
from warmstart.stats.forgetting import ALONE, IN_TURN, JOINT, WHOLE, ContinualRun, metrics_of_arrays
from warmstart.stats.formatting import (
    INTERVAL_OVER,
    percent,
    percent_interval,
    points_range,
    rows_by_source,
    sources_of_interval,
    with_ends,
)
from warmstart.stats.intervals import Interval
from warmstart.stats.splits import THIS_SPLIT
from warmstart.system.console import console, print_table
from warmstart.system.storage import atomic_write

METRICS = {"average": 0, "after_learning": 0, "backward_transfer": -1, "forgetting": -1}
"""in the order of the table -> the lowest value that each can have"""
REFERENCES = (
    "Joint training reads all tasks at once, and training alone gives each its own backbone: no task is learned after another, so "
    "the columns about learning and forgetting are empty."
)
NAMES = {IN_TURN: "learning in turn", JOINT: "joint training", ALONE: "training alone"}
"""names of the strategies in a sentence"""
EXPLAINED = (
    "Right after learning: mean over tasks of the score when each had just been learned. Backward transfer: mean over all but the "
    "last task of (score at the end - score right after learning). Forgetting: mean over them of (best score before the end - "
    "score at the end). The second column says what the intervals of a row cover."
)
TESTED = (
    "Scores at the end and right after learning, references against learning in turn, and the "
    "language-model loss at the end and before the first task; significance is corrected for the number of each kind (Holm). "
    "Smallest detectable: the true difference that a repetition finds significant with 80% power."
)


def continual(config: ContinualConfig) -> ContinualResult:
    """Run every strategy with every seed, print, save the best models, write the report; the ``continual`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    language = PretrainingLoss(bundle, config.text) if config.text is not None else None
    run = Run.open(config.out, config)
    suite, folder = TaskSuite.of(bundle, tasks, config), run.folder
    seeds = range(config.seed, config.seed + config.seeds)
    learned = {name: [learn_tasks(suite.within(seed), name, seed, run, language) for seed in seeds] for name in config.strategies}
    runs = {name: tuple(one for one, _ in found) for name, found in learned.items()}
    result = ContinualResult(suite.names, runs, suite.finish(), suite.label_findings, suite.one_split)
    for name, found in learned.items():
        if not STRATEGIES[name].anew:
            _save_tasks(suite, tasks, result, (name, [model for _, model in found]), folder / "bundles" / name)
    with model_is_saved(folder / "bundles"):
        print_table(f"after {' -> '.join(result.tasks)}", result.table(), result.HEADER)
        for sentence in result.findings:
            console.print(sentence)
        atomic_write(folder / "continual.json", json.dumps(result.to_dict(), indent=1).encode())
        page = write_continual_page(result, config, folder)
    console.print(f"bundles: {folder / 'bundles'}\nreport: {page}")
    return result


def _save_tasks(
    suite: TaskSuite, tasks: Sequence[Task], result: ContinualResult, named: tuple[str, Sequence[MultitaskModel]], folder: Path
) -> None:
    """One bundle per task, all on the backbone of the seed to save. ``named`` is the strategy, and its model of each seed."""
    strategy, models = named
    runs = result.runs[strategy]
    best = suite.seed_to_save([run.validation_score for run in runs])
    for number, task in enumerate(encoded.task for encoded in suite.within(runs[best].seed).encoded):
        others = (DataRecord(name=name, with_labels=True) for name in result.tasks if name != task.name)
        record = Record(
            command="continual",
            settings={"strategy": strategy},
            seed=runs[best].seed,
            data=(*others, DataRecord.of(task, tasks[number])),
            provenance=provenance(),
            tables=(_scores_table(result.tasks, runs[best].scores),),
        )
        save(suite.task_bundle(models[best], number, record), folder / task.name)


def _scores_table(tasks: Sequence[str], scores: Sequence[Sequence[float]]) -> ScoreTable:
    """Test scores of every task so far, after each task."""
    rows = [(str(stage), *map(percent, row), *[""] * (len(tasks) - len(row))) for stage, row in enumerate(scores, 1)]
    return ScoreTable.build({"title": "Test scores after each task", "header": ("stage", *tasks), "rows": rows}, "scores")


@dataclass(frozen=True)
class ContinualResult(Shown, view="commands.continual:continual_view"):
    """The runs of every strategy."""

    tasks: tuple[str, ...]
    """in the order learned"""
    runs: Mapping[str, tuple[ContinualRun, ...]]
    """runs of each strategy, one per seed"""
    ledgers: tuple[LedgerSummary, ...] = ()
    """number of scorings of the test split of each task"""
    labels: tuple[str, ...] = ()
    """use of the labels of each task, as sentences"""
    one_split: bool = False
    """True if the intervals hold for one split only, because seeds share too many training texts of a task"""

    HEADER: ClassVar = (
        "strategy", INTERVAL_OVER, "average at the end", "right after learning", "backward transfer", "forgetting", "seconds",
    )  # fmt: skip
    """names the columns of ``table``"""
    TESTED_HEADER: ClassVar = (
        "strategy", "figure", "value", "compared with", "value there", "95% interval of the difference", "significant",
        "smallest detectable",
    )  # fmt: skip
    """names the columns of ``tested``"""

    @property
    def seeds(self) -> int:
        """Runs of each strategy."""
        return len(next(iter(self.runs.values())))

    @property
    def base(self) -> str:
        """The strategy that the others are compared with: in turn, otherwise alone, otherwise joint."""
        return min(self.runs, key=lambda strategy: (strategy == JOINT, strategy == ALONE))

    def in_turn(self, strategy: str) -> bool:
        """Whether a strategy learns one task after another, so that it can forget."""
        return len(self.runs[strategy][0].scores) > 1

    def stages(self, strategy: str) -> tuple[str, ...]:
        """After what a strategy is tested."""
        return self.tasks if self.in_turn(strategy) else (WHOLE,)

    def score(self, strategy: str, stage: int, task: int) -> Interval:
        """Test score on a task after a stage, over seeds and test texts."""
        return self._score(strategy, stage, task).over_both.within(0, 1)

    def stage_rows(self, strategy: str) -> list[tuple[str, ...]]:
        """The scores of all tasks after each stage, and below them intervals over seeds alone; a task not yet learned is empty."""
        rows = list[tuple[str, ...]]()
        for stage, name in enumerate(self.stages(strategy)):
            learned = range(len(self.runs[strategy][0].scores[stage]))
            both = [self.score(strategy, stage, task) for task in learned]
            alone = [self._score(strategy, stage, task).over_seeds.within(0, 1).ends for task in learned]
            later = [""] * (len(self.tasks) - len(learned))
            rows += rows_by_source(name, self.seeds, [*both, *later], [*alone, *later])
        return rows

    def metric(self, strategy: str, name: str) -> MethodScores:
        """One of the metrics of every seed, with its resamples."""
        runs = self.runs[strategy]
        resampled = np.array([metrics_of_arrays(run.resampled)[name] for run in runs])
        return MethodScores(_named(strategy), tuple(getattr(run.metrics, name) for run in runs), resampled)

    def language_losses(self, strategy: str) -> list[float]:
        """Language-model loss at the start and after each stage, mean over seeds; empty without a text."""
        runs = self.runs[strategy]
        return [sum(run.language_losses[stage] for run in runs) / len(runs) for stage in range(len(runs[0].language_losses))]

    @property
    def findings(self) -> list[str]:
        """Findings: the forgetting of ``base``, the gain of each other strategy and of sharing; ``tested`` has the rest."""
        findings = [
            change.in_percent(f"With {_named(self.base)}, by the end, the score on {task}")
            for task, change in zip(self.tasks, self._forgotten(), strict=False)
        ]
        findings += [f"Average over tasks at the end: {one.sentence}" for one in self._compared().values()]
        findings += [f"{task}: {one.sentence}" for task, one in zip(self.tasks, self._shared(), strict=False)]
        findings += [
            change.in_nats(f"With {_named(strategy)}, the language-model loss")
            for strategy, change in self._language_changes().items()
            if strategy == self.base
        ]
        findings += [] if all(map(self.in_turn, self.runs)) else [REFERENCES]
        findings += [f"{task}: {labels}" for task, labels in zip(self.tasks, self.labels, strict=False)]
        findings += [THIS_SPLIT] if self.one_split else []
        return findings + [f"{task}: {scored}" for task, scored in findings_by_task(self.tasks, self.ledgers)]

    def tested(self) -> list[tuple[str, ...]]:
        """Every change and comparison under ``TESTED_HEADER``; each kind is corrected for its number."""
        rows = list[tuple[str, ...]]()
        for task, one in zip(self.tasks, self._forgotten(), strict=False):
            before, after = (percent(score) for score in (one.before, one.after))
            ends = f"{points_range(one.low, one.high)} points"
            row = (self.base, f"score on {task}", after, "right after learning", before, ends, _yes(one.sign))
            rows.append((*row, _points(one.detectable)))
        for strategy, found in self._compared().items():
            there, here = (percent(self.interval(each, "average").mean) for each in (self.base, strategy))
            rows.append(_comparison_row((strategy, "average over tasks at the end", here, _named(self.base), there), found))
        for number, found in enumerate(self._shared()):
            here, there = (percent(self.score(each, -1, number).mean) for each in (JOINT, ALONE))
            rows.append(_comparison_row((JOINT, f"score on {self.tasks[number]}", here, _named(ALONE), there), found))
        for strategy, one in self._language_changes().items():
            before, after = (f"{loss:.3f}" for loss in (one.before, one.after))
            ends = f"{one.low:+.3f} to {one.high:+.3f} nats"
            row = (strategy, "language-model loss", after, "the pretrained model", before, ends, _yes(one.sign))
            rows.append((*row, _detectable(one.detectable, "{:.3f} nats".format)))
        return rows

    def _forgotten(self) -> list[Change]:
        """Each task but the last, right after it was learned in turn and at the end; corrected for their number."""
        earlier = range(len(self.tasks) - 1) if self.in_turn(self.base) else ()
        pairs = [(self._score(self.base, -1, task), self._score(self.base, task, task)) for task in earlier]
        return [*changes_of(pairs, "the test texts")]

    def _compared(self) -> dict[str, PairedComparison]:
        """Strategy -> its average at the end against that of ``base``; corrected for their number."""
        others, base = [one for one in self.runs if one != self.base], _compared(self.metric(self.base, "average"))
        return dict(zip(others, compare_pairs([(_compared(self.metric(one, "average")), base) for one in others]), strict=True))

    def _shared(self) -> list[PairedComparison]:
        """Each task learned jointly against alone, corrected for their number; empty without both."""
        if not {JOINT, ALONE} <= {*self.runs}:
            return []
        joint, alone = ([_compared(self._score(one, -1, task)) for task in range(len(self.tasks))] for one in (JOINT, ALONE))
        return compare_pairs([*zip(joint, alone, strict=True)])

    def _language_changes(self) -> dict[str, Change]:
        """Strategy -> the language-model loss before the first task and at the end; corrected for their number."""
        measured = [strategy for strategy in self.runs if self.language_losses(strategy)]
        pairs = [(self._loss(strategy, -1), self._loss(strategy, 0)) for strategy in measured]
        return dict(zip(measured, changes_of(pairs, "the text's documents"), strict=True))

    def _score(self, strategy: str, stage: int, task: int) -> MethodScores:
        """Test scores on a task after a stage, of every seed."""
        runs = self.runs[strategy]
        return MethodScores(
            _named(strategy), tuple(run.scores[stage][task] for run in runs), np.array([run.resampled[stage][task] for run in runs])
        )

    def _loss(self, strategy: str, stage: int) -> MethodScores:
        """Language-model losses after a stage, of every seed."""
        runs = self.runs[strategy]
        losses = tuple(run.language_losses[stage] for run in runs)
        return MethodScores(strategy, losses, np.array([run.resampled_losses[stage] for run in runs]))

    def _metrics(self, strategy: str) -> tuple[str, ...]:
        """The metrics that a strategy has."""
        return tuple(METRICS) if self.in_turn(strategy) else ("average",)

    def interval(self, strategy: str, name: str) -> Interval:
        """A metric over seeds and test texts, cut to its range."""
        return self.metric(strategy, name).over_both.within(METRICS[name], 1)

    def over_seeds(self, strategy: str, name: str) -> Interval:
        """The intervals over seeds alone."""
        return self.metric(strategy, name).over_seeds.within(METRICS[name], 1)

    def table(self) -> list[tuple[str, ...]]:
        """Two rows per strategy: its metrics over seeds and texts, and below them over seeds alone; one row each with one seed."""
        rows = list[tuple[str, ...]]()
        for strategy, runs in self.runs.items():
            names, seconds = self._metrics(strategy), f"{np.mean([run.seconds for run in runs]):.1f}"
            both, alone = (
                [self.interval(strategy, name) for name in names],
                [self.over_seeds(strategy, name).ends for name in names],
            )
            empty = [""] * (len(METRICS) - len(names))
            rows += rows_by_source(strategy, self.seeds, [*both, *empty, seconds], [*alone, *empty, ""])
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything but resamples as plain values, fit for JSON."""
        kept = ("seed", "scores", "language_losses", "seconds", "validation_score")
        runs = {
            strategy: [{name: getattr(run, name) for name in kept} | asdict(run.metrics) for run in runs]
            for strategy, runs in self.runs.items()
        }
        ledgers = [ledger.to_dict() for ledger in self.ledgers]
        return {"tasks": self.tasks, "findings": self.findings, "tested": self.tested(), "runs": runs, "test_splits": ledgers}


def _compared(found: MethodScores) -> MethodResult:
    """A metric between 0 and 1, or the score on a task, as one side of a comparison."""
    return MethodResult(found.name, found.scores, resampled=found.resampled)


def _comparison_row(named: tuple[str, ...], found: PairedComparison) -> tuple[str, ...]:
    """A row under ``TESTED_HEADER``."""
    ends = f"{points_range(found.difference.low, found.difference.high)} points"
    return (*named, ends, _yes(found.significant), _points(found.difference.detectable(found.comparisons)))


def _yes(significant: int) -> str:
    return "yes" if significant else "no"


def _points(size: float | None) -> str:
    """A smallest detectable difference of scores."""
    return _detectable(size, partial(detectable_points, bounded=True, unit=" points"))


def _detectable(size: float | None, write: Callable[[float], str]) -> str:
    """The smallest detectable difference of a figure; a dash where nothing can be detected, with one seed or without any spread."""
    return "-" if size is None or math.isinf(size) else write(size)


def _named(strategy: str) -> str:
    """The strategy in a sentence."""
    return NAMES.get(strategy, strategy)


def write_continual_page(result: ContinualResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    tiles = tuple(
        (f"average at the end, {strategy}", with_ends(result.interval(strategy, "average"), percent_interval))
        for strategy in result.runs
    )
    seeds = f" {result.seeds} seed{'' if result.seeds == 1 else 's'}."
    return write_run_page(replace(continual_view(result), tiles=tiles), config, folder, note=seeds)


def continual_view(result: ContinualResult) -> Report:
    """The result in a notebook: forgetting, tests, and every task after every stage."""
    return Report(_title(result), headline(result.findings[0]), (), tuple(_sections(result)))


def _title(result: ContinualResult) -> str:
    return f"Continual learning: {' → '.join(result.tasks)}"


def _sections(result: ContinualResult) -> Iterator[Section]:
    yield Section("What was forgotten", (*result.findings, EXPLAINED), (Table(result.HEADER, result.table()),))
    yield Section("Everything that was tested", (TESTED,), (Table(result.TESTED_HEADER, result.tested()),))
    yield from (_strategy_section(result, strategy) for strategy in result.runs)


def _strategy_section(result: ContinualResult, strategy: str) -> Section:
    """The scores of every task after every stage, and the language-model loss."""
    from warmstart.report.drawings import stages_chart

    learned = [(stage, task) for stage, row in enumerate(result.runs[strategy][0].scores) for task in range(len(row))]
    scores = {(stage, task): result.score(strategy, stage, task) for stage, task in learned}
    rows = [(result.tasks[task], stage, score.mean, score.low, score.high) for (stage, task), score in scores.items()]
    losses = " → ".join(f"{loss:.3f}" for loss in result.language_losses(strategy))
    after = "after each task" if result.in_turn(strategy) else "at the end"
    text = [f"Language-model loss at the start and {after}, mean over seeds: {losses} nats."] if losses else []
    over = sources_of_interval(result.seeds, "test texts")
    caption = f"{strategy}: test score of each task after every stage; mean and 95% interval over {over}."
    figure = Figure(f"continual-{strategy}", caption, stages_chart(rows, result.stages(strategy)))
    table = Table(("after learning", INTERVAL_OVER, *result.tasks), result.stage_rows(strategy))
    return Section(f"Strategy: {strategy}", text, (figure, table))
