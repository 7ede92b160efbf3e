"""The result of ``study probe``: the accuracy of probes by layer, and of their controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from warmstart.inspection.probe_scores import BAG, ProbeScores, best_layer
from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import limit_clause
from warmstart.stats.formatting import (
    layer_name,
    percent,
    percent_interval,
    percent_value,
    points,
    points_range,
    sentence_case,
)

if TYPE_CHECKING:
    from warmstart.studies.probe.measure import TaskProbes

RANDOM = "random weights"
PROBES_HEADER = ("task", "model", "best layer", "linear (95% over sentences)", "MLP", BAG, RANDOM, "selectivity", "compression")
_SHORT_HEADER = ("task", "model", "layer", "linear", "MLP", "bag", "random", "selectivity", "compression")
"""the same for the terminal, without intervals"""
_FEW_SENTENCES = 30
"""test sentences below which a finding names their number"""


def probe_result(probes: Sequence[TaskProbes]) -> StudyResult:
    """All findings about the probes of all models on all tasks."""
    rows = [probe_row(one) for one in probes]
    return StudyResult(
        "What each layer encodes",
        [*map(probe_finding, probes), *coverage_findings(probes)],
        {"probes": scores_table(probes)},
        {f"{one.task.name}, {one.model}": one.best.accuracy.value for one in probes},
        Summary(_SHORT_HEADER, [(*row[:3], row[3].split(" (")[0], *row[4:]) for row in rows]),
        list(probes),
    )


def probe_finding(probes: TaskProbes) -> str:
    """The accuracy of the best layer, and its difference to a bag of embeddings and to random weights."""
    best = probes.best
    comparisons = [_comparison(best, probes.linear[BAG], f"a {BAG}")]
    if probes.random:
        random = best_layer(probes.random)
        alone = ", for this draw alone" if len(random.correct) == 1 else ""
        comparisons.append(_comparison(best, random, draws_of(random), alone))
    sentences = len(np.unique(best.sentences))
    few = f" on {len(best.sentences)} test items of only {sentences} sentences" if sentences < _FEW_SENTENCES else ""
    return (
        f"{sentence_case(probes.task.name)}: a linear probe of {layer_name(best.layer)} of {probes.model} has an accuracy of "
        f"{percent_interval(*best.accuracy)}{few}: {' and '.join(comparisons)}."
    )


def _comparison(best: ProbeScores, other: ProbeScores, name: str, note: str = "") -> str:
    difference, low, high = best.difference(other)
    significance = "" if low > 0 or high < 0 else ", not significant" + limit_clause(low, high)
    return f"{points(difference)} ({points_range(low, high)}{note}{significance}) against {name}"


def draws_of(random: ProbeScores) -> str:
    """``3 draws of random weights``."""
    return f"{len(random.correct)} draws of {RANDOM}" if len(random.correct) > 1 else f"one draw of {RANDOM}"


def coverage_findings(probes: Sequence[TaskProbes]) -> list[str]:
    """What did not fit into the models, and for which tasks they therefore have different items: one sentence each."""
    findings = list[str]()
    for one in probes:
        if one.items.dropped:
            name, count = sentence_case(one.task.name), f"{one.items.dropped:,} of {one.items.total:,}"
            findings.append(
                f"{name}: {count} words do not fit into {one.model} and are left out." if one.task.words
                else f"{name}: {count} sentences are cut to what fits into {one.model}."
            )  # fmt: skip
    for task in dict.fromkeys(one.task.name for one in probes if one.task.words):
        same = [one for one in probes if one.task.name == task]
        if len({(one.items.dropped, one.best.sentences.tobytes()) for one in same}) > 1:
            counts = ", ".join(f"{one.model}: {len(one.best.sentences):,}" for one in same)
            findings.append(
                f"{sentence_case(task)}: the models have different test items, as not all words fit ({counts}), so their "
                "accuracies cannot be compared."
            )
    return findings


def probe_row(probes: TaskProbes) -> tuple[str, ...]:
    """A row under ``PROBES_HEADER``."""
    best, frequency = probes.best, probes.items.frequency_compression
    return (
        probes.task.name, probes.model, best.layer, percent_interval(*best.accuracy),
        percent(best_layer(probes.mlp).accuracy.value) if probes.mlp else "-",
        percent(probes.linear[BAG].accuracy.value),
        percent(best_layer(probes.random).accuracy.value) if probes.random else "-",
        percent_value(best.selectivity),
        f"{np.mean(best.compression):.2f} ({frequency:.2f})" if best.compression else "-",
    )  # fmt: skip


def scores_table(probes: Sequence[TaskProbes]) -> pl.DataFrame:
    """The scores of every probe of every model, one row each."""
    rows = [
        _score_row(one, probe, scores)
        for one in probes
        for probe, by_layer in (("linear", one.linear), ("mlp", one.mlp), (f"linear, {RANDOM}", one.random))
        for scores in by_layer.values()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _score_row(probes: TaskProbes, probe: str, scores: ProbeScores) -> dict[str, Any]:
    accuracy, low, high = scores.accuracy
    return {
        "task": probes.task.name, "model": probes.model, "probe": probe, "layer": scores.layer,
        "accuracy": accuracy, "low": low, "high": high,
        "control_accuracy": float(scores.control.mean()), "selectivity": scores.selectivity,
        "validation_accuracy": scores.validation, "compression": float(np.mean(scores.compression)) if scores.compression else None,
        "frequency_compression": scores.items.frequency_compression,
        "items": len(scores.sentences),
    }  # fmt: skip
