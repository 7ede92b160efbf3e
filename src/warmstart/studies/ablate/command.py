"""``study ablate``: how much each component of a model matters."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, TaskInput, ThreadsConfig
from warmstart.data.scorings import ScoringRun
from warmstart.data.source import Source
from warmstart.errors import ModelError
from warmstart.report.result import StudyResult
from warmstart.runs.steps import attention_step
from warmstart.stats.formatting import model_name
from warmstart.system.console import console


class StudyAblateConfig(ThreadsConfig):
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
    ablation: Literal["mean", "zero", "resample"] = "mean"
    """what replaces a component's states: their mean over the texts, zero, or those of other random tokens"""
    repeats: Advanced[int] = Field(3, gt=1)
    """with resample: number of draws for each component"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_ablate(config: StudyAblateConfig) -> StudyResult:
    """Ablate, evaluate, print the findings and write the page; the ``study ablate`` command."""
    from warmstart.data.token_store import documents_of
    from warmstart.interop.load import load_model
    from warmstart.model.files import model_digest
    from warmstart.report.study import finish_study
    from warmstart.runs.run import Run
    from warmstart.studies.ablate.measure import (
        AblationMeasurement,
        Replacements,
        ablate_each,
        choose_metric,
        components_of,
        score_full,
    )
    from warmstart.studies.ablate.page import ablation_sections, ablation_tiles
    from warmstart.studies.ablate.result import ablation_result

    bundle = load_model(config.model)
    components = components_of(bundle.model.backbone.config)
    if not components:
        raise ModelError("heads and layers are ablated, but this backbone has no blocks; give a model with blocks")
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
    result = ablation_result(measured, model_name(config.model))
    sections = ablation_sections(result, config.ablation)
    texts = metric.task.test.texts if metric.task else documents_of([Source(path=path) for path in config.text])
    tiles, step = ablation_tiles(result), attention_step(config.model, texts)
    return finish_study(replace(result, next_step=step), sections, config, folder, tiles=tiles)
