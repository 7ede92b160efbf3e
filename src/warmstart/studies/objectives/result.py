"""The result of ``study objectives``: pretraining objectives side by side.

Accuracies on minimal pairs and of probes have an interval over seeds (models) and over pairs or sentences, and one over seeds
alone; of other figures only each model's mean is known, so their intervals are over seeds alone. The best objective is chosen with
the models that are then compared, so p-values are corrected for all pairs of objectives (Holm 1979).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.inspection.head_attention import RELATIONS
from warmstart.inspection.minimal_pairs import mean_accuracy
from warmstart.inspection.probe_scores import best_layer
from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import MethodResult, compare_pairs, detection_limit
from warmstart.stats.differences import MethodScores, score_of_choice
from warmstart.stats.formatting import INTERVAL_OVER, percent, rows_by_source, sentence_case
from warmstart.stats.intervals import Interval, t_interval
from warmstart.studies.attention.result import PHRASES
from warmstart.studies.probe.result import coverage_findings, scores_table

if TYPE_CHECKING:
    from warmstart.studies.objectives.measure import ModelMeasures, ObjectiveMeasures

PAIRS_PERCENT = "minimal_pairs_percent"
"""the column of the accuracy on minimal pairs"""


@dataclass(frozen=True)
class ModelFigure:
    """A figure that every model has."""

    column: str
    """its name in ``models.csv``"""
    label: str
    """its name on the page"""
    value: Callable[[ModelMeasures], float]
    form: str
    """format of the value"""
    is_percentage: bool = False


def objectives_result(objectives: Sequence[ObjectiveMeasures], equal: str = "tokens") -> StudyResult:
    """All findings about the objectives; ``equal`` is what their models had alike, tokens or time."""
    probes = [probe for one in objectives for probe in one.probes]
    accuracies = {f"minimal_pairs_{one.name}": one.interval.mean for one in pair_accuracies(objectives)}
    return StudyResult(
        "Objectives side by side",
        [*objectives_findings(objectives), *([_tokens_of_equal_time(objectives)] if equal == "time" else [])],
        {"models": models_table(objectives)} | ({"probes": scores_table(probes)} if probes else {}),
        accuracies | {f"{probe.task.name}_{probe.model}": probe.best.accuracy.value for probe in probes},
        objectives_overview(objectives),
        list(objectives),
        "`warmstart pretrain --objective NAME` trains by the one that you choose on all of your text.",
    )


def with_pairs(objectives: Sequence[ObjectiveMeasures]) -> list[ObjectiveMeasures]:
    """The objectives whose models can score the sentences of minimal pairs."""
    return [one for one in objectives if one.models[0].pairs]


def model_figures(objectives: Sequence[ObjectiveMeasures]) -> list[ModelFigure]:
    """The figures of each model that can be compared."""
    figures = [
        ModelFigure("tokens", "tokens", lambda model: model.tokens, ",.0f"),
        ModelFigure("seconds", "seconds", lambda model: model.seconds, ",.0f"),
    ]
    for name in dict.fromkeys(name for one in objectives for name in one.models[0].held_out):
        if name.endswith(("loss", "word_perplexity")):
            column, label = f"held_out_{name.replace(' ', '_')}", f"held-out {name.replace('_', ' ')}"
            figures.append(ModelFigure(column, label, partial(_held_out, name), ".1f" if "perplexity" in name else ".3f"))
    if with_pairs(objectives):
        figures.append(ModelFigure(PAIRS_PERCENT, "minimal pairs (%)", _pairs_percent, ".1f", is_percentage=True))
    figures.append(ModelFigure("normalized_entropy", "normalized attention entropy", lambda model: model.normalized_entropy, ".2f"))
    for name in RELATIONS:
        label = f"heads on {PHRASES[name]} (%)"
        figures.append(ModelFigure(f"heads_{name}_percent", label, partial(_heads_percent, name), ".0f", is_percentage=True))
    return figures


def _held_out(name: str, model: ModelMeasures) -> float:
    return model.held_out.get(name, float("nan"))


def _pairs_percent(model: ModelMeasures) -> float:
    return 100 * mean_accuracy(model.pairs).value if model.pairs else float("nan")


def _heads_percent(name: str, model: ModelMeasures) -> float:
    return 100 * model.heads[name]


def models_table(objectives: Sequence[ObjectiveMeasures]) -> pl.DataFrame:
    """One row per model."""
    figures = model_figures(objectives)
    rows = [
        {"objective": one.name, "model": number, **{figure.column: figure.value(model) for figure in figures}}
        for one in objectives
        for number, model in enumerate(one.models)
    ]
    return pl.DataFrame(rows)


def pair_accuracies(objectives: Sequence[ObjectiveMeasures]) -> list[MethodResult]:
    """The accuracy on minimal pairs of each objective that can score sentences; every group of pairs counts alike."""
    scored = with_pairs(objectives)
    sizes = [len(group.right) for group in scored[0].models[0].pairs] if scored else []
    weights = np.repeat(1 / np.array(sizes), sizes)
    rights = [np.array([np.concatenate([group.right for group in model.pairs]) for model in one.models]) for one in scored]
    return [_method(one.name, right, weights=weights) for one, right in zip(scored, rights, strict=True)]


def probe_accuracies(objectives: Sequence[ObjectiveMeasures], number: int) -> list[MethodResult]:
    """The accuracy of each objective's best probe on a task, with one fit for every model."""
    probes = [(one.name, one.probes[number].best) for one in objectives]
    return [_method(name, best.correct, best.sentences) for name, best in probes]


