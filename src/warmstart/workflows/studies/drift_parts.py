"""The parts of ``study drift`` that look at the model itself: its states, its weights, its attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from warmstart.analysis.activations import layer_names, with_random_weights
from warmstart.analysis.divergence import Divergence, attention_moved, heads_apart
from warmstart.analysis.drift import Sample, cka, cosines, grid, jackknifed, kernel, token_states, weight_changes
from warmstart.analysis.probe import clustered
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.drift import grid_chart, weights_chart
from warmstart.report.map import layers_chart
from warmstart.workflows.studies.conclude import Part
from warmstart.workflows.studies.wording import around, layer_name

AFTER, RANDOM, COSINE = "before and after", "before and random weights", "cosine of a token with itself"
LAYERS = ("layer", "CKA with before (95 %)", "random weights", "cosine")
DRAWS = 3
"""backbones of random weights whose mean stands beside"""
APART = 40
"""passages over which all pairs of heads are compared"""


def states_part(before: Bundle, after: Bundle, sample: Sample, seed: int) -> Part:
    """CKA of every layer with every layer, beside draws of random weights; cosines of tokens with themselves."""
    names, starts = layer_names(before), sample.starts
    old, new = token_states(before, sample), token_states(after, sample)
    everything, layers = grid(old, new, starts), range(len(names))
    own = everything[layers, layers]
    own[[np.array_equal(old[:, layer], new[:, layer]) for layer in layers]] = 1.0  # not but for a rounding
    floor = np.mean([_random(before, old, sample, seed + draw) for draw in range(DRAWS)], axis=0)
    alike = cosines(old, new)
    kept = {
        AFTER: [_likeness(one) for one in own],
        RANDOM: [_likeness(one) for one in floor],
        COSINE: [clustered(alike[:, layer].astype(float), sample.owners) for layer in layers],
    }
    lines = [(line, names[layer], *said) for line, rows in kept.items() for layer, said in enumerate(rows)]
    cells = [
        {"x": names[j], "y": names[i]} | dict(zip(("value", "low", "high"), _likeness(everything[i, j]), strict=True))
        for i in layers
        for j in layers
    ]
    header = ["before", "against", "layer", "cka", "low", "high"]
    rows = [(cell["y"], "after", cell["x"], *(cell[name] for name in ("value", "low", "high"))) for cell in cells]
    rows += [(name, "random weights", name, *said) for name, said in zip(names, kept[RANDOM], strict=True)]
    columns = zip(names, *kept.values(), strict=True)
    table = [(name, around(*said), f"{low[0]:.3f}", f"{turn[0]:.3f}") for name, said, low, turn in columns]
    cosine = [(name, *said) for name, said in zip(names, kept[COSINE], strict=True)]
    figures = (
        Figure(
            "layers", "Unbiased linear CKA with 95 % intervals over passages (jackknife), and cosines.", layers_chart(lines, "")
        ),
        Figure("grid", "CKA of every layer before with every layer after.", grid_chart(cells, ("after", "before"), "CKA")),
    )
    text = (
        f"{len(old):,} tokens of {len(starts):,} passages. CKA is 1 where states are the old ones turned, mirrored or scaled; the "
        f"cosine falls for these too. Random weights: backbones of the same shape that have learned nothing, the mean of {DRAWS} "
        "draws; its interval is over passages alone.",
    )
    return Part(
        _changed(names, own, floor),
        (Section("States", text, (*figures, Table(LAYERS, table))),),
        {
            "cka": pl.DataFrame(rows, schema=header, orient="row").fill_nan(None),
            "cosines": pl.DataFrame(cosine, schema=["layer", "cosine", "low", "high"], orient="row"),
        },
        (("CKA of the last layer", f"{own[-1, 0]:.3f}"), ("random weights", f"{floor[-1, 0]:.3f}")),
        (table, LAYERS),
    )


def _random(before: Bundle, old: np.ndarray, sample: Sample, seed: int) -> np.ndarray:
    """(L + 1, 1 + N) CKA of each layer of the states (n, L + 1, D) with one draw of random weights."""
    drawn, starts = token_states(with_random_weights(before, seed), sample), sample.starts
    return np.stack([cka(kernel(old[:, at], starts), kernel(drawn[:, at], starts)) for at in range(old.shape[1])])


def _changed(names: Sequence[str], own: np.ndarray, floor: np.ndarray) -> list[str]:
    """Which layers changed most and least, and whether upper ones changed more; from CKA (L + 1, 1 + N)."""
    from scipy import stats

    if np.isnan(own).any() or np.isnan(floor).any():
        return ["likeness cannot be told: at some layer all tokens of this text have one state"]
    still = [layer_name(name) for name, values in zip(names, own, strict=True) if (values == 1).all()]
    if len(still) == len(names):
        return ["no layer changed: the states of all tokens are the same, bit for bit"]
    most, least = int(own[:, 0].argmin()), int(own[:, 0].argmax())
    way, way_low, way_high = 100 * np.array(jackknifed((1 - own[most]) / (1 - floor[most])))
    gap = jackknifed(own[least] - own[most])
    doubt = "" if gap[1] > 0 else ", which shows nothing"
    calm = f"{layer_name(names[least])} changed least, with a CKA of {around(*_likeness(own[least]))}: {around(*gap)} more{doubt}"
    said = [
        f"{layer_name(names[most])} changed most: unbiased linear CKA with what it was is {around(*_likeness(own[most]))}; random "
        f"weights have {around(*_likeness(floor[most]))} there (mean of {DRAWS} draws): it went {way:.0f} % ({way_low:.0f} to "
        f"{way_high:.0f}) of the way to them",
        f"the same bit for bit: {', '.join(still)}" if still else calm,
    ]
    half = len(own) // 2
    low, high = own[:half].mean(axis=0), own[-half:].mean(axis=0)
    gap, rank = jackknifed(low - high), float(stats.spearmanr(np.arange(len(own)), -own[:, 0]).statistic)
    verb = "changed less" if gap[1] > 0 else "changed more" if gap[2] < 0 else "are not seen to have changed more or less"
    return [
        *said,
        f"lower layers {verb} than upper ones: CKA is {low[0]:.3f} in the lower half and {high[0]:.3f} in the upper, a "
        f"difference of {around(*gap)}; Spearman's correlation of depth and change is {rank:+.2f} over {len(own)} layers: few, and "
        "each built on the one below, so this describes one model and proves no rule",
    ]


def _likeness(values: np.ndarray) -> tuple[float, float, float]:
    """CKA with its interval, from values (1 + N,); it is never more than 1."""
    mean, low, high = jackknifed(values)
    return mean, low, min(high, 1.0)


def weights_part(before: Bundle, after: Bundle) -> Part:
    """How far the weights of each part of each block went, as a share of their length."""
    changes = weight_changes(before, after)
    inside = [(one.part, str(one.block), one.relative) for one in changes if one.block]
    rows = [(_place(one.part, one.block), f"{one.size:.3f}", f"{100 * one.relative:.2f} %") for one in changes]
    named = [one for one in changes if one.relative == one.relative]
    top = max(named, key=lambda one: one.relative)
    findings = ["no weight changed that both models have"]
    if top.relative:
        rest = float(np.sqrt(sum(one.moved**2 for one in named) / sum(one.size**2 for one in named)))
        findings = [
            f"weights went furthest in {_place(top.part, top.block)}: by {100 * top.relative:.2f} % of their length; all that both "
            f"models have went by {100 * rest:.2f} % (exact, nothing is drawn)"
        ]
    text = ("||after - before|| / ||before||, LoRA folded in; adapters and other new parts have no counterpart and do not count.",)
    figure = Figure("weights", "How far the weights of each block went.", weights_chart(inside))
    section = Section("Weights", text, (figure, Table(("part", "length before", "change"), rows)))
    data = [(one.part, one.block, one.size, one.moved, one.relative) for one in changes]
    header = ["part", "block", "size", "moved", "relative"]
    return Part(findings, (section,), {"weights": pl.DataFrame(data, schema=header, orient="row").fill_nan(None)})


def _place(part: str, block: int | None) -> str:
    return f"block {block}, {part}" if block else f"the {part}"


def attention_part(before: Bundle, after: Bundle, sample: Sample, seed: int) -> Part:
    """How far each head's attention went, beside how far two heads of one layer lie apart."""
    gone = attention_moved(before, after, sample.encoded)
    apart = heads_apart(before, sample.encoded.take(np.arange(min(APART, len(sample.encoded)))))
    (mean, low, high), (between, *ends) = gone.interval(seed), apart.interval(seed)
    cells = [
        {"x": j + 1, "y": i + 1, "value": float(mean[i, j]), "low": float(low[i, j]), "high": float(high[i, j])}
        for i, j in np.ndindex(mean.shape)
    ]
    if np.isnan(mean).any():
        return Part(["attention has no choice anywhere in this text: no token sees a second one"])
    i, j = np.unravel_index(mean.argmax(), mean.shape)
    beside = "" if np.isnan(between).any() else f"; two heads of one layer lie {_whole(apart, seed)} apart before"
    findings = [
        f"attention moved by {_whole(gone, seed)} bits on average over heads and tokens (Jensen-Shannon, 0 to 1), most in layer "
        f"{i + 1}, head {j + 1}: {around(float(mean[i, j]), float(low[i, j]), float(high[i, j]))}{beside}"
    ]
    if not mean.any():
        findings = [f"attention did not move: every head looks where it looked{beside}"]
    rows = [
        (str(layer + 1), f"{mean[layer].mean():.3f}", f"{mean[layer].max():.3f}",
         around(*(float(one[layer, 0]) for one in (between, *ends))))
        for layer in range(len(mean))
    ]  # fmt: skip
    header = ["layer", "head", "divergence", "low", "high", "heads_apart"]
    data = [(c["y"], c["x"], c["value"], c["low"], c["high"], float(between[int(c["y"]) - 1, 0])) for c in cells]
    text = ("Jensen-Shannon divergence in bits over tokens that see more than one; intervals: passages drawn again.",)
    chart = grid_chart(cells, ("head", "layer"), "bits", max(float(mean.max()), 0.05))
    table = Table(("layer", "mean over heads", "most", "two heads apart (95 %)"), rows)
    return Part(
        findings,
        (Section("Attention", text, (Figure("attention", "How far each head's attention went.", chart), table)),),
        {"attention": pl.DataFrame(data, schema=header, orient="row").fill_nan(None)},
    )


def _whole(one: Divergence, seed: int) -> str:
    return around(*(float(value[0, 0]) for value in one.over_all.interval(seed)))
