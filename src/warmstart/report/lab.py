"""The charts of the attention lab: what theory says as a line, what was measured as points."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import Chart, chart_of, coloured, finish


def lab_chart(points: Sequence[tuple[str, float, float]], axes: tuple[str, str]) -> Chart:
    """Points (line, x, y): the closed form is drawn as a line, everything else as points."""
    names = list(dict.fromkeys(name for name, _, _ in points))
    base = chart_of([{"line": name, "x": x, "y": y} for name, x, y in points]).encode(
        x=alt.X("x:Q", title=axes[0], axis=alt.Axis(grid=False)),
        y=alt.Y("y:Q", title=axes[1], scale=alt.Scale(domain=[0, 1])),
        color=coloured("line", names),
        tooltip=["line:N", alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q", format=".4f")],
    )
    line = base.transform_filter("datum.line === 'closed form'").mark_line(strokeWidth=2)
    dots = base.transform_filter("datum.line !== 'closed form'").mark_point(filled=True, size=45)
    return finish(line + dots, 260)
