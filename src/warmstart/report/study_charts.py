"""The charts of studies."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np

from warmstart.report.charts import BARE, Chart, chart_of, coloured, distinct, finish
from warmstart.report.theme import DIVERGING, GREY, INK, THEME, WHITE
from warmstart.stats.intervals import percentiles

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


_LINE = 96
"""characters on a line of the heat map"""


def heat_chart(words: Sequence[str], values: np.ndarray) -> Chart:
    """Words in lines like running text, coloured by their values (W,) in nats."""
    rows, line, column = [], 0, 0
    for number, (word, value) in enumerate(zip(words, values, strict=True)):
        width = min(len(word), _LINE) + 1
        if column + width > _LINE:
            line, column = line + 1, 0
        rows.append({"number": number, "word": word, "nats": float(value), "line": line, "x": column, "x2": column + width - 0.2})
        column += width
    most = float(np.abs(values).max()) or 1.0
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, _LINE]))
    tips = ["word:N", alt.Tooltip("nats:Q", format="+.3f"), "number:Q"]
    base = chart_of(rows).encode(x=x, y=alt.Y("line:O", axis=None), tooltip=tips)
    shade = alt.Scale(domain=[-most, 0, most], range=DIVERGING[::-1], interpolate="rgb")
    legend = alt.Legend(orient="top", title="nats for the target", gradientLength=240)
    boxes = base.mark_rect(height=20, cornerRadius=3).encode(x2="x2:Q", color=alt.Color("nats:Q", scale=shade, legend=legend))
    dark = alt.condition(f"abs(datum.nats) > {0.85 * most}", alt.value(WHITE), alt.value(INK))
    labels = base.mark_text(align="left", dx=3, font="monospace", fontSize=12).encode(text="word:N", color=dark)
    return finish(boxes + labels, 26 * (line + 1))


def curve_chart(methods: Sequence[str], deletion: np.ndarray, insertion: np.ndarray) -> Chart:
    """Deletion and insertion curves (O, W + 1) of each method, with the middle 90% of random orders, which come after them."""
    names, values = [*methods, "random orders"], []
    panels = {"most important words removed first": deletion, "most important words added first": insertion}
    for panel, curves in panels.items():
        low, middle, high = percentiles(curves[len(methods) :], (0.05, 0.5, 0.95))
        for method, curve in zip(names, [*curves[: len(methods)], middle], strict=True):
            ends = {"low": low, "high": high} if method == names[-1] else {}
            values += [
                {"panel": panel, "method": method, "share": i / (len(curve) - 1), "probability": float(value)}
                | {name: float(end[i]) for name, end in ends.items()}
                for i, value in enumerate(curve)
            ]
    base = chart_of(values)
    x = alt.X("share:Q", title="share of the words", axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("probability:Q", title="probability of the target", scale=alt.Scale(domain=[0, 1]))
    tips = ["method:N", alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("probability:Q", format=".3f")]
    known = base.transform_filter("isValid(datum.low)")
    band = known.mark_area(opacity=0.25, color=GREY).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    lines = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=coloured("method", names), tooltip=tips)
    layered = alt.layer(band, lines).properties(width=280, height=220)
    return layered.facet(facet=alt.Facet("panel:N", sort=list(panels), title=None), columns=2).configure(**THEME)
