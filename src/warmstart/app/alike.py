"""Training texts beside a prediction: those whose vectors are nearest to that of the text, by cosine.

A vector is the pooled hidden state that the model's head reads, or the first network of a stack. All training texts are embedded
once, in the background, a few at a time between the requests. What is near is not what a prediction follows from: other texts may
have shaped the head more.

Letters: N training texts, M texts of a request, D width, K nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.task import Task, subsample
from warmstart.errors import WarmstartError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.heads.pooled import PooledHead
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.runs.made_of import run_of, task_named
from warmstart.seeding import rng
from warmstart.system.console import unsaid
from warmstart.tasks.added import with_added
from warmstart.tasks.load import load_task, load_whole_task

if TYPE_CHECKING:
    from warmstart.app.models import ServedModel

MOST_TRAINING_TEXTS = 100_000
"""training texts that are embedded; of a larger task a sample"""
_ROWS = 64
"""texts that are compared with all training texts at once"""
_PAIRED = 1000
"""training texts of which all pairs are compared"""


def task_of_run(model: str) -> Task | None:
    """The task from which the run in a folder made its model, read as the run did; None if it is gone or not what it was.

    Nothing is printed.
    """
    try:
        run = run_of(model)
        task = task_named(run) if run else None
        if task is None or not task.unchanged:
            return None
        with unsaid():
            found = load_whole_task(task.path, task.flags) if task.whole else load_task(task.path, flags=task.flags)
            return with_added(found, task.added, task.path, task.flags)
    except (WarmstartError, OSError):  # files that are gone, or were changed by hand
        return None


def random_pair_cosine(units: np.ndarray) -> float:
    """Mean cosine of all pairs among at most 1,000 random vectors of length 1, (N, D); of a single one, 1.

    In many models all states point in similar directions, so a cosine tells something only beside this one (Ethayarajh 2019).
    """
    if len(units) < 2:
        return 1.0
    chosen = units[rng(0, "pairs").permutation(len(units))[:_PAIRED]]
    return float((chosen @ chosen.T)[np.triu_indices(len(chosen), 1)].mean())


def text_reader(bundle: Bundle) -> Bundle:
    """The bundle with a head that gives the state (D,) which its own head reads of a text, divided by its length."""
    head = bundle.model.head
    if isinstance(head, EmbeddingHead):  # that of the vectors which a baseline reads
        return bundle
    assert isinstance(head, PooledHead)
    windows = head.config.window_settings.unweighted
    reader = swap_head(bundle.model, EmbeddingHeadConfig(pooling=head.config.pooling, **dict(windows)), 0)  # type: ignore[attr-defined]
    reader.reordered = bundle.model.reordered
    return Bundle(reader.eval(), bundle.tokenizer)


class TrainingTexts:
    """The training texts of a task as one model sees them."""

    def __init__(self, model: ServedModel) -> None:
        assert model.task is not None
        assert model.reader is not None
        task, whole = model.task, model.task.train
        self.train = whole if len(whole) <= MOST_TRAINING_TEXTS else subsample(task, MOST_TRAINING_TEXTS, 0).train
        self.texts: Sequence[Any] = self.train.texts
        self.labels = [task.named(label) for label in self.train.labels.tolist()]
        self.reader = text_reader(model.reader)
        self.vectors = np.empty((len(self.train), model.reader.model.backbone.config.width), dtype=np.float32)
        """(N, D), of which the first ``read`` are filled"""
        self.read = 0
        self.random_pairs = 0.0
        """mean cosine of random pairs, with which every cosine should be compared; known once all are read"""
        self.ready = False

    def read_on(self, texts: Sequence[Any]) -> list[None]:
        """Embed the next texts; an answer for each."""
        self.vectors[self.read : self.read + len(texts)] = self._directions(texts)
        self.read += len(texts)
        return [None] * len(texts)

    def _directions(self, texts: Sequence[Any]) -> np.ndarray:
        """Vectors of length 1, (M, D); those which a baseline reads have other lengths."""
        vectors = embed(self.reader, texts).numpy()
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    def finish(self) -> None:
        """Measure what random pairs have in common."""
        self.random_pairs = random_pair_cosine(self.vectors)
        self.ready = True

    def nearest(self, texts: Sequence[Any], count: int) -> list[list[dict[str, Any]]]:
        """The ``count`` nearest training texts to each of M texts, nearest first: ``text``, ``label`` and ``cosine``."""
        vectors, rows = self._directions(texts), list[list[dict[str, Any]]]()
        for start in range(0, len(texts), _ROWS):
            cosines = vectors[start : start + _ROWS] @ self.vectors.T  # (M, N)
            order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]  # (M, K)
            rows += [[self._described(i, row[i]) for i in nearest.tolist()] for row, nearest in zip(cosines, order, strict=True)]
        return rows

    def _described(self, index: int, cosine: float) -> dict[str, Any]:
        return {"text": self.train.texts[index], "label": self.labels[index], "cosine": round(float(cosine), 4)}
