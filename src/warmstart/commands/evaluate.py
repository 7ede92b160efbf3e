"""``evaluate``: score a model on a task's test split, or on a text."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tyro.conf import Positional

from warmstart.config import Advanced, Config
from warmstart.console import console, print_metrics, print_table
from warmstart.data.pretraining_rows import PretrainingRows
from warmstart.data.source import Document, Source
from warmstart.data.task import Task
from warmstart.data.token_store import prepare_store
from warmstart.errors import DataError
from warmstart.heads.language_modeling import LMHead
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.stats.intervals import bootstrap_interval, percentiles
from warmstart.tasks import check_task_type, task_type_of
from warmstart.tasks.answers import answer_questions, exact_matches, load_answer_task
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.scores import ClassificationScores, classification_scores
from warmstart.training.held_out import held_out_metrics


class EvaluateConfig(Config):
    """Score an adapted model on a task's test split, or a language model on a text."""

    model: Positional[str]
    """a model: a bundle, or a run's folder"""
    task: Positional[str]
    """an adapted model's task: its manifest (YAML); or a language model's text: a file or folder"""
    document: Advanced[Document] = "paragraph"
    """what one document of a text is"""


def evaluate(config: EvaluateConfig) -> ClassificationScores | dict[str, Any]:
    """The ``evaluate`` command."""
    bundle = load_model(config.model)
    if bundle.answers_record:
        return _score_answers(bundle, config.task)
    if isinstance(bundle.model.head, LMHead):
        return _read_text(bundle, config)
    task = load_task(config.task)
    check_task_type(bundle, task)
    return _score(bundle, task) if task.single_label else _figures(bundle, task)


def _read_text(bundle: Bundle, config: EvaluateConfig) -> dict[str, Any]:
    """Held-out figures of a language model, under the objective it was trained with last."""
    assert bundle.objective is not None
    with TemporaryDirectory() as cache:
        store = prepare_store([Source(path=config.task, document=config.document)], bundle.tokenizer, Path(cache))
        figures = held_out_metrics(
            bundle.model,
            PretrainingRows(store, bundle.tokenizer.vocabulary(), bundle.objective, bundle.model.backbone.config.max_length),
        )
    print_metrics(f"{config.task}: {store.words:,} words, {store.predicted_tokens:,} tokens", figures)
    return figures


def _score_answers(bundle: Bundle, path: str) -> dict[str, Any]:
    """How many test questions a model answers rightly, to the letter."""
    test = load_answer_task(path).test
    right = exact_matches(answer_questions(bundle, test.questions), test)
    console.print(f"{int(right.sum())} of {len(test)} answers are right: {bootstrap_interval(right)} over test questions")
    return {"exact_match": float(right.mean())}


def _figures(bundle: Bundle, task: Task) -> dict[str, Any]:
    """The figures of a task that asks for more than one label, on its test split."""
    if task.labels != bundle.labels:
        raise DataError(f"the model must know the task's labels in the same order: {', '.join(bundle.labels)}")
    task_type, predictions = task_type_of(task), raw_predictions(bundle, task.test.texts)
    found = task_type.scores(task.test, predictions, task)
    draws = percentiles(task_type.resampled_scores(task.test, predictions, task))
    print_table(f"{task.name}, {len(task.test)} test texts", found.table(), found.header)
    console.print(f"{task.metric} {found.score(task.metric):.4f} ({draws[0]:.4f} to {draws[1]:.4f} over test texts)")
    return found.to_dict()


def _score(bundle: Bundle, task: Task) -> ClassificationScores:
    if unknown := sorted(set(task.labels) - set(bundle.labels)):
        known = ", ".join(bundle.labels)
        raise DataError(f"the model must know every label of the task, but {', '.join(unknown)} came; it knows {known}")
    places = {name: i for i, name in enumerate(bundle.labels)}
    labels = task.test.labels.copy()
    for i, name in enumerate(task.labels):
        labels[task.test.labels == i] = places[name]
    said = raw_predictions(bundle, task.test.texts)
    scores = classification_scores(labels, said, bundle.labels)
    around = bootstrap_interval(said.argmax(axis=1) == labels)
    print_table(f"{task.name}, {len(task.test)} test texts", scores.table(), scores.header)
    console.print(f"accuracy {around} over test texts, macro F1 {100 * scores.macro_f1:.1f} %, log loss {scores.log_loss:.3f} nats")
    return scores
