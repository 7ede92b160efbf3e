"""What ``study diff`` reports: which layers, weights, heads, neighbours and probes changed, and whether language got worse.

Letters: N passages, L depth, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from warmstart.report.result import StudyResult, Summary, combine_results
from warmstart.stats.comparison import USEFUL, detection_text, limit_clause
from warmstart.stats.correlation import spearman
from warmstart.stats.formatting import (
    figure_interval,
    layer_name,
    percent,
    percent_interval,
    percent_range,
    points_interval,
    sentence_case,
)
from warmstart.stats.intervals import Estimate
from warmstart.stats.power import detectable_from_interval
from warmstart.stats.resampling import cluster_bootstrap, jackknife

if TYPE_CHECKING:
    from warmstart.studies.diff.measure import (
        AttentionDiff,
        LanguageDiff,
        ModelDiff,
        NeighbourDiff,
        ProbeDiff,
        StateDiff,
        WeightDiff,
    )

_RANDOM = "random weights"


class LayerSimilarity(NamedTuple):
    """How similar one layer is to itself in the other model."""

    name: str
    cka: Estimate
    random_cka: Estimate
    """of the layer before with backbones of random weights"""
    cosine: Estimate
    """of a token with itself"""


@dataclass(frozen=True)
class DiffDetails:
    """The arrays of ``study diff``, and the estimates made of them."""

    measured: ModelDiff
    layers: Sequence[LayerSimilarity]
    neighbours: Sequence[tuple[str, str, float, float, float]]
    """what is compared, the space, and the fraction of neighbours in common with its interval"""


def diff_result(measured: ModelDiff, names: tuple[str, str], text_name: str, seed: int) -> StudyResult:
    """The result of a comparison of two models ``names``; ``text_name`` says on which text language was measured."""
    parts = [
        states := _state_result(measured.states),
        _language_result(measured.language, text_name),
        _weight_result(measured.weights),
        _attention_result(measured.attention, seed),
        neighbours := _neighbour_result(measured),
    ]
    if measured.probes:
        parts.append(_probe_result(measured.probes))
    details = DiffDetails(measured, states.details, neighbours.details)
    probe = "the same command with --tasks FOLDER probes what each layer of both models encodes about sentences."
    whole = combine_results(f"Differences: from {names[0]} to {names[1]}", parts)
    return replace(whole, details=details, next_step="" if measured.probes else probe)


def _state_result(states: StateDiff) -> StudyResult:
    indices = np.arange(len(states.layers))
    cka = states.cka[indices, indices]  # (L + 1, 1 + N) of each layer with itself
    cka[states.identical] = 1.0  # whatever is rounded
    rows = zip(states.layers, cka, states.random_cka, states.cosines.T, strict=True)
    layers = [
        LayerSimilarity(name, _cka_interval(own), _cka_interval(random), cluster_bootstrap(cosines.astype(float), states.owners))
        for name, own, random, cosines in rows
    ]
    cosines = pl.DataFrame([(one.name, *one.cosine) for one in layers], schema=["layer", "cosine", "low", "high"], orient="row")
    cells = [(one.name, figure_interval(*one.cka), f"{one.random_cka.value:.3f}", f"{one.cosine.value:.3f}") for one in layers]
    return StudyResult(
        "Hidden states",
        _state_findings(states, cka),
        {"cka": _cka_table(states, layers), "cosines": cosines},
        {"cka_last_layer": layers[-1].cka.value, "random_cka_last_layer": layers[-1].random_cka.value},
        Summary(("layer", "CKA with before (95%)", _RANDOM, "cosine"), cells),
        layers,
    )


def _cka_interval(values: np.ndarray) -> Estimate:
    """CKA from values (1 + N,), of all passages and with each left out; the interval ends at 1."""
    value, low, high = jackknife(values)
    return Estimate(value, low, min(high, 1.0))


def _cka_table(states: StateDiff, layers: Sequence[LayerSimilarity]) -> pl.DataFrame:
    names = states.layers
    rows = [
        (before, "after", after, *_cka_interval(states.cka[i, j]))
        for i, before in enumerate(names)
        for j, after in enumerate(names)
    ]
    rows += [(layer.name, _RANDOM, layer.name, *layer.random_cka) for layer in layers]
    header = ["before", "compared_with", "layer", "cka", "low", "high"]
    return pl.DataFrame(rows, schema=header, orient="row").fill_nan(None)


def _state_findings(states: StateDiff, cka: np.ndarray) -> list[str]:
    """Which layers changed most and least, and whether upper ones changed more; from CKA (L + 1, 1 + N)."""
    names, random = states.layers, states.random_cka
    if np.isnan(cka).any() or np.isnan(random).any():
        return ["CKA is undefined: at some layer all tokens of this text have the same state."]
    identical = [layer_name(name) for name, values in zip(names, cka, strict=True) if (values == 1).all()]
    if len(identical) == len(names):
        return ["No layer changed: the states of all tokens are identical to the last bit."]
    most, least = int(cka[:, 0].argmin()), int(cka[:, 0].argmax())
    way, low, high = jackknife((1 - cka[most]) / (1 - random[most]))
    gap, passages = jackknife(cka[least] - cka[most]), cka.shape[1] - 1
    doubt = "" if gap.low > 0 else ", which is not significant" + _limit(gap, passages)
    least_changed = (
        f"{sentence_case(layer_name(names[least]))} changed least here: its CKA is {figure_interval(*_cka_interval(cka[least]))}, "
        f"{figure_interval(*gap)} higher{doubt}."
    )
    own, with_random = (figure_interval(*_cka_interval(values[most])) for values in (cka, random))
    return [
        f"{sentence_case(layer_name(names[most]))} changed most on this text: its unbiased linear CKA with the same layer before "
        f"is {own}. Random weights have {with_random} there (mean of {states.random_draws} draws), so it went {percent(way, 0)} "
        f"({percent_range(low, high, digits=0)}) of the way to them.",
        f"Identical to the last bit: {', '.join(identical)}." if identical else least_changed,
        _halves_finding(cka),
    ]


def _limit(gap: Estimate, count: int | None = None) -> str:
    """Which difference would have been detected, if this one is not significant; ``count`` passages, for Student's t."""
    return limit_clause(gap.low, gap.high, count, "{:.3f}".format)


