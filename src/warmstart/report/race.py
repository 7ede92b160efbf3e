"""The charts of a race: every run as a cross, and what a point of score costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.ink import INK, QUIET, shapes

LOST = "#c0392b"
"""the colour of what went wrong"""


def restarts(rows: Sequence[tuple[str, Sequence[float], Sequence[bool]]], metric: str, floor: float) -> Chart:
    """One column a method, from (name, scores, collapsed): a cross a run, a bar at the mean, a stroke of one standard deviation.

    Collapsed runs are red; the dashed line at ``floor`` is what takes no learning. With many seeds this is the picture of restarts
    in the NAACL 2019 transfer-learning tutorial.
    """
    names = [name for name, *_ in rows]
    crosses = [
        {"method": name, "run": run, "score": score, "state": "collapsed" if lost else "learned"}
        for name, scores, losses in rows
        for run, (score, lost) in enumerate(zip(scores, losses, strict=True))
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
    state = alt.Color("state:N", scale=alt.Scale(domain=["learned", "collapsed"], range=["#1f77b4", LOST]), title=None)
    runs = (
        chart_of(crosses)
        .mark_point(shape="cross", angle=45, size=70, filled=True, opacity=0.75)
        .encode(x=x, y=alt.Y("score:Q", scale=y), color=state, tooltip=["method:N", "run:Q", alt.Tooltip("score:Q", format=".2%")])
    )
    line = chart_of([{"floor": floor}]).mark_rule(strokeDash=[4, 4], color=QUIET).encode(y=alt.Y("floor:Q", scale=y))
    return finish(stroke + mean + runs + (line if any(any(lost) for *_, lost in rows) else alt.LayerChart()), 340)


def trade_off(rows: Sequence[tuple[str, float, float, float, float]], cost: str, metric: str) -> Chart:
    """Score against a cost on a logarithmic axis, from (name, cost, mean, low, high); a line joins what nothing beats."""
    names = [name for name, *_ in rows]
    values: list[dict[str, Any]] = [
        {"method": name, "cost": price, "mean": mean, "low": max(0.0, low), "high": min(1.0, high)}
        for name, price, mean, low, high in rows
        if price > 0
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
    named = chart_of(front).mark_text(align="left", dx=9, dy=-7, fontSize=11, color=QUIET)
    said = named.encode(x=x, y=y, text="method:N")
    line = chart_of(front).mark_line(strokeDash=[3, 3], color=QUIET, interpolate="step-after").encode(x=x, y=y)
    return finish(line + rule + dots + said, 360)
