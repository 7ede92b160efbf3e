"""Making an adapted model's confidence mean something: its temperature, and the texts on which a bar can be found.

The temperature is fitted on the validation texts, which also chose the kept weights; it makes no promise. A bar does, so it is
found on texts that chose nothing: ``adapt --calibration SHARE`` sets them apart from the validation split.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warmstart.data import Split, Task, stratified
from warmstart.errors import ConfigError, ModelError
from warmstart.evaluate import Bar, find_bar
from warmstart.evaluate.calibrate import at_temperature, fit_temperature
from warmstart.evaluate.predict import encode_for, probabilities
from warmstart.model import Bundle, Calibration, Model
from warmstart.tokenizer import Tokenizer


def set_apart(task: Task, share: float) -> tuple[Task, Split | None]:
    """The task without a random share of its validation texts, and those texts; they are the same for every seed.

    They are drawn without regard to labels: a bound on the share of errors holds for a plain draw alone.
    """
    if not share:
        return task, None
    if task.kind != "label":
        raise ConfigError(
            f"--calibration is for tasks with one label a text, but '{task.name}' is of kind '{task.kind}'; leave it out"
        )
    kept, apart = stratified(np.zeros_like(task.validation.labels), share, 0)
    return replace(task, validation=task.validation.take(kept)), task.validation.take(apart)


def calibrate(model: Model, tokenizer: Tokenizer, validation: Split, apart: Split | None) -> Calibration:
    """The temperature from the validation texts, and confidences on those set apart."""
    temperature = fit_temperature(_said(model, tokenizer, validation), validation.labels)
    if apart is None:
        return Calibration(temperature=temperature)
    sure, right = sureness(at_temperature(_said(model, tokenizer, apart), temperature), apart.labels)
    pairs = tuple((float(one), bool(good)) for one, good in zip(sure, right, strict=True))
    return Calibration(temperature=temperature, held_out=pairs)


def sureness(said: np.ndarray, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Of probabilities (N, C): the highest, rounded as bundles keep it, and whether it is the label's; both (N,)."""
    right = said.argmax(axis=1) == labels if labels is not None else np.zeros(len(said), dtype=bool)
    return said.max(axis=1).round(6), right


def bar_for(bundle: Bundle, target: float, certainty: float) -> Bar:
    """The bar that keeps wrong labels below ``target``. Raises ``ModelError`` where no texts were set apart to find it on."""
    kept = bundle.calibration.held_out if bundle.calibration else ()
    if not kept:
        raise ModelError(
            "a promise needs held-out texts that chose nothing, but this model set none apart; "
            "adapt it with --calibration 0.5, which takes half of the validation texts for it"
        )
    return bar_on(kept, target, certainty)


def bar_on(kept: tuple[tuple[float, bool], ...], target: float, certainty: float) -> Bar:
    """The same on pairs of confidence and rightness."""
    sure, right = (np.array(column) for column in zip(*kept, strict=True))
    return find_bar(sure, right.astype(bool), target, certainty)


def _said(model: Model, tokenizer: Tokenizer, split: Split) -> np.ndarray:
    return probabilities(model, encode_for(model, tokenizer, split.texts), tokenizer.specials.pad)
