"""The race that a served model came from: what every method scored, from the file that the race wrote beside the model.

The path is that of the model, given when the server starts; a race that goes on is read anew at every request.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from warmstart.errors import DataError
from warmstart.model.bundle import Bundle
from warmstart.model.files import find_bundle
from warmstart.model.history import AdaptRecord
from warmstart.stack.stack import Stack
from warmstart.system.storage import RACE_FILE


class _Scored(BaseModel):
    mean: float
    low: float | None
    high: float | None


class _Ranked(BaseModel):
    method: str
    over_both: _Scored
    validation: float | None
    seconds: float | None
    disk: int


class _Task(BaseModel):
    name: str
    metric: str
    test: int


class _Race(BaseModel):
    """Of what a race writes, what is shown."""

    task: _Task
    labels: int
    seeds: int
    findings: list[str]
    methods: list[_Ranked]


def race_file(path: str) -> Path | None:
    """What the race wrote that saved the model at ``path``, a run or the bundle in it; None if no race on one task saved it."""
    if not path or path.startswith("hf:"):
        return None
    bundle = find_bundle(path)
    file = bundle.parent / RACE_FILE
    return file if bundle.name == "bundle" and file.is_file() else None


def read_race(file: Path, model: Bundle | Stack) -> dict[str, Any]:
    """The task, the findings, and the methods in the order of the race; ``saved`` names the one that the model is.

    Raises ``DataError`` if the file is damaged.
    """
    try:
        found = _Race.model_validate(json.loads(file.read_bytes(), parse_constant=lambda _: None))
    except (OSError, ValueError, RecursionError, ValidationError):
        raise DataError(
            f"{RACE_FILE} beside the model must be what a race wrote, but is damaged; run the same race again: it goes on from the "
            "trials that are finished"
        ) from None
    saved = next((one.settings.get("method") for one in reversed(model.history) if isinstance(one, AdaptRecord)), None)
    return {
        "task": found.task.name,
        "metric": found.task.metric,
        "test_texts": found.task.test,
        "labels": found.labels,
        "seeds": found.seeds,
        "saved": saved,
        "findings": found.findings,
        "methods": [
            {"method": one.method, "score": one.over_both.mean, "low": one.over_both.low, "high": one.over_both.high}
            | {"validation": one.validation, "seconds": one.seconds, "disk": one.disk}
            for one in found.methods
        ],
    }