def _method(name: str, right: np.ndarray, groups: np.ndarray | None = None, weights: np.ndarray | None = None) -> MethodResult:
    """From what each model (S, N) gets right."""
    scores = MethodScores.from_texts(name, right, groups, weights)
    return MethodResult(name, scores.scores, resampled=scores.resampled)


def objectives_overview(objectives: Sequence[ObjectiveMeasures]) -> Summary:
    """One row per figure and probing task, one column per objective; the second column says what an interval covers."""
    seeds = len(objectives[0].models)
    names = [one.name for one in objectives]
    rows = [
        (
            figure.label,
            "seeds" if seeds > 1 else "-",
            *(_over_seeds([figure.value(model) for model in one.models], figure) for one in objectives),
        )
        for figure in model_figures(objectives)
        if figure.column != PAIRS_PERCENT
    ]
    if found := pair_accuracies(objectives):
        rows += _accuracy_rows("minimal pairs", found, names, "pairs")
    for number, probe in enumerate(objectives[0].probes):
        found = probe_accuracies(objectives, number)
        rows += _accuracy_rows(f"probe: {probe.task.name}", found, names, "sentences")
    return Summary(("", INTERVAL_OVER, *names), rows)


def _accuracy_rows(label: str, found: Sequence[MethodResult], names: Sequence[str], texts: str) -> list[tuple[str, ...]]:
    """An accuracy over both sources of chance, and below it over seeds alone if there are several; a dash where there is none."""
    known = {one.name: one for one in found}
    both = [str(known[name].interval) if name in known else "-" for name in names]
    alone = [known[name].over_seeds.ends if name in known else "-" for name in names]
    return rows_by_source(label, len(found[0].scores), both, alone, texts)


def _over_seeds(values: Sequence[float], figure: ModelFigure) -> str:
    """The mean over models, with its interval if there are several different values; a dash if a model has no such figure."""
    if np.isnan(values).any():
        return "-"
    mean = t_interval(values).within(0, 100) if figure.is_percentage else t_interval(values)
    if len(values) < 2 or mean.low == mean.high:
        return format(mean.mean, figure.form)
    return f"{mean.mean:{figure.form}} ({mean.low:{figure.form}} to {mean.high:{figure.form}})"


def objectives_findings(objectives: Sequence[ObjectiveMeasures]) -> list[str]:
    """Which objective is best at minimal pairs and at every probing task, and what the heads of each attend to most."""
    findings = _pairs_findings(objectives)
    findings += [_probe_finding(objectives, number) for number in range(len(objectives[0].probes))]
    findings += coverage_findings([probe for one in objectives for probe in one.probes])
    findings += [sentence for one in objectives if (sentence := _heads_finding(one))]
    return findings or ["Nothing was measured that compares the objectives; give --tasks, --words or --pairs."]


