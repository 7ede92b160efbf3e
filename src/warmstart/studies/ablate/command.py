"""``study ablate``: how much each component of a model matters, and pruning of the heads that matter least."""

from __future__ import annotations

import time
from dataclasses import replace

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, TaskInput
from warmstart.data.test_ledger import ScoringRun
from warmstart.errors import ConfigError, ModelError
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest, save
from warmstart.model.history import PruneRecord
from warmstart.model.prune import check_prunable
from warmstart.report.result import StudyResult
from warmstart.report.study import LinkedConfig, finish_study
from warmstart.runs.run import Run, provenance
from warmstart.stats.formatting import model_name
from warmstart.studies.ablate.measure import (
    Ablation,
    AblationMeasurement,
    Replacements,
    ablate_each,
    choose_metric,
    components_of,
    prune_least_important,
    score_full,
)
from warmstart.studies.ablate.page import ablation_sections, ablation_tiles
from warmstart.studies.ablate.result import ablation_result
from warmstart.system.console import console


class StudyAblateConfig(LinkedConfig):
    """Ablate every head, attention, feed-forward layer and block in turn, and measure how much worse the model gets."""

    model: Positional[FileInput[str]]
    """a bundle, or the folder of a run"""
    task: Positional[TaskInput[str | None]] = None
    """task of an adapted model: its manifest (YAML); the metric is the task's, on the test split"""
    text: FileInput[tuple[str, ...]] = ()
    """text for a language model: files or folders; the metric is the loss per token"""
    out: Effectless[str] = "runs/ablate"
    """folder of the run"""
    limit: int = Field(300, ge=2)
    """number of texts: the first passages of the text, or test texts drawn evenly over the labels"""
    ablation: Ablation = "mean"
    """what replaces a component's states: their mean over the texts, zero, or those of other random tokens"""
    repeats: Advanced[int] = Field(3, gt=1)
    """with resample: number of draws for each component"""
    dimension_groups: Advanced[int] = Field(0, ge=0)
    """also ablate the dimensions of the embedding, in this many groups of neighbours; 0: none"""
    prune: int = Field(0, ge=0)
    """number of heads to prune from each block, those that matter least; the smaller model is saved; 0: none"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_ablate(config: StudyAblateConfig) -> StudyResult:
    """Ablate, evaluate, print the findings and write the page; the ``study ablate`` command."""
    bundle = load_model(config.model)
    if config.prune:
        _check_pruning(bundle, config.prune)
    components = components_of(bundle.model.backbone.config, config.dimension_groups)
    if not components:
        raise ModelError("there is nothing to ablate: this backbone has no blocks; give --dimension-groups to ablate its embedding")
    metric = choose_metric(bundle, config.task, config.text, config.limit, config.seed)
    scoring = ScoringRun.of(config)
    folder = Run.open(config.out, config).folder
    if metric.task:  # the ledger counts a model and its ablations as one scoring
        method = scoring.method(f"{config.model} and its ablations", ["ablate", model_digest(config.model), config.ablation])
        method.record(metric.task, None)
    start = time.perf_counter()
    full, means = score_full(bundle.model, components, metric, config.ablation)
    seconds = time.perf_counter() - start
    replacements = Replacements(config.ablation, means, config.seed, config.repeats)
    passes = sum(len(replacements.of(component)) for component in components)
    estimate = f"{len(components)} components on {len(metric.encoded):,} texts: at most about {seconds * passes:.0f} s"
    console.print(estimate)
    effects = ablate_each(bundle.model, components, replacements, metric, full)
    measured = AblationMeasurement(metric, full, effects, passes + 1, time.perf_counter() - start)
    if config.prune:
        smaller, keep, pruning = prune_least_important(bundle, measured, replacements, config.prune)
        measured = replace(measured, pruning=pruning)
        # what was known of its confidence was measured with all heads
        pruned = replace(bundle, model=smaller, history=(*bundle.history, _record(bundle, keep, config)), calibration=None)
        save(pruned, folder / "bundle")
        console.print(f"bundle: {folder / 'bundle'} (reloaded in a fresh process, outputs the same)")
    result = ablation_result(measured, model_name(config.model))
    sections = ablation_sections(result, config.ablation)
    return finish_study(result, sections, config, folder, models=[config.model], tiles=ablation_tiles(result))


def _check_pruning(bundle: Bundle, count: int) -> None:
    """Raise an error before anything is measured."""
    check_prunable(bundle.model)
    if count >= (heads := bundle.model.backbone.config.heads):
        raise ConfigError(f"at least one of {heads} heads must stay in every block, but --prune {count} leaves none")
    if bundle.answers_record:
        raise ModelError(
            "this model's guarantees for its answers hold for all heads only; prune the language model it was made from"
        )


def _record(bundle: Bundle, keep: list[list[int]], config: StudyAblateConfig) -> PruneRecord:
    """The history record of the pruned model; it generates, or not, as before."""
    return PruneRecord(
        objective=bundle.objective,
        generates=bundle.generates,
        kept_heads=tuple(map(tuple, keep)),
        replacement=config.ablation,
        provenance=provenance(),
    )