def _halves_finding(cka: np.ndarray) -> str:
    """Whether lower layers changed less than upper ones; from CKA (L + 1, 1 + N)."""
    half = len(cka) // 2
    lower, upper = cka[:half].mean(axis=0), cka[-half:].mean(axis=0)
    gap, rank = jackknife(lower - upper), spearman(np.arange(len(cka)), -cka[:, 0])
    verdict = "Lower and upper layers do not differ significantly"
    if gap.low > 0 or gap.high < 0:
        verdict = f"Lower layers changed {'less' if gap.low > 0 else 'more'} than upper layers"
    return (
        f"{verdict}: mean CKA is {lower[0]:.3f} in the lower half and {upper[0]:.3f} in the upper half, a difference of "
        f"{figure_interval(*gap)}{_limit(gap, cka.shape[1] - 1)}. Spearman's correlation of depth and change is {rank:+.2f} over "
        f"{len(cka)} layers; each layer builds on the one below, so this describes one model and proves no rule."
    )


def _language_result(language: LanguageDiff | None, text_name: str) -> StudyResult:
    if language is None:
        finding = "Language loss was not measured: the first model was not trained to predict plain text."
        return StudyResult("Language loss", [finding])
    counts = language.counts
    means = [float((one * counts).sum() / counts.sum()) for one in (language.before, language.after)]
    figures = dict(zip(("loss_before", "loss_after"), means, strict=True))
    findings = [_language_finding(language, means, text_name)]
    if language.causal:
        tokens_per_word = counts.sum() / max(1, language.words)
        before, after = (math.exp(min(mean * tokens_per_word, 700)) for mean in means)
        figures |= {"word_perplexity_before": before, "word_perplexity_after": after}
        findings.append(f"Word perplexity is {before:,.1f} before and {after:,.1f} after.")
    table = pl.DataFrame({"tokens": counts, "before": language.before, "after": language.after})
    return StudyResult("Language loss", findings, {"language": table}, figures)


