"""A number for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from warmstart.data.task import Split
from warmstart.errors import DataError
from warmstart.estimators.adapted import Adapted
from warmstart.estimators.texts import as_groups, as_texts, one_each
from warmstart.tasks.predict import predict


class TextRegressor(RegressorMixin, Adapted):  # type: ignore[misc]
    """A backbone fine-tuned to give each text a number; its settings are those of ``Adapted``.

    ``score`` is R²; the head is trained on standardised targets and predicts in the units of ``y``.
    """

    task_type: ClassVar = "regression"
    metric: ClassVar = "r2"

    def fit(self, texts: Sequence[str], y: Sequence[float], *, groups: Sequence[Any] | None = None) -> TextRegressor:
        """Fine-tune on N texts with their numbers. Raises ``DataError`` for other inputs.

        Texts of one of the ``groups`` (N,), such as those of an author, are on one side of the internal validation split.
        """
        texts, numbers = as_texts(texts), np.asarray(y, dtype=np.float64)
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise DataError(
                f"targets must be one finite number per text, but have the shape {numbers.shape} or contain NaN or infinity"
            )
        one_each(texts, numbers, "numbers")
        self._learn(Split(tuple(texts), numbers, as_groups(texts, groups)), ())
        return self

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) numbers."""
        check_is_fitted(self)
        return np.array([row["number"] for row in predict(self.bundle_, as_texts(texts))])
