"""The charts of neurons: what the best of them go with, in which layers, and texts coloured by one of them.

Names of properties may come from a user's file, and tokens do: both are drawn by number, never as names that a scale knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.ink import BLUE, INK, THEME

COLUMNS = 104
"""characters of a line of coloured tokens"""
CHARACTER = 6.7
"""pixels of one"""
KINDS = ("best neuron", "floor of chance", "bar of untrained backbones")


def best_chart(rows: Sequence[tuple[str, float, float, float, float, float]]) -> Chart:
    """The best neuron of each property: rows of (property, r, low, high, floor, bar), without signs, nan where unknown."""
    names = [row[0] for row in rows]
    values: list[dict[str, Any]] = [
        {"at": at, "property": row[0], "kind": kind, "r": r, "low": low, "high": high}
        for at, row in enumerate(rows)
        for kind, r, low, high in (
            (KINDS[0], row[1], row[2], row[3]),
            (KINDS[1], row[4], np.nan, np.nan),
            (KINDS[2], row[5], np.nan, np.nan),
        )
    ]
    axis = alt.Axis(labelExpr="names[datum.value]", labelLimit=220, **BARE)
    scale = alt.Scale(domain=[0, 1])
    base = chart_of(values).encode(y=alt.Y("at:O", title=None, axis=axis), color=coloured("kind", KINDS))
    x = alt.X(
        "r:Q", scale=scale, title="correlation with the property, without its sign", axis=alt.Axis(tickCount=10, format=".1f")
    )
    tips = [alt.Tooltip("property:N"), alt.Tooltip("kind:N"), *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("r", "low", "high"))]
    best, floor, control = (
        base.transform_filter(f"datum.kind === '{kind}' && isValid(datum.r)").encode(x=x, tooltip=tips) for kind in KINDS
    )
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=5, opacity=0.35)
    drawn = (
        spans.encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
        + floor.mark_tick(thickness=2.5, size=15, opacity=1)
        + control.mark_point(filled=True, size=55, opacity=1, shape="triangle-up")
        + best.mark_point(filled=True, size=60, opacity=1)
    )
    return finish(drawn.add_params(alt.param(name="names", value=names)), 24 * len(names))


def layers_chart(best: np.ndarray, properties: Sequence[str], first: int) -> Chart:
    """The largest absolute r of any neuron of each layer, (layers, P); the first layer's number is ``first``."""
    values = [{"layer": first + i, "at": j, "property": properties[j], "r": float(best[i, j])} for i, j in np.ndindex(*best.shape)]
    drawn = chart_of(values).mark_rect(stroke="white", strokeWidth=1, aria=False)
    drawn = drawn.encode(
        x=alt.X("layer:O", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("at:O", title=None, axis=alt.Axis(labelExpr="names[datum.value]", labelLimit=220, **BARE)),
        color=alt.Color("r:Q", scale=alt.Scale(domain=[0, 1], range=["#f5f7fa", "#9fc9e5", BLUE, "#08243a"])),
        tooltip=["property:N", "layer:O", alt.Tooltip("r:Q", format=".3f")],
    )
    step = max(14, min(40, 560 // len(best)))
    drawn = drawn.add_params(alt.param(name="names", value=list(properties)))
    return drawn.properties(width=alt.Step(step), height=alt.Step(20)).configure(**THEME)


@dataclass(frozen=True)
class Strip:
    """A stretch of text with what one neuron says of each token."""

    neuron: str
    tokens: Sequence[str]
    shares: Sequence[float]
    """activations over the largest that this neuron has in size, -1 to 1"""


def strips_chart(strips: Sequence[Strip]) -> Chart:
    """Texts coloured by one neuron at a time, orange where it is active, blue where it is negative; chosen where scripts run."""
    neurons = list(dict.fromkeys(strip.neuron for strip in strips))
    values = list[dict[str, Any]]()
    for name in neurons:
        line = 0
        for strip in (strip for strip in strips if strip.neuron == name):
            column = 0
            for token, share in zip(strip.tokens, strip.shares, strict=True):
                shown = token.replace("\n", "↵")[:COLUMNS] or " "
                if column + len(shown) > COLUMNS:
                    line, column = line + 1, 0
                indent = len(shown) - len(shown.lstrip())  # white space at the ends of a drawn text is lost
                place = {"neuron": neurons.index(name), "line": line, "from": column, "to": column + len(shown)}
                values.append(place | {"begin": column + indent, "token": shown, "share": round(share, 3)})
                column += len(shown)
            line += 2
    chosen = alt.param(
        name="chosen_neuron", value=0, bind=alt.binding_select(options=list(range(len(neurons))), labels=neurons, name="neuron ")
    )
    scale = alt.Scale(domain=[0, COLUMNS], nice=False)
    base = chart_of(values).transform_filter("datum.neuron === chosen_neuron")
    base = base.encode(
        x=alt.X("from:Q", scale=scale, axis=None),
        y=alt.Y("line:Q", axis=None, scale=alt.Scale(reverse=True, nice=False, zero=True)),
    )
    under = base.transform_calculate(bottom="datum.line + 0.9").mark_rect(aria=False)
    under = under.encode(
        x=alt.X("from:Q", scale=scale, axis=None),
        x2="to:Q",
        y2="bottom:Q",
        color=alt.Color("share:Q", legend=None, scale=alt.Scale(scheme="blueorange", domain=[-1.4, 1.4], domainMid=0)),
        tooltip=[alt.Tooltip("token:N"), alt.Tooltip("share:Q", title="of its largest", format=".0%")],
    )
    text = base.mark_text(align="left", baseline="top", dx=1, dy=3, font="monospace", fontSize=11, color=INK, tooltip=None)
    lines = max(row["line"] for row in values) + 1
    view = {"stroke": None, "continuousWidth": COLUMNS * CHARACTER, "continuousHeight": 20 * lines}
    return (
        (under + text.encode(x=alt.X("begin:Q", scale=scale), text="token:N"))
        .add_params(chosen)
        .configure(**(THEME | {"view": view}))
    )
