"""The page of ``study lab``: closed forms as lines, measured numbers as points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import altair as alt

from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.parts import Figure, Section, Table
from warmstart.studies.lab.result import CHECK_HEADER, QUESTIONS, check_rows, finding

if TYPE_CHECKING:
    import numpy as np

    from warmstart.studies.lab.measure import Experiment

AXES = {
    "copying": ("beta", "weight"),
    "averaging": ("beta", "weight of each"),
    "noisy keys": ("fraction of the draws", "weight of a"),
}
"""titles of the axes of each chart"""


def experiment_section(experiment: Experiment) -> Section:
    """An experiment on the page: its question, its finding, a chart if it has curves, and its numbers."""
    question, table = QUESTIONS[experiment.name], Table(CHECK_HEADER, check_rows(experiment))
    figures = []
    if experiment.curves:
        chart = curves_chart(experiment.curves, AXES[experiment.name])
        caption = f"{experiment.name.capitalize()}: the closed form as a line, what was measured as points."
        figures.append(Figure(experiment.name.replace(" ", "-"), caption, chart))
    return Section(experiment.name.capitalize(), (question, finding(experiment)), (*figures, table))


def curves_chart(curves: Mapping[str, np.ndarray], axes: tuple[str, str]) -> Chart:
    """Curves of points (points, 2) by name: the closed form is drawn as a line, the others as points."""
    values = [{"line": name, "x": float(x), "y": float(y)} for name, points in curves.items() for x, y in points]
    base = chart_of(values).encode(
        x=alt.X("x:Q", title=axes[0], axis=alt.Axis(grid=False)),
        y=alt.Y("y:Q", title=axes[1], scale=alt.Scale(domain=[0, 1])),
        color=coloured("line", list(curves)),
        tooltip=["line:N", alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q", format=".4f")],
    )
    line = base.transform_filter("datum.line === 'closed form'").mark_line(strokeWidth=2)
    points = base.transform_filter("datum.line !== 'closed form'").mark_point(filled=True, size=45)
    return finish(line + points, 260)
