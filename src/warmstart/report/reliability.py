"""The chart of calibration: how often a model is right where it says how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.ink import QUIET


def reliability_chart(lines: Mapping[str, Sequence[tuple[float, float, int]]]) -> Chart:
    """One line per name from (mean confidence, accuracy, texts) of each bin; on the dotted diagonal confidence is the truth."""
    values = [
        {"probabilities": name, "confidence": sure, "accuracy": right, "texts": count}
        for name, bins in lines.items()
        for sure, right, count in bins
    ]
    scale = alt.Scale(domain=[0, 1])
    x = alt.X("confidence:Q", title="confidence", scale=scale, axis=alt.Axis(format=".0%", tickCount=6))
    y = alt.Y("accuracy:Q", title="share that is right", scale=scale, axis=alt.Axis(format=".0%", tickCount=6))
    ends = chart_of([{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}])
    diagonal = ends.mark_line(strokeDash=[3, 3], color=QUIET).encode(x=x, y=y)
    base = chart_of(values).encode(x=x, y=y, color=coloured("probabilities", list(lines)))
    tooltip = ["probabilities:N", *(alt.Tooltip(f"{k}:Q", format=".1%") for k in ("confidence", "accuracy")), "texts:Q"]
    return finish(
        diagonal + base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=60, opacity=1).encode(tooltip=tooltip), 340
    )
