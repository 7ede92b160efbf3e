"""A tag for each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from warmstart.data.task import Split
from warmstart.errors import DataError
from warmstart.estimators.adapted import Adapted
from warmstart.estimators.texts import as_words, one_each
from warmstart.tasks.predict import predict


class TokenTagger(Adapted):
    """A backbone fine-tuned to give each word a tag; its settings are those of ``Adapted``.

    Texts are lists of words here. ``classes_`` (C,) are the tags, sorted; ``score`` is the share of words with the right one.
    """

    task_type: ClassVar = "tagging"
    metric: ClassVar = "accuracy"

    def fit(self, texts: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> TokenTagger:
        """Fine-tune on N texts with a tag for each of their words. Raises ``DataError`` where words and tags do not match."""
        words = as_words(texts)
        one_each(words, y, "lists of tags")
        for row, tags in zip(words, y, strict=True):
            if len(row) != len(tags):
                raise DataError(f"each word needs one tag, but {len(row)} words and {len(tags)} tags came: {' '.join(row)!r}")
        self.classes_ = np.unique([str(tag) for tags in y for tag in tags])
        if len(self.classes_) < 2:
            raise DataError(f"at least two tags are needed, but every tag is {self.classes_[0]!r}")
        targets = np.empty(len(words), dtype=object)
        targets[:] = [np.searchsorted(self.classes_, [str(tag) for tag in tags]) for tags in y]
        self._learn(Split(tuple(words), targets), tuple(str(tag) for tag in self.classes_))
        return self

    def predict(self, texts: Sequence[Sequence[str]]) -> list[list[str | None]]:
        """For each text a tag for each word; None for words beyond the longest row."""
        check_is_fitted(self)
        return [row["tags"] for row in predict(self.bundle_, as_words(texts))]

    def score(self, texts: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        """The share of words with the right tag."""
        pairs = [pair for said, tags in zip(self.predict(texts), y, strict=True) for pair in zip(said, tags, strict=True)]
        return float(np.mean([said == str(tag) for said, tag in pairs]))
