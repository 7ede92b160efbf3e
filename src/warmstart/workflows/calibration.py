"""Making an adapted model's confidence mean something: its temperature, and the texts on which a bar can be found.

The temperature is fitted on the validation texts, which also chose the kept weights; it makes no promise. A bar does, so it is
found on texts that chose nothing: ``adapt --calibration SHARE`` sets them apart from the validation split.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from warmstart.data import Split, Task, stratified
from warmstart.errors import ConfigError, ModelError
from warmstart.evaluate import Bar, find_bar
from warmstart.evaluate.abstain import area, risk_coverage
from warmstart.evaluate.calibrate import at_temperature, calibration_error, fit_temperature, reliability
from warmstart.evaluate.predict import encode_for, probabilities
from warmstart.model import Bundle, Calibration, Model
from warmstart.report import Figure, Section, Table
from warmstart.report.reliability import reliability_chart
from warmstart.report.risk import risk_chart
from warmstart.tokenizer import Tokenizer

TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""shares of wrong answers that the report finds bars for"""
CERTAINTY = 0.95


def set_apart(task: Task, share: float) -> tuple[Task, Split | None]:
    """The task without a stratified share of its validation texts, and those texts; they are the same for every seed."""
    if not share:
        return task, None
    if task.kind != "label":
        raise ConfigError(
            f"--calibration is for tasks with one label a text, but '{task.name}' is of kind '{task.kind}'; leave it out"
        )
    kept, apart = stratified(task.validation.labels, share, 0)
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
    return _bar(kept, target, certainty)


def _bar(kept: tuple[tuple[float, bool], ...], target: float, certainty: float) -> Bar:
    sure, right = (np.array(column) for column in zip(*kept, strict=True))
    return find_bar(sure, right.astype(bool), target, certainty)


def _said(model: Model, tokenizer: Tokenizer, split: Split) -> np.ndarray:
    return probabilities(model, encode_for(model, tokenizer, split.texts), tokenizer.specials.pad)


def calibration_section(found: Calibration, said: np.ndarray, labels: np.ndarray) -> Section:
    """What confidence is worth on the test split: ``said`` (N, C) before calibration, ``labels`` (N,)."""
    after = at_temperature(said, found.temperature)
    (raw, right), (sure, _) = sureness(said, labels), sureness(after, labels)
    errors = [calibration_error(confidence, right) for confidence in (raw, sure)]
    losses = [float(-np.log(p[np.arange(len(labels)), labels].clip(min=1e-12)).mean()) for p in (said, after)]
    curve = risk_coverage(sure, right)
    much = "too sure" if found.temperature > 1 else "not sure enough"
    lines = [
        f"Temperature {found.temperature:.2f}, fitted on the validation texts: the model was {much}. On the test texts the "
        f"expected calibration error goes from {100 * errors[0]:.1f} to {100 * errors[1]:.1f} points, the log loss from "
        f"{losses[0]:.3f} to {losses[1]:.3f} nats; no label changes. On the diagonal confidence and accuracy agree.",
        f"Averaged over all bars, {100 * area(*curve):.1f} % of the labels given are wrong (AURC).",
    ]
    bins = {
        name: [(one.confidence, one.accuracy, one.count) for one in reliability(confidence, right)]
        for name, confidence in (("as trained", raw), ("at the temperature", sure))
    }
    figures: list[Figure | Table] = [
        Figure("reliability", "Test texts in bins of equal size by confidence.", reliability_chart(bins)),
        Figure("risk", "Share of wrong labels among those given, from the surest down.", risk_chart({"saved model": curve})),
    ]
    if found.held_out:
        lines.append(
            f"Bars found on {len(found.held_out)} held-out texts that chose nothing; each promise holds with "
            f"{100 * CERTAINTY:g} % certainty for new texts drawn alike."
        )
        header = ("promised at most", "confidence", "test texts labelled", "wrong among them")
        figures.append(Table(header, [_promise(found, target, sure, right) for target in TARGETS]))
    return Section("Can its confidence be trusted?", tuple(lines), tuple(figures))


def _promise(found: Calibration, target: float, sure: np.ndarray, right: np.ndarray) -> tuple[str, str, str, str]:
    """What the bar for a target did on test texts, which it never saw."""
    bar = _bar(found.held_out, target, CERTAINTY)
    if math.isinf(bar.threshold):
        return f"{100 * target:g} % wrong", "no bar", "0.0 %", "-"
    given = sure >= bar.threshold
    wrong = f"{100 * (~right[given]).mean():.1f} %" if given.any() else "-"
    return f"{100 * target:g} % wrong", f"{bar.threshold:.3f}", f"{100 * given.mean():.1f} %", wrong
