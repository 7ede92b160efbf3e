"""Charts of confidence: whether it is calibrated, and what abstaining below a threshold gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np

from warmstart.report.charts import MAX_POINTS, Chart, chart_of, coloured, finish
from warmstart.report.theme import QUIET


def reliability_chart(lines: Mapping[str, Sequence[tuple[float, float, int]]]) -> Chart:
    """One line per name from (mean confidence, accuracy, texts) of each bin; on the dotted diagonal the two are equal."""
    values = [
        {"probabilities": name, "confidence": confidence, "accuracy": accuracy, "texts": count}
        for name, bins in lines.items()
        for confidence, accuracy, count in bins
    ]
    scale = alt.Scale(domain=[0, 1])
    x = alt.X("confidence:Q", title="confidence", scale=scale, axis=alt.Axis(format=".0%", tickCount=6))
    y = alt.Y("accuracy:Q", title="accuracy", scale=scale, axis=alt.Axis(format=".0%", tickCount=6))
    ends = chart_of([{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}])
    diagonal = ends.mark_line(strokeDash=[3, 3], color=QUIET).encode(x=x, y=y)
    base = chart_of(values).encode(x=x, y=y, color=coloured("probabilities", list(lines)))
    tooltip = ["probabilities:N", *(alt.Tooltip(f"{k}:Q", format=".1%") for k in ("confidence", "accuracy")), "texts:Q"]
    points = base.mark_point(filled=True, size=60, opacity=1).encode(tooltip=tooltip)
    return finish(diagonal + base.mark_line(strokeWidth=2) + points, 340)


def risk_chart(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], threshold_coverage: float | None = None) -> Chart:
    """One line per name from (coverage (N,), risk (N,)), fractions; a dotted line marks the coverage at the chosen threshold."""
    values = []
    for name, (coverage, risk) in curves.items():
        shown = np.unique(np.linspace(0, len(coverage) - 1, min(len(coverage), MAX_POINTS)).astype(int))
        values += [{"method": name, "coverage": float(coverage[i]), "risk": float(risk[i])} for i in shown]
    axis, scale = alt.Axis(format=".0%"), alt.Scale(domain=[0, 1])
    lines = (
        chart_of(values)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("coverage:Q", title="answered (coverage)", axis=axis, scale=scale),
            y=alt.Y("risk:Q", title="wrong among the answers (risk)", axis=axis, scale=scale),
            color=coloured("method", list(curves)),
            tooltip=["method:N", alt.Tooltip("coverage:Q", format=".1%"), alt.Tooltip("risk:Q", format=".1%")],
        )
    )
    if threshold_coverage is None:
        return finish(lines, 320)
    cut = chart_of([{"coverage": threshold_coverage}]).mark_rule(strokeDash=[3, 3], color=QUIET).encode(x="coverage:Q")
    return finish(lines + cut, 320)
