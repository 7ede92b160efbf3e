"""The charts of drift: two-way grids of layers and heads, weights by block, shares with their intervals, losses passage by passage.

Words of a text are no names of a scale here: they stand in tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.ink import BLUE, INK, THEME

RAMP = ["#f5f7fa", "#9fc9e5", BLUE, "#08243a"]
ROW = 30


def grid_chart(rows: Sequence[Mapping[str, Any]], axes: tuple[str, str], title: str, top: float = 1.0) -> Chart:
    """A cell for each row with ``x``, ``y`` (in their order), ``value``, ``low`` and ``high``; the shade goes from 0 to ``top``."""
    x, y = (list(dict.fromkeys(row[name] for row in rows)) for name in ("x", "y"))
    step = 44 if len(x) <= 13 else 26
    scale = alt.Scale(domain=[0, top], range=RAMP, clamp=True, interpolate="rgb")
    tips = [alt.Tooltip("x:N", title=axes[0]), alt.Tooltip("y:N", title=axes[1])]
    base = chart_of(rows).encode(
        x=alt.X("x:N", sort=x, title=axes[0], axis=alt.Axis(labelAngle=0 if len(str(x[0])) < 4 else -40, **BARE)),
        y=alt.Y("y:N", sort=y[::-1], title=axes[1], axis=alt.Axis(**BARE)),
        tooltip=[*tips, *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high"))],
    )
    legend = alt.Legend(title=title, titleLimit=300, orient="bottom", gradientLength=240)
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(color=alt.Color("value:Q", scale=scale, legend=legend))
    ink = alt.condition(f"datum.value > {0.5 * top}", alt.value("white"), alt.value(INK))
    said = base.mark_text(fontSize=11 if step > 30 else 8).encode(text=alt.Text("value:Q", format=".2f"), color=ink)
    # cells keep their size; a narrow screen scrolls
    return (cells + said).properties(width=alt.Step(step), height=alt.Step(min(step, 30))).configure(**THEME)


def weights_chart(rows: Sequence[tuple[str, str, float]]) -> Chart:
    """Rows of (part, block, relative change), blocks in their order."""
    parts, blocks = list(dict.fromkeys(row[0] for row in rows)), list(dict.fromkeys(row[1] for row in rows))
    base = chart_of([{"part": part, "block": block, "change": change} for part, block, change in rows]).encode(
        x=alt.X("block:N", sort=blocks, title="block", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("change:Q", title="length of the change over that of the weights", axis=alt.Axis(format="~%")),
        color=coloured("part", parts),
        tooltip=["part:N", "block:N", alt.Tooltip("change:Q", format=".2%")],
    )
    return finish(base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=50, opacity=1), 260)


def shares_chart(rows: Sequence[tuple[str, str, float, float, float]], title: str) -> Chart:
    """Rows of (what is compared, space, share, low, high)."""
    names, spaces = list(dict.fromkeys(row[0] for row in rows)), list(dict.fromkeys(row[1] for row in rows))
    values = [{"compared": name, "space": space, "share": s, "low": low, "high": high} for name, space, s, low, high in rows]
    y = alt.Y("space:N", title=None, sort=spaces, axis=alt.Axis(**BARE))
    base = chart_of(values).encode(y=y, yOffset=alt.YOffset("compared:N", sort=names), color=coloured("compared", names))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", title=title)
    tips = ["compared:N", "space:N", *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("share", "low", "high"))]
    lines = base.mark_rule().encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
    dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=alt.X("share:Q", scale=scale, axis=axis), tooltip=tips)
    return finish(lines + dots, ROW * len(spaces))


def losses_chart(rows: Sequence[tuple[int, float, float]]) -> Chart:
    """Rows of (tokens, loss before, loss after), one a passage; on the line nothing changed."""
    values = [{"tokens": tokens, "before": before, "after": after} for tokens, before, after in rows]
    ends = [min(min(row[1:]) for row in rows), max(max(row[1:]) for row in rows)]
    scale = alt.Scale(domain=ends, nice=True, zero=False)
    line = chart_of([{"before": end, "after": end} for end in ends]).mark_line(strokeDash=[4, 4], color=INK, opacity=0.6)
    dots = chart_of(values).mark_point(filled=True, size=34, opacity=0.55, color=BLUE)
    tips = [alt.Tooltip("tokens:Q", format=","), *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("before", "after"))]
    x = alt.X("before:Q", scale=scale, title="loss before (nats per token)")
    y = alt.Y("after:Q", scale=scale, title="loss after (nats per token)")
    return finish(line.encode(x=x, y=y) + dots.encode(x=x, y=y, tooltip=tips), 360)
