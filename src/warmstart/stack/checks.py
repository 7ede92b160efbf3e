"""Checks of a saved stack: of all members together, those of a model for every network, and a few for every baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from warmstart.model.bundle import Bundle
from warmstart.model.checks import EDITED, run_checks
from warmstart.model.checks.check import CheckResult, ModelCheck
from warmstart.model.files import find_bundle, read_selftest
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.registry import Registry
from warmstart.stack.files import stored_baseline_outputs, stored_stack_predictions
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.selftest import outputs_gap, predictions_gap, stack_predictions
from warmstart.stack.stack import Stack

FIT_AGAIN = "fit the baseline again with `warmstart race --save`"


@dataclass(frozen=True, eq=False)
class BaselineSubject:
    """A baseline to be checked."""

    baseline: FittedBaseline
    stored: np.ndarray | None
    """(4, C) what it predicted when it was saved"""


def _finite(subject: BaselineSubject) -> float:
    return float((~np.isfinite(subject.baseline.predict(SELFTEST_TEXTS))).sum())


BASELINE_CHECKS: Registry[ModelCheck[BaselineSubject]] = Registry(
    "check of a baseline",
    {
        "stored outputs": ModelCheck(
            lambda subject: outputs_gap(subject.baseline.predict(SELFTEST_TEXTS), subject.stored),
            "Predictions for the test texts are those of the day it was saved.",
            "outputs differ from the stored ones by {value}",
            EDITED,
        ),
        "finite": ModelCheck(
            _finite,
            "Every prediction is finite.",
            "{value} predictions for the test texts are nan or infinite",
            FIT_AGAIN,
            limit=0,
        ),
    },
)
"""The checks of a fitted baseline."""


@dataclass(frozen=True, eq=False)
class StackSubject:
    """A whole stack to be checked."""

    stack: Stack
    stored: Mapping[str, Sequence[float]]
    """what it predicted when it was saved, by label name"""


def _stored(subject: StackSubject) -> float:
    return predictions_gap(stack_predictions(subject.stack), subject.stored)


STACK_CHECKS: Registry[ModelCheck[StackSubject]] = Registry(
    "check of a stack",
    {
        "stored predictions": ModelCheck(
            _stored,
            "All members together give each label, found by its name, the probabilities that it had when the stack was saved.",
            "predictions, found by label name, differ from the stored ones by {value}",
            EDITED,
        ),
    },
)
"""The checks of all members together: of weights, temperatures and label names."""


def run_stack_checks(stack: Stack, folder: Path) -> list[CheckResult]:
    """Every check of a stack that was loaded from a folder, then of every member; a result names the member as its part."""
    whole = StackSubject(stack, stored_stack_predictions(folder))
    members = [
        replace(result, part=member.name)
        for number, member in enumerate(stack.members, 1)
        for result in _member(member.model, folder / "members" / str(number))
    ]
    return [*(check(name, whole) for name, check in STACK_CHECKS.items()), *members]


def _member(model: Bundle | FittedBaseline, folder: Path) -> Iterator[CheckResult]:
    if isinstance(model, Bundle):
        yield from run_checks(model, read_selftest(folder))
        return
    subject = BaselineSubject(model, stored_baseline_outputs(folder))
    yield from (check(name, subject) for name, check in BASELINE_CHECKS.items())
    if backbone := model.backbone:
        yield from run_checks(backbone, read_selftest(folder / "backbone"))


def examine(model: Bundle | Stack, path: str) -> list[CheckResult]:
    """Every check of a loaded model of either kind; ``path`` is where it was loaded from."""
    place = find_bundle(path)
    if isinstance(model, Stack):
        return run_stack_checks(model, place)
    return run_checks(model, None if path.startswith("hf:") else read_selftest(place))
