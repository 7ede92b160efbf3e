"""Objectives side by side: what was measured of every model, over seeds, and the page that shows it.

Letters: S seeds (models of an objective), P pairs, L depth, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from warmstart.analysis.activations import layer_names
from warmstart.analysis.attention import KINDS, MEASURES, looks_of
from warmstart.analysis.pairs import Judgement, judge, overall, score
from warmstart.analysis.probing import MIX
from warmstart.data.pairs import Pair
from warmstart.evaluate.seeds import interval
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.pairs import pairs_chart
from warmstart.workflows.studies.attention import SAID
from warmstart.workflows.studies.conclude import Study
from warmstart.workflows.studies.probe import Found, by_layer, readings_of, unfit
from warmstart.workflows.studies.wording import percent

BAR = 0.2
"""a head looks at something if it puts so much more weight there than uniform attention does"""


@dataclass(frozen=True)
class Insight:
    """What was measured of one model."""

    layers: list[str]
    held_out: dict[str, float]
    seconds: float
    tokens: int
    pairs: list[Judgement]
    """empty where there were none, or the model never learned to predict plain text"""
    evenness: float
    """of attention, 0 to 1, mean over heads"""
    heads: dict[str, float]
    """share of heads that look at each kind of token"""


@dataclass(frozen=True)
class Side:
    """One objective."""

    name: str
    models: Sequence[Insight]
    """(S,) one a seed"""
    probes: list[Found]
    """for each task, all seeds together"""

    def judged(self) -> list[Judgement]:
        """Groups of pairs, each pair's verdict the mean over seeds."""
        groups = zip(*(one.pairs for one in self.models), strict=True)
        return [replace(same[0], right=np.mean([one.right for one in same], axis=0)) for same in groups]


def insight_into(bundle: Bundle, pairs: Sequence[Pair], passages: Sequence[str]) -> Insight:
    """Measure a model just pretrained."""
    made = bundle.history[-1]
    sentences = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    judged = judge(pairs, score(bundle, sentences).by(per_token=False)) if pairs and bundle.likelihood else []
    looks, _ = looks_of(bundle, passages)
    heads = {kind: float((np.nan_to_num(looks.difference[:, :, MEASURES.index(kind)]) >= BAR).mean()) for kind in KINDS}
    even = float(np.nanmean(looks.means[:, :, MEASURES.index("evenness")]))
    return Insight(layer_names(bundle), made["held_out"], made["seconds"], made["tokens"], judged, even, heads)


def study_of(sides: Sequence[Side]) -> Study:
    """The whole study, ready to be printed and written."""
    measures = _measures(sides)
    header = ("", *(side.name for side in sides))
    rows = [
        (name, *(_over_seeds([of(one) for one in side.models], form, share=name.endswith("%")) for side in sides))
        for name, (of, form) in measures.items()
    ]
    for place, task in enumerate(one.task.name for one in sides[0].probes):
        rows.append((f"probe: {task}", *(percent(*side.probes[place].best.share) for side in sides)))
    found = [one for side in sides for one in side.probes]
    count = len(sides[0].models)
    said = (
        f"Over {count} models of each objective: mean and 95 % interval over seeds; of probes, the layer best on validation, its "
        "interval over test sentences, all seeds together. Held-out losses of different objectives predict different things, and "
        "do not compare.",
    )
    sections = [Section("Side by side", said, (Table(header, rows),))]
    if found:
        layers = [*sides[0].models[0].layers, MIX]
        sections.append(by_layer(found, layers))
    if asked := _with_pairs(sides):
        points = [(side.name, one.name, one.share, *one.ends()) for side in asked for one in side.judged()]
        caption = "Share of pairs of which the right sentence is likelier; mean over seeds; dashed: chance."
        sections.append(Section("Minimal pairs", (), (Figure("pairs", caption, pairs_chart(points)),)))
    tables = {"models": _table(sides)} | ({"probes": readings_of(found)} if found else {})
    title = "Objectives side by side"
    return Study(title, _findings(sides), sections, tables, (), (rows, header))


Measure = tuple[Callable[[Insight], float], str]


