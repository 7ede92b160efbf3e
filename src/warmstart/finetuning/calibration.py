"""Calibrating an adapted model: its temperature, and the texts on which confidence thresholds can be found.

The temperature is fitted on the predictions that chose the settings, out of fold or for the texts set apart, so it guarantees
nothing. A threshold gives a guarantee, so it needs texts that chose nothing: ``adapt --calibration-fraction`` splits them off the
validation split, or off a budget of labels. ``fit`` has none to spare and takes those left out in its folds, which chose its
method; simulation: tests/test_fit.py: ``test_the_texts_left_out_guarantee_what_the_model_answers_alone``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from warmstart.data.budget import LabelBudget
from warmstart.data.splits import calibration_split
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, ModelError
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.stack import Stack
from warmstart.stats.abstention import Threshold, find_threshold
from warmstart.stats.calibration import apply_temperature, fit_temperature, temperature_interval, towards_one
from warmstart.tasks import task_type_of
from warmstart.tasks.predict import confidences_of, uncalibrated_predictions
from warmstart.tasks.thresholds import chosen_thresholds, has_thresholds


def split_calibration_texts(task: Task, fraction: float, labels: int | None = None) -> tuple[Task, Split | None]:
    """The task without a random fraction of its validation texts, and those texts; they are the same for every seed.

    With a budget of ``labels`` they are that fraction of the budget, drawn from the training texts without regard to their labels.
    Where texts come in groups, whole ones, of which a single text serves: see ``calibration_split``; copies of a text are a group
    too.
    """
    if not fraction:
        return task, None
    if not task_type_of(task).one_label:
        raise ConfigError(
            f"--calibration-fraction needs a task with one label per text, but '{task.name}' is a {task.type} task; remove it"
        )
    if labels is None:
        if not len(task.validation):
            raise ConfigError(
                f"--calibration-fraction needs validation texts, but '{task.name}' has none; write 'validation: 0.1' into its "
                "manifest, or use --labels"
            )
        kept, calibration = calibration_split(task.validation.units, fraction)
        return replace(task, validation=task.validation.take(kept)), task.validation.take(calibration)
    kept, calibration = calibration_split(task.train.units, max(1, round(fraction * labels)))
    return task.with_train(task.train.take(kept)), task.train.take(calibration)


def calibrate(model: Bundle | Stack, budget: LabelBudget, choosing: Any, calibration_texts: Split | None) -> Calibration:
    """The temperature from the predictions ``choosing``, with its interval, and confidences on the calibration texts.

    ``choosing`` (N, C) are probabilities for ``budget.choosing`` by models that did not learn from those texts; without them no
    temperature is fitted. Without calibration texts there are no confidences.
    """
    fitted = fitted_calibration(budget, choosing)
    if calibration_texts is None:
        return fitted
    calibrated = apply_temperature(uncalibrated_predictions(model, calibration_texts.texts), fitted.temperature)
    confidence, correct = confidence_and_correct(calibrated, calibration_texts.labels)
    pairs = tuple((float(one), bool(right)) for one, right in zip(confidence, correct, strict=True))
    return fitted.model_copy(update={"held_out": pairs})


def fitted_calibration(budget: LabelBudget, choosing: Any) -> Calibration:
    """The temperature from predictions ``choosing`` (N, C) for ``budget.choosing``, with its interval; 1 without predictions.

    Both are moved ``towards_one``. With several labels per text the threshold of each label.
    """
    if choosing is None:
        return Calibration(temperature=1.0)
    if has_thresholds(budget.task):
        return Calibration(thresholds=chosen_thresholds(budget.task, budget.choosing, choosing))
    labels, units = budget.choosing.labels, budget.choosing.units
    temperature, count = fit_temperature(choosing, labels), len(np.unique(units))
    low, high = temperature_interval(choosing, labels, temperature, units) or (None, None)
    interval = None if low is None or high is None else (towards_one(low, count), towards_one(high, count))
    return Calibration(temperature=towards_one(temperature, count), interval=interval)


def confidence_and_correct(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The highest of probabilities (N, C), rounded as bundles store it, and 1 where it is the label's; both (N,)."""
    return confidences_of(probabilities), probabilities.argmax(axis=1) == labels


def threshold_for(bundle: Bundle | Stack, target_error: float, confidence_level: float) -> Threshold:
    """The threshold that keeps wrong labels below ``target_error``. Raises ``ModelError`` without calibration texts."""
    held_out = bundle.calibration.held_out if bundle.calibration else ()
    if not held_out:
        raise ModelError(
            "a guarantee needs held-out texts that chose nothing, but this model has none; "
            "adapt it with --calibration-fraction 0.5, which takes half of the validation texts, or of the --labels"
        )
    return threshold_from(held_out, target_error, confidence_level)


def threshold_from(held_out: Sequence[tuple[float, bool]], target_error: float, confidence_level: float) -> Threshold:
    """The calibration of pairs of confidence and correctness."""
    confidence, correct = (np.array(column) for column in zip(*held_out, strict=True))
    return find_threshold(confidence, correct.astype(bool), target_error, confidence_level)
