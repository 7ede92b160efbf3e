"""The report's section on confidence: reliability, risk against coverage, and what bars did on texts they never saw."""

from __future__ import annotations

import math

import numpy as np

from warmstart.evaluate.abstain import area, risk_coverage
from warmstart.evaluate.calibrate import at_temperature, calibration_error, reliability
from warmstart.model import Calibration
from warmstart.report import Figure, Section, Table
from warmstart.report.reliability import reliability_chart
from warmstart.report.risk import risk_chart
from warmstart.workflows.calibration import bar_on, sureness

TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""shares of wrong answers that the report finds bars for"""
CERTAINTY = 0.95


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
    bar = bar_on(found.held_out, target, CERTAINTY)
    if math.isinf(bar.threshold):
        return f"{100 * target:g} % wrong", "no bar", "0.0 %", "-"
    given = sure >= bar.threshold
    wrong = f"{100 * (~right[given]).mean():.1f} %" if given.any() else "-"
    return f"{100 * target:g} % wrong", f"{bar.threshold:.3f}", f"{100 * given.mean():.1f} %", wrong
