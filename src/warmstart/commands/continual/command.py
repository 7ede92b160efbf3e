"""Continual learning: tasks one after another on the same backbone, and what each one does to those before it.

Strategies against forgetting are compared on the same seeds, with each other and with two references: all tasks learned jointly,
and each alone on a backbone of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from warmstart.commands.continual.page import write_continual_page
from warmstart.commands.continual.result import ContinualResult
from warmstart.config import Effectless, FileInput
from warmstart.data.task import Task
from warmstart.finetuning.continual import PretrainingLoss, learn_tasks
from warmstart.finetuning.strategies import IN_TURN, STRATEGIES, StrategyOptions
from warmstart.finetuning.task_suite import MultitaskModel, TasksConfig, TaskSuite, load_tasks
from warmstart.interop.load import load_model
from warmstart.model.files import save
from warmstart.model.history import ContinualRecord, TaskRecord
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.run import Run, provenance
from warmstart.system.console import console, print_table
from warmstart.system.storage import atomic_write


class ContinualConfig(TasksConfig, StrategyOptions):
    """Learn tasks one after another on one backbone, and measure what is forgotten."""

    out: Effectless[str] = "runs/continual"
    """folder of the run"""
    text: FileInput[str | None] = None
    """text that was never trained on, to measure the pretrained language head's loss on after each task"""
    strategies: Annotated[tuple[Annotated[str, AfterValidator(STRATEGIES.known)], ...], Field(min_length=1)] = IN_TURN
    """how the tasks are learned; several are compared. In turn: none (against forgetting), replay (stored texts), ewc (elastic
    weight consolidation); as references: joint (all tasks at once), alone (each on a backbone of its own)"""


def continual(config: ContinualConfig) -> ContinualResult:
    """Run every strategy with every seed, print, save the best models, write the report; the ``continual`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    language = PretrainingLoss(bundle, config.text) if config.text is not None else None
    run = Run.open(config.out, config)
    suite, folder = TaskSuite.of(bundle, tasks, config), run.folder
    seeds = range(config.seed, config.seed + config.seeds)
    learned = {
        name: [learn_tasks(suite.within(seed), config, name, seed, run, language) for seed in seeds] for name in config.strategies
    }
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
        record = ContinualRecord(
            strategy=strategy,
            tasks=result.tasks,
            task=TaskRecord.of(task, tasks[number]),
            seed=runs[best].seed,
            scores=runs[best].scores,
            provenance=provenance(),
        )
        save(suite.task_bundle(models[best], number, record), folder / task.name)
