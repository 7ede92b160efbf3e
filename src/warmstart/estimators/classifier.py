"""One label for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from warmstart.data.task import Split
from warmstart.errors import DataError
from warmstart.estimators.adapted import Adapted
from warmstart.estimators.texts import as_groups, as_texts, one_each
from warmstart.tasks.predict import predict


class TextClassifier(ClassifierMixin, Adapted):  # type: ignore[misc]
    """A backbone fine-tuned to give each text one label; its settings are those of ``Adapted``.

    ``classes_`` (C,) are the labels, sorted; ``score`` is accuracy.
    """

    task_type: ClassVar = "classification"
    metric: ClassVar = "accuracy"

    def fit(
        self,
        texts: Sequence[str],
        y: Sequence[Any],
        *,
        groups: Sequence[Any] | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> TextClassifier:
        """Fine-tune on N texts with their labels, of any type that can be sorted.

        Texts of one of the ``groups`` (N,), such as those of an author, are on one side of the internal validation split. With
        ``unlabelled`` texts, pretraining first continues on them and on the labelled texts, if that helps (see
        ``finetuning.further``). Raises ``DataError`` for inputs that are not texts.
        """
        texts, labels = as_texts(texts), column_or_1d(y, warn=True)
        check_classification_targets(labels)
        one_each(texts, labels, "labels")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"there must be at least two classes, but every label is {self.classes_[0]!r}")
        examples = Split(tuple(texts), numbers.astype(np.int64), as_groups(texts, groups))
        self._learn(examples, tuple(str(name) for name in self.classes_), unlabelled)
        return self

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """(N, C) probabilities, columns in the order of ``classes_``."""
        check_is_fitted(self)
        return predict(self.bundle_, as_texts(texts)).probabilities  # type: ignore[return-value]

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) the most likely class of each text."""
        return self.classes_[self.predict_proba(texts).argmax(axis=1)]
