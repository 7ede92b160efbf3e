"""Using a model: predict, evaluate; and the two checks, of data (audit) and of a saved model (doctor)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Config
from warmstart.data import Document, Source, Task, audit, documents_of, drop_leaks, load_answers, load_task, prepare
from warmstart.data.batch import Rows
from warmstart.data.targets import read_inputs
from warmstart.engine import console
from warmstart.errors import DataError
from warmstart.evaluate import Scores, bootstrap, classification, held_out
from warmstart.evaluate import predict as probabilities_of
from warmstart.evaluate.answers import exact, never_seen
from warmstart.heads import LanguageHead
from warmstart.kinds import KINDS, ask, kind_for
from warmstart.model import Bundle, load
from warmstart.objectives import ObjectiveConfig
from warmstart.storage import write_forced
from warmstart.workflows.calibration import bar_for, sureness
from warmstart.workflows.run import find_bundle, load_model, print_figures, print_table


class PredictConfig(Config):
    """Label texts with an adapted model: one JSON line a text, on standard output or in a file."""

    model: Positional[str]
    """an adapted model: a bundle, or a run's folder"""
    texts: Positional[tuple[str, ...]] = ()
    """the texts themselves"""
    file: str | None = None
    """a file of texts: one a line, or a table with a text column"""
    column: str = "text"
    """the table's column that holds the texts; lists of words where they are to be tagged"""
    second: str | None = None
    """the table's column that holds the second texts of pairs, or the passages that questions are about"""
    alternatives: tuple[str, ...] = ()
    """the table's columns that hold the alternatives to choose from; default: one column 'alternatives' with lists"""
    out: str | None = None
    """file to write; default: standard output"""
    top: int = Field(3, gt=0)
    """how many of the likeliest labels to give"""
    target_error: float | None = Field(None, gt=0, lt=1)
    """keep silent below the bar that promises no larger share of wrong labels, or answers (a model that gives labels needs to have
    been adapted with --calibration)"""
    certainty: float = Field(0.95, gt=0, lt=1)
    """probability with which that must hold"""
    known: tuple[str, ...] = ()
    """where answers are written: the text the model learned from; names that stand nowhere in it are flagged"""


class EvaluateConfig(Config):
    """Score an adapted model on a task's test split, or a language model on a text."""

    model: Positional[str]
    """a model: a bundle, or a run's folder"""
    task: Positional[str]
    """an adapted model's task: its manifest (YAML); or a language model's text: a file or folder"""
    document: Document = "paragraph"
    """what one document of a text is"""


class AuditConfig(Config):
    """Look for what makes results wrong before training: leakage, duplicates, conflicting labels, empty rows."""

    task: Positional[str]
    """the task's manifest (YAML)"""
    model: str | None = None
    """also count what this model would cut off"""
    drop_leaks: bool = False
    """audit what is left after dropping leaks"""


class DoctorConfig(Config):
    """Check that a saved model is whole: every hash, every tensor, and the outputs it had when it was saved."""

    model: Positional[str]
    """a bundle, or a run's folder"""


def predict(config: PredictConfig) -> None:
    """The ``predict`` command."""
    bundle = load_model(config.model)
    texts = _inputs_of(bundle, config)
    if not texts:
        raise DataError("there is nothing to label: give texts, or a file of texts with --file")
    rows = _answered(bundle, texts, config) if bundle.answers else _said(bundle, texts, config)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if config.out:
        write_forced(Path(config.out), data.encode())
    else:
        sys.stdout.write(data)


