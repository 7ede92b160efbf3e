"""The result of ``study objectives``: pretraining objectives side by side, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.inspection.head_attention import RELATIONS
from warmstart.inspection.minimal_pairs import mean_accuracy
from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import limit_clause
from warmstart.stats.formatting import percent, percent_interval, points, points_range, sentence_case
from warmstart.stats.intervals import t_interval
from warmstart.studies.attention.result import PHRASES
from warmstart.studies.probe.result import coverage_findings, scores_table

if TYPE_CHECKING:
    from warmstart.studies.objectives.measure import ModelMeasures, ObjectiveMeasures


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


def objectives_result(objectives: Sequence[ObjectiveMeasures]) -> StudyResult:
    """All findings about the objectives."""
    probes = [probe for one in objectives for probe in one.probes]
    accuracies = {f"minimal_pairs_{name}": float(np.mean(values)) for name, values in _pair_accuracies(objectives).items()}
    return StudyResult(
        "Objectives side by side",
        objectives_findings(objectives),
        {"models": models_table(objectives)} | ({"probes": scores_table(probes)} if probes else {}),
        accuracies | {f"{probe.task.name}_{probe.model}": probe.best.accuracy.value for probe in probes},
        objectives_overview(objectives),
        list(objectives),
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
        figures.append(ModelFigure("minimal_pairs_percent", "minimal pairs (%)", _pairs_percent, ".1f", is_percentage=True))
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


def objectives_overview(objectives: Sequence[ObjectiveMeasures]) -> Summary:
    """One row per figure and probing task, one column per objective."""
    rows = [
        (figure.label, *(_over_seeds([figure.value(model) for model in one.models], figure) for one in objectives))
        for figure in model_figures(objectives)
    ]
    for number, probe in enumerate(objectives[0].probes):
        rows.append((f"probe: {probe.task.name}", *(percent_interval(*one.probes[number].best.accuracy) for one in objectives)))
    return Summary(("", *(one.name for one in objectives)), rows)


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


def _pair_accuracies(objectives: Sequence[ObjectiveMeasures]) -> dict[str, list[float]]:
    """The accuracy of each model on minimal pairs, by objective."""
    return {one.name: [mean_accuracy(model.pairs).value for model in one.models] for one in with_pairs(objectives)}


def _pairs_findings(objectives: Sequence[ObjectiveMeasures]) -> list[str]:
    """The best objective at minimal pairs compared with the second, and the objectives that cannot score sentences."""
    accuracies = _pair_accuracies(objectives)
    if not accuracies:
        return []
    first, *others = sorted(accuracies, key=lambda name: -float(np.mean(accuracies[name])))
    accuracy = percent(float(np.mean(accuracies[first])))
    if others:
        gap = t_interval([a - b for a, b in zip(accuracies[first], accuracies[others[0]], strict=True)])
        over = f"{points_range(gap.low, gap.high)} over {gap.count} seeds" if gap.count > 1 else "on one seed"
        significance = "" if gap.low > 0 else ", not significant" + limit_clause(gap.low, gap.high, gap.count)
        lead = f"{points(gap.mean)} against {others[0]} ({over}{significance})"
        best = f"Minimal pairs: {first} has the highest accuracy, {accuracy}, {lead}."
    else:
        best = f"Minimal pairs: {first} has an accuracy of {accuracy}; no other objective can score sentences."
    excluded = [one.name for one in objectives if one.name not in accuracies]
    return [best, *(f"Minimal pairs: {name} cannot score sentences, as it learned span corruption alone." for name in excluded)]


def _probe_finding(objectives: Sequence[ObjectiveMeasures], number: int) -> str:
    """The best objective at a probing task, chosen on validation, compared with the second."""
    ranked = sorted(objectives, key=lambda one: -one.probes[number].best.validation)
    best, second = (one.probes[number].best for one in ranked[:2])
    difference, low, high = best.difference(second)
    significance = "" if low > 0 else ", not significant" + limit_clause(low, high)
    return (
        f"{sentence_case(ranked[0].probes[number].task.name)}: {ranked[0].name} is best on validation; its test accuracy is "
        f"{percent_interval(*best.accuracy)}, {points(difference)} against {ranked[1].name} "
        f"({points_range(low, high)} over test sentences{significance})."
    )


def _heads_finding(objective: ObjectiveMeasures) -> str:
    """What more heads attend to than to anything else; nothing if none do, or if two relations have equally many."""
    fractions = {name: float(np.mean([model.heads[name] for model in objective.models])) for name in RELATIONS}
    first, second, *_ = sorted(fractions, key=lambda name: -fractions[name])
    if fractions[first] <= fractions[second]:
        return ""
    lead = t_interval([model.heads[first] - model.heads[second] for model in objective.models])
    count = f"{lead.count} models" if lead.count > 1 else "one model"
    limit = limit_clause(lead.low, lead.high, lead.count)
    significance = "" if lead.low > 0 else f" (not significant over {count}{limit})"
    return (
        f"{sentence_case(objective.name)}: {percent(fractions[first], 0)} of the heads attend to {PHRASES[first]}, more than to "
        f"any other kind of token{significance}."
    )
