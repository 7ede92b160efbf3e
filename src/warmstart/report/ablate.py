"""The charts of ablation: what erasing each part costs, ranked, and the heads of all blocks on one grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.ink import BLUE, INK, RED, THEME

ROW = 17
SHOWN = 40
"""bars at most"""
TIPS = [alt.Tooltip("part:N"), *(alt.Tooltip(f"{name}:Q", format=".4f") for name in ("worse", "low", "high", "p"))]


def parts_chart(rows: Sequence[Mapping[str, Any]], axis: str) -> Chart:
    """Rows with ``part``, ``kind``, ``worse``, ``low``, ``high`` and ``seen``, what costs most first; pale: not seen to differ."""
    rows = rows[:SHOWN]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    y = alt.Y("part:N", title=None, sort=[row["part"] for row in rows], axis=alt.Axis(labelLimit=260, **BARE))
    base = chart_of(rows).encode(y=y, tooltip=TIPS)
    bars = base.mark_bar(height=ROW - 6).encode(
        x=alt.X("worse:Q", title=axis, axis=alt.Axis(tickCount=8)),
        color=coloured("kind", kinds),
        opacity=alt.condition("datum.seen", alt.value(1.0), alt.value(0.35)),
    )
    spans = base.mark_rule(strokeWidth=1.4, color=INK).encode(x="low:Q", x2="high:Q")
    return finish(bars + spans, ROW * len(rows))


def heads_chart(rows: Sequence[Mapping[str, Any]], axis: str) -> Chart:
    """A cell for each row with ``block`` and ``head`` (from 1), ``worse`` and ``seen``: red: erasing costs."""
    far = max((abs(row["worse"]) for row in rows), default=0.0) or 1.0
    blocks = sorted({row["block"] for row in rows})
    base = chart_of(rows).encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, **BARE)),
        y=alt.Y("block:O", title="block", sort=blocks[::-1], axis=alt.Axis(**BARE)),
        tooltip=TIPS,
    )
    scale = alt.Scale(domain=[-far, 0, far], range=[BLUE, "#f5f7fa", RED], interpolate="rgb")
    legend = alt.Legend(title=axis, titleLimit=300, orient="bottom", gradientLength=240)
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(color=alt.Color("worse:Q", scale=scale, legend=legend))
    seen = base.transform_filter("datum.seen").mark_point(filled=True, size=26, color=INK, opacity=1)
    size = 34 if len({row["head"] for row in rows}) <= 16 else 22
    # cells keep their size; a narrow screen scrolls
    return (cells + seen).properties(width=alt.Step(size), height=alt.Step(size)).configure(**THEME)
