"""A small student with and without a teacher, and several seeds as one model, on development sets of 20 words a text.

The teacher is the imported encoder (``runs/minilm``), fine-tuned on the labels of a draw; the student the own backbone
(``runs/wikitext-2``). A fifth of the labels choose: whether the student with the teacher is kept, and whether the mean or the soup
of five seeds is. What was measured is kept in ``FOLDER`` (default: runs/distillation), so that the command can be stopped and
started again; ``SETS`` and ``LABELS`` name the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.draws import measured_once, rates_of
from benchmarks.few_label_tasks import shortened
from benchmarks.harness import table

from warmstart.data.budget import LabelBudget, label_budget
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.ensemble import FoldSoups, average_probabilities, average_weights, seconds_per_text
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.selection import BudgetedRun, SelectionSettings, fine_tune_within
from warmstart.finetuning.teacher import Lesson, Teacher, TeacherChoice, TeacherConfig, teaching_pool
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.history import AdaptRecord, TaskRecord
from warmstart.model.model import parameter_counts
from warmstart.stats.formatting import percent_value
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task

DRAWS, ENSEMBLE, WORDS, TEXTS = 3, 5, 20, (3000, 400)
Scores = dict[str, float]
"""what was measured on one draw, by name"""


def network(bundle: Bundle, run: BudgetedRun, budget: LabelBudget) -> Bundle:
    """What a run trained, with its history."""
    record = AdaptRecord(task=TaskRecord.of(budget.task), seed=run.seed)
    return Bundle(run.final.model, bundle.tokenizer, budget.whole.labels, (record,))


def fit(bundle: Bundle, encoded: EncodedTask, budget: LabelBudget, watch: Callable[..., object] | None = None) -> BudgetedRun:
    """Full fine-tuning at the learning rate that a race tries first."""
    config = FineTuneConfig.build({"scheme": "full"}).at_learning_rate(rates_of(bundle, "full")[0])
    return fine_tune_within(bundle, encoded, budget, config, SelectionSettings("holdout", watch=watch))


def encode(bundle: Bundle, budget: LabelBudget) -> EncodedTask:
    """The task as a model reads it."""
    model = task_model(bundle, budget.whole, FineTuneConfig(), 0, scratch=False)
    return EncodedTask.of(budget.whole, model, bundle.tokenizer)


def distillation(runs: Path, budget: LabelBudget) -> Scores:
    """Teacher, and student without and with it."""
    task, origin, own = budget.whole, load(runs / "minilm"), load(runs / "wikitext-2")
    assert isinstance(origin, Bundle)
    assert isinstance(own, Bundle)
    taught_by = network(origin, run := fit(origin, encode(origin, budget), budget), budget)
    teacher = Teacher(taught_by, f"{task.name} {budget.seed} {len(budget)}", np.arange(len(task.labels)))
    encoded = encode(own, budget)
    lesson = Lesson(teacher, teaching_pool(budget, "rest"), TeacherConfig())
    soft = lesson.soft_texts(task_model(own, task, FineTuneConfig(), 0, scratch=False), own.tokenizer, task)
    without, taught = (fit(own, each, budget) for each in (encoded, replace(encoded, soft=soft)))
    choice = TeacherChoice.of(budget, [without.choosing], [taught.choosing], teacher.learned(budget))
    small = network(own, taught, budget)
    found = {"teacher": run, "without": without, "with": taught}
    return {name: accuracy(budget, one.final.test_predictions) for name, one in found.items()} | {
        "kept": float(choice.kept),
        "pool": len(lesson.pool),
        "parameters, teacher": teacher.parameters,
        "parameters, student": parameter_counts(small.model)["total"],
        "seconds, teacher": 1000 * teacher.seconds(task.test.texts),
        "seconds, student": 1000 * seconds_per_text(small, task.test.texts),
    }


def ensembles(runs: Path, budget: LabelBudget) -> Scores:
    """Single seeds of the student, their mean and their soup; and whether each is kept."""
    own, folds = load(runs / "wikitext-2"), FoldSoups()
    assert isinstance(own, Bundle)
    encoded = encode(own, budget)
    singles = [fit(own, encoded, budget.for_seed(budget.seed + 10 * i), folds.add) for i in range(ENSEMBLE)]
    networks = [network(own, one, budget) for one in singles]
    mean, soup = average_probabilities(encoded, budget, singles, networks), average_weights(encoded, budget, networks, folds)
    chosen = float(np.mean([one.validation_score for one in singles]))
    return {
        "single": float(np.mean([accuracy(budget, one.final.test_predictions) for one in singles])),
        "mean": accuracy(budget, mean.test_predictions),
        "soup": accuracy(budget, soup.test_predictions),
        "mean kept": float(mean.score >= chosen),
        "soup kept": float(soup.score >= chosen),
    }


def accuracy(budget: LabelBudget, predictions: np.ndarray) -> float:
    """On the test texts."""
    task = budget.whole
    return float(task_type_of(task).scores(task.test, predictions, task).score("accuracy"))


def measured(what: str, measure: Callable[[Path, LabelBudget], Scores], name: str, labels: int) -> list[Scores]:
    """The scores of each draw; measured once."""
    folder, runs = Path(os.environ.get("FOLDER", "runs/distillation")), Path(os.environ.get("RUNS", "runs"))

    def draw(seed: int) -> Scores:
        manifest = folder / "short" / name / "task.yaml"
        task = load_task(manifest if manifest.is_file() else shortened(name, folder, WORDS, TEXTS))
        return measure(runs, label_budget(task, labels, "holdout", seed))

    return [measured_once(folder / f"{what}-{name}-{labels}-{seed}.json", partial(draw, seed)) for seed in range(DRAWS)]


def run() -> str:
    """Two tables: teacher and student, and seeds as one model."""
    sets = os.environ.get("SETS", "emotion r8").split()
    cases = [(name, int(labels)) for labels in os.environ.get("LABELS", "100 500").split() for name in sets]
    first, second = list[tuple[str, ...]](), list[tuple[str, ...]]()
    for name, labels in cases:
        taught = measured("teacher", distillation, name, labels)
        size = [f"{taught[0][f'parameters, {who}'] / 1e6:.1f}" for who in ("teacher", "student")]
        time = [f"{mean_of(taught, f'seconds, {who}'):.1f}" for who in ("teacher", "student")]
        scores = [percent_value(mean_of(taught, column)) for column in ("teacher", "without", "with")]
        first.append((name, str(labels), *scores, count_of(taught, "kept"), *size, *time))
        several = measured("ensemble", ensembles, name, labels)
        scores = [percent_value(mean_of(several, column)) for column in ("single", "mean", "soup")]
        second.append((name, str(labels), *scores, count_of(several, "mean kept"), count_of(several, "soup kept")))
    sizes = ("teacher, M parameters", "student, M", "teacher, s per 1,000 texts", "student, s")
    return "\n\n".join(
        (
            table(("set", "labels", "teacher, %", "student without, %", "with, %", "kept", *sizes), first),
            table(("set", "labels", f"one of {ENSEMBLE} seeds, %", "mean, %", "soup, %", "mean kept", "soup kept"), second),
        )
    )


def mean_of(draws: Sequence[Scores], column: str) -> float:
    """Over draws."""
    return float(np.mean([one[column] for one in draws]))


def count_of(draws: Sequence[Scores], column: str) -> str:
    """In how many draws."""
    return f"{sum(one[column] for one in draws):.0f} of {len(draws)}"


if __name__ == "__main__":
    print(run())
