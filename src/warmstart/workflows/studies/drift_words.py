"""The parts of ``study drift`` that look at what the model does: neighbours of words, probes, and what it forgot of language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from warmstart.analysis.ablate import Passages, losses
from warmstart.analysis.drift import speaking
from warmstart.analysis.moved import NEAREST, Common, Moved, moved
from warmstart.analysis.probe import clustered
from warmstart.analysis.probing import BAG, joined, probe
from warmstart.data.probing import Probing
from warmstart.heads import LanguageHead
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.drift import losses_chart, shares_chart
from warmstart.report.probe import probe_chart
from warmstart.types import IGNORE
from warmstart.workflows.studies.conclude import Part
from warmstart.workflows.studies.drift_parts import AFTER
from warmstart.workflows.studies.wording import around, layer_name, percent, points_of

HALVES = "before, other occurrences"
FEWEST = 3 * NEAREST
"""words without which neighbours mean little"""
SHOWN = 12
"""words in the table of those that moved"""
PROBES = 3
"""times each probe is fitted anew"""


def neighbours_part(before: Bundle, after: Bundle, common: Common) -> Part:
    """How many of each word's neighbours stay, beside how many stay when only the occurrences change."""
    words, most = common.words, NEAREST
    if len(words) < FEWEST:
        return Part([f"neighbours are not compared: {len(words)} words stand in the text often enough, and {FEWEST} are needed"])
    depth, everyone = before.model.backbone.config.depth, np.arange(len(words))
    spaces = moved(before, after, common, sorted({(depth + 1) // 2, depth}))
    findings, points = list[str](), list[tuple[str, str, float, float, float]]()
    for one in spaces:
        same = clustered(one.same, everyone)
        points.append((AFTER, one.space, *same))
        said = f"{one.space}: of each word's {most} nearest among {len(words):,}, {percent(*same)} stay"
        if one.chance is not None:
            drawn, gap = clustered(one.chance, everyone), clustered(one.same - one.chance, everyone)
            points.append((HALVES, one.space, *drawn))
            verb = "fewer than" if gap[2] < 0 else "more than" if gap[1] > 0 else "not surely other than"
            said += f", {verb} the {100 * drawn[0]:.1f} % that stay when only the occurrences change ({points_of(*gap)})"
        findings.append(f"{said}; random neighbours would be the same for {100 * most / (len(words) - 1):.1f} %")
    last = spaces[-1]
    order = [int(place) for place in np.argsort(last.stayed, kind="stable") if last.stayed[place] < 1][:SHOWN]
    table = [
        (words[place], f"{100 * last.stayed[place]:.0f} %", *(_named(words, side[place][:5]) for side in (last.before, last.after)))
        for place in order
    ]
    if order:
        findings.append(f"words whose neighbours at {last.space} changed most: {', '.join(words[place] for place in order[:5])}")
    text = (
        "A word in context is the mean of half of its occurrences, the same half in both models; other occurrences: the other "
        f"half, in the first model. The table is of {last.space} and of all occurrences, with the first five neighbours.",
    )
    figure = Figure("neighbours", "Neighbours that stay.", shares_chart(points, f"of {most} neighbours, the same"))
    items = (figure, Table(("word", "stay", "near it before", "after"), table))
    tiles = [(f"neighbours that stay, {last.space}", f"{100 * last.same.mean():.0f} %")]
    return Part(findings, (Section("Neighbours", text, items),), {"neighbours": _neighbours(spaces, common)}, tiles)


def _neighbours(spaces: Sequence[Moved], common: Common) -> pl.DataFrame:
    words = common.words
    rows: list[dict[str, Any]] = [
        {
            "space": one.space, "word": word, "count": common.lexicon.counts[common.places[place]], "same": one.same[place],
            "by_chance": None if one.chance is None else one.chance[place], "stayed": one.stayed[place],
            "before": _named(words, one.before[place]), "after": _named(words, one.after[place]),
        }
        for one in spaces
        for place, word in enumerate(words)
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def _named(words: Sequence[str], places: np.ndarray) -> str:
    return " ".join(words[place] for place in places)


def probes_part(before: Bundle, after: Bundle, tasks: Sequence[Probing], seed: int) -> Part:
    """What linear probes tell of every layer after, less what they told before, on the same test items."""
    if not tasks:
        return Part()
    findings, rows = list[str](), list[dict[str, Any]]()
    for task in tasks:
        fits = range(seed, seed + PROBES)
        old, new = (joined([probe(bundle, task, "linear", fits)]) for bundle in (before, after))
        gaps = {layer: new[layer].above(old[layer]) for layer in old}
        for layer, gap in gaps.items():
            row = {"task": task.name, "layer": layer, "before": old[layer].share[0], "after": new[layer].share[0]}
            rows.append(row | dict(zip(("difference", "low", "high"), gap, strict=True)) | {"items": len(old[layer].groups)})
        inside = {layer: gap for layer, gap in gaps.items() if layer != BAG}
        up, down = sum(gap[1] > 0 for gap in inside.values()), sum(gap[2] < 0 for gap in inside.values())
        far = max(inside, key=lambda layer: abs(inside[layer][0]))
        findings.append(
            f"{task.name}: of {len(inside)} readings {up} surely tell more than before and {down} surely less (95 % each: "
            f"{0.05 * len(inside):.1f} would by chance); most changed is {layer_name(far)}, by {points_of(*inside[far])}"
        )
    drawn = [(r["task"], "after - before", r["layer"], r["difference"], r["low"], r["high"]) for r in rows if r["layer"] != BAG]
    layers = list(dict.fromkeys(row[2] for row in drawn))
    chart = probe_chart(drawn, layers, [(task.name, "no change", 0.0) for task in tasks], "+.0%")
    caption = "Share of test items a linear probe tells, after less before, with 95 % intervals over sentences."
    cells = [
        (r["task"], r["layer"], f"{100 * r['before']:.1f} %", f"{100 * r['after']:.1f} %",
         points_of(r["difference"], r["low"], r["high"]))
        for r in rows
    ]  # fmt: skip
    items = (Figure("probes", caption, chart), Table(("task", "layer", "before", "after", "difference (95 %)"), cells))
    return Part(findings, (Section("Probes", (), items),), {"probes": pl.DataFrame(rows)})


def language_part(before: Bundle, after: Bundle, passages: Passages | None, where: str) -> Part:
    """What the second model forgot of language: the loss of the same tokens of the same passages under both."""
    if passages is None:
        return Part(["what was forgotten of language is not told: the model before never learned to predict plain text"])
    pad, counts = before.tokenizer.specials.pad, passages.counts
    old, new = (losses(model, passages, pad) / counts for model in (before.model, speaking(before, after)))
    owners = np.repeat(np.arange(len(counts)), counts)
    gap = clustered(np.repeat(new - old, counts), owners)
    means = [float((one * counts).sum() / counts.sum()) for one in (old, new)]
    verb = "lost" if gap[1] > 0 else "gained" if gap[2] < 0 else "is not seen to have lost"
    head = "its own language head" if isinstance(after.model.head, LanguageHead) else "the language head from before"
    causal = passages.causal
    findings = [
        f"on {where} the backbone {verb} {abs(gap[0]):.3f} nats per {'token' if causal else 'hidden token'} under {head}: "
        f"{means[0]:.3f} before, {means[1]:.3f} after, a difference of {around(*gap)} over {len(counts):,} passages"
    ]
    rows: list[tuple[str, ...]] = [("loss, nats per token", f"{means[0]:.4f}", f"{means[1]:.4f}")]
    if causal:
        text = [before.tokenizer.decode(row[row != IGNORE].tolist()) for row in passages.targets]
        each = counts.sum() / max(1, sum(len(one.split()) for one in text))
        spelled = [f"{math.exp(min(mean * each, 700)):,.1f}" for mean in means]
        findings.append(f"word perplexity there is {spelled[0]} before and {spelled[1]} after")
        rows.append(("word perplexity", *spelled))
    points = list(zip(counts.tolist(), old.tolist(), new.tolist(), strict=True))
    figure = Figure("language", "Every passage's loss before and after; dashed: no change.", losses_chart(points))
    data = pl.DataFrame(points, schema=["tokens", "before", "after"], orient="row")
    section = Section("What was forgotten of language", (), (figure, Table(("figure", "before", "after"), rows)))
    return Part(findings, (section,), {"language": data}, [("loss before, after", f"{means[0]:.3f}, {means[1]:.3f}")])
