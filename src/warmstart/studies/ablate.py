"""``study ablate``: how much each component of a model matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, TaskInput, ThreadsConfig
from warmstart.data.scorings import ScoringRun
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.steps import attention_step
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import model_name, sentence_case
from warmstart.stats.noise import detectable_from_interval

if TYPE_CHECKING:
    from warmstart.inspection.ablation import AblationMeasurement, AblationMetric, ComponentEffect
    from warmstart.model.bundle import Bundle
    from warmstart.model.model import Model

_MIN_TEXTS = 30
"""below this the bootstrap's intervals are too narrow"""
_MIN_P = 1e-6
"""smaller p-values print as less than this"""
_SHOWN, _BARS = 15, 40
"""rows of the terminal's table, and bars of a chart, at most"""
_REPLACED_BY = {"mean": "their mean over the texts", "zero": "zero", "resample": "those of other random tokens"}


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
    """replacement of a component's states: their mean over the texts, zero, or the states of other random tokens"""
    repeats: Advanced[int] = Field(3, gt=1)
    """number of draws for each component, with resample"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_ablate(config: StudyAblateConfig) -> StudyResult:
    """Ablate, evaluate, print the findings and write the page. The details are an ``AblationMeasurement``."""
    import polars as pl

    from warmstart.data.read import documents_of
    from warmstart.inspection.ablation import Ablating, ablate_each, components_of
    from warmstart.interop.load import load_model
    from warmstart.model.folder import model_digest
    from warmstart.runs.run import Run

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
    how = Ablating(config.ablation, config.repeats, config.seed)
    measured = ablate_each(bundle.model, components, how, metric)
    texts = metric.task.test.texts if metric.task else documents_of([Source(path=path) for path in config.text])
    cells, table = effect_cells(measured), [_effect_row(effect) for effect in measured.effects]
    result = StudyResult(
        f"Ablation: {model_name(config.model)}", ablation_findings(measured), {"components": pl.DataFrame(table)},
        {"score": measured.full.scores[0]}, Table(cells.header, cells.rows[:_SHOWN]), measured, attention_step(config.model, texts),
    )  # fmt: skip
    counts = [("texts", f"{len(metric.encoded):,}"), ("components", f"{len(measured.effects):,}")]
    tiles = [(metric.name, metric.written(measured.full.scores[0])), *counts]
    return finish_study(result, ablation_sections(measured, table, config.ablation), config, folder, tiles=tiles)


def choose_metric(bundle: Bundle, task: str | None, text: Sequence[str], limit: int, seed: int) -> AblationMetric:
    """The loss per token of a language model, or the task's metric of an adapted model, on at most ``limit`` texts.

    Raises ``ConfigError`` if the wrong one of task and text is given; ``ModelError`` for a head without a task type.
    """
    from warmstart.heads.language_modeling import LMHead
    from warmstart.inspection.ablation import loss_metric
    from warmstart.tasks import task_type_for

    if isinstance(bundle.model.head, LMHead):
        if task is not None or not text:
            problem = "got a task; use the model adapted to it instead" if task is not None else "got none"
            raise ConfigError(f"a language model is evaluated on text (--text FILES), but {problem}")
        return loss_metric(bundle, text, limit, seed)
    task_type_for(bundle)
    if task is None or text:
        problem = "got --text; leave it out, the head predicts no tokens" if text else "got none"
        raise ConfigError(f"an adapted model is evaluated on its task (the manifest, after the model), but {problem}")
    return _task_metric(bundle, task, limit, seed)


def _task_metric(bundle: Bundle, path: str, limit: int, seed: int) -> AblationMetric:
    """The task's own metric, in points, on test texts with the same number per label."""
    from warmstart.data.splits import strata, stratified_sample
    from warmstart.inspection.ablation import AblationMetric
    from warmstart.tasks import check_task_type
    from warmstart.tasks.load import load_task

    task_type = check_task_type(bundle, task := load_task(path))
    if task.labels != bundle.labels:
        raise DataError(f"the task must have the model's labels in the same order: {', '.join(bundle.labels)}")
    split = task.test
    if limit < len(split):
        classes = strata(split.labels)
        split = split.take(stratified_sample(classes, max(limit, len(np.unique(classes))), seed))
    if len(split) < 2:
        raise DataError(f"an effect is measured on at least two test texts, but '{task.name}' has {len(split)}")
    encoded, pad = task_type.encode(bundle.model, bundle.tokenizer, split.texts), bundle.tokenizer.specials.pad

    def evaluate(model: Model) -> tuple[float, np.ndarray]:
        predictions = task_type.predict(model, encoded, pad)
        score = task_type.scores(split, predictions, task).score(task.metric)
        return 100 * score, 100 * task_type.resampled_scores(split, predictions, task)

    name = task.metric.replace("_f1", " F1")
    return AblationMetric(name, "points", 2, lower_is_better=False, encoded=encoded, evaluate=evaluate, task=task)


