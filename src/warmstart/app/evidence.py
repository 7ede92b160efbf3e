"""What is known of a model: how often it is right, the findings of the audit, and whether its confidence is calibrated.

Nothing is computed from texts: the record keeps the findings, and the confidence and correctness of each prediction for texts that
chose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.model.bundle import Bundle
from warmstart.model.history import AdaptRecord
from warmstart.runs.verdict import ACCURACY, read_verdict
from warmstart.stack.stack import Stack
from warmstart.stats.calibration import expected_calibration_error, perfect_calibration_error
from warmstart.stats.formatting import of_100
from warmstart.stats.proportions import wilson_interval


def evidence_of(model: Bundle | Stack, path: str) -> dict[str, Any]:
    """``accuracy`` (``accuracy_of``); ``audit``: each finding, None without an audit; ``calibration`` (``calibration_of``)."""
    record = next((one for one in reversed(model.history) if isinstance(one, AdaptRecord)), None)
    findings = record.audit if record else None
    return {
        "accuracy": accuracy_of(model, path),
        "audit": None if findings is None else [one.to_dict() for one in findings],
        "calibration": calibration_of(held_out_of(model)),
    }


def accuracy_of(model: Bundle | Stack, path: str) -> str:
    """On how many of 100 new texts a model is right, as a sentence: by the verdict beside it, its record, or its held-out texts."""
    if verdict := read_verdict(Path(path)):
        return verdict.headline
    record = next((one for one in reversed(model.history) if isinstance(one, AdaptRecord)), None)
    share, count, what = record.test.figures.get(ACCURACY) if record and record.test else None, record and record.task.test, "test"
    if share is None or not count:
        right = [correct for _, correct in held_out_of(model)]
        share, count, what = (float(np.mean(right)) if right else None), len(right), "held-out"
    if share is None:
        return "No record says how often it is right on new texts; warmstart evaluate measures it on labelled ones."
    found = wilson_interval(share, count)
    if not found.tells:
        return f"{count:,} {what} texts are too few to say how often it is right on new ones."
    likely = f"likely {of_100(found.low)} to {of_100(found.high)}"
    return f"Right on {of_100(share)} of 100 new texts ({likely}), by {count:,} {what} texts."


def held_out_of(model: Bundle | Stack) -> Sequence[tuple[float, bool]]:
    """Confidence and correctness of the predictions for texts, or questions, that chose nothing; empty if there are none."""
    if isinstance(model, Bundle) and (record := model.answers_record):
        return record.held_out_answers
    return model.calibration.held_out if model.calibration else ()


def calibration_of(held_out: Sequence[tuple[float, bool]]) -> dict[str, Any] | None:
    """How confidence and accuracy agree; None without held-out texts.

    ``error`` is the expected calibration error, ``error_of_chance`` that of a perfectly calibrated model with the same confidences.
    """
    if not held_out:
        return None
    confidence, right = np.array(held_out, dtype=float).T
    return {
        "texts": len(right),
        "accuracy": float(right.mean()),
        "error": expected_calibration_error(confidence, right),
        "error_of_chance": perfect_calibration_error(confidence),
    }
