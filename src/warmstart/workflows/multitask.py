"""Several tasks trained together on one backbone, compared with each task alone on the same seeds.

Each step reads texts of one task. How often a task's turn comes is settled before: by its size to the power ``alpha``. The kept
weights are those with the best mean validation score over tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from warmstart.engine import console
from warmstart.evaluate import Comparison, Row, Scores, compared
from warmstart.evaluate.resample import resampled
from warmstart.model import save
from warmstart.report import Figure, Report, Section, Table, charts, write_report
from warmstart.schemes.several import Several, shares, whose_turn
from warmstart.seeding import derive
from warmstart.storage import write_forced
from warmstart.types import Batch
from warmstart.workflows.pages import as_sentence, closing_sections, footer
from warmstart.workflows.run import load_model, open_run, print_table, provenance
from warmstart.workflows.together import Ground, Lesson, TasksConfig, learn, load_tasks, task_bundle

TOGETHER, ALONE = "together", "alone"


class MultitaskConfig(TasksConfig):
    """Train several tasks together on one backbone, and say what sharing it bought each of them."""

    out: str = "runs/multitask"
    """folder of the run"""
    alpha: float = Field(1.0, ge=0, le=1)
    """how often a task's turn comes: by its size to this power; 1 by size, 0 all alike"""


@dataclass(frozen=True)
class Shared:
    """One run of all tasks together, and each alone, with one seed."""

    seed: int
    together: tuple[float, ...]
    alone: tuple[float, ...]
    """test scores by task"""
    resampled: tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]
    """together and alone, (R,) by task: the same on resamples of the test split"""
    seconds: tuple[float, float]
    """of training together, and of all tasks alone"""
    validation: float
    model: Several


@dataclass(frozen=True)
class Multitask:
    """What sharing bought."""

    names: tuple[str, ...]
    runs: tuple[Shared, ...]

    def rows(self, task: int) -> tuple[Row, Row]:
        """One task together, and alone."""
        one, other = (
            Row(
                name,
                tuple(getattr(run, name)[task] for run in self.runs),
                float(np.mean([run.seconds[i] for run in self.runs])),
                resampled=np.array([run.resampled[i][task] for run in self.runs]),
            )
            for i, name in enumerate((TOGETHER, ALONE))
        )
        return one, other

    def said(self) -> list[str]:
        """What sharing bought each task."""
        return [found.sentence for found in compared([self.rows(place) for place in range(len(self.names))])]

    def sentences(self) -> list[str]:
        """The same under the tasks' names."""
        return [f"{name}: {sentence}" for name, sentence in zip(self.names, self.said(), strict=True)]

    HEADER: ClassVar = ("task", TOGETHER, ALONE)

    def table(self) -> list[tuple[str, str, str]]:
        """One row a task."""
        rows = [self.rows(place) for place in range(len(self.names))]
        return [(name, str(one.interval), str(other.interval)) for name, (one, other) in zip(self.names, rows, strict=True)]


def multitask(config: MultitaskConfig) -> Multitask:
    """Train together and alone over seeds, print, save one bundle a task, write the report; the ``multitask`` command."""
    bundle, tasks = load_model(config.model), load_tasks(config)
    folder = open_run(config.out, config, resume=False)
    ground = Ground.of(bundle, tasks, config)
    runs = tuple(_run(ground, config, seed) for seed in range(config.seed, config.seed + config.seeds))
    found = Multitask(tuple(task.name for task in tasks), runs)
    print_table("one backbone for all tasks, and one for each", found.table(), found.HEADER)
    for sentence in found.sentences():
        console.print(sentence, markup=False)
    best = max(runs, key=lambda run: run.validation)
    entry = {"command": "multitask", "tasks": list(found.names), "seed": best.seed, "provenance": provenance()}
    for place, task in enumerate(tasks):
        save(task_bundle(ground, best.model, place, entry | {"task": task.summary()}), folder / "bundles" / task.name)
    plain: dict[str, Any] = {"tasks": found.names, "sentences": found.sentences()}
    plain["runs"] = [{key: getattr(run, key) for key in ("seed", "together", "alone", "seconds")} for run in runs]
    write_forced(folder / "multitask.json", json.dumps(plain, indent=1).encode())
    sections = [_section(found, place) for place in range(len(tasks))]
    tiles = tuple((f"{name}, together", f"{100 * row.interval.mean:.1f} %") for name, row in _first(found))
    report = Report(
        "Several tasks, one backbone", as_sentence(found.sentences()[0]), tiles, (*sections, *closing_sections(config)), footer()
    )
    console.print(f"bundles: {folder / 'bundles'}\nreport: {write_report(report, folder)}", markup=False)
    return found


def _run(ground: Ground, config: MultitaskConfig, seed: int) -> Shared:
    tasks = range(len(ground.splits))
    model = ground.fresh(seed)
    counts = [ground.steps(task) for task in tasks]
    turns = whose_turn(shares([len(splits.train) for splits in ground.splits], config.alpha), sum(counts), seed)
    trained, score = learn(model, ground, Lesson(_turns(ground, turns, seed), len(turns), derive(seed, "together"), tuple(tasks)))
    together = [ground.test(model, task) for task in tasks]
    alone, seconds = list[Scores](), 0.0
    for task in tasks:
        single = ground.fresh(seed)
        batches = _turns(ground, [task] * counts[task], seed)
        done, _ = learn(single, ground, Lesson(batches, counts[task], derive(seed, "alone", task), (task,)))
        seconds += done.seconds
        alone.append(ground.test(single, task))
    (one, drawn), (other, drawn_alone) = (_figures(ground, found) for found in (together, alone))
    names = [splits.task.name for splits in ground.splits]
    said = ", ".join(f"{n} {100 * a:.1f} % ({100 * b:.1f} % alone)" for n, a, b in zip(names, one, other, strict=True))
    console.print(f"seed {seed}: {said}", markup=False)
    return Shared(seed, one, other, (drawn, drawn_alone), (trained.seconds, seconds), score, model)


def _figures(ground: Ground, found: Sequence[Scores]) -> tuple[tuple[float, ...], tuple[np.ndarray, ...]]:
    """Of each task its score, and what it is on resamples."""
    both = [(scores, splits.task) for scores, splits in zip(found, ground.splits, strict=True)]
    drawn = [resampled(task.metric, task.test.labels, scores.answers, len(task.labels)) for scores, task in both]
    return tuple(scores.score(task.metric) for scores, task in both), tuple(drawn)


def _turns(ground: Ground, turns: Sequence[int], seed: int) -> Any:
    """The batches of a run in which each step is one task's turn; each task goes through its own texts in its own order."""
    own = [ground.batches(task, seed) for task in range(len(ground.splits))]
    seen, before = [0] * len(own), list[int]()
    for task in turns:
        before.append(seen[task])
        seen[task] += 1

    def batches(step: int) -> list[Batch]:
        return [own[turns[step]](before[step])]

    return batches


def _first(found: Multitask) -> list[tuple[str, Row]]:
    return [(name, found.rows(place)[0]) for place, name in enumerate(found.names)]


def _section(found: Multitask, place: int) -> Section:
    comparison = Comparison("score", found.rows(place))
    rows = [(row.name, row.scores, row.interval.mean, row.interval.low, row.interval.high) for row in comparison.rows]
    figure = Figure(f"task-{place}", "Test score: each seed, mean and 95 % interval over seeds.", charts.comparison(rows, "score"))
    said = as_sentence(found.said()[place])
    return Section(found.names[place], (said,), (figure, Table(comparison.HEADER, comparison.table())))
