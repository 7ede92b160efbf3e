"""One of several alternatives: the text stands beside each, and their scores compete (Radford et al. 2018, section 3.3).

Letters: N questions, A alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from warmstart.data import Split, Task
from warmstart.data.batch import Encoded
from warmstart.errors import DataError
from warmstart.evaluate.baselines import NO_WORDS
from warmstart.heads import ChooseHeadConfig
from warmstart.kinds.figures import Figures
from warmstart.kinds.kind import Baseline, Kind, Reading
from warmstart.model import Bundle, Model
from warmstart.tokenizer import Tokenizer


class Choice(Kind):
    """The place of the right alternative."""

    name: ClassVar = "choice"
    head_kind: ClassVar = "choose"
    pooled: ClassVar = False

    def head(self, task: Task, reading: Reading) -> ChooseHeadConfig:
        """All questions of a task have as many alternatives."""
        counts = {len(text) - 1 for split in task.splits().values() for text in split.texts}
        if len(counts) > 1:
            raise DataError(f"all questions of a task must have as many alternatives, but they have {sorted(counts)}")
        return ChooseHeadConfig(pooling=reading.pooling, dropout=reading.dropout, alternatives=counts.pop())

    def encode(self, model: Model, tokenizer: Tokenizer, texts: Sequence[Any]) -> Encoded:
        """A row for each alternative: the text, then the alternative."""
        wanted = model.head.config.alternatives  # type: ignore[union-attr]
        if strange := [text for text in texts if len(text) - 1 != wanted]:
            raise DataError(f"each question must have {wanted} alternatives, but one has {len(strange[0]) - 1}")
        pairs = [(text[0], one) for text in texts for one in text[1:]]
        return replace(super().encode(model, tokenizer, pairs), group=wanted)

    def scores(self, split: Split, said: np.ndarray, task: Task) -> Figures:
        """``said`` (N, A): probabilities."""
        return Figures({"accuracy": float((said.argmax(axis=1) == split.labels).mean())})

    def baselines(self) -> dict[str, Baseline]:
        """The commonest place, and the alternative that shares most words with the text."""
        return {"majority": _place, "TF-IDF overlap": _overlap}

    def answers(self, bundle: Bundle, texts: Sequence[Any], said: np.ndarray, top: int) -> list[dict[str, Any]]:
        """The place of the alternative chosen, from 0, what it says, and the probabilities of all."""
        return [
            {
                "choice": int(row.argmax()),
                "alternative": text[1 + int(row.argmax())],
                "probabilities": [round(float(p), 4) for p in row],
            }
            for text, row in zip(texts, said, strict=True)
        ]


def _place(task: Task) -> tuple[Any, str]:
    wide = len(task.test.texts[0]) - 1
    shares = np.bincount(task.train.labels, minlength=wide)[:wide] / len(task.train)
    return np.tile(shares, (len(task.test), 1)), "always the commonest place"


def _overlap(task: Task) -> tuple[Any, str]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer, parts = TfidfVectorizer(sublinear_tf=True), [part for text in task.train.texts for part in text]
    if not any(map(vectorizer.build_analyzer(), parts)):
        said, note = _place(task)
        return said, f"{NO_WORDS}; {note}"
    vectorizer.fit(parts)
    said = np.zeros((len(task.test), len(task.test.texts[0]) - 1))
    for place, text in enumerate(task.test.texts):
        rows = vectorizer.transform(text)
        said[place] = (rows[1:] @ rows[0].T).toarray()[:, 0]
    return said, "most words in common; nothing is learned"
