"""The chart of abstention: how many of the answers given are wrong, against how many are given."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np

from warmstart.report.charts import POINTS, Chart, chart_of, coloured, finish
from warmstart.report.ink import QUIET


def risk_chart(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], bar: float | None = None) -> Chart:
    """One line per name from (coverage, risk), both shares; a dotted line stands where the bar cuts."""
    values = []
    for name, (coverage, risk) in curves.items():
        places = np.unique(np.linspace(0, len(coverage) - 1, min(len(coverage), POINTS)).astype(int))
        values += [{"method": name, "coverage": float(coverage[i]), "risk": float(risk[i])} for i in places]
    lines = (
        chart_of(values)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("coverage:Q", title="share of questions answered", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("risk:Q", title="wrong among the answers given", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1])),
            color=coloured("method", list(curves)),
            tooltip=["method:N", alt.Tooltip("coverage:Q", format=".1%"), alt.Tooltip("risk:Q", format=".1%")],
        )
    )
    if bar is None:
        return finish(lines, 320)
    cut = chart_of([{"coverage": bar}]).mark_rule(strokeDash=[3, 3], color=QUIET).encode(x="coverage:Q")
    return finish(lines + cut, 320)
