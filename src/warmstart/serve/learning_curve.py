"""The learning curve beside a served model: the scores of each method by number of labels, from the run of ``curve`` around it.

The path is that of the model, given when the server starts; a curve that goes on is read anew at every request.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from warmstart.errors import DataError
from warmstart.model.files import find_bundle
from warmstart.system.storage import CURVE_FILE


class _Point(BaseModel):
    mean: float
    low: float | None
    high: float | None


class _Method(BaseModel):
    method: str
    over_both: dict[int, _Point]


class _Task(BaseModel):
    name: str
    metric: str
    test: int


class _Curve(BaseModel):
    """Of what a curve writes, what is shown."""

    task: _Task
    findings: list[str]
    methods: list[_Method]


def curve_file(path: str) -> Path | None:
    """What ``curve`` wrote into the folder in which the model at ``path`` lies, itself or as a run's bundle; None if it did not."""
    if not path or path.startswith("hf:"):
        return None
    inside = find_bundle(path).absolute().parents[:2]
    return next((file for folder in inside if (file := folder / CURVE_FILE).is_file()), None)


def read_curve(file: Path) -> dict[str, Any]:
    """The task, the findings, and for each method its score at each number of labels, with the 95% interval over seeds and texts.

    Raises ``DataError`` if the file is damaged.
    """
    try:
        found = _Curve.model_validate(json.loads(file.read_bytes(), parse_constant=lambda _: None))
    except (OSError, ValueError, RecursionError, ValidationError):
        raise DataError(
            f"{CURVE_FILE} around the model must be what a curve wrote, but is damaged; run the same curve again: it goes on from "
            "the trials that are finished"
        ) from None
    return {
        "task": found.task.name,
        "metric": found.task.metric,
        "test_texts": found.task.test,
        "findings": found.findings,
        "methods": [
            {
                "method": one.method,
                "points": [
                    {"labels": labels, "score": point.mean, "low": point.low, "high": point.high}
                    for labels, point in sorted(one.over_both.items())
                ],
            }
            for one in found.methods
        ],
    }