def _language_finding(language: LanguageDiff, means: Sequence[float], text_name: str) -> str:
    counts = language.counts
    owners = np.repeat(np.arange(len(counts)), counts)
    gap = cluster_bootstrap(np.repeat(language.after - language.before, counts), owners)
    verdict = "rose" if gap.low > 0 else "fell" if gap.high < 0 else "did not change significantly"
    head = "its own language head" if language.own_head else "the first model's language head"
    return (
        f"On {text_name} the second model's loss under {head} {verdict}: {means[0]:.3f} nats per "
        f"{'token' if language.causal else 'masked token'} before and {means[1]:.3f} after, a difference of "
        f"{figure_interval(*gap)} over {len(counts):,} passages{_limit(gap)}."
    )


def weight_name(part: str, block: int | None) -> str:
    """``"block 2, attention"``, or ``"the embedding"`` outside the blocks."""
    return f"block {block}, {part}" if block else f"the {part}"


def _weight_result(weights: Sequence[WeightDiff]) -> StudyResult:
    rows = [(one.part, one.block, one.norm, one.change, one.relative) for one in weights]
    header = ["part", "block", "norm", "change", "relative_change"]
    table = pl.DataFrame(rows, schema=header, orient="row").fill_nan(None)
    return StudyResult("Weights", [_weight_finding(weights)], {"weights": table})


def _weight_finding(weights: Sequence[WeightDiff]) -> str:
    known = [one for one in weights if not math.isnan(one.relative)]
    most = max(known, key=lambda one: one.relative)
    if not most.relative:
        return "No weight changed that both models have."
    overall = float(np.sqrt(sum(one.change**2 for one in known) / sum(one.norm**2 for one in known)))
    return (
        f"Weights changed most in {weight_name(most.part, most.block)}: by {percent(most.relative, 2)} of their norm. All weights "
        f"that both models have changed by {percent(overall, 2)} (exact values, not estimates)."
    )


def _attention_result(attention: AttentionDiff, seed: int) -> StudyResult:
    """One row a head, with its interval, and how far two heads of its layer differ before."""
    changes, between = attention.change.interval(seed), attention.between_heads.interval(seed)
    rows = [
        (i + 1, j + 1, *(float(one[i, j]) for one in changes), *(float(one[i, 0]) for one in between))
        for i, j in np.ndindex(changes[0].shape)
    ]
    ends = ["between_heads_low", "between_heads_high"]
    header = ["layer", "head", "divergence", "low", "high", "between_heads", *ends]
    heads = pl.DataFrame(rows, schema=header, orient="row").fill_nan(None)
    if heads["divergence"].null_count():
        return StudyResult("Attention", ["Attention cannot be compared: no token of this text attends to more than one."])
    return StudyResult("Attention", [_attention_finding(attention, heads, seed)], {"attention": heads})


def _attention_finding(attention: AttentionDiff, heads: pl.DataFrame, seed: int) -> str:
    overall, between = (
        figure_interval(*(float(one[0, 0]) for one in divergence.overall.interval(seed)))
        for divergence in (attention.change, attention.between_heads)
    )
    known = heads["between_heads"].null_count() == 0
    between_heads = f" Before, two heads of one layer differ by {between} bits." if known else ""
    if not (heads["divergence"] > 0).any():
        return f"Attention did not change: every head attends to the same tokens as before.{between_heads}"
    most = heads.row(int(heads["divergence"].arg_max() or 0), named=True)
    largest = figure_interval(most["divergence"], most["low"], most["high"])
    return (
        f"Attention changed by {overall} bits on average over heads and tokens (Jensen-Shannon divergence, 0 to 1), on this text "
        f"most in layer {most['layer']}, head {most['head']}: {largest}.{between_heads}"
    )


