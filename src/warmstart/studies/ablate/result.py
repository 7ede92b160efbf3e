"""What ``study ablate`` reports: which components matter, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import sentence_case
from warmstart.stats.power import detectable_from_interval

if TYPE_CHECKING:
    from warmstart.stats.differences import Difference
    from warmstart.studies.ablate.measure import AblationMeasurement, AblationMetric, ComponentEffect

_MIN_TEXTS = 30
"""below this the bootstrap's intervals are too narrow"""
_MIN_P = 1e-6
"""smaller p-values print as less than this"""
_SHOWN = 15
"""rows of the terminal's table"""


def ablation_result(measured: AblationMeasurement, model: str) -> StudyResult:
    """The result of ``study ablate`` for a model by its name."""
    header, rows = effect_cells(measured)
    tables = {"components": pl.DataFrame([_effect_row(one) for one in measured.effects])}
    figures, findings = {"score": measured.full.scores[0]}, ablation_findings(measured)
    return StudyResult(f"Ablation: {model}", findings, tables, figures, Summary(header, rows[:_SHOWN]), measured)


def _effect_row(one: ComponentEffect) -> dict[str, Any]:
    """Plain values; blocks and heads count from 1."""
    component, difference, scores = one.component, one.difference, one.scores.scores
    block, head = (None if number is None else number + 1 for number in (component.block, component.head))
    return {
        "component": component.name, "type": component.type, "block": block, "head": head, "effect": difference.mean,
        "low": difference.low, "high": difference.high, "standard_error": difference.error, "p": one.p,
        "significant": one.significant, "std_over_repeats": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
    }  # fmt: skip


def effect_cells(measured: AblationMeasurement) -> Summary:
    """Every effect as formatted cells, largest first."""
    metric = measured.metric
    rows = [
        (
            one.component.name,
            format_value(metric, one.difference.mean, signed=True),
            f"{format_value(metric, one.difference.low)} to {format_value(metric, one.difference.high)}",
            f"{one.p:.2g}" if one.p >= _MIN_P else f"< {_MIN_P:g}",
            "yes" if one.significant else "",
        )
        for one in measured.effects
    ]
    return Summary(("component", "worse by", "95% interval", "p (Holm)", "significant"), rows)


def format_value(metric: AblationMetric, value: float, *, signed: bool = False) -> str:
    """A value of the metric, without its unit."""
    return f"{value:{'+' if signed else ''}.{metric.digits}f}"


def _format_effect(metric: AblationMetric, effect: Difference) -> str:
    """An effect with its interval: ``1.20 points (0.40 to 2.00)``."""
    low, high = (format_value(metric, end) for end in (effect.low, effect.high))
    return f"{format_value(metric, effect.mean)} {metric.unit} ({low} to {high})"


def ablation_findings(measured: AblationMeasurement) -> list[str]:
    """Which components matter, and how certain that is."""
    metric, texts = measured.metric, len(measured.metric.encoded)
    findings = _largest_effect(measured)
    if measured.heads:
        findings += _head_findings(measured)
    tokens = int(sum(map(len, metric.encoded.rows)))
    findings.append(f"{measured.passes} passes over {texts:,} texts ({tokens:,} tokens) took {measured.seconds:.1f} s.")
    if texts < _MIN_TEXTS:
        findings.append(f"Intervals over only {texts} texts are too narrow: treat an effect that is just significant as chance.")
    return findings


def _largest_effect(measured: AblationMeasurement) -> list[str]:
    metric, first = measured.metric, measured.effects[0]
    full = f"{sentence_case(metric.name)} of the full model: {format_value(metric, measured.full.scores[0])}."
    largest = _format_effect(metric, first.difference)
    most = next((one for one in measured.effects if one.harmful), None)
    if most is None:
        where = f"on {len(metric.encoded):,} texts"
        name, limit = first.component.name, sentence_case(_detected(measured, measured.effects))
        return [f"No component has a significant effect {where}: the largest is that of {name}, {largest}. {limit}. {full}"]
    worse = f"without it {metric.name} is worse by {_format_effect(metric, most.difference)}"
    findings = [f"{sentence_case(most.component.name)} has the largest significant effect: {worse}. {full}"]
    if most is not first:
        limit = _detected(measured, [first])
        findings.append(
            f"{sentence_case(first.component.name)} has a larger effect, {largest}, but it is not significant; {limit}."
        )
    return findings


def _head_findings(measured: AblationMeasurement) -> list[str]:
    heads = measured.heads
    harmful, helpful = [one for one in heads if one.harmful], [one for one in heads if one.significant and not one.harmful]
    most = (harmful or heads)[0]
    largest = "largest significant effect" if harmful else "largest effect in this sample, which is not significant"
    better = f"; the model is significantly better without {len(helpful)} of them" if helpful else ""
    return [
        f"{len(heads) - len(harmful)} of {len(heads)} heads can be ablated one at a time without a significant loss (at the 5% "
        f"level, corrected for {len(measured.effects)} components){better}.",
        f"Of the heads, {most.component.name} has the {largest}: {_format_effect(measured.metric, most.difference)}. "
        f"{sentence_case(_detected(measured, heads))}.",
    ]


def _detected(measured: AblationMeasurement, effects: Sequence[ComponentEffect]) -> str:
    """Which effects would have been detected, corrected for the number of all components; those without any noise are left out."""
    metric, sizes = measured.metric, [_detectable(one.difference, len(measured.effects)) for one in effects]
    return detection_text([size for size in sizes if size] or [math.inf], partial(format_value, metric), f" {metric.unit}")


def _detectable(effect: Difference, comparisons: int) -> float:
    """Over draws and texts if the ablation was repeated, else over texts."""
    if effect.claimable:
        return effect.detectable(comparisons)
    return detectable_from_interval(effect.low, effect.high, comparisons=comparisons)
