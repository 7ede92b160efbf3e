"""The chart of a stream: each task's score after every task that was learned, one panel a way to remember."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.ink import shapes


def stream_chart(rows: Sequence[tuple[str, int, float, float, float]], stages: Sequence[str], metric: str) -> Chart:
    """Lines from (task, stage, mean, low, high): one a task, from the stage at which it was learned on."""
    names = list(dict.fromkeys(row[0] for row in rows))
    values = [
        {"task": name, "stage": stages[stage], "mean": mean, "low": low, "high": high} for name, stage, mean, low, high in rows
    ]
    x = alt.X("stage:N", title="after learning", sort=list(stages), axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("mean:Q", title=metric, scale=scale, axis=alt.Axis(format=".0%"))
    base = chart_of(values).encode(x=x, color=coloured("task", names))
    known = base.transform_filter("isValid(datum.low)")
    rule = known.mark_rule(strokeWidth=6, opacity=0.2).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    shape = alt.Shape("task:N", scale=alt.Scale(domain=names, range=shapes(names)))
    tooltip = ["task:N", "stage:N", alt.Tooltip("mean:Q", format=".1%")]
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    return finish(rule + base.mark_line(strokeWidth=2).encode(y=y) + dots, 280)
