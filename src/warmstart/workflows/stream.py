"""A stream of tasks: one after another on the same backbone, and what each one did to those before it.

After every task, all tasks so far are tested with their own heads, and the pretrained language head reads a text it never
trained on. Ways to remember are compared on the same seeds: nothing, replay of stored texts, elastic weight consolidation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from warmstart.data import sample
from warmstart.data.batch import Encoded
from warmstart.engine import console
from warmstart.model import save
from warmstart.schemes.several import Anchor, Stored, elastic, fisher
from warmstart.seeding import derive, rng
from warmstart.storage import write_forced
from warmstart.types import Batch
from warmstart.workflows.run import load_model, open_run, print_table, provenance
from warmstart.workflows.stream_page import stream_page
from warmstart.workflows.streamed import Stream, Streamed
from warmstart.workflows.together import Ground, LanguageLoss, Lesson, TasksConfig, check_text, learn, load_tasks, task_bundle

Memory = Literal["none", "replay", "ewc"]


class StreamConfig(TasksConfig):
    """Learn tasks one after another on one backbone, and say what was forgotten."""

    out: str = "runs/stream"
    """folder of the run"""
    text: str | None = None
    """text on which the pretrained language head is measured before and after; it must not have been trained on"""
    memory: Annotated[tuple[Memory, ...], Field(min_length=1)] = ("none", "replay", "ewc")
    """how earlier tasks are remembered: none, replay (stored texts), ewc (elastic weight consolidation); several are compared"""
    memory_texts: int = Field(100, ge=0)
    """replay: stored texts of each earlier task, stratified"""
    replay_share: float = Field(0.5, gt=0, le=1)
    """replay: stored texts that go with each new one"""
    strength: float = Field(1000.0, ge=0)
    """ewc: strength of the pull (lambda)"""
    fisher_texts: int = Field(200, gt=0)
    """ewc: training texts on which the Fisher information is estimated"""


def stream(config: StreamConfig) -> Stream:
    """Run all streams, print, save the last models, write the report; the ``stream`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    language = check_text(bundle, config.text)
    folder = open_run(config.out, config, resume=False)
    ground = Ground.of(bundle, tasks, config)
    seeds = range(config.seed, config.seed + config.seeds)
    runs: dict[str, tuple[Streamed, ...]] = {}
    for kind in config.memory:
        runs[kind] = tuple(run_stream(ground, config, kind, seed, language) for seed in seeds)
    found = Stream(tuple(task.name for task in tasks), runs)
    print_table(f"after {' -> '.join(found.names)}", found.table(), found.HEADER)
    for sentence in found.sentences():
        console.print(sentence, markup=False)
    for memory, done in runs.items():
        best = max(done, key=lambda run: run.validation)
        entry = {
            "command": "stream",
            "memory": memory,
            "tasks": [task.name for task in tasks],
            "seed": best.seed,
            "scores": best.scores,
            "provenance": provenance(),
        }
        place = folder / "bundles" / memory
        for number, task in enumerate(tasks):
            save(task_bundle(ground, best.model, number, entry | {"task": task.summary()}), place / task.name)
    write_forced(folder / "stream.json", json.dumps(found.plain(), indent=1).encode())
    page = stream_page(found, config, folder)
    console.print(f"bundles: {folder / 'bundles'}\nreport: {page}", markup=False)
    return found


def run_stream(ground: Ground, config: StreamConfig, memory: str, seed: int, language: LanguageLoss | None) -> Streamed:
    """One stream from the pretrained backbone on."""
    model = ground.fresh(seed)
    scores, losses, seconds = [], [language.of(model.backbone)] if language else [], 0.0
    stored, anchors = list[Stored](), list[Anchor]()
    for task in range(len(ground.splits)):
        penalty = elastic(model, anchors, config.strength) if anchors and config.strength else None
        batches = _batches(ground, config, task, seed, stored)
        lesson = Lesson(batches, ground.steps(task), derive(seed, "stream", task), (task,), penalty)
        trained, _ = learn(model, ground, lesson)
        seconds += trained.seconds
        scores.append(tuple(ground.test(model, j).score(ground.splits[j].task.metric) for j in range(task + 1)))
        if language:
            losses.append(language.of(model.backbone))
        if memory == "replay" and config.memory_texts:
            stored.append(_stored(ground, config, task, seed))
        if memory == "ewc":
            anchors.append(Anchor.at(model, fisher(model, task, _few(ground, config.fisher_texts, task, seed), 0, seed)))
    said = ", ".join(f"{ground.splits[j].task.name} {100 * s:.1f} %" for j, s in enumerate(scores[-1]))
    console.print(f"{memory}, seed {seed}: {said} at the end, in {seconds:.0f} s", markup=False)
    end = ground.validate(model, range(len(ground.splits)))
    return Streamed(memory, seed, tuple(scores), tuple(losses), seconds, end, model)


def _batches(ground: Ground, config: StreamConfig, task: int, seed: int, stored: Sequence[Stored]) -> Callable[[int], list[Batch]]:
    """A task's batches, each with stored texts of every earlier task beside it."""
    own, size = ground.batches(task, seed), config.train.batch
    share = max(1, round(size * config.replay_share / max(1, len(stored))))

    def batches(step: int) -> list[Batch]:
        draws = [(one, rng(seed, "replay", task, one.task, step)) for one in stored]
        pad = ground.splits[task].pad_id
        return [own(step), *(one.batch(share, pad, draw, causal=ground.bundle.model.causal) for one, draw in draws)]

    return batches


def _stored(ground: Ground, config: StreamConfig, task: int, seed: int) -> Stored:
    """A stratified choice of a task's training texts; never of validation or test."""
    splits = ground.splits[task]
    count = max(len(splits.task.labels), min(config.memory_texts, len(splits.train)))
    places = sample(splits.task.train.labels, count, derive(seed, "stored"))
    return Stored(splits.train.take(places), splits.task.train.labels[places], task)


def _few(ground: Ground, count: int, task: int, seed: int) -> Encoded:
    rows = ground.splits[task].train
    return rows.take(np.sort(rng(seed, "fisher", task).permutation(len(rows))[:count]))
