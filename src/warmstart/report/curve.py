"""The chart of a learning curve: what each number of labels gave, and what more would give if the power law holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.ink import QUIET, shapes


def learning_curve(
    rows: Sequence[tuple[str, int, float, float, float]],
    told: Mapping[str, Sequence[tuple[float, float, float, float]]],
    metric: str,
    target: float | None,
) -> Chart:
    """Measured (name, labels, mean, low, high) as points with bands; foretold (labels, score, low, high) by name, dashed.

    A dotted line stands at ``target``.
    """
    names = list(dict.fromkeys(row[0] for row in rows))
    counts = sorted({row[1] for row in rows})
    values = [{"method": name, "labels": n, "mean": mean, "low": low, "high": high} for name, n, mean, low, high in rows]
    ahead = [
        {"method": name, "labels": n, "mean": mean, "low": low, "high": high}
        for name, points in told.items()
        for n, mean, low, high in points
    ]
    scale = alt.Scale(zero=False, nice=True)
    x = alt.X(
        "labels:Q",
        title="labelled training texts (logarithmic; dashed: foretold)",
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