def _effect_row(effect: ComponentEffect) -> dict[str, Any]:
    """Plain values; blocks and heads count from 1."""
    component, difference, scores = effect.component, effect.difference, effect.scores.scores
    block, head = (None if number is None else number + 1 for number in (component.block, component.head))
    return {
        "component": component.name, "type": component.type, "block": block, "head": head, "effect": difference.mean,
        "low": difference.low, "high": difference.high, "standard_error": difference.error, "p": effect.p,
        "significant": effect.significant, "std_over_repeats": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
    }  # fmt: skip


def effect_cells(measured: AblationMeasurement) -> Table:
    """Every effect as formatted cells, largest first."""
    metric = measured.metric
    rows = [
        (
            effect.component.name, f"{effect.difference.mean:+.{metric.digits}f}",
            f"{metric.written(effect.difference.low)} to {metric.written(effect.difference.high)}",
            f"{effect.p:.2g}" if effect.p >= _MIN_P else f"< {_MIN_P:g}", "yes" if effect.significant else "",
        )
        for effect in measured.effects
    ]  # fmt: skip
    return Table(("component", "worse by", "95% interval", "p (Holm)", "significant"), rows)


def ablation_findings(measured: AblationMeasurement) -> list[str]:
    """Sentences about the components that matter, and their certainty."""
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
    full = f"{sentence_case(metric.name)} of the full model: {metric.written(measured.full.scores[0])}."
    largest = metric.effect_text(first.difference)
    most = next((effect for effect in measured.effects if effect.harmful), None)
    if most is None:
        where, limit = f"on {len(metric.encoded):,} texts", sentence_case(_detected(measured, measured.effects))
        none = (
            f"No part of the model is shown to be needed {where}: the largest effect is that of {first.component.name}, {largest}"
        )
        return [f"{none}. {limit}. {full}"]
    worse = f"without it {metric.name} is worse by {metric.effect_text(most.difference)}"
    findings = [f"The model needs {most.component.name} most: {worse}. {full}"]
    if most is not first:
        limit = _detected(measured, [first])
        findings.append(
            f"{sentence_case(first.component.name)} has a larger effect, {largest}, but it is not significant; {limit}."
        )
    return findings


def _head_findings(measured: AblationMeasurement) -> list[str]:
    heads = measured.heads
    harmful = [effect for effect in heads if effect.harmful]
    helpful = sum(effect.significant for effect in heads) - len(harmful)
    most = (harmful or heads)[0]
    largest = "largest significant effect" if harmful else "largest effect in this sample, which is not significant"
    better = f"; the model is significantly better without {helpful} of them" if helpful else ""
    return [
        f"{len(heads) - len(harmful)} of {len(heads)} heads can be ablated one at a time without a significant loss (at the 5% "
        f"level, corrected for {len(measured.effects)} components){better}.",
        f"Of the heads, {most.component.name} has the {largest}: {measured.metric.effect_text(most.difference)}. "
        f"{sentence_case(_detected(measured, heads))}.",
    ]


def _detected(measured: AblationMeasurement, effects: Sequence[ComponentEffect]) -> str:
    """Detectable effects, corrected for the number of all components; those without any noise are left out.

    Over draws and texts if the ablation was repeated, else over texts.
    """
    metric, count = measured.metric, len(measured.effects)
    sizes = [
        gap.detectable(count) if gap.claimable else detectable_from_interval(gap.low, gap.high, comparisons=count)
        for gap in (effect.difference for effect in effects)
    ]
    return detection_text([size for size in sizes if size] or [math.inf], metric.written, f" {metric.unit}")


def ablation_sections(measured: AblationMeasurement, rows: Sequence[dict[str, Any]], ablation: str) -> list[Section]:
    """The effects (``rows`` of ``components.csv``) as figures and as a table; ``ablation`` is mean, zero or resample."""
    from warmstart.report.study_charts import effects_chart, heads_chart

    metric, figures = measured.metric, list[Figure]()
    axis = f"{metric.name}: worse by, in {metric.unit}"
    heads, others = ([row for row in rows if (row["type"] == "head") == is_head] for is_head in (True, False))
    for name, chosen in (("components", others), ("heads", heads)):
        largest = f", the {_BARS} largest effects" if len(chosen) > _BARS else ""
        caption = f"The effect of ablating one of the {name}{largest}, with 95% intervals over texts; pale: not significant."
        figures += [Figure(name, caption, effects_chart(chosen[:_BARS], axis))] if chosen else []
    if heads:
        caption = "All heads on one grid; a dot: significant after correction for the number of all components."
        figures.append(Figure("grid", caption, heads_chart(heads, axis)))
    text = f"The states of an ablated component are replaced by {_REPLACED_BY[ablation]}; blocks are skipped."
    unit = f"{sentence_case(metric.name)}: worse by, in {metric.unit}."
    return [Section("Effects", (text,), figures), Section("All components", (unit,), (effect_cells(measured),))]
