"""Any number of labels a text: one logistic regression a label; a label is given where its probability is at least a half.

Letters: N texts, C labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from warmstart.data import Split, Task
from warmstart.evaluate.baselines import NO_WORDS, has_words
from warmstart.evaluate.resample import draw, drawn_f1
from warmstart.heads import SeveralHeadConfig
from warmstart.kinds.figures import Figures
from warmstart.kinds.kind import Baseline, Kind, Reading, strings
from warmstart.model import Bundle


class Labels(Kind):
    """Several names, or none."""

    name: ClassVar = "labels"
    head_kind: ClassVar = "several"

    def head(self, task: Task, reading: Reading) -> SeveralHeadConfig:
        """A yes or no for each name."""
        return SeveralHeadConfig(classes=len(task.labels), pooling=reading.pooling, dropout=reading.dropout)

    def scores(self, split: Split, said: np.ndarray, task: Task) -> Figures:
        """``said`` (N, C): probabilities, each by itself."""
        from sklearn.metrics import f1_score

        truth, given = split.labels > 0.5, said >= 0.5
        f1 = {name: float(f1_score(truth, given, average=name, zero_division=0)) for name in ("micro", "macro")}
        subset = float((truth == given).all(axis=1).mean())
        return Figures({"micro_f1": f1["micro"], "macro_f1": f1["macro"], "subset": subset})

    def resampled(self, split: Split, said: np.ndarray, task: Task) -> np.ndarray:
        """By counts, which is quick, and passes over labels that a resample has nothing of."""
        truth, given = split.labels > 0.5, said >= 0.5
        right, both, whole = truth & given, truth.astype(float) + given, (truth == given).all(axis=1)
        absent = both.sum(axis=0) == 0
        scores: dict[str, Callable[[np.ndarray], float]] = {
            "micro_f1": lambda times: 2 * (times @ right).sum() / max(1.0, (times @ both).sum()),
            "macro_f1": lambda times: drawn_f1(times @ right, times @ both, absent),
            "subset": lambda times: times @ whole / len(split),
        }
        return np.array([scores[task.metric](np.bincount(places, minlength=len(split))) for places in draw(len(split))])

    def baselines(self) -> dict[str, Baseline]:
        """The labels that most texts have, and TF-IDF with a logistic regression for each label."""
        return {"majority": _commonest, "TF-IDF + logistic regression": _tfidf}

    def answers(self, bundle: Bundle, texts: Sequence[Any], said: np.ndarray, top: int) -> list[dict[str, Any]]:
        """The labels given, and the probabilities of the first ``top``."""
        rows = []
        for row in said:
            best = (-row).argsort(kind="stable")[:top]
            given = [name for name, share in zip(bundle.labels, row, strict=True) if share >= 0.5]
            rows.append({"labels": given, "probabilities": {bundle.labels[i]: round(float(row[i]), 4) for i in best}})
        return rows


def _commonest(task: Task) -> tuple[Any, str]:
    shares = task.train.labels.mean(axis=0)
    shares = np.maximum(shares, shares == shares.max())  # at least the commonest one
    said = np.tile(shares, (len(task.test), 1))
    return said, "always the labels that most texts have"


def _tfidf(task: Task) -> tuple[Any, str]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    if not has_words(strings(task.train)):
        said, note = _commonest(task)
        return said, f"{NO_WORDS}; {note}"
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    known = vectorizer.fit_transform(strings(task.train))
    rows = [vectorizer.transform(strings(part)) for part in (task.validation, task.test)]
    tried = {}
    for strength in (1.0, 10.0, 100.0):
        model = OneVsRestClassifier(LogisticRegression(C=strength, max_iter=2000)).fit(known, task.train.labels)
        said = [model.predict_proba(part) for part in rows]
        tried[strength] = Labels().scores(task.validation, said[0], task).score(task.metric), said[1]
    best = max(tried, key=lambda strength: tried[strength][0])
    return tried[best][1], f"C = {best:g}, chosen on validation"
