"""A check that a saved model gives texts the labels, by name, that were scored: only scores show that rows were permuted."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmstart.data.task import Task
from warmstart.errors import UncheckedWarning
from warmstart.interop.load import load
from warmstart.tasks import task_type_of
from warmstart.tasks.predict import predict

MOST_PREDICTED = 256
"""test texts that are predicted again"""
OTHERS_ALLOWED = 0.01
"""fraction of them that may get another label: another device or precision turns a near tie"""


def warn_of_other_predictions(folder: Path, task: Task, scored: Any) -> None:
    """Load a saved model and predict test texts; ``scored`` are the predictions that were scored, None without test texts.

    Warns with ``UncheckedWarning`` if too many texts get another label, number, tags or answer. No label is read.
    """
    texts = task.test.texts[:MOST_PREDICTED]
    if scored is None or not texts:
        return
    wanted = task_type_of(task).describe(scored[: len(texts)], texts, task.labels, 1)
    others = sum(not _same(one, other) for one, other in zip(predict(load(folder), texts, top=1), wanted, strict=True))
    if others > OTHERS_ALLOWED * len(texts):
        warnings.warn(
            f"{folder} is saved, but does not predict what was scored: {others} of {len(texts)} test texts get another label, by "
            "its name; do not use it, and look for what changed labels, tokenizer or weights between training and saving",
            UncheckedWarning,
            stacklevel=2,
        )


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Equal but for probabilities, which are calibrated in one of both; numbers up to rounding."""
    if "number" in wanted:
        return bool(abs(found["number"] - wanted["number"]) <= 1e-3 * max(1.0, abs(wanted["number"])))
    return all(found[name] == value for name, value in wanted.items() if not name.startswith("probabilit"))
