"""Several tasks trained together on one backbone, compared with each task alone on the same seeds.

Each step reads texts of one task; how often each task is read depends on its size to the power ``alpha``. The weights with the best
mean score over tasks on the texts that choose are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
from pydantic import Field

from warmstart.commands.multitask.page import write_multitask_page
from warmstart.commands.multitask.result import ALONE, TOGETHER, MultitaskResult, MultitaskRun
from warmstart.config import Advanced
from warmstart.console import console, print_table
from warmstart.finetuning.multitask_model import MultitaskModel, sampling_fractions, task_order
from warmstart.finetuning.multitask_training import TasksConfig, TaskSuite, load_tasks
from warmstart.interop.load import load_model
from warmstart.model.files import save
from warmstart.model.history import MultitaskRecord, TaskRecord
from warmstart.run import open_run, provenance
from warmstart.seeding import derive
from warmstart.stats.formatting import percent
from warmstart.storage import atomic_write
from warmstart.types import Batch


class MultitaskConfig(TasksConfig):
    """Train several tasks together on one backbone, and measure what sharing it brings each of them."""

    out: str = "runs/multitask"
    """folder of the run"""
    alpha: Advanced[float] = Field(1.0, ge=0, le=1)
    """how often each task is read: in proportion to its size to this power; 1: by size, 0: all equally often"""


def multitask(config: MultitaskConfig) -> MultitaskResult:
    """Train together and alone with every seed, print, save one bundle per task, write the report; the ``multitask`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    folder = open_run(config.out, config, resume=False)
    suite = TaskSuite.of(bundle, tasks, config)
    seeds = range(config.seed, config.seed + config.seeds)
    runs, models = zip(*(_run(suite.within(seed), config.alpha, seed) for seed in seeds), strict=True)
    result = MultitaskResult(suite.names, runs, suite.finish(), suite.label_findings, suite.one_split)
    print_table("one backbone for all tasks, and one for each", [row[:3] for row in result.table()], result.header[:3])
    for sentence in result.findings:
        console.print(sentence, markup=False)
    best = suite.seed_to_save([run.validation_score for run in runs])
    for number, task in enumerate(encoded.task for encoded in suite.within(runs[best].seed).encoded):
        record = MultitaskRecord(tasks=suite.names, task=TaskRecord.of(task), seed=runs[best].seed, provenance=provenance())
        save(suite.task_bundle(models[best], number, record), folder / "bundles" / task.name)
    atomic_write(folder / "multitask.json", json.dumps(result.to_dict(), indent=1).encode())
    page = write_multitask_page(result, config, folder)
    console.print(f"bundles: {folder / 'bundles'}\nreport: {page}", markup=False)
    return result


def _run(suite: TaskSuite, alpha: float, seed: int) -> tuple[MultitaskRun, MultitaskModel]:
    """All tasks together, then each alone, with one seed; the run and the model of all tasks."""
    tasks = range(len(suite.encoded))
    model = suite.new_model(seed)
    steps = [suite.steps(task) for task in tasks]
    order = task_order(sampling_fractions([len(encoded.train) for encoded in suite.encoded], alpha), sum(steps), seed)
    output, score = suite.train(model, _batches(suite, order, seed), len(order), derive(seed, "together"), validate=tasks)
    together, drawn_together = zip(*(suite.resampled_test(model, task, TOGETHER, seed) for task in tasks), strict=True)
    results, seconds = list[tuple[float, np.ndarray]](), 0.0
    for task in tasks:
        single = suite.new_model(seed)
        batches = _batches(suite, [task] * steps[task], seed)
        own, _ = suite.train(single, batches, steps[task], derive(seed, "alone", task), validate=[task])
        seconds += own.seconds
        results.append(suite.resampled_test(single, task, ALONE, seed))
    alone, drawn_alone = zip(*results, strict=True)
    scores = zip(suite.names, together, alone, strict=True)
    console.print(f"seed {seed}: {', '.join(f'{name} {percent(a)} ({percent(b)} alone)' for name, a, b in scores)}", markup=False)
    return MultitaskRun(seed, together, alone, (drawn_together, drawn_alone), (output.seconds, seconds), score), model


def _batches(suite: TaskSuite, order: Sequence[int], seed: int) -> Callable[[int], list[Batch]]:
    """Batches that read the tasks in this order; each task goes through its own texts in its own order."""
    own = [suite.batches(task, seed) for task in range(len(suite.encoded))]
    seen, numbers = [0] * len(own), list[int]()
    for task in order:
        numbers.append(seen[task])
        seen[task] += 1
    return lambda step: [own[order[step]](numbers[step])]
