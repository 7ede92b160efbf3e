"""``predict``: label texts, or answer questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Config
from warmstart.console import console
from warmstart.data.source import Source
from warmstart.data.token_store import documents_of
from warmstart.errors import DataError
from warmstart.finetuning.calibration import confidences_of, threshold_for
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.storage import atomic_write
from warmstart.tasks import TASK_TYPES, task_type_for
from warmstart.tasks.answers import answer_questions, answer_threshold
from warmstart.tasks.predict import predict as predictions_of
from warmstart.tasks.proper_names import unseen_names


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
    second: Advanced[str | None] = None
    """the table's column that holds the second texts of pairs, or the passages that questions are about"""
    alternatives: Advanced[tuple[str, ...]] = ()
    """the table's columns that hold the alternatives to choose from; default: one column 'alternatives' with lists"""
    out: str | None = None
    """file to write; default: standard output"""
    top: int = Field(3, gt=0)
    """how many of the likeliest labels to give"""
    target_error: float | None = Field(None, gt=0, lt=1)
    """keep silent below the bar that promises no larger share of wrong labels, or answers (a model that gives labels needs to have
    been adapted with --calibration)"""
    confidence_level: Advanced[float] = Field(0.95, gt=0, lt=1)
    """probability with which that must hold"""
    known: Advanced[tuple[str, ...]] = ()
    """where answers are written: the text the model learned from; names that stand nowhere in it are flagged"""


def predict(config: PredictConfig) -> None:
    """The ``predict`` command."""
    bundle = load_model(config.model)
    texts = _inputs_of(bundle, config)
    if not texts:
        raise DataError("there is nothing to label: give texts, or a file of texts with --file")
    rows = _answered(bundle, texts, config) if bundle.answers_record else _said(bundle, texts, config)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if config.out:
        atomic_write(Path(config.out), data.encode())
    else:
        sys.stdout.write(data)


def _said(bundle: Bundle, texts: Sequence[Any], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """The prediction for each text; without its label if the model is less sure than the target error needs."""
    if config.known:
        raise DataError("--known is for a model that writes answers; leave it out")
    if config.target_error and not task_type_for(bundle).one_label:
        raise DataError("--target-error is for models that write answers or give one label per text; leave it out")
    bar = threshold_for(bundle, config.target_error, config.confidence_level) if config.target_error else None
    if bar:
        console.print(bar.sentence(), markup=False)
    predictions = predictions_of(bundle, texts, top=config.top)
    sure = confidences_of(predictions.probabilities) if bar and predictions.probabilities is not None else np.ones(len(texts))
    for text, row, confidence in zip(texts, predictions, sure, strict=True):
        abstains = bar is not None and confidence < bar.threshold
        yield row | ({"label": None} if abstains else {}) | {"text": text}


def _answered(bundle: Bundle, texts: Sequence[str], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """The answer to each text, or none where the model is not sure enough."""
    bar = answer_threshold(bundle, config.target_error, config.confidence_level) if config.target_error else None
    if bar:
        console.print(bar.sentence(), markup=False)
    sources = [Source(path=path) for path in config.known]
    strange = unseen_names(texts, documents_of(sources)) if sources else [[] for _ in texts]
    for text, one, names in zip(texts, answer_questions(bundle, texts), strange, strict=True):
        given = bar is None or (one.confidence >= bar.threshold and not names)
        row: dict[str, Any] = {"answer": one.text if given else None, "confidence": round(one.confidence, 4), "text": text}
        yield row | ({"unseen_names": names} if names else {})


def _inputs_of(bundle: Bundle, config: PredictConfig) -> list[Any]:
    """The texts given, then those of the file that is named, in its order; blank lines are passed over."""
    task_type = TASK_TYPES["classification"] if bundle.answers_record else task_type_for(bundle)
    if config.texts and config.second:
        raise DataError("pairs of texts must come from a table: give --file, and name its columns")
    given = [task_type.parse(text) for text in config.texts]
    if config.file is None:
        return given
    source = Source(path=config.file, text=config.column, second=config.second, alternatives=config.alternatives, document="line")
    return given + task_type.read_inputs(source)