def _neighbour_result(measured: ModelDiff) -> StudyResult:
    words = measured.words.words
    if not measured.neighbours:
        finding = f"Neighbours were not compared: {len(words)} words occur often enough in the text, and 30 are needed."
        return StudyResult("Neighbours", [finding], details=[])
    everyone, shares = np.arange(len(words)), list[tuple[str, str, float, float, float]]()
    for one in measured.neighbours:
        shares.append(("before and after", one.space, *cluster_bootstrap(one.overlap, everyone)))
        if one.split_half is not None:
            shares.append(("before, other occurrences", one.space, *cluster_bootstrap(one.split_half, everyone)))
    last, findings = measured.neighbours[-1], [_neighbour_finding(one) for one in measured.neighbours]
    if order := most_changed(last):
        findings.append(
            f"Words whose neighbours at {last.space} changed most on this text: {', '.join(words[i] for i in order[:5])}."
        )
    figures = {"neighbour_overlap_last_layer": float(last.overlap.mean())}
    return StudyResult("Neighbours", findings, {"neighbours": _neighbour_table(measured)}, figures, details=shares)


def _neighbour_finding(neighbours: NeighbourDiff) -> str:
    """How many neighbours stay in one space, and whether that is fewer than other occurrences alone explain."""
    count, everyone = neighbours.before.shape[1], np.arange(len(neighbours.overlap))
    space = "In the static embedding" if neighbours.split_half is None else f"At {neighbours.space}"
    share = percent_interval(*cluster_bootstrap(neighbours.overlap, everyone))
    finding = f"{space}, {share} of each word's {count} nearest neighbours remain"
    if neighbours.split_half is not None:
        by_chance = percent(neighbours.split_half.mean())
        gap = cluster_bootstrap(neighbours.overlap - neighbours.split_half, everyone)
        verdict = "fewer than" if gap.high < 0 else "more than" if gap.low > 0 else "not significantly different from"
        interval = f"{points_interval(*gap)}{limit_clause(gap.low, gap.high)}"
        finding += f", {verdict} the {by_chance} that remain if only the occurrences change ({interval})"
    return f"{finding}; random neighbours would agree on {percent(count / (len(everyone) - 1))}."


def most_changed(neighbours: NeighbourDiff) -> list[int]:
    """The words of which some neighbour changed, the most changed first."""
    overlap = neighbours.overlap_of_all
    return [int(i) for i in np.argsort(overlap, kind="stable") if overlap[i] < 1]


def _neighbour_table(measured: ModelDiff) -> pl.DataFrame:
    words = measured.words

    def spelled(row: np.ndarray) -> str:
        return " ".join(words.words[i] for i in row)

    rows: list[dict[str, Any]] = [
        {
            "space": one.space, "word": word, "count": words.lexicon.counts[words.indices[i]], "overlap": one.overlap[i],
            "split_half_overlap": None if one.split_half is None else one.split_half[i], "overlap_of_all": overlap_of_all[i],
            "before": spelled(one.before[i]), "after": spelled(one.after[i]),
        }
        for one in measured.neighbours
        for overlap_of_all in [one.overlap_of_all]
        for i, word in enumerate(words.words)
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def _probe_result(probes: Sequence[ProbeDiff]) -> StudyResult:
    rows = list[dict[str, Any]]()
    for one in probes:
        for layer, before in one.before.items():
            after = one.after[layer]
            row = {"task": one.task, "layer": layer, "before": before.accuracy.value, "after": after.accuracy.value}
            gap = dict(zip(("difference", "low", "high"), after.difference(before), strict=True))
            rows.append(row | gap | {"items": len(before.sentences)})
    table = pl.DataFrame(rows)
    return StudyResult("Probes", [_probe_finding(one, table) for one in probes], {"probes": table})


def _probe_finding(probe: ProbeDiff, table: pl.DataFrame) -> str:
    rows = table.filter(pl.col("task") == probe.task, pl.col("layer").is_in(probe.layers)).to_dicts()
    better, worse = sum(row["low"] > 0 for row in rows), sum(row["high"] < 0 for row in rows)
    most = max(rows, key=lambda row: abs(row["difference"]))
    rest = [detectable_from_interval(row["low"], row["high"]) for row in rows if row["low"] <= 0 <= row["high"] != row["low"]]
    limit = f" Where a probe did not change significantly, {detection_text(rest, most=USEFUL)}." if rest else ""
    return (
        f"Task '{probe.task}': of {len(rows)} probes {better} are significantly better after than before and {worse} significantly "
        f"worse (at 95% each, {0.05 * len(rows):.1f} would be by chance); the largest change is at {layer_name(most['layer'])}, "
        f"{points_interval(most['difference'], most['low'], most['high'])}.{limit}"
    )