def _tokens_of_equal_time(objectives: Sequence[ObjectiveMeasures]) -> str:
    """What each objective read in the same time."""
    (first, tokens), *others = [(one.name, one.models[0].tokens) for one in objectives]
    read = ", ".join(f"{count:,} ({name})" for name, count in others)
    return f"Each objective had the processor time that {first} took for {tokens:,} tokens; tokens read in that time: {read}."


def _pairs_findings(objectives: Sequence[ObjectiveMeasures]) -> list[str]:
    """The best objective at minimal pairs compared with the second, and the objectives that cannot score sentences."""
    ranked = sorted(pair_accuracies(objectives), key=lambda one: -one.interval.mean)
    if not ranked:
        return []
    first = ranked[0]
    if len(ranked) > 1:
        highest = f"{first.interval}; as the highest of {len(ranked)}, it is too high on average"
        best = f"Minimal pairs: {first.name} has the highest accuracy, {highest}. {_lead(ranked, 'the pairs')}"
    else:
        best = f"Minimal pairs: {first.name} has an accuracy of {first.interval}; no other objective can score sentences."
    excluded = [one.name for one in objectives if one.name not in [one.name for one in ranked]]
    return [best, *(f"Minimal pairs: {name} cannot score sentences, as it learned span corruption alone." for name in excluded)]


def _lead(ranked: Sequence[MethodResult], texts: str) -> str:
    """The first of the objectives compared with the second, as one of all pairs of objectives; one seed claims nothing."""
    compared = compare_pairs([*combinations(ranked, 2)], texts)  # the first pair is the first two
    corrected = f" p is corrected for all {len(compared)} pairs of objectives, as the best is chosen with the same models."
    return compared[0].sentence + (corrected if len(compared) > 1 and compared[0].difference.claimable else "")


def _probe_finding(objectives: Sequence[ObjectiveMeasures], number: int) -> str:
    """The best objective at a probing task, chosen on validation, compared with the second."""
    order = sorted(range(len(objectives)), key=lambda i: -objectives[i].probes[number].best.validation)
    found = probe_accuracies(objectives, number)
    ranked = [found[i] for i in order]
    task = sentence_case(objectives[0].probes[number].task.name)
    fair = ", where each model scores what the others choose" * (len(objectives[0].models) > 1)
    chosen = f"{ranked[0].name} is best on validation; its test accuracy is {score_of_best_probe(objectives, number)}{fair}"
    return f"{task}: {chosen}. {_lead(ranked, 'the test sentences')}"


def score_of_best_probe(objectives: Sequence[ObjectiveMeasures], number: int) -> Interval:
    """The test accuracy of the objective and layer that are best on validation, without the luck of the models that chose them.

    Each model scores the layer and the objective that are best on the validation items of the other models; with one model per
    objective it makes its own choice.
    """
    probes, models = [one.probes[number] for one in objectives], len(objectives[0].models)
    if models < 2:
        best = max((one.best for one in probes), key=lambda one: one.validation)
        return _method("", best.correct, best.sentences).interval
    chosen = list[MethodScores]()
    for model in range(models):
        layers = [best_layer(one.linear, without=model) for one in probes]
        best = layers[max(range(len(layers)), key=lambda i: layers[i].validation_without(model))]
        chosen.append(MethodScores.from_texts("", best.correct, best.sentences))
    return score_of_choice(chosen).within(0, 1)


def _heads_finding(objective: ObjectiveMeasures) -> str:
    """What more heads attend to than to anything else; nothing if none do, or if two relations have equally many.

    "More than to any other" is significant if it is so against each of the others.
    """
    found = [MethodResult(name, tuple(model.heads[name] for model in objective.models)) for name in RELATIONS]
    first, *others = sorted(found, key=lambda one: -one.interval.mean)
    if first.interval.mean <= others[0].interval.mean:
        return ""
    compared = compare_pairs([(first, other) for other in others])
    count = f"{len(objective.models)} models" if len(objective.models) > 1 else "one model"
    unclear = [one.difference for one in compared if not one.significant]
    limit = ""
    if known := [one for one in unclear if one.claimable]:
        limit = f" after correction for {len(others)} others; {detection_limit(known, len(others), bounded=True)}"
    significance = f" (not significant over {count}{limit})" if unclear else ""
    return (
        f"{sentence_case(objective.name)}: {percent(first.interval.mean, 0)} of the heads attend to {PHRASES[first.name]}, more "
        f"than to any other kind of token{significance}."
    )
