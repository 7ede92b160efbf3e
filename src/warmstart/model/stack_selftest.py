"""Predictions of a stack and its baselines for fixed texts: stored when it is saved, compared when it is checked.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from warmstart.model.bundle import Bundle
from warmstart.model.fitted import FittedBaseline
from warmstart.model.rows import BackboneVectors
from warmstart.model.selftest import SELFTEST_TEXTS, named_predictions
from warmstart.model.stack import Stack
from warmstart.stats.calibration import apply_temperature

ByName = Mapping[str, Sequence[float]]


def member_columns(stack: Stack) -> list[np.ndarray]:
    """(N, C) predictions of each member for ``SELFTEST_TEXTS``, before its temperature; every backbone reads them once.

    (N, 0) for a network whose context is too short for text.
    """
    vectors = {id(backbone): BackboneVectors(backbone)(SELFTEST_TEXTS) for backbone in stack.backbones}
    return [_columns(member.model, vectors) for member in stack.members]


def stack_predictions(stack: Stack, columns: Sequence[np.ndarray] | None = None) -> dict[str, tuple[float, ...]]:
    """Calibrated predictions of all members together for ``SELFTEST_TEXTS``, by label name or as ``number``.

    ``columns`` are its ``member_columns``, if they are known. Empty if a member's context is too short for text.
    """
    columns = member_columns(stack) if columns is None else columns
    if not all(column.size for column in columns):
        return {}
    several, pairs = stack.several_labels, zip(columns, stack.members, strict=True)
    tempered = [apply_temperature(column, member.temperature, several) for column, member in pairs]
    together = np.average(tempered, axis=0, weights=[member.weight for member in stack.members])  # (N, C)
    calibrated = apply_temperature(together, stack.calibration.temperature, several) if stack.calibration else together
    names = stack.labels or ("number",)
    return {name: tuple(map(float, column)) for name, column in zip(names, calibrated.T, strict=True)}


def predictions_gap(found: ByName, stored: ByName) -> float:
    """The largest difference by name, as a fraction of the largest prediction if that is above 1; infinite if names differ."""
    if found.keys() != stored.keys():
        return np.inf
    return outputs_gap(np.array([found[name] for name in stored]), np.array([*stored.values()]))


def outputs_gap(found: np.ndarray, stored: np.ndarray | None) -> float:
    """The largest difference of predictions (N, C), as a fraction of the largest if that is above 1; infinite for other shapes."""
    if stored is None or stored.shape != found.shape:
        return np.inf
    return float(np.abs(found - stored).max() / max(1.0, np.abs(found).max()))


def _columns(model: Bundle | FittedBaseline, vectors: Mapping[int, np.ndarray]) -> np.ndarray:
    if isinstance(model, FittedBaseline):
        return model.predict_and_compare(SELFTEST_TEXTS, vectors.get(id(model.backbone)))[0]
    columns = [column.double().numpy() for column in named_predictions(model).values()]
    return np.stack(columns, axis=1) if columns else np.empty((len(SELFTEST_TEXTS), 0))