def _measures(sides: Sequence[Side]) -> dict[str, Measure]:
    """What has one figure a model."""
    found: dict[str, Measure] = {"tokens read": (lambda one: one.tokens, ",.0f"), "seconds": (lambda one: one.seconds, ",.0f")}
    told = dict.fromkeys(key for side in sides for key in side.models[0].held_out if key.endswith(("loss", "word_perplexity")))
    for name in told:
        found[f"held out, {name}"] = partial(_told, name), ".1f" if "perplexity" in name else ".3f"
    if _with_pairs(sides):
        found["minimal pairs, %"] = (lambda one: 100 * overall(one.pairs)[0] if one.pairs else np.nan, ".1f")
    found["evenness of attention"] = (lambda one: one.evenness, ".2f")
    for kind in KINDS:
        found[f"heads on '{kind}', %"] = partial(_looking, kind), ".0f"
    return found


def _told(name: str, one: Insight) -> float:
    return one.held_out.get(name, float("nan"))


def _looking(kind: str, one: Insight) -> float:
    return 100 * one.heads[kind]


def _over_seeds(values: Sequence[float], form: str, *, share: bool) -> str:
    if np.isnan(values).any():
        return "-"
    found = interval(values).within(0, 100) if share else interval(values)
    if len(values) < 2 or found.low == found.high:
        return format(found.mean, form)
    return f"{format(found.mean, form)} ({format(found.low, form)} to {format(found.high, form)})"


def _findings(sides: Sequence[Side]) -> list[str]:
    """For every question that all were asked, which objective answers best, and whether the next one is surely behind."""
    said = []
    if asked := _with_pairs(sides):
        said.append(_best_of_pairs(asked))
    said += [
        f"minimal pairs: {side.name} is not asked; it learned only what stands behind sentinels, and never to predict plain text"
        for side in sides
        if asked and side not in asked
    ]
    for place, one in enumerate(sides[0].probes):
        ranked = sorted(sides, key=lambda side: -side.probes[place].best.validation)
        best, second_best = (side.probes[place].best for side in ranked[:2])
        mean, low, high = best.above(second_best)
        sure = "" if low > 0 else ", which is no sure difference"
        said.append(
            f"{one.task.name}: {ranked[0].name} tells most by validation, {percent(*best.share)}; {100 * mean:+.1f} points against "
            f"{ranked[1].name} ({100 * low:+.1f} to {100 * high:+.1f} over test sentences){sure}"
        )
    said += unfit([one for side in sides for one in side.probes])
    said += [sentence for side in sides if (sentence := _mostly_looked_at(side))]
    return said or ["nothing was asked that all objectives can answer: give --tasks, --words or --pairs"]


def _with_pairs(sides: Sequence[Side]) -> list[Side]:
    return [side for side in sides if side.models[0].pairs]


def _best_of_pairs(sides: Sequence[Side]) -> str:
    shares = {side.name: [overall(one.pairs)[0] for one in side.models] for side in sides}
    first, *others = sorted(shares, key=lambda name: -float(np.mean(shares[name])))
    best = f"minimal pairs: {first} is best with {100 * np.mean(shares[first]):.1f} %"
    if not others:
        return best.replace("is best with", "has") + ", and no other objective can be asked"
    gap = interval([a - b for a, b in zip(shares[first], shares[others[0]], strict=True)])
    sure = "" if gap.low > 0 else ", which is no sure difference"
    around = f" ({100 * gap.low:+.1f} to {100 * gap.high:+.1f} over {gap.count} seeds)" if gap.count > 1 else " on one seed"
    return f"{best}, {100 * gap.mean:.1f} points before {others[0]}{around}{sure}"


def _mostly_looked_at(side: Side) -> str:
    """What more heads look at than at anything else; nothing where none does, or two kinds have as many."""
    shares = {kind: float(np.mean([one.heads[kind] for one in side.models])) for kind in KINDS}
    first, second, *_ = sorted(shares, key=lambda kind: -shares[kind])
    if shares[first] <= shares[second]:
        return ""
    lead = interval([one.heads[first] - one.heads[second] for one in side.models])
    sure = "" if lead.low > 0 else f", though not surely so ({lead.count} of its models)"
    what = SAID.get(first, first)
    return f"{side.name}: {100 * shares[first]:.0f} % of the heads look at {what}, more than at any other kind{sure}"


def _table(sides: Sequence[Side]) -> pl.DataFrame:
    """One row a model."""
    measures = _measures(sides)
    rows = [
        {"objective": side.name, "model": place, **{name: of(one) for name, (of, _) in measures.items()}}
        for side in sides
        for place, one in enumerate(side.models)
    ]
    return pl.DataFrame(rows)
