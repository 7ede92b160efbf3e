"""The result of ``study lab``: every measured number with its closed form, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from warmstart.report.result import StudyResult, Summary
from warmstart.stats.formatting import percent

if TYPE_CHECKING:
    from warmstart.studies.lab.measure import Experiment

CHECK_HEADER = ("number", "closed form", "measured", "difference")
QUESTIONS = {
    "copying": "Can one query pick one value out of many?",
    "averaging": "Can one query average two values?",
    "noisy keys": "What does a key of varying length do to one head, and to two?",
    "no projections": "What can self-attention do without queries, keys and values?",
    "attention module": "Is it the same attention that trains?",
}
"""the question of each experiment"""


def lab_result(experiments: Sequence[Experiment]) -> StudyResult:
    """All experiments: a finding each, and all their numbers in one table."""
    rows = [
        {
            "experiment": experiment.name,
            "number": check.name,
            "closed_form": check.closed_form,
            "measured": check.measured,
            "difference": check.difference,
        }
        for experiment in experiments
        for check in experiment.checks
    ]
    cells = [(f"{experiment.name}, {name}", *row) for experiment in experiments for name, *row in check_rows(experiment)]
    return StudyResult(
        "The attention lab",
        [_overall(experiments), *map(finding, experiments)],
        {"checks": pl.DataFrame(rows)},
        {f"largest difference, {experiment.name}": largest_difference(experiment) for experiment in experiments},
        Summary(CHECK_HEADER, cells),
        experiments,
    )


def largest_difference(experiment: Experiment) -> float:
    """Of all numbers of an experiment, the largest difference between measured and closed form."""
    return max(check.difference for check in experiment.checks)


def check_rows(experiment: Experiment) -> list[tuple[str, str, str, str]]:
    """The numbers of an experiment, formatted under ``CHECK_HEADER``."""
    return [
        (check.name, f"{check.closed_form:.6f}", f"{check.measured:.6f}", f"{check.difference:.1g}") for check in experiment.checks
    ]


def finding(experiment: Experiment) -> str:
    """What an experiment shows."""
    return FINDINGS[experiment.name](experiment.figures)


def _overall(experiments: Sequence[Experiment]) -> str:
    exact = max(largest_difference(experiment) for experiment in experiments if "samples" not in experiment.figures)
    sampled = [experiment for experiment in experiments if "samples" in experiment.figures]
    also = "".join(
        f"; over {experiment.figures['samples']:,} random keys they differ by at most {largest_difference(experiment):.1g}"
        for experiment in sampled
    )
    return f"Attention with keys and queries built by hand matches its closed forms to {exact:.1g}{also}."


def _copying(figures: dict[str, float]) -> str:
    return f"With beta {figures['beta']:g} the output is the wanted value, except for {1 - figures['weight']:.2g} of the weight."


def _averaging(figures: dict[str, float]) -> str:
    return f"With beta {figures['beta']:g} each of the two keys has weight {figures['weight']:.4f}: the output is their mean."


def _noisy_keys(figures: dict[str, float]) -> str:
    return (
        f"One head picks a or b at random (standard deviation {figures['deviation of one head']:.2f} around "
        f"{figures['mean of one head']:.2f}); two heads stay near {figures['median of two heads']:.2f} in "
        f"{percent(figures['steady'], 0)} of the draws, and lose a only where its key is very short or turned round."
    )


def _no_projections(_: dict[str, float]) -> str:
    return "Without projections a token attends to itself; matrices of rank two let it attend to any other token."


def _attention_module(figures: dict[str, float]) -> str:
    return (
        "The attention module matches the closed form. With rotary positions the order matters (outputs change by "
        f"{figures['change by order']:.2f}), and dot-product weights depend on the other tokens (they change by "
        f"{figures['change by other tokens']:.2f}), which those of a synthesizer do not."
    )


FINDINGS: dict[str, Callable[[dict[str, float]], str]] = {
    "copying": _copying,
    "averaging": _averaging,
    "noisy keys": _noisy_keys,
    "no projections": _no_projections,
    "attention module": _attention_module,
}
"""the finding of each experiment, from its further numbers"""
