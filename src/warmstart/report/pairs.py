"""The chart of minimal pairs: one row a group, best first, with its interval, and the floor beside it."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish

ROW = 16


def pairs_chart(rows: Sequence[tuple[str, str, float, float, float]]) -> Chart:
    """Rows of (method, group, share, low, high); the first method is the one in question, and orders the groups."""
    names = list(dict.fromkeys(method for method, *_ in rows))
    groups = [group for method, group, *_ in sorted(rows, key=lambda row: -row[2]) if method == names[0]]
    values = [
        {"method": method, "group": group, "share": share, "low": low, "high": high} for method, group, share, low, high in rows
    ]
    y = alt.Y("group:N", title=None, sort=groups, axis=alt.Axis(labelLimit=340, **BARE))
    base = chart_of(values).encode(y=y, color=coloured("method", names))
    base = base.encode(yOffset=alt.YOffset("method:N", sort=names)) if len(names) > 1 else base
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("group:N"),
        *(alt.Tooltip(f"{n}:Q", format=".1%") for n in ("share", "low", "high")),
    ]
    scale = alt.Scale(domain=[0, 1])
    axis = alt.Axis(format="%", title="pairs judged rightly")
    lines = base.mark_rule().encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
    dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=alt.X("share:Q", scale=scale, axis=axis), tooltip=tips)
    chance = chart_of([{"chance": 0.5}]).mark_rule(strokeDash=[4, 4], opacity=0.6).encode(x="chance:Q")
    return finish(chance + lines + dots, ROW * len(groups))
