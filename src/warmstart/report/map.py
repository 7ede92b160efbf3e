"""The charts of an embedding's map: words where they lie, one word's contexts, cosines through the layers, analogies by section.

Words are drawn as marks, never as names of a scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.ink import BLUE, INK

HEIGHT, ROW = 560, 30


def words_chart(rows: Sequence[tuple[str, int | None, float, float]], axes: tuple[str, str]) -> Chart:
    """Rows of (word, how often it stands in the text, x, y); it can be dragged and enlarged."""
    values = [{"word": word, "count": count, "x": x, "y": y} for word, count, x, y in rows]
    tips = [alt.Tooltip("word:N"), *([alt.Tooltip("count:Q", format=",")] if rows[0][1] is not None else [])]
    drawn = chart_of(values).mark_text(fontSize=10, color=INK).encode(*_plane(axes), text="word:N", tooltip=tips)
    return finish(drawn.interactive(), HEIGHT)


def contexts_chart(rows: Sequence[tuple[str, str, str, float, float]], axes: tuple[str, str]) -> Chart:
    """Rows of (left of the word, the word, right of it, x, y)."""
    values = [{"context": f"{left} [{word}] {right}".strip(), "x": x, "y": y} for left, word, right, x, y in rows]
    dots = chart_of(values).mark_point(filled=True, size=60, opacity=0.6, color=BLUE)
    return finish(dots.encode(*_plane(axes), tooltip=alt.Tooltip("context:N")).interactive(), 360)


def layers_chart(rows: Sequence[tuple[str, str, float, float, float]], title: str) -> Chart:
    """Rows of (line, layer, value, low, high), layers in their order."""
    names, layers = list(dict.fromkeys(row[0] for row in rows)), list(dict.fromkeys(row[1] for row in rows))
    values = [{"line": line, "layer": layer, "value": value, "low": low, "high": high} for line, layer, value, low, high in rows]
    x = alt.X("layer:N", sort=layers, title="layer", axis=alt.Axis(labelAngle=0))
    tips = [alt.Tooltip("line:N"), alt.Tooltip("layer:N"), *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("value", "low", "high"))]
    base = chart_of(values).encode(x=x, color=coloured("line", names))
    band = base.mark_area(opacity=0.16, line=False).encode(y=alt.Y("low:Q"), y2="high:Q")
    line = base.mark_line(strokeWidth=2, point=True).encode(y=alt.Y("value:Q", title=title), tooltip=tips)
    return finish(band + line, 280)


def analogies_chart(rows: Sequence[tuple[str, str, float, float, float]]) -> Chart:
    """Rows of (method, section, share, low, high), sections in their order."""
    names, sections = list(dict.fromkeys(row[0] for row in rows)), list(dict.fromkeys(row[1] for row in rows))
    values = [{"method": m, "section": s, "share": share, "low": low, "high": high} for m, s, share, low, high in rows]
    y = alt.Y("section:N", title=None, sort=sections, axis=alt.Axis(labelLimit=340, **BARE))
    base = chart_of(values).encode(y=y, yOffset=alt.YOffset("method:N", sort=names), color=coloured("method", names))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", title="questions answered rightly")
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("section:N"),
        *(alt.Tooltip(f"{n}:Q", format=".1%") for n in ("share", "low", "high")),
    ]
    lines = base.mark_rule().encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
    dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=alt.X("share:Q", scale=scale, axis=axis), tooltip=tips)
    return finish(lines + dots, ROW * len(sections))


def _plane(axes: tuple[str, str]) -> tuple[alt.X, alt.Y]:
    """Two axes without numbers: only what lies near what is to be read."""
    axis, scale = alt.Axis(labels=False, ticks=False, grid=False), alt.Scale(zero=False, nice=False, padding=20)
    return alt.X("x:Q", title=axes[0], axis=axis, scale=scale), alt.Y("y:Q", title=axes[1], axis=axis, scale=scale)
