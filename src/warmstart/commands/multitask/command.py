"""Several tasks trained together on one backbone, compared with each task alone on the same seeds.

Each step reads texts of one task; how often each task is read depends on its size to the power ``alpha``. The weights with the best
mean score over tasks on the texts that choose are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from warmstart.commands.multitask.page import write_multitask_page
from warmstart.commands.multitask.result import ALONE, TOGETHER, MultitaskResult, MultitaskRun
from warmstart.config import Advanced, Effectless
from warmstart.finetuning.multitask_model import MultitaskModel, sampling_fractions, task_order
from warmstart.finetuning.multitask_training import TasksConfig, TaskSuite, load_tasks
from warmstart.interop.load import load_model
from warmstart.model.files import save
from warmstart.model.history import MultitaskRecord, TaskRecord
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.made_of import made_of
from warmstart.runs.parts import Parts, Workplace
from warmstart.runs.run import open_run, provenance
from warmstart.seeding import derive
from warmstart.stats.formatting import percent
from warmstart.system.console import console, print_table
from warmstart.system.storage import atomic_write
from warmstart.types import Batch


class MultitaskConfig(TasksConfig):
    """Train several tasks together on one backbone, and measure what sharing it brings each of them."""

    out: Effectless[str] = "runs/multitask"
    """folder of the run"""
    alpha: Advanced[float] = Field(1.0, ge=0, le=1)
    """how often each task is read: in proportion to its size to this power; 1: by size, 0: all equally often"""


def multitask(config: MultitaskConfig) -> MultitaskResult:
    """Train together and alone with every seed, print, save one bundle per task, write the report; the ``multitask`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    folder = open_run(config.out, config, resume=False)
    suite, parts = TaskSuite.of(bundle, tasks, config), Parts.open(folder, made_of(config))
    seeds = range(config.seed, config.seed + config.seeds)
    runs, models = zip(*(_run(suite.within(seed), config.alpha, seed, parts.named(f"seed {seed}")) for seed in seeds), strict=True)
    result = MultitaskResult(suite.names, runs, suite.finish(), suite.label_findings, suite.one_split)
    best = suite.seed_to_save([run.validation_score for run in runs])
    for number, task in enumerate(encoded.task for encoded in suite.within(runs[best].seed).encoded):
        record = MultitaskRecord(
            tasks=suite.names, task=TaskRecord.of(task, tasks[number]), seed=runs[best].seed, provenance=provenance()
        )
        save(suite.task_bundle(models[best], number, record), folder / "bundles" / task.name)
    with model_is_saved(folder / "bundles"):
        print_table("one backbone for all tasks, and one for each", result.table(), result.header)
        for sentence in result.findings:
            console.print(sentence)
        atomic_write(folder / "multitask.json", json.dumps(result.to_dict(), indent=1).encode())
        page = write_multitask_page(result, config, folder)
        parts.close()
    console.print(f"bundles: {folder / 'bundles'}\nreport: {page}")
    return result


def _run(suite: TaskSuite, alpha: float, seed: int, parts: Parts) -> tuple[MultitaskRun, MultitaskModel]:
    """All tasks together, then each alone, with one seed; the run and the model of all tasks."""
    tasks = range(len(suite.encoded))
    model = suite.new_model(seed)
    both = parts.kept(TOGETHER, lambda workplace: _together(suite.at(workplace), model, alpha, seed))
    model.load_state_dict(both["weights"])
    model.eval()
    together, drawn_together = zip(*both["scores"], strict=True)
    single = [parts.kept(f"{ALONE}, task {task}", partial(_alone, suite, task, seed)) for task in tasks]
    alone, drawn_alone = zip(*(one["score"] for one in single), strict=True)
    scores = zip(suite.names, together, alone, strict=True)
    console.print(f"seed {seed}: {', '.join(f'{name} {percent(a)} ({percent(b)} alone)' for name, a, b in scores)}")
    seconds = both["seconds"], sum(one["seconds"] for one in single)
    return MultitaskRun(seed, together, alone, (drawn_together, drawn_alone), seconds, both["validation"]), model


def _together(suite: TaskSuite, model: MultitaskModel, alpha: float, seed: int) -> dict[str, Any]:
    """All tasks on one backbone, trained in place."""
    tasks = range(len(suite.encoded))
    steps = sum(suite.steps(task) for task in tasks)
    order = task_order(sampling_fractions([len(encoded.train) for encoded in suite.encoded], alpha), steps, seed)
    output, score = suite.train(model, _batches(suite, order, seed), len(order), derive(seed, "together"), validate=tasks)
    scores = [suite.resampled_test(model, task, TOGETHER, seed) for task in tasks]
    return {"weights": model.weights(), "scores": scores, "seconds": output.seconds, "validation": score}


def _alone(suite: TaskSuite, task: int, seed: int, workplace: Workplace) -> dict[str, Any]:
    """One task on a backbone of its own."""
    model, steps = suite.new_model(seed), suite.steps(task)
    batches = _batches(suite, [task] * steps, seed)
    output, _ = suite.at(workplace).train(model, batches, steps, derive(seed, "alone", task), validate=[task])
    return {"score": suite.resampled_test(model, task, ALONE, seed), "seconds": output.seconds}


def _batches(suite: TaskSuite, order: Sequence[int], seed: int) -> Callable[[int], list[Batch]]:
    """Batches that read the tasks in this order; each task goes through its own texts in its own order."""
    own = [suite.batches(task, seed) for task in range(len(suite.encoded))]
    seen, numbers = [0] * len(own), list[int]()
    for task in order:
        numbers.append(seen[task])
        seen[task] += 1
    return lambda step: [own[order[step]](numbers[step])]
