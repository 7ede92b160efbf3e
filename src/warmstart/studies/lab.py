"""``study lab``: attention with keys and queries built by hand, compared with its closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from warmstart.config import Advanced, Effectless, ThreadsConfig
from warmstart.report.parts import Figure, Live, Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.steps import study_step
from warmstart.stats.formatting import percent

if TYPE_CHECKING:
    from warmstart.inspection.attention_lab import Experiment

CHECK_HEADER = ("number", "closed form", "measured", "difference")
QUESTIONS = {
    "copying": "Can one query pick one value out of many?",
    "averaging": "Can one query average two values?",
    "noisy keys": "What does a key of varying length do to one head, and to two?",
    "no projections": "What can self-attention do without queries, keys and values?",
    "attention module": "Is it the same attention that trains?",
}
"""the question of each experiment"""
FINDINGS = {
    "copying": "With beta {beta:g} the output is the wanted value, except for {rest:.2g} of the weight.",
    "averaging": "With beta {beta:g} each of the two keys has weight {weight:.4f}: the output is their mean.",
    "noisy keys": (
        "One head picks a or b at random (standard deviation {deviation_of_one_head:.2f} around {mean_of_one_head:.2f}); two heads "
        "stay near {median_of_two_heads:.2f} in {share} of the draws, and lose a only where its key is very short or turned round."
    ),
    "no projections": "Without projections a token attends to itself; matrices of rank two let it attend to any other token.",
    "attention module": (
        "The attention module matches the closed form. With rotary positions the order matters (outputs change by "
        "{change_by_order:.2f}), and dot-product weights depend on the other tokens (they change by {change_by_other_tokens:.2f}), "
        "which those of a synthesizer do not."
    ),
}
"""finding of each experiment, with its further numbers"""
AXES = {
    "copying": ("beta", "weight"),
    "averaging": ("beta", "weight of each"),
    "noisy keys": ("fraction of the draws", "weight of a"),
}
"""titles of the axes of each chart"""
_MORE_KEYS, _FEW_KEYS = 64, 8


class StudyLabConfig(ThreadsConfig):
    """Attention by hand: keys and queries whose results have a closed form and are then measured."""

    out: Effectless[str] = "runs/lab"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    keys: int = Field(8, gt=3, le=512)
    """number of keys (n)"""
    width: int = Field(16, gt=3, le=1024)
    """width of keys and queries; raised to the number of keys if it is smaller"""
    samples: Advanced[int] = Field(2000, gt=99, le=100_000)
    """draws of the noisy keys"""


def study_lab(config: StudyLabConfig) -> StudyResult:
    """Run all experiments, print their numbers and write the page. The details are the list of experiments."""
    from warmstart.inspection.attention_lab import run_experiments
    from warmstart.runs.run import Run

    width = max(config.width, config.keys)  # n orthogonal keys need at least n dimensions
    folder = Run.open(config.out, config).folder
    result = lab_result(run_experiments(config.seed, config.keys, width, config.samples), config.keys)
    tiles = [(name, f"{value:.1g}") for name, value in result.figures.items()]
    sections = [in_the_plane(), *map(experiment_section, result.details)]
    return finish_study(result, sections, config, folder, tiles=tiles)


def lab_result(experiments: Sequence[Experiment], keys: int = _FEW_KEYS) -> StudyResult:
    """All experiments: a finding each, and all their numbers in one table."""
    import polars as pl

    table: list[dict[str, Any]] = [
        {
            "experiment": experiment.name, "number": check.name, "closed_form": check.closed_form, "measured": check.measured,
            "difference": check.difference,
        }
        for experiment in experiments
        for check in experiment.checks
    ]  # fmt: skip
    cells = [(f"{experiment.name}, {name}", *row) for experiment in experiments for name, *row in check_rows(experiment)]
    more = (_MORE_KEYS, "more") if keys < _MORE_KEYS else (_FEW_KEYS, "fewer")
    return StudyResult(
        "The attention lab",
        [_overall(experiments), *map(finding, experiments)],
        {"checks": pl.DataFrame(table)},
        {f"largest difference, {experiment.name}": experiment.largest_difference for experiment in experiments},
        Table(CHECK_HEADER, cells),
        experiments,
        study_step("lab", f"The same with {more[1]} keys", "--keys", str(more[0])),
    )


def check_rows(experiment: Experiment) -> list[tuple[str, str, str, str]]:
    """The numbers of an experiment, formatted under ``CHECK_HEADER``."""
    return [
        (check.name, f"{check.closed_form:.6f}", f"{check.measured:.6f}", f"{check.difference:.1g}") for check in experiment.checks
    ]


def finding(experiment: Experiment) -> str:
    """The finding of an experiment."""
    numbers = {name.replace(" ", "_"): value for name, value in experiment.figures.items()}
    extra = {"rest": 1 - numbers.get("weight", 0.0), "share": percent(numbers.get("steady", 0.0), 0)}
    return FINDINGS[experiment.name].format(**numbers, **extra)


def _overall(experiments: Sequence[Experiment]) -> str:
    exact = max(experiment.largest_difference for experiment in experiments if "samples" not in experiment.figures)
    also = "".join(
        f"; over {experiment.figures['samples']:,} random keys they differ by at most {experiment.largest_difference:.1g}"
        for experiment in experiments
        if "samples" in experiment.figures
    )
    return f"Attention with keys and queries built by hand does what its formulas say, to {exact:.1g}{also}."


def in_the_plane() -> Section:
    """Keys and queries to be moved, and what becomes of the weights and the output."""
    html, script = (Path(__file__).with_suffix(ending).read_text(encoding="utf-8") for ending in (".html", ".js"))
    return Section(
        "Try it in the plane",
        (
            "The weight of a key is the softmax of its dot product with the query, and the output is the mean of the values by "
            "these weights. In a plane only two directions are orthogonal; the experiments below have as many as they need.",
        ),
        live=Live(html, script),
    )


def experiment_section(experiment: Experiment) -> Section:
    """An experiment on the page: its question, its finding, a chart if it has curves, and its numbers."""
    from warmstart.report.study_charts import curves_chart

    figures, name = list[Figure](), experiment.name.capitalize()
    if experiment.curves:
        drawn = (
            "the closed form as a line, what was measured as points" if "closed form" in experiment.curves else "the draws, sorted"
        )
        caption = f"{name}: {drawn}."
        chart = curves_chart(experiment.curves, AXES[experiment.name])
        figures.append(Figure(experiment.name.replace(" ", "-"), caption, chart))
    return Section(name, (QUESTIONS[experiment.name], finding(experiment)), (*figures, Table(CHECK_HEADER, check_rows(experiment))))
