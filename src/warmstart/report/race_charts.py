"""Charts of a race: restarts, trade-offs, and the learning curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.theme import BLUE, INK, QUIET, RED, shapes


def restarts_chart(rows: Sequence[tuple[str, Sequence[float], Sequence[bool]]], metric: str, constant: float) -> Chart:
    """One column per method, from (name, scores, collapsed): crosses for runs, a bar at the mean, the standard deviation.

    Collapsed runs are triangles; the dashed line is the score of a constant prediction. With many seeds this is the figure of
    restarts in the NAACL 2019 transfer-learning tutorial.
    """
    names = [name for name, *_ in rows]
    crosses = [
        {"method": name, "run": run, "score": score, "state": "collapsed" if collapsed else "learned"}
        for name, scores, states in rows
        for run, (score, collapsed) in enumerate(zip(scores, states, strict=True))
    ]
    means = []
    for name, scores, _ in rows:
        mean, spread = float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
        means.append({"method": name, "mean": mean, "spread": spread, "low": mean - spread, "high": mean + spread})
    x = alt.X("method:N", title=None, sort=names, axis=alt.Axis(**BARE, labelAngle=-30, labelLimit=160))
    y = alt.Scale(zero=False, nice=True, padding=8)
    axis = alt.Axis(format=".0%", tickCount=7)
    spans = chart_of(means).transform_filter("isValid(datum.low)").mark_rule(strokeWidth=12, opacity=0.16, color=INK)
    stroke = spans.encode(x=x, y=alt.Y("low:Q", title=metric.replace("_", " "), scale=y, axis=axis), y2="high:Q")
    mean = (
        chart_of(means)
        .mark_tick(orient="horizontal", thickness=2.5, size=30, color=INK)
        .encode(
            x=x,
            y=alt.Y("mean:Q", scale=y),
            tooltip=["method:N", alt.Tooltip("mean:Q", format=".1%"), alt.Tooltip("spread:Q", format=".2%")],
        )
    )
    states = ["learned", "collapsed"]
    colour = alt.Color("state:N", scale=alt.Scale(domain=states, range=[BLUE, RED]), title=None)
    shape = alt.Shape("state:N", scale=alt.Scale(domain=states, range=["M-1,-1L1,1M1,-1L-1,1", "triangle-down"]), title=None)
    tooltip = ["method:N", "run:Q", alt.Tooltip("score:Q", format=".2%")]
    runs = (
        chart_of(crosses)
        .mark_point(size=70, strokeWidth=2, opacity=0.8)
        .encode(x=x, y=alt.Y("score:Q", scale=y), color=colour, shape=shape, tooltip=tooltip)
    )
    line = chart_of([{"constant": constant}]).mark_rule(strokeDash=[4, 4], color=QUIET).encode(y=alt.Y("constant:Q", scale=y))
    return finish(stroke + mean + runs + (line if any(any(collapsed) for *_, collapsed in rows) else alt.LayerChart()), 340)


def trade_off_chart(rows: Sequence[tuple[str, float, float, float, float]], cost: str, metric: str) -> Chart:
    """Score against a cost on a logarithmic axis, from (name, cost, mean, low, high); a line joins the best at each cost."""
    names = [name for name, *_ in rows]
    values: list[dict[str, Any]] = [
        {"method": name, "cost": value, "mean": mean, "low": max(0.0, low), "high": min(1.0, high)}
        for name, value, mean, low, high in rows
        if value > 0
    ]
    front, highest = [], -math.inf
    for row in sorted(values, key=lambda row: (row["cost"], -row["mean"])):
        if row["mean"] > highest:
            front.append(row)
            highest = row["mean"]
    axis = alt.Axis(format="~g" if cost.startswith("seconds") else "~s", grid=False, tickCount=6)
    x = alt.X("cost:Q", title=f"{cost} (logarithmic)", scale=alt.Scale(type="log", padding=40, nice=False), axis=axis)
    scale = alt.Scale(zero=False, nice=True, padding=12)
    y = alt.Y("mean:Q", title=metric.replace("_", " "), scale=scale, axis=alt.Axis(format=".0%", tickCount=7))
    base = chart_of(values).encode(x=x, color=coloured("method", names))
    rule = base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.45).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    tooltip = ["method:N", alt.Tooltip("cost:Q", format=".3~s"), alt.Tooltip("mean:Q", format=".1%")]
    shape = alt.Shape("method:N", scale=alt.Scale(domain=names, range=shapes(names)))
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    # neighbours on the line take turns above and below it, so that their names do not meet
    labels = [
        chart_of(front[start::2]).mark_text(align="left", dx=9, dy=dy, fontSize=11, color=QUIET).encode(x=x, y=y, text="method:N")
        for start, dy in ((0, -8), (1, 12))
        if front[start::2]
    ]
    line = chart_of(front).mark_line(strokeDash=[3, 3], color=QUIET, interpolate="step-after").encode(x=x, y=y)
    return finish(alt.layer(line, rule, dots, *labels), 360)


def learning_curve(
    rows: Sequence[tuple[str, int, float, float, float]],
    predicted: Mapping[str, Sequence[tuple[float, float, float, float]]],
    metric: str,
    target: float | None,
) -> Chart:
    """Measured (name, labels, mean, low, high) as points with bands; predicted (labels, score, low, high) by name, dashed.

    ``target`` is a dotted line.
    """
    names = list(dict.fromkeys(row[0] for row in rows))
    counts = sorted({row[1] for row in rows})
    values = [{"method": name, "labels": n, "mean": mean, "low": low, "high": high} for name, n, mean, low, high in rows]
    ahead = [
        {"method": name, "labels": n, "mean": mean, "low": low, "high": high}
        for name, points in predicted.items()
        for n, mean, low, high in points
    ]
    scale = alt.Scale(zero=False, nice=True)
    x = alt.X(
        "labels:Q",
        title="labelled texts, those that choose included (logarithmic; dashed: predicted)",
        scale=alt.Scale(type="log", padding=30, nice=False),
        axis=alt.Axis(values=counts, format=",.0f", grid=False),
    )
    y = alt.Y("mean:Q", title=metric.replace("_", " "), scale=scale, axis=alt.Axis(format=".0%", tickCount=7))
    tooltip = [
        "method:N",
        alt.Tooltip("labels:Q", format=",.0f"),
        *(alt.Tooltip(f"{k}:Q", format=".1%") for k in ("mean", "low", "high")),
    ]
    base = chart_of(values).encode(x=x, color=coloured("method", names))
    later = chart_of(ahead).encode(x=x, color=coloured("method", names))
    known = base.transform_filter("isValid(datum.low)").encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    shape = alt.Shape("method:N", scale=alt.Scale(domain=names, range=shapes(names)))
    layers = (
        known.mark_area(opacity=0.14, line=False)
        + later.mark_area(opacity=0.06, line=False).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
        + later.mark_line(strokeWidth=1.6, strokeDash=[5, 4]).encode(y=y)
        + base.mark_line(strokeWidth=2.2).encode(y=y)
        + base.mark_point(filled=True, size=60, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    )
    if target is not None:
        layers += chart_of([{"target": target}]).mark_rule(strokeDash=[2, 3], color=QUIET).encode(y=alt.Y("target:Q", scale=scale))
    return finish(layers, 380)
