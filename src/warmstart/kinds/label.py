"""One label a text, or a pair of texts: softmax, accuracy or macro F1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from warmstart.data import Split, Task
from warmstart.evaluate import BASELINES, Labelled, Scores, classification
from warmstart.evaluate.resample import resampled
from warmstart.heads import ClassifyHeadConfig
from warmstart.kinds.kind import Baseline, Kind, Reading, strings
from warmstart.model import Bundle


class Label(Kind):
    """One of a few names."""

    name: ClassVar = "label"
    head_kind: ClassVar = "classify"

    def head(self, task: Task, reading: Reading) -> ClassifyHeadConfig:
        """A class a name."""
        return ClassifyHeadConfig(classes=len(task.labels), **reading._asdict())

    def scores(self, split: Split, said: np.ndarray, task: Task) -> Scores:
        """``said`` (N, C): probabilities."""
        return classification(split.labels, said, task.labels)

    def baselines(self) -> dict[str, Baseline]:
        """Majority, and linear models of TF-IDF."""
        return {name: partial(_run, name) for name in BASELINES}

    def answers(self, bundle: Bundle, texts: Sequence[Any], said: np.ndarray, top: int) -> list[dict[str, Any]]:
        """The likeliest label, and the probabilities of the first ``top``."""
        rows = []
        for row in said:
            best = (-row).argsort(kind="stable")[:top]
            shares = {bundle.labels[i]: round(float(row[i]), 4) for i in best}
            rows.append({"label": bundle.labels[best[0]], "probabilities": shares})
        return rows

    def floor(self, task: Task) -> float:
        """The score of always naming the commonest label of the test split, in the task's metric."""
        always = np.bincount(task.test.labels, minlength=len(task.labels)) / len(task.test)
        return self.scores(task.test, np.tile(always, (len(task.test), 1)), task).score(task.metric)

    def resampled(self, split: Split, said: np.ndarray, task: Task) -> np.ndarray:
        """By counts of classes alone, which is quick."""
        return resampled(task.metric, split.labels, said.argmax(axis=1), len(task.labels))


def _run(name: str, task: Task) -> tuple[Any, str]:
    train, validation = (Labelled(strings(part), part.labels) for part in (task.train, task.validation))
    result = BASELINES[name](train, validation, strings(task.test), len(task.labels), task.metric)
    return result.probabilities, result.settings
