"""What ``study neurons`` reports: the best neuron of each property, compared with chance and with untrained backbones."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import percent
from warmstart.stats.power import detectable_above

if TYPE_CHECKING:
    from warmstart.studies.neurons.measure import NeuronMeasurement

_MIN_PASSAGES = 30
"""below this the bootstrap's intervals are too narrow"""
_LISTED = 6
"""properties with a finding of their own"""


def neurons_result(measured: NeuronMeasurement, model: str) -> StudyResult:
    """The result of ``study neurons`` for a model by its name."""
    tables = {"correlations": _correlation_table(measured), "passages": pl.DataFrame([asdict(one) for one in measured.tokens])}
    counts = {"neurons": len(measured.q), "passages": len(measured.properties.values), "tokens": measured.correlations.n}
    figures = {name: float(count) for name, count in counts.items()}
    return StudyResult(f"Neurons of {model}", neuron_findings(measured), tables, figures, _summary(measured), measured)


def neuron_findings(measured: NeuronMeasurement) -> list[str]:
    """Which properties have a neuron, how strong the correlation is, and how certain."""
    above = [one for one in measured.results if one.above_chance]
    learned, control = [one for one in measured.results if one.learned], measured.results[0].control
    findings = [_first_finding(measured, len(above), len(learned))]
    for one in sorted(learned if control else above, key=lambda one: -one.gain)[:_LISTED]:
        compared = f"the permutation threshold is {one.threshold:.2f}" + (f"; {one.control}" if one.control else "")
        findings.append(f"Property '{one.name}': neuron {measured.neuron(one)}, r = {one.best}; {compared}.")
    if missing := [one for one in measured.results if not one.above_chance]:
        sizes = [min(1.0, detectable_above(one.threshold, one.best.low, one.best.high)) for one in missing]
        limit = f"; an absolute r of {detection_text(sizes, '{:.2f}'.format, '')}" if np.isfinite(sizes).all() else ""
        names = ", ".join(one.name for one in missing)
        findings.append(f"No neuron correlates above the permutation threshold with {names}{limit}.")
    correlations, properties = measured.correlations, measured.properties
    over = np.abs(correlations.r) > correlations.threshold
    findings.append(
        f"{percent((measured.q < 0.05).mean(), 0)} of all {measured.q.size:,} correlations have q < 0.05 (Benjamini and Hochberg), "
        f"which treats the {correlations.n:,} tokens as independent; {percent(over.mean())} are above the permutation threshold."
    )
    if properties.constant:
        findings.append(f"Left out, since they are constant in this text as tokenized: {', '.join(properties.constant)}.")
    if properties.passages < _MIN_PASSAGES:
        findings.append(
            f"Intervals over only {properties.passages} passages are too narrow: treat what is just above a threshold as chance."
        )
    return findings


def _first_finding(measured: NeuronMeasurement, above: int, learned: int) -> str:
    first, beyond = measured.results[0], ""
    if first.control:
        beyond = (
            f", and for {learned} it is also above {len(first.control.largest)} untrained backbones (the interval is above a "
            f"prediction bound for one more, corrected for {first.control.properties} properties)"
        )
    return (
        f"For {above} of {len(measured.results)} properties the best neuron is above the permutation threshold{beyond}. The "
        f"largest correlation is with '{first.name}': neuron {measured.neuron(first)}, r = {first.best}."
    )


def _summary(measured: NeuronMeasurement) -> Summary:
    rows = [
        (
            one.name,
            measured.neuron(one),
            str(one.best),
            f"{one.threshold:.2f}",
            f"{one.control.threshold:.2f}" if one.control else "-",
        )
        for one in measured.results
    ]
    return Summary(("property", "neuron", "r (95%)", "permutation threshold", "untrained threshold"), rows)


def _correlation_table(measured: NeuronMeasurement) -> pl.DataFrame:
    """Every correlation, neuron by neuron."""
    names = measured.properties.names
    neurons = [measured.layout.neuron(column) for column in range(len(measured.q))]
    return pl.DataFrame(
        {
            "layer": np.repeat([one.layer for one in neurons], len(names)),
            "neuron": np.repeat([one.index for one in neurons], len(names)),
            "property": np.tile(names, len(neurons)),
            "r": measured.correlations.r.ravel(),
            "q": measured.q.ravel(),
        }
    )
