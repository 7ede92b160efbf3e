"""How much each word counts, as a heat map in the terminal and on the page; and the curves that test it."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
from rich.text import Text

from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.ink import BLUE, GREY, INK, ORANGE, THEME

LINE = 96
"""characters on a line of the heat map"""
CHANCE = "orders by chance"


def printed(word: str) -> str:
    r"""A word as it prints; white space as Python spells it: a line break -> ``'\n'``."""
    return word if word.strip() else repr(word)


def heat_text(words: Sequence[str], values: np.ndarray) -> Text:
    """The words on blue where they speak for the outcome and on orange where against it, deeper where more."""
    text, most = Text(), float(np.abs(values).max()) or 1.0
    for word, value in zip(words, values, strict=True):
        red, green, blue = _shade(float(value) / most)
        text.append(printed(word), style=f"#1f2933 on rgb({red},{green},{blue})").append(" ")
    return text


def _shade(share: float) -> tuple[int, int, int]:
    """From white to the colour of the sign, by the share (-1 to 1)."""
    goal = (86, 180, 233) if share > 0 else (230, 159, 0)
    return tuple(round(255 + (end - 255) * abs(share)) for end in goal)  # type: ignore[return-value]


def heat_chart(words: Sequence[str], values: np.ndarray) -> Chart:
    """Words in lines as in running text; the tooltip tells how many nats each one counts."""
    rows, line, column = [], 0, 0
    for place, (word, value) in enumerate(zip(map(printed, words), values, strict=True)):
        wide = min(len(word), LINE) + 1
        if column + wide > LINE:
            line, column = line + 1, 0
        rows.append({"place": place, "word": word, "nats": float(value), "line": line, "x": column, "x2": column + wide - 0.2})
        column += wide
    most = float(np.abs(values).max()) or 1.0
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, LINE]))
    base = chart_of(rows).encode(
        y=alt.Y("line:O", axis=None),
        tooltip=["word:N", alt.Tooltip("nats:Q", format="+.3f"), "place:Q"],
    )
    shade = alt.Scale(domain=[-most, 0, most], range=[ORANGE, "white", BLUE], interpolate="rgb")
    legend = alt.Legend(orient="top", title="nats for the outcome", gradientLength=240)
    boxes = base.mark_rect(height=20, cornerRadius=3).encode(x=x, x2="x2:Q", color=alt.Color("nats:Q", scale=shade, legend=legend))
    dark = alt.condition(f"abs(datum.nats) > {0.6 * most}", alt.value("white"), alt.value(INK))
    said = base.mark_text(align="left", dx=3, font="monospace", fontSize=12).encode(x=x, text="word:N", color=dark)
    return finish(boxes + said, 26 * (line + 1))


def curve_chart(curves: Sequence[tuple[str, str, np.ndarray]], chance: Sequence[tuple[str, np.ndarray]]) -> Chart:
    """Curves (method, kind, probabilities (W + 1,)) beside the middle 90 % of (kind, curves by chance (R, W + 1))."""
    methods = list(dict.fromkeys(method for method, *_ in curves))
    values = []
    for method, kind, points in curves:
        for place, value in enumerate(points):
            values.append({"kind": kind, "method": method, "share": place / (len(points) - 1), "probability": float(value)})
    for kind, many in chance:
        low, middle, high = np.quantile(many, [0.05, 0.5, 0.95], axis=0)
        for place in range(many.shape[1]):
            share = place / (many.shape[1] - 1)
            ends = {"low": float(low[place]), "high": float(high[place])}
            values.append({"kind": kind, "method": CHANCE, "share": share, "probability": float(middle[place]), **ends})
    base = chart_of(values)
    x = alt.X("share:Q", title="share of the words", axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("probability:Q", title="probability of the outcome", scale=alt.Scale(domain=[0, 1]))
    tips = ["method:N", alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("probability:Q", format=".3f")]
    band = (
        base.transform_filter("isValid(datum.low)").mark_area(opacity=0.25, color=GREY).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    )
    lines = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=coloured("method", [*methods, CHANCE]), tooltip=tips)
    layered = alt.layer(band, lines).properties(width=280, height=220)
    kinds = list(dict.fromkeys(kind for _, kind, _ in curves))
    return layered.facet(facet=alt.Facet("kind:N", sort=kinds, title=None), columns=2).configure(**THEME)
