"""Charts that several studies share: accuracy on minimal pairs, probes by layer, and figures by layer."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, distinct, finish
from warmstart.report.theme import THEME

_ROW_HEIGHT = 16
_PANEL_WIDTH, _PANEL_HEIGHT, _PANELS_PER_ROW = 210, 150, 3
_DASHES = ([2, 3], [7, 4], [10, 3, 2, 3], [1, 5], [14, 5], [5, 2, 1, 2])
"""dash patterns of baselines; the seventh baseline begins again with the first"""
ProbePoint = tuple[str, str, str, float, float, float]
"""(task, model, layer, value, low, high)"""


def pairs_chart(rows: Sequence[tuple[str, str, float, float, float]]) -> Chart:
    """Accuracy on each group of minimal pairs, from (method, group, accuracy, low, high); the dashed line is chance.

    The groups are in the order of the first method's accuracy, best first.
    """
    methods = distinct(method for method, *_ in rows)
    groups = [group for method, group, *_ in sorted(rows, key=lambda row: -row[2]) if method == methods[0]]
    values = [
        {"method": method, "group": group, "accuracy": accuracy, "low": low, "high": high}
        for method, group, accuracy, low, high in rows
    ]
    y = alt.Y("group:N", title=None, sort=groups, axis=alt.Axis(labelLimit=340, **BARE))
    base = chart_of(values).encode(y=y, color=coloured("method", methods))
    base = base.encode(yOffset=alt.YOffset("method:N", sort=methods)) if len(methods) > 1 else base
    tooltip = [
        alt.Tooltip("method:N"),
        alt.Tooltip("group:N"),
        *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("accuracy", "low", "high")),
    ]
    scale = alt.Scale(domain=[0, 1])
    axis = alt.Axis(format="%", title="accuracy")
    intervals = base.mark_rule().encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
    dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=alt.X("accuracy:Q", scale=scale, axis=axis), tooltip=tooltip)
    chance = chart_of([{"chance": 0.5}]).mark_rule(strokeDash=[4, 4], opacity=0.6).encode(x="chance:Q")
    return finish(chance + intervals + dots, _ROW_HEIGHT * len(groups))


def probe_chart(
    points: Sequence[ProbePoint], layers: Sequence[str], baselines: Sequence[tuple[str, str, float]], form: str = ".0%"
) -> Chart:
    """A panel per task: values by layer with their intervals, and ``baselines`` (task, name, value) as dashed lines.

    ``form`` is the format of the values (d3), fractions in percent by default.
    """
    models = distinct(model for _, model, *_ in points)
    tasks = distinct(task for task, *_ in points)
    values = [
        {"task": task, "model": model, "layer": layer, "value": value, "low": low, "high": high}
        for task, model, layer, value, low, high in points
    ]
    base = chart_of(values + [{"task": task, "baseline": name, "value": value} for task, name, value in baselines])
    x = alt.X("layer:N", sort=list(layers), title=None, axis=alt.Axis(labelAngle=-40, labelLimit=70))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format=form, tickCount=5))
    colour = coloured("model", models)
    tooltip = [
        "task:N",
        "model:N",
        "layer:N",
        *(alt.Tooltip(f"{name}:Q", format=form.replace("0%", "1%")) for name in ("value", "low", "high")),
    ]
    of_layers = base.transform_filter("isValid(datum.layer)")
    lines = of_layers.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour)
    intervals = of_layers.mark_rule(opacity=0.35, strokeWidth=4).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    dots = of_layers.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltip)
    names = distinct(name for _, name, _ in baselines)
    dashes = [_DASHES[i % len(_DASHES)] for i in range(len(names))]
    dash = alt.StrokeDash("baseline:N", title=None, scale=alt.Scale(domain=names, range=dashes), legend=alt.Legend(labelLimit=280))
    rules = base.transform_filter("isValid(datum.baseline)").mark_rule(opacity=0.7).encode(y=y, strokeDash=dash)
    panel = alt.layer(rules, intervals, lines, dots).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    return (
        panel.facet(facet=alt.Facet("task:N", sort=tasks, title=None), columns=_PANELS_PER_ROW)
        .resolve_scale(y="independent")
        .configure(**THEME | {"legend": THEME["legend"] | {"orient": "top", "columns": 3}})
    )
