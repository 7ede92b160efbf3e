"""Charts of scores: methods compared, during training, by number of labels, and class by class.

A score is a fraction (0 to 1) and is shown in percent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np

from warmstart.report.charts import BARE, Chart, chart_of, coloured, distinct, finish, grouped
from warmstart.report.parts import Figure, Table
from warmstart.report.theme import INK, LINE, QUIET, SEQUENTIAL, THEME, WHITE, shapes
from warmstart.stats.formatting import percent_range, percent_value

MOST_CLASSES, MOST_CELLS, MOST_CONFUSIONS = 100, 1600, 100
"""classes that a chart of them shows; cells of a chart of confusions, and, of more, rows of a table"""
_TOOLTIP: list[alt.Tooltip] = [
    alt.Tooltip("method:N"),
    *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("mean", "low", "high")),
]


def comparison_chart(rows: Sequence[tuple[str, Sequence[float], float, float, float]], metric: str) -> Chart:
    """One line per (method, score of each seed, mean, low, high): a ring per seed, the mean as a bar, its interval as a stroke."""
    names = [row[0] for row in rows]
    means = [
        {"method": name, "mean": mean, "low": low, "high": high, "text": _text(mean, low, high)}
        for name, _, mean, low, high in rows
    ]
    seeds = [{"method": name, "score": score} for name, scores, *_ in rows for score in scores]
    y = alt.Y("method:N", title=None, sort=names, axis=alt.Axis(**BARE, labelFontSize=13))
    x = alt.Scale(zero=False, nice=True, domain=_around([value for _, scores, *ends in rows for value in (*scores, *ends)]))
    colour = coloured("method", names, legend=False)
    base = chart_of(means).encode(y=y, color=colour, tooltip=_TOOLTIP)
    intervals = base.transform_filter("isValid(datum.low)")
    stroke = intervals.mark_rule(strokeWidth=9, opacity=0.3).encode(x=alt.X("low:Q", scale=x), x2="high:Q")
    mean = base.mark_tick(thickness=3, size=24, opacity=1).encode(
        x=alt.X("mean:Q", title=_title(metric), scale=x, axis=alt.Axis(format=".0%", tickMinStep=0.01, tickCount=8))
    )
    rings = (
        chart_of(seeds)
        .mark_point(size=55, strokeWidth=1.6, fill=WHITE)
        .encode(x=alt.X("score:Q", scale=x), y=y, color=colour, tooltip=["method:N", alt.Tooltip("score:Q", format=".1%")])
    )
    text = base.mark_text(dy=-19, fontSize=11.5, color=QUIET).encode(
        x=alt.X("mean:Q", scale=x), text="text:N", color=alt.value(QUIET)
    )
    # space for the text of a mean near the right end
    return finish(stroke + rings + mean + text, 56 * len(names)).properties(padding={"left": 5, "top": 5, "right": 60, "bottom": 5})


def tuning_chart(rows: Iterable[tuple[str, int, float, int]], metric: str) -> Chart:
    """Validation score at each evaluation, from (method, seed, score, evaluation): mean over seeds, band from lowest to highest."""
    groups = grouped(((name, evaluation), score) for name, _, score, evaluation in rows)
    values: list[dict[str, Any]] = [
        {
            "method": name,
            "evaluation": evaluation,
            "mean": float(np.mean(scores)),
            "low": min(scores),
            "high": max(scores),
            "seeds": len(scores),
        }
        for (name, evaluation), scores in groups.items()
    ]
    last = max((row["evaluation"] for row in values), default=1)
    x = alt.X(
        "evaluation:Q",
        title="evaluation",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(format="d", tickMinStep=1, grid=False, tickCount=min(last, 12)),
    )
    return _banded(values, x, metric)


def label_counts_chart(rows: Iterable[tuple[str, int, float, float, float]], metric: str) -> Chart:
    """Test score against the number of labels, from (method, labels, mean, low, high): what a label is worth to each method."""
    values: list[dict[str, Any]] = [
        {"method": name, "labels": count, "mean": mean, "low": low, "high": high} for name, count, mean, low, high in rows
    ]
    counts = sorted({row["labels"] for row in values})
    x = alt.X(
        "labels:Q",
        title="labelled training texts (log scale)",
        scale=alt.Scale(type="log", padding=30, nice=False),
        axis=alt.Axis(values=counts, format=",.0f", grid=False),
    )
    return _banded(values, x, metric)


def class_scores_chart(rows: Sequence[tuple[str, str, float]]) -> Chart:
    """F1 of each class under each method, from (method, class, F1); the best class of the first method is at the top.

    Of many classes the first ``MOST_CLASSES`` are drawn.
    """
    methods = distinct(row[0] for row in rows)
    shown = {label for label, _ in zip(distinct(row[1] for row in rows), range(MOST_CLASSES), strict=False)}
    rows = [row for row in rows if row[1] in shown]
    order = [label for _, label, _ in sorted((row for row in rows if row[0] == methods[0]), key=lambda row: -row[2])]
    values = [{"method": method, "label": label, "f1": f1} for method, label, f1 in rows]
    ends = [
        {"label": label, "low": min(scores), "high": max(scores)}
        for label, scores in grouped((label, f1) for _, label, f1 in rows).items()
    ]
    y = alt.Y("label:N", title=None, sort=order, axis=alt.Axis(**BARE))
    bars = chart_of(ends).mark_rule(strokeWidth=2, color=LINE).encode(y=y, x=alt.X("low:Q"), x2="high:Q")
    dots = (
        chart_of(values)
        .mark_point(filled=True, size=75, opacity=0.95)
        .encode(
            y=y,
            x=alt.X("f1:Q", title="F1", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".1f", tickCount=6)),
            color=coloured("method", methods),
            shape=alt.Shape("method:N", scale=alt.Scale(domain=methods, range=shapes(methods))),
            tooltip=["label:N", "method:N", alt.Tooltip("f1:Q", format=".3f")],
        )
    )
    return finish(bars + dots, 26 * len(order))


def confusions(matrix: np.ndarray, labels: Sequence[str]) -> Figure | Table:
    """All counts of (true, predicted) class, (C, C), as a chart; of many classes the most frequent confusions as a table."""
    if len(labels) ** 2 <= MOST_CELLS:
        return Figure("confusion", "Rows: true label; columns: predicted label.", confusion_chart(matrix, labels))
    wrong = matrix - np.diag(matrix.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [(i, j) for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True) if wrong[i, j]]
    rows = [(labels[i], labels[j], f"{wrong[i, j]:,}", f"{matrix[i].sum():,}") for i, j in pairs]
    return Table(("true label", "predicted label", "texts", "of this label"), rows)


def confusion_chart(matrix: np.ndarray, labels: Sequence[str]) -> Chart:
    """Counts of (true, predicted) class, (C, C). The shade is the fraction of the true class, so that rare classes show too."""
    totals = np.maximum(matrix.sum(axis=1), 1)
    cells = [
        {"true": labels[i], "predicted": labels[j], "texts": int(matrix[i, j]), "fraction": float(matrix[i, j] / totals[i])}
        for i in range(len(labels))
        for j in range(len(labels))
    ]
    step = 46 if len(labels) <= 12 else 34 if len(labels) <= 20 else 22
    names = list(labels)
    base = chart_of(cells).encode(
        x=alt.X("predicted:N", sort=names, axis=alt.Axis(**BARE, orient="top", labelAngle=-45, labelLimit=120)),
        y=alt.Y("true:N", sort=names, axis=alt.Axis(**BARE, labelLimit=160)),
        tooltip=["true:N", "predicted:N", alt.Tooltip("texts:Q", format=","), alt.Tooltip("fraction:Q", format=".1%")],
    )
    shade = alt.Color("fraction:Q", scale=alt.Scale(domain=[0, 1], range=SEQUENTIAL[:3]), legend=None)
    counts = (
        base.transform_filter("datum.texts > 0")
        .mark_text(fontSize=12 if step > 22 else 9)
        .encode(text=alt.Text("texts:Q", format=","), color=alt.condition("datum.fraction > 0.8", alt.value(WHITE), alt.value(INK)))
    )
    drawn = base.mark_rect(stroke=WHITE, strokeWidth=1).encode(color=shade) + counts
    # cells keep their size, so that the numbers stay readable; a narrow screen scrolls
    return drawn.properties(width=alt.Step(step), height=alt.Step(step)).configure(**THEME)


def _banded(values: Sequence[dict[str, Any]], x: alt.X, metric: str) -> Chart:
    """Lines of ``mean`` by method with a band from ``low`` to ``high``."""
    methods = distinct(row["method"] for row in values)
    y = alt.Scale(zero=False)
    base = chart_of(values).encode(x=x, color=coloured("method", methods))
    known = base.transform_filter("isValid(datum.low)").encode(y=alt.Y("low:Q", scale=y), y2="high:Q")
    band = known.mark_area(opacity=0.16, line=False) + known.mark_rule(opacity=0.4)
    tooltip = [alt.Tooltip(x.shorthand, format=","), *_TOOLTIP]
    mean = alt.Y("mean:Q", title=_title(metric), scale=y, axis=alt.Axis(format=".0%", tickMinStep=0.01, tickCount=7))
    lines = base.mark_line(strokeWidth=2.2).encode(y=mean)
    shape = alt.Shape("method:N", scale=alt.Scale(domain=methods, range=shapes(methods)))
    points = base.mark_point(filled=True, size=60, opacity=1).encode(y=mean, shape=shape, tooltip=tooltip)
    return finish(band + lines + points, 340)


def _around(values: Iterable[float]) -> list[float]:
    """The range of the values and a little more; no less than 0 where none is."""
    known = [value for value in values if not math.isnan(value)]
    low, high = min(known), max(known)
    margin = 0.04 * (high - low) or 0.01
    return [max(0.0, low - margin) if low >= 0 else low - margin, high + margin]


def _text(mean: float, low: float, high: float) -> str:
    return percent_value(mean) if math.isnan(low) else f"{percent_value(mean)} ({percent_range(low, high)})"


def _title(metric: str) -> str:
    return metric.replace("_f1", " F1")


def stages_chart(rows: Sequence[tuple[str, int, float, float, float]], stages: Sequence[str]) -> Chart:
    """Lines from (task, stage, mean, low, high): one per task, from the stage at which it was learned."""
    names = list(dict.fromkeys(row[0] for row in rows))
    values = [
        {"task": name, "stage": stages[stage], "mean": mean, "low": low, "high": high} for name, stage, mean, low, high in rows
    ]
    x = alt.X("stage:N", title="after learning", sort=list(stages), axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("mean:Q", title="score", scale=scale, axis=alt.Axis(format=".0%"))
    base = chart_of(values).encode(x=x, color=coloured("task", names))
    with_interval = base.transform_filter("isValid(datum.low)")
    rule = with_interval.mark_rule(strokeWidth=6, opacity=0.2).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    shape = alt.Shape("task:N", scale=alt.Scale(domain=names, range=shapes(names)))
    tooltip = ["task:N", "stage:N", alt.Tooltip("mean:Q", format=".1%")]
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    return finish(rule + base.mark_line(strokeWidth=2).encode(y=y) + dots, 280)