def _said(bundle: Bundle, texts: Sequence[Any], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """What an adapted model of any kind says of each text."""
    if bundle.labels and kind_for(bundle.model.head) is KINDS["label"]:
        yield from _labelled(bundle, texts, config)
        return
    if config.known or config.target_error:
        raise DataError("--known and --target-error are for models that write answers or give one label; leave them out")
    for text, row in zip(texts, ask(bundle, texts, config.top), strict=True):
        yield row | {"text": text}


def _labelled(bundle: Bundle, texts: Sequence[str], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """The likeliest labels of each text."""
    if config.known:
        raise DataError("--known is for a model that writes answers, but this one gives labels; leave it out")
    bar = bar_for(bundle, config.target_error, config.certainty) if config.target_error else None
    if bar:
        console.print(bar.sentence(), markup=False)
    said = probabilities_of(bundle, texts)
    for text, row, sure in zip(texts, said, sureness(said)[0], strict=True):
        best = (-row).argsort(kind="stable")[: config.top]
        shares = {bundle.labels[i]: round(float(row[i]), 4) for i in best}
        given = bar is None or sure >= bar.threshold
        yield {"label": bundle.labels[best[0]] if given else None, "probabilities": shares, "text": text}


def _answered(bundle: Bundle, texts: Sequence[str], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """The answer to each text, or none where the model is not sure enough."""
    from warmstart.workflows.answers import answered_by, bar_of

    bar = bar_of(bundle, config.target_error, config.certainty) if config.target_error else None
    if bar:
        console.print(bar.sentence(), markup=False)
    sources = [Source(path=path) for path in config.known]
    strange = never_seen(texts, documents_of(sources)) if sources else [[] for _ in texts]
    for text, one, names in zip(texts, answered_by(bundle, texts), strange, strict=True):
        given = bar is None or (one.confidence >= bar.threshold and not names)
        row: dict[str, Any] = {"answer": one.text if given else None, "confidence": round(one.confidence, 4), "text": text}
        yield row | ({"never_seen": names} if names else {})


def evaluate(config: EvaluateConfig) -> Scores | dict[str, Any]:
    """The ``evaluate`` command."""
    bundle = load_model(config.model)
    if bundle.answers:
        return _score_answers(bundle, config.task)
    if isinstance(bundle.model.head, LanguageHead):
        return _read_text(bundle, config)
    task, kind = load_task(config.task), kind_for(bundle.model.head)
    if task.kind != kind.name:
        raise DataError(f"the model was made for tasks of kind '{kind.name}', but '{task.name}' is of kind '{task.kind}'")
    return _score(bundle, task) if task.kind == "label" else _figures(bundle, task)


def _read_text(bundle: Bundle, config: EvaluateConfig) -> dict[str, Any]:
    """Held-out figures of a language model, under the objective it was trained with last."""
    objective = ObjectiveConfig.build(bundle.history[-1]["objective"], "objective")
    with TemporaryDirectory() as cache:
        corpus = prepare([Source(path=config.task, document=config.document)], bundle.tokenizer, Path(cache))
        figures = held_out(
            bundle.model, Rows(corpus, bundle.tokenizer.vocabulary(), objective, bundle.model.backbone.config.max_tokens)
        )
    print_figures(f"{config.task}: {corpus.words:,} words, {corpus.predicted:,} tokens", figures)
    return figures


def _score_answers(bundle: Bundle, path: str) -> dict[str, Any]:
    """How many test questions a model answers rightly, to the letter."""
    from warmstart.workflows.answers import answered_by

    test = load_answers(path).test
    right = exact(answered_by(bundle, test.questions), test)
    console.print(f"{int(right.sum())} of {len(test)} answers are right: {bootstrap(right)} over test questions")
    return {"exact_match": float(right.mean())}


def _figures(bundle: Bundle, task: Task) -> dict[str, Any]:
    """The figures of a task that asks for more than one label, on its test split."""
    if task.labels != bundle.labels:
        raise DataError(f"the model must know the task's labels in the same order: {', '.join(bundle.labels)}")
    kind, model = kind_for(bundle.model.head), bundle.model
    said = kind.said(model, kind.encode(model, bundle.tokenizer, task.test.texts), bundle.tokenizer.specials.pad)
    found = kind.scores(task.test, said, task)
    draws = np.quantile(kind.resampled(task.test, said, task), [0.025, 0.975])
    print_table(f"{task.name}, {len(task.test)} test texts", found.table(), found.HEADER)
    console.print(f"{task.metric} {found.score(task.metric):.4f} ({draws[0]:.4f} to {draws[1]:.4f} over test texts)")
    return found.plain()


def _score(bundle: Bundle, task: Task) -> Scores:
    if unknown := sorted(set(task.labels) - set(bundle.labels)):
        known = ", ".join(bundle.labels)
        raise DataError(f"the model must know every label of the task, but {', '.join(unknown)} came; it knows {known}")
    places = {name: i for i, name in enumerate(bundle.labels)}
    labels = task.test.labels.copy()
    for i, name in enumerate(task.labels):
        labels[task.test.labels == i] = places[name]
    said = probabilities_of(bundle, task.test.texts)
    scores = classification(labels, said, bundle.labels)
    around = bootstrap(said.argmax(axis=1) == labels)
    print_table(f"{task.name}, {len(task.test)} test texts", scores.table(), scores.HEADER)
    console.print(f"accuracy {around} over test texts, macro F1 {100 * scores.macro_f1:.1f} %, log loss {scores.log_loss:.3f} nats")
    return scores


def audit_task(config: AuditConfig) -> None:
    """The ``audit`` command."""
    task = load_task(config.task)
    if config.drop_leaks:
        task = drop_leaks(task)
    bundle = load_model(config.model) if config.model else None
    found = audit(task, bundle.tokenizer, bundle.model.backbone.config.max_tokens) if bundle else audit(task)
    rows = [(row["split"], row["label"], row["count"], f"{100 * float(row['share']):.1f} %") for row in found.balance()]
    print_table(f"{task.name}: texts per label", rows, ("split", "label", "texts", "share"))
    for finding in found.findings():
        console.print(f"{finding.severity}: {finding.sentence}", markup=False)


def doctor(config: DoctorConfig) -> None:
    """The ``doctor`` command; raises ``BundleError`` where something is wrong."""
    place = find_bundle(config.model)
    bundle = load(place, selftest=True)
    console.print(
        f"{place} is whole: every file and all {len(bundle.model.weights())} tensors match their hashes, it gives the outputs "
        "that it gave when it was saved, and padding changes none of them"
    )


def _inputs_of(bundle: Bundle, config: PredictConfig) -> list[Any]:
    """The texts given, then those of the file that is named, in its order; blank lines are passed over."""
    kind = "label" if isinstance(bundle.model.head, LanguageHead) else kind_for(bundle.model.head).name
    given: list[Any] = list(config.texts)
    if given and (kind in ("choice", "span") or config.second):
        raise DataError("texts that have a second side, or alternatives, come from a table: give --file, and name its columns")
    if kind == "tags":
        given = [tuple(text.split()) for text in given]
    if config.file is None:
        return given
    source = Source(path=config.file, text=config.column, second=config.second, alternatives=config.alternatives, document="line")
    return given + read_inputs(kind, source)
