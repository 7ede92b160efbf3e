"""Continual learning: tasks one after another on the same backbone, and what each one does to those before it.

After every task, all tasks so far are tested with their own heads, and the pretrained language head reads a text that it was never
trained on. Strategies against forgetting are compared on the same seeds.
"""

from __future__ import annotations

import json
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from warmstart.commands.continual.page import write_continual_page
from warmstart.commands.continual.result import ContinualResult, ContinualRun
from warmstart.console import console, print_table
from warmstart.finetuning.continual import STRATEGIES, PretrainingLoss, StrategyOptions
from warmstart.finetuning.multitask_model import MultitaskModel
from warmstart.finetuning.multitask_training import TasksConfig, TaskSuite, load_tasks
from warmstart.interop.load import load_model
from warmstart.model.files import save
from warmstart.model.history import ContinualRecord, TaskRecord
from warmstart.run import open_run, provenance
from warmstart.seeding import derive
from warmstart.stats.formatting import percent
from warmstart.storage import atomic_write


class ContinualConfig(TasksConfig, StrategyOptions):
    """Learn tasks one after another on one backbone, and measure what is forgotten."""

    renamed: ClassVar[dict[str, str]] = {
        "memory": "strategies",
        "memory_texts": "replay_texts",
        "replay_share": "replay_ratio",
        "strength": "ewc_strength",
    }

    out: str = "runs/continual"
    """folder of the run"""
    text: str | None = None
    """text that was never trained on, to measure the pretrained language head's loss on after each task"""
    strategies: Annotated[tuple[Annotated[str, AfterValidator(STRATEGIES.known)], ...], Field(min_length=1)] = tuple(STRATEGIES)
    """how forgetting is prevented: none, replay (stored texts), ewc (elastic weight consolidation); several are compared"""


def continual(config: ContinualConfig) -> ContinualResult:
    """Run every strategy with every seed, print, save the best models, write the report; the ``continual`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    language = PretrainingLoss(bundle, config.text) if config.text is not None else None
    folder = open_run(config.out, config, resume=False)
    suite = TaskSuite.of(bundle, tasks, config)
    seeds = range(config.seed, config.seed + config.seeds)
    runs: dict[str, tuple[ContinualRun, ...]] = {}
    models: dict[str, list[MultitaskModel]] = {}
    for strategy in config.strategies:
        both = [run_strategy(suite.within(seed), config, strategy, seed, language) for seed in seeds]
        runs[strategy], models[strategy] = tuple(run for run, _ in both), [model for _, model in both]
    result = ContinualResult(suite.names, runs, suite.finish(), suite.label_findings, suite.one_split)
    print_table(f"after {' -> '.join(result.tasks)}", result.table(), result.HEADER)
    for sentence in result.findings:
        console.print(sentence, markup=False)
    for strategy, strategy_runs in runs.items():
        best = suite.seed_to_save([run.validation_score for run in strategy_runs])
        for number, task in enumerate(encoded.task for encoded in suite.within(strategy_runs[best].seed).encoded):
            record = ContinualRecord(
                strategy=strategy,
                tasks=result.tasks,
                task=TaskRecord.of(task),
                seed=strategy_runs[best].seed,
                scores=strategy_runs[best].scores,
                provenance=provenance(),
            )
            save(suite.task_bundle(models[strategy][best], number, record), folder / "bundles" / strategy / task.name)
    atomic_write(folder / "continual.json", json.dumps(result.to_dict(), indent=1).encode())
    page = write_continual_page(result, config, folder)
    console.print(f"bundles: {folder / 'bundles'}\nreport: {page}", markup=False)
    return result


def run_strategy(
    suite: TaskSuite, config: ContinualConfig, name: str, seed: int, language: PretrainingLoss | None
) -> tuple[ContinualRun, MultitaskModel]:
    """Learn all tasks of ``suite``, with the labels of this seed, from the pretrained backbone; the run and its model."""
    model, strategy = suite.new_model(seed), STRATEGIES[name](suite, config, seed)
    tested, seconds = [], 0.0
    losses = [language.measure(model)] if language else []
    for task in range(len(suite.encoded)):
        output, _ = suite.train(
            model,
            strategy.batches(task),
            suite.steps(task),
            derive(seed, "stream", task),
            validate=[task],
            penalty=strategy.penalty(model),
        )
        seconds += output.seconds
        described = f"strategy {name} after {suite.names[task]}"
        tested.append([suite.resampled_test(model, one, described, seed) for one in range(task + 1)])
        if language:
            losses.append(language.measure(model))
        strategy.finish_task(model, task)
    scores = tuple(tuple(score for score, _ in stage) for stage in tested)
    at_end = ", ".join(f"{task} {percent(score)}" for task, score in zip(suite.names, scores[-1], strict=True))
    console.print(f"{name}, seed {seed}: {at_end} at the end, in {seconds:.0f} s", markup=False)
    validation = suite.validate(model, range(len(suite.encoded)))
    run = ContinualRun(
        seed,
        scores,
        tuple(loss for loss, _ in losses),
        seconds,
        validation,
        tuple(tuple(resampled for _, resampled in stage) for stage in tested),
        tuple(resampled for _, resampled in losses),
    )
    return run, model
