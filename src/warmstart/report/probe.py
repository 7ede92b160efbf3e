"""The charts of probes: layer against score, one panel a task, one line a model."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import Chart, chart_of, coloured
from warmstart.report.ink import THEME

PANEL, COLUMNS = 210, 3
DASHES = ([2, 3], [7, 4], [10, 3, 2, 3], [1, 5], [14, 5], [5, 2, 1, 2])
"""how floors are told apart; more than six begin anew"""
Point = tuple[str, str, str, float, float, float]
"""(task, model, layer, share, low, high)"""


def probe_chart(
    points: Sequence[Point], layers: Sequence[str], floors: Sequence[tuple[str, str, float]], form: str = ".0%"
) -> Chart:
    """Shares (or what ``form`` prints) by layer with their intervals; ``floors`` (task, name, share) are drawn as dashed lines."""
    models = list(dict.fromkeys(model for _, model, *_ in points))
    tasks = list(dict.fromkeys(task for task, *_ in points))
    drawn = [
        {"task": task, "model": model, "layer": layer, "share": share, "low": low, "high": high}
        for task, model, layer, share, low, high in points
    ]
    values = drawn + [{"task": task, "floor": name, "share": share} for task, name, share in floors]
    base = chart_of(values)
    x = alt.X("layer:N", sort=list(layers), title=None, axis=alt.Axis(labelAngle=-40, labelLimit=70))
    y = alt.Y("share:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format=form, tickCount=5))
    colour = coloured("model", models)
    tips = [
        "task:N",
        "model:N",
        "layer:N",
        *(alt.Tooltip(f"{name}:Q", format=form.replace("0%", "1%")) for name in ("share", "low", "high")),
    ]
    known = base.transform_filter("isValid(datum.layer)")
    lines = known.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour)
    spans = known.mark_rule(opacity=0.35, strokeWidth=4).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    dots = known.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips)
    names = list(dict.fromkeys(name for _, name, _ in floors))
    dashes = [DASHES[place % len(DASHES)] for place in range(len(names))]
    dash = alt.StrokeDash("floor:N", title=None, scale=alt.Scale(domain=names, range=dashes), legend=alt.Legend(labelLimit=280))
    rules = base.transform_filter("isValid(datum.floor)").mark_rule(opacity=0.7).encode(y=y, strokeDash=dash)
    layered = alt.layer(rules, spans, lines, dots).properties(width=PANEL, height=150)
    return (
        layered.facet(facet=alt.Facet("task:N", sort=tasks, title=None), columns=COLUMNS)
        .resolve_scale(y="independent")
        .configure(**THEME)
    )
