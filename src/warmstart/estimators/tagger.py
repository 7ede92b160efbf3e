"""A tag for each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from warmstart.data.task import Split
from warmstart.errors import DataError
from warmstart.estimators.adapted import Adapted
from warmstart.estimators.texts import as_groups, as_words, one_each
from warmstart.tasks.predict import predict


class TokenTagger(Adapted):
    """A backbone fine-tuned to give each word a tag; its settings are those of ``Adapted``.

    Texts are lists of words. ``classes_`` (C,) are the tags, sorted; ``score`` is the fraction of correct tags.
    """

    task_type: ClassVar = "tagging"
    metric: ClassVar = "accuracy"

    def fit(
        self, texts: Sequence[Sequence[str]], y: Sequence[Sequence[str]], *, groups: Sequence[Any] | None = None
    ) -> TokenTagger:
        """Fine-tune on N texts with a tag for each of their words. Raises ``DataError`` if their numbers differ.

        Texts of one of the ``groups`` (N,), such as those of an author, are on one side of the internal validation split.
        """
        words = as_words(texts)
        one_each(words, y, "lists of tags")
        for row, tags in zip(words, y, strict=True):
            if len(row) != len(tags):
                raise DataError(f"each word needs one tag, but there are {len(row)} words and {len(tags)} tags: {' '.join(row)!r}")
        self.classes_ = np.unique([str(tag) for tags in y for tag in tags])
        if len(self.classes_) < 2:
            raise DataError(f"there must be at least two tags, but every tag is {self.classes_[0]!r}")
        targets = np.empty(len(words), dtype=object)
        targets[:] = [np.searchsorted(self.classes_, [str(tag) for tag in tags]) for tags in y]
        self._learn(Split(tuple(words), targets, as_groups(words, groups)), tuple(str(tag) for tag in self.classes_))
        return self

    def predict(self, texts: Sequence[Sequence[str]]) -> list[list[str | None]]:
        """For each text a tag for each word; None for words beyond the maximum length."""
        check_is_fitted(self)
        return [row["tags"] for row in predict(self.bundle_, as_words(texts))]

    def score(self, texts: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        """The fraction of correct tags."""
        pairs = [pair for rows in zip(self.predict(texts), y, strict=True) for pair in zip(*rows, strict=True)]
        return float(np.mean([predicted == str(tag) for predicted, tag in pairs]))
