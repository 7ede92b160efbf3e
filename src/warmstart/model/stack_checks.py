"""Checks of a saved stack: all members together, every network among them as a model, and every baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from warmstart.model.bundle import Bundle
from warmstart.model.bundle_files import read_selftest
from warmstart.model.checks import EDITED, OUTPUT_TOLERANCE, CheckResult, ModelCheck, run_checks
from warmstart.model.fitted import FittedBaseline
from warmstart.model.folder import find_bundle
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.model.stack import Stack
from warmstart.model.stack_files import stored_baseline_outputs, stored_stack_predictions
from warmstart.model.stack_selftest import ByName, outputs_gap, predictions_gap, stack_predictions

STACK_CHECK: ModelCheck[tuple[Stack, ByName]] = ModelCheck(
    lambda pair: predictions_gap(stack_predictions(pair[0]), pair[1]),
    "All members together give each label, found by its name, the probabilities that it had when the stack was saved.",
    "predictions, found by label name, differ from the stored ones by {value}",
    EDITED,
    OUTPUT_TOLERANCE,
)
"""check of weights, temperatures and label names: a stack, and its predictions when it was saved"""
BASELINE_CHECK: ModelCheck[tuple[FittedBaseline, np.ndarray | None]] = ModelCheck(
    lambda pair: outputs_gap(pair[0].predict(SELFTEST_TEXTS), pair[1]),
    "Predictions for the test texts are those of the day it was saved.",
    "outputs differ from the stored ones by {value}",
    EDITED,
    OUTPUT_TOLERANCE,
)
"""check of a fitted baseline, and its predictions when it was saved; a prediction that is nan differs"""


def run_stack_checks(stack: Stack, folder: Path) -> list[CheckResult]:
    """Every check of a stack that was loaded from a folder, then of every member; a result names the member as its part."""
    members = [
        replace(result, part=member.name)
        for number, member in enumerate(stack.members, 1)
        for result in _member(member.model, folder / "members" / str(number))
    ]
    backbones = [
        replace(result, part=", ".join(member.name for member in stack.members if stack.backbone_of(member) == number))
        for number, backbone in enumerate(stack.backbones, 1)
        for result in run_checks(backbone, read_selftest(folder / f"backbones/{number}"))
    ]
    return [STACK_CHECK("stored predictions", (stack, stored_stack_predictions(folder))), *members, *backbones]


def _member(model: Bundle | FittedBaseline, folder: Path) -> list[CheckResult]:
    if isinstance(model, Bundle):
        return run_checks(model, read_selftest(folder))
    return [BASELINE_CHECK("stored outputs", (model, stored_baseline_outputs(folder)))]


def examine(model: Bundle | Stack, path: str) -> list[CheckResult]:
    """Every check of a loaded model of either kind; ``path`` is where it was loaded from."""
    place = find_bundle(path)
    if isinstance(model, Stack):
        return run_stack_checks(model, place)
    return run_checks(model, None if path.startswith("hf:") else read_selftest(place))
