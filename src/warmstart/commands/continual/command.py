"""Continual learning: tasks one after another on the same backbone, and what each one does to those before it.

After every task, all tasks so far are tested with their own heads, and the pretrained language head reads a text that it was never
trained on. Strategies against forgetting are compared on the same seeds.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from warmstart.commands.continual.page import write_continual_page
from warmstart.commands.continual.result import ContinualResult, ContinualRun
from warmstart.config import Effectless, FileInput
from warmstart.finetuning.continual import STRATEGIES, PretrainingLoss, StrategyOptions
from warmstart.finetuning.multitask_model import MultitaskModel
from warmstart.finetuning.multitask_training import TasksConfig, TaskSuite, load_tasks
from warmstart.interop.load import load_model
from warmstart.model.files import save
from warmstart.model.history import ContinualRecord, TaskRecord
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.made_of import made_of
from warmstart.runs.parts import Parts, Workplace
from warmstart.runs.run import open_run, provenance
from warmstart.seeding import derive
from warmstart.stats.formatting import percent
from warmstart.system.console import console, print_table
from warmstart.system.storage import atomic_write

WHOLE = "all tasks"
"""the part that one strategy with one seed is in the end"""


class ContinualConfig(TasksConfig, StrategyOptions):
    """Learn tasks one after another on one backbone, and measure what is forgotten."""

    out: Effectless[str] = "runs/continual"
    """folder of the run"""
    text: FileInput[str | None] = None
    """text that was never trained on, to measure the pretrained language head's loss on after each task"""
    strategies: Annotated[tuple[Annotated[str, AfterValidator(STRATEGIES.known)], ...], Field(min_length=1)] = tuple(STRATEGIES)
    """how forgetting is prevented: none, replay (stored texts), ewc (elastic weight consolidation); several are compared"""


def continual(config: ContinualConfig) -> ContinualResult:
    """Run every strategy with every seed, print, save the best models, write the report; the ``continual`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    language = PretrainingLoss(bundle, config.text) if config.text is not None else None
    folder = open_run(config.out, config, resume=False)
    suite, parts = TaskSuite.of(bundle, tasks, config), Parts.open(folder, made_of(config))
    seeds = range(config.seed, config.seed + config.seeds)
    runs: dict[str, tuple[ContinualRun, ...]] = {}
    models: dict[str, list[MultitaskModel]] = {}
    for strategy in config.strategies:
        kept = {seed: parts.named(f"{strategy}, seed {seed}") for seed in seeds}
        both = [run_strategy(suite.within(seed), config, strategy, (seed, kept[seed]), language) for seed in seeds]
        runs[strategy], models[strategy] = tuple(run for run, _ in both), [model for _, model in both]
    result = ContinualResult(suite.names, runs, suite.finish(), suite.label_findings, suite.one_split)
    for strategy, strategy_runs in runs.items():
        best = suite.seed_to_save([run.validation_score for run in strategy_runs])
        for number, task in enumerate(encoded.task for encoded in suite.within(strategy_runs[best].seed).encoded):
            record = ContinualRecord(
                strategy=strategy,
                tasks=result.tasks,
                task=TaskRecord.of(task, tasks[number]),
                seed=strategy_runs[best].seed,
                scores=strategy_runs[best].scores,
                provenance=provenance(),
            )
            save(suite.task_bundle(models[strategy][best], number, record), folder / "bundles" / strategy / task.name)
    with model_is_saved(folder / "bundles"):
        print_table(f"after {' -> '.join(result.tasks)}", result.table(), result.HEADER)
        for sentence in result.findings:
            console.print(sentence)
        atomic_write(folder / "continual.json", json.dumps(result.to_dict(), indent=1).encode())
        page = write_continual_page(result, config, folder)
        parts.close()
    console.print(f"bundles: {folder / 'bundles'}\nreport: {page}")
    return result


def run_strategy(
    suite: TaskSuite, config: ContinualConfig, name: str, seed_and_parts: tuple[int, Parts], language: PretrainingLoss | None
) -> tuple[ContinualRun, MultitaskModel]:
    """Learn all tasks of ``suite``, with the labels of this seed, from the pretrained backbone; the run and its model."""
    seed, parts = seed_and_parts
    model = suite.new_model(seed)
    whole = parts.kept(WHOLE, lambda _: _learn(suite, config, model, (name, seed, parts), language))
    model.load_state_dict(whole["weights"])
    model.eval()
    parts.forget(*map(_stage_name, range(len(suite.encoded))))
    stages, losses = whole["tested"], whole["losses"]
    scores = tuple(tuple(score for score, _ in stage) for stage in stages)
    at_end = ", ".join(f"{task} {percent(score)}" for task, score in zip(suite.names, scores[-1], strict=True))
    console.print(f"{name}, seed {seed}: {at_end} at the end, in {whole['seconds']:.0f} s")
    run = ContinualRun(
        seed,
        scores,
        tuple(loss for loss, _ in losses),
        whole["seconds"],
        whole["validation"],
        tuple(tuple(resampled for _, resampled in stage) for stage in stages),
        tuple(resampled for _, resampled in losses),
    )
    return run, model


def _learn(
    suite: TaskSuite,
    config: ContinualConfig,
    model: MultitaskModel,
    named: tuple[str, int, Parts],
    language: PretrainingLoss | None,
) -> dict[str, Any]:
    """Learn all tasks, in place; each is a part until the last one is learned. ``named`` is (strategy, seed, parts)."""
    name, seed, parts = named
    strategy, tested, seconds = STRATEGIES[name](suite, config, seed), [], 0.0
    losses = [language.measure(model)] if language else []

    def learn(task: int, workplace: Workplace) -> dict[str, Any]:
        batches, steps, penalty = strategy.batches(task), suite.steps(task), strategy.penalty(model)
        ordered = derive(seed, "stream", task)
        output, _ = suite.at(workplace).train(model, batches, steps, ordered, validate=[task], penalty=penalty)
        described = f"strategy {name} after {suite.names[task]}"
        scores = [suite.resampled_test(model, one, described, seed) for one in range(task + 1)]
        loss = language.measure(model) if language else None
        return {"weights": model.weights(), "tested": scores, "loss": loss, "seconds": output.seconds}

    for task in range(len(suite.encoded)):
        stage = parts.kept(_stage_name(task), partial(learn, task))
        model.load_state_dict(stage["weights"])
        tested.append(stage["tested"])
        seconds += stage["seconds"]
        losses += [stage["loss"]] if language else []
        strategy.finish_task(model, task)
    validation = suite.validate(model, range(len(suite.encoded)))
    return {"weights": model.weights(), "tested": tested, "losses": losses, "seconds": seconds, "validation": validation}


def _stage_name(task: int) -> str:
    """The part in which one task is learned."""
    return f"task {task}"
