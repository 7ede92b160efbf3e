"""A number for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from warmstart.data.task import Split
from warmstart.errors import DataError
from warmstart.estimators.adapted import Adapted
from warmstart.estimators.texts import as_texts, one_each
from warmstart.tasks.predict import predict


class TextRegressor(RegressorMixin, Adapted):  # type: ignore[misc]
    """A backbone fine-tuned to give each text a number; its settings are those of ``Adapted``.

    ``score`` is R²; the head learns numbers around 0 with spread 1 and says them in the units of ``y``.
    """

    task_type: ClassVar = "regression"
    metric: ClassVar = "r2"

    def fit(self, texts: Sequence[str], y: Sequence[float]) -> TextRegressor:
        """Fine-tune on N texts with their numbers. Raises ``DataError`` for what is no text, or no finite number."""
        texts, numbers = as_texts(texts), np.asarray(y, dtype=np.float64)
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise DataError(f"each text needs one finite number, but an array of shape {numbers.shape} came, or one with gaps")
        one_each(texts, numbers, "numbers")
        self._learn(Split(tuple(texts), numbers), ())
        return self

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) numbers."""
        check_is_fitted(self)
        return np.array([row["number"] for row in predict(self.bundle_, as_texts(texts))])
