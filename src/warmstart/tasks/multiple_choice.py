"""Multiple choice: each alternative is read behind the text, and their scores compete (Radford et al. 2018, section 3.3).

Letters: N questions, A alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from warmstart.data.encode import Encoded
from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.heads.per_text import MultipleChoiceHeadConfig
from warmstart.model.model import Model
from warmstart.stats.scores import Scores
from warmstart.tasks.rows import Examples, TableRow, list_of, string_of, table_rows, value_of, whole_number
from warmstart.tasks.task_type import HeadSettings, TaskType
from warmstart.tokenizer.tokenizer import Tokenizer


class MultipleChoiceTask(TaskType):
    """A text and A alternatives, of which one is right. Predictions: (N, A) probabilities, each row summing to 1."""

    name: ClassVar = "multiple-choice"
    head_config: ClassVar = MultipleChoiceHeadConfig
    metrics: ClassVar = ("accuracy",)
    pooled: ClassVar = False
    probabilistic: ClassVar = True
    constant_rule: ClassVar = "always the most frequent position"

    def read_rows(self, source: Source) -> Examples:
        """``(text, *alternatives)``, and the index of the right alternative, from 0."""
        inputs, targets = [], []
        for number, row in enumerate(table_rows(source), 1):
            alternatives = _alternatives(row, source, number)
            right = whole_number(value_of(row, source.label, "label"))
            if right is None or not 0 <= right < len(alternatives) or len(alternatives) < 2:
                raise DataError(
                    f"row {number} of {source.path} must have at least two alternatives and the index of the right one, from 0, "
                    f"but has {len(alternatives)} alternatives and {row[source.label]!r}"
                )
            inputs.append((string_of(row, source.text, "text"), *alternatives))
            targets.append(right)
        return inputs, targets

    def read_inputs(self, source: Source) -> list[Any]:
        """``(text, *alternatives)``."""
        return [
            (string_of(row, source.text, "text"), *_alternatives(row, source, number))
            for number, row in enumerate(table_rows(source), 1)
        ]

    def parse(self, text: str) -> Any:
        """Refused: alternatives are in columns of a table."""
        raise DataError("a multiple-choice question has alternatives, so it must come from a table: give --file and its columns")

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N,) int64 indices of the right alternatives."""
        return np.array(targets, dtype=np.int64)

    def head(self, task: Task, settings: HeadSettings) -> MultipleChoiceHeadConfig:
        """One score per alternative. Raises ``DataError`` if questions differ in their number of alternatives."""
        counts = {len(text) - 1 for split in task.splits().values() for text in split.texts}
        if len(counts) > 1:
            raise DataError(f"all questions of a task must have equally many alternatives, but they have {sorted(counts)}")
        return MultipleChoiceHeadConfig(pooling=settings.pooling, dropout=settings.dropout, alternatives=counts.pop())

    def encode(self, model: Model, tokenizer: Tokenizer, inputs: Sequence[Any]) -> Encoded:
        """A group of A rows per question: the text, then one alternative."""
        assert isinstance(model.head.config, MultipleChoiceHeadConfig)
        count = model.head.config.alternatives
        if wrong := [text for text in inputs if len(text) - 1 != count]:
            raise DataError(f"each question must have {count} alternatives, but one has {len(wrong[0]) - 1}")
        pairs = [(text[0], alternative) for text in inputs for alternative in text[1:]]
        return replace(super().encode(model, tokenizer, pairs), group=count)

    def scores(self, split: Split, predictions: np.ndarray, task: Task) -> Scores:
        """Accuracy."""
        return Scores({"accuracy": float((predictions.argmax(axis=1) == split.labels).mean())})

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> np.ndarray:
        """How often the right alternative is at each position."""
        count = len(inputs[0]) - 1
        return np.tile(np.bincount(fitted.labels, minlength=count)[:count] / len(fitted), (len(inputs), 1))

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``choice`` (an index, from 0), ``alternative`` (its text), and ``probabilities`` of all alternatives."""
        return [
            {
                "choice": int(row.argmax()),
                "alternative": text[1 + int(row.argmax())],
                "probabilities": [round(float(p), 4) for p in row],
            }
            for text, row in zip(inputs, predictions, strict=True)
        ]


def _alternatives(row: TableRow, source: Source, number: int) -> list[str]:
    """From the columns that the source names, or from lists in the column ``alternatives``."""
    if source.alternatives:
        return [string_of(row, name, "alternatives") for name in source.alternatives]
    return [str(one) for one in list_of(row, "alternatives", source, number)]
