"""A number a text, or a pair of texts: squared error in training, correlation in scoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from warmstart.data import Split, Task
from warmstart.evaluate.baselines import NO_WORDS, has_words
from warmstart.heads import RegressHeadConfig
from warmstart.kinds.figures import Figures
from warmstart.kinds.kind import Baseline, Kind, Reading, strings
from warmstart.model import Bundle


class Number(Kind):
    """A number in the user's units."""

    name: ClassVar = "number"
    head_kind: ClassVar = "regress"
    share: ClassVar = False

    def head(self, task: Task, reading: Reading) -> RegressHeadConfig:
        """Numbers are learned around 0 with spread 1: those of the training targets are kept in the head."""
        mean, spread = float(task.train.labels.mean()), float(task.train.labels.std()) or 1.0
        return RegressHeadConfig(pooling=reading.pooling, dropout=reading.dropout, mean=mean, spread=spread)

    def scores(self, split: Split, said: np.ndarray, task: Task) -> Figures:
        """``said`` (N, 1). A correlation with what never changes counts as 0."""
        from scipy import stats
        from sklearn.metrics import r2_score

        truth, found = split.labels, said[:, 0]
        still = any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (found, truth))
        both = (0.0, 0.0) if still else (float(stats.pearsonr(truth, found)[0]), float(stats.spearmanr(truth, found)[0]))
        error = found - truth
        return Figures(
            {
                "pearson": both[0],
                "spearman": both[1],
                "r2": float(r2_score(truth, found)) if len(truth) > 1 else 0.0,
                "mae": float(np.abs(error).mean()),
                "rmse": float(np.sqrt((error**2).mean())),
            }
        )

    def baselines(self) -> dict[str, Baseline]:
        """The mean, and TF-IDF with ridge regression."""
        return {"majority": _mean, "TF-IDF + ridge regression": _ridge}

    def answers(self, bundle: Bundle, texts: Sequence[Any], said: np.ndarray, top: int) -> list[dict[str, Any]]:
        """The number."""
        return [{"number": round(float(row[0]), 6)} for row in said]


def _mean(task: Task) -> tuple[Any, str]:
    said = np.full((len(task.test), 1), task.train.labels.mean())
    return said, "always the mean"


def _ridge(task: Task) -> tuple[Any, str]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    if not has_words(strings(task.train)):
        said, note = _mean(task)
        return said, f"{NO_WORDS}; {note}"
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    known = vectorizer.fit_transform(strings(task.train))
    rows = [vectorizer.transform(strings(part)) for part in (task.validation, task.test)]
    tried = {}
    for strength in (0.1, 1.0, 10.0, 100.0):
        model = Ridge(alpha=strength).fit(known, task.train.labels)
        said = [model.predict(part)[:, None] for part in rows]
        tried[strength] = Number().scores(task.validation, said[0], task).score(task.metric), said[1]
    best = max(tried, key=lambda strength: tried[strength][0])
    return tried[best][1], f"alpha = {best:g}, chosen on validation"
