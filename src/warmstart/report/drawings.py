"""The charts of results: dots and intervals of names, lines with bands, and a grid.

A score is a fraction (0 to 1) and is shown in percent. What all charts share is in ``charts``, those of studies are in
``study_charts``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import altair as alt
import numpy as np

from warmstart.report.charts import (
    BARE,
    BLUE,
    INK,
    LINE,
    MAX_POINTS,
    QUIET,
    RED,
    SEQUENTIAL,
    THEME,
    WHITE,
    Chart,
    chart_of,
    coloured,
    distinct,
    finish,
    grouped,
    shapes,
)
from warmstart.report.parts import Figure, Table
from warmstart.stats.formatting import percent_range, percent_value

MOST_CLASSES, MOST_CELLS, MOST_CONFUSIONS = 100, 1600, 100
"""classes that a chart of them shows; cells of a chart of confusions, and, of more, rows of a table"""
UNIT = alt.Scale(domain=[0, 1])
_BILLIONS = "replace(format(datum.value, '~s'), 'G', 'B')"
"""2,000,000,000 as 2B, where the metric prefix would be 2G"""
Intervals = Sequence[tuple[str, int, float, float, float]]
"""(name, number of labels or of a stage, mean, low, high)"""


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
    base = chart_of(means).encode(y=y, color=colour, tooltip=_tooltip())
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


def dots_chart(rows: Sequence[tuple[str, str, float]], x: alt.X, by: str, step: int, order: Sequence[str] = ()) -> Chart:
    """A dot for each (name, series, value), and a line that joins those of a name; ``by`` says what the series are.

    ``x`` is the axis of the ``value``; ``order`` is that of the names, if not that of the rows.
    """
    names, series = order or distinct(name for name, *_ in rows), distinct(series_name for _, series_name, _ in rows)
    values = [{"name": name, by: series_name, "value": value} for name, series_name, value in rows]
    groups = grouped((name, value) for name, _, value in rows).items()
    ends = [{"name": name, "low": min(group), "high": max(group)} for name, group in groups]
    y = alt.Y("name:N", title=None, sort=list(names), axis=alt.Axis(**BARE))
    spans = chart_of(ends).mark_rule(strokeWidth=2, color=LINE).encode(y=y, x=alt.X("low:Q"), x2="high:Q")
    shape = alt.Shape(f"{by}:N", scale=alt.Scale(domain=series, range=shapes(series)))
    tooltip = ["name:N", f"{by}:N", alt.Tooltip("value:Q", format=",.4~r")]
    points = chart_of(values).mark_point(filled=True, size=75, opacity=0.95)
    return finish(spans + points.encode(y=y, x=x, color=coloured(by, series), shape=shape, tooltip=tooltip), step * len(names))


def class_balance_chart(rows: Sequence[tuple[str, str, int]]) -> Chart:
    """Texts of each class in each split, from (split, class, count)."""
    axis = alt.Axis(format=",.0f", tickMinStep=1, tickCount=6)
    x = alt.X("value:Q", title="texts", axis=axis, scale=alt.Scale(domainMin=0))
    return dots_chart([(label, split, count) for split, label, count in rows], x, "split", 28)


def text_lengths_chart(rows: Sequence[tuple[str, float, float, float]]) -> Chart:
    """Words per text, from (split, median, 95th percentile, longest): three marks on one line per split."""
    marks = ("median", "95th percentile", "longest")
    values = [(split, mark, words) for split, *three in rows for mark, words in zip(marks, three, strict=True)]
    x = alt.X("value:Q", title="words per text", axis=alt.Axis(format=",.0f", tickCount=6))
    return dots_chart(values, x, "mark", 34)


def class_scores_chart(rows: Sequence[tuple[str, str, float]]) -> Chart:
    """F1 of each class under each method, from (method, class, F1); the best class of the first method is at the top.

    Of many classes the first ``MOST_CLASSES`` are drawn.
    """
    shown = distinct(label for _, label, _ in rows)[:MOST_CLASSES]
    rows = [row for row in rows if row[1] in set(shown)]
    first = {label: f1 for method, label, f1 in rows if method == rows[0][0]}
    x = alt.X("value:Q", title="F1", scale=UNIT, axis=alt.Axis(format=".1f", tickCount=6))
    order = sorted(first, key=lambda label: -first[label])
    return dots_chart([(label, method, f1) for method, label, f1 in rows], x, "method", 26, order)


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


class LineOptions(TypedDict, total=False):
    """Optional parts of a chart of lines."""

    dotted: str
    """the expression of rows that have a dot; empty: none"""
    tooltip: Sequence[str | alt.Tooltip]
    """the columns that a dot shows after those of the line and of x"""
    more: Sequence[alt.Chart]
    """lies above"""


def lines_chart(
    values: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, by: str, height: int, **options: Unpack[LineOptions]
) -> Chart:
    """A line for each name in the column ``by``, with a dot for each row and a band from ``low`` to ``high`` where these are known.

    Rows with ``ahead`` are a prediction: dashed, without dots.
    """
    names, field = distinct(row[by] for row in values), str(y.shorthand).partition(":")[0]
    base = chart_of(values).encode(x=x, color=coloured(by, names))
    now, ahead = (base.transform_filter(f"{sign}datum.ahead") for sign in ("!", ""))
    has_band, has_ahead = (any(name in row for row in values) for name in ("low", "ahead"))
    ends: dict[str, Any] = {"y": alt.Y("low:Q", scale=y["scale"]), "y2": "high:Q"}
    layers: list[alt.Chart] = []
    if has_band:
        known = now.transform_filter("isValid(datum.low)").encode(**ends)
        layers += [known.mark_area(opacity=0.16, line=False), known.mark_rule(opacity=0.4)]
    if has_ahead:
        layers.append(ahead.mark_area(opacity=0.06, line=False).encode(**ends))
        layers.append(ahead.mark_line(strokeWidth=1.6, strokeDash=[5, 4]).encode(y=y))
    layers.append(now.mark_line(strokeWidth=2).encode(y=y))
    if dotted := options.get("dotted", "true"):
        shape = alt.Shape(f"{by}:N", scale=alt.Scale(domain=names, range=shapes(names)))
        figures = options.get("tooltip") or _tooltip(field, *(("low", "high") if has_band else ()))[1:]
        tooltip = [f"{by}:N", x.shorthand if x.shorthand.endswith(":N") else alt.Tooltip(x.shorthand, format=",.4~r"), *figures]
        points = now.transform_filter(dotted).mark_point(filled=True, size=60, opacity=1)
        layers.append(points.encode(y=y, shape=shape, tooltip=tooltip))
    return finish(alt.layer(*layers, *options.get("more", ())), height)


def tuning_chart(rows: Iterable[tuple[str, int, float, int]], metric: str) -> Chart:
    """Validation score at each evaluation, from (method, seed, score, evaluation): mean over seeds, band from lowest to highest."""
    groups = grouped(((name, evaluation), score) for name, _, score, evaluation in rows)
    values = [
        {"method": name, "evaluation": evaluation, "mean": float(np.mean(scores)), "low": min(scores), "high": max(scores)}
        | {"seeds": len(scores)}
        for (name, evaluation), scores in groups.items()
    ]
    last = max((evaluation for _, evaluation in groups), default=1)
    axis = alt.Axis(format="d", tickMinStep=1, grid=False, tickCount=min(last, 12))
    x = alt.X("evaluation:Q", title="evaluation", scale=alt.Scale(nice=False), axis=axis)
    return lines_chart(values, x, _scores(metric), "method", 340)


def label_counts_chart(rows: Intervals, metric: str) -> Chart:
    """Test score against the number of labels, from (method, labels, mean, low, high): what a label is worth to each method."""
    return learning_curve(rows, {}, metric, None, title="labelled training texts (log scale)")


def learning_curve(
    rows: Intervals,
    predicted: Mapping[str, Sequence[tuple[float, float, float, float]]],
    metric: str,
    target: float | None,
    title: str = "labelled texts, those that choose included (logarithmic; dashed: predicted)",
) -> Chart:
    """Measured (name, labels, mean, low, high) as points with bands; predicted (labels, score, low, high) by name, dashed.

    ``target`` is a dotted line.
    """
    rows = [*rows]
    values: list[dict[str, Any]] = [
        {"method": name, "labels": n, "mean": mean, "low": low, "high": high} for name, n, mean, low, high in rows
    ]
    values += [
        {"method": name, "labels": n, "mean": mean, "low": low, "high": high, "ahead": True}
        for name, points in predicted.items()
        for n, mean, low, high in points
    ]
    axis = alt.Axis(values=sorted({row[1] for row in rows}), format=",.0f", grid=False)
    x = alt.X("labels:Q", title=title, scale=alt.Scale(type="log", padding=30, nice=False), axis=axis)
    y = _scores(metric)
    line = [] if target is None else [_rule({"target": target}).encode(y=alt.Y("target:Q", scale=y["scale"]))]
    return lines_chart(values, x, y, "method", 380 if predicted else 340, more=line)


def stages_chart(rows: Intervals, stages: Sequence[str]) -> Chart:
    """Lines from (task, stage, mean, low, high): one per task, from the stage at which it was learned."""
    values = [
        {"task": name, "stage": stages[stage], "mean": mean, "low": low, "high": high} for name, stage, mean, low, high in rows
    ]
    x = alt.X("stage:N", title="after learning", sort=list(stages), axis=alt.Axis(labelAngle=0))
    y = alt.Y("mean:Q", title="score", scale=UNIT, axis=alt.Axis(format=".0%"))
    return lines_chart(values, x, y, "task", 280)


def reliability_chart(lines: Mapping[str, Sequence[tuple[float, float, int]]]) -> Chart:
    """One line per name from (mean confidence, accuracy, texts) of each bin; on the dotted diagonal the two are equal."""
    values = [
        {"probabilities": name, "confidence": confidence, "accuracy": accuracy, "texts": count}
        for name, bins in lines.items()
        for confidence, accuracy, count in bins
    ]
    x = alt.X("confidence:Q", title="confidence", scale=UNIT, axis=_percents(6))
    y = alt.Y("accuracy:Q", title="accuracy", scale=UNIT, axis=_percents(6))
    ends = chart_of([{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}])
    diagonal = ends.mark_line(strokeDash=[3, 3], color=QUIET).encode(x=x, y=y)
    return lines_chart(values, x, y, "probabilities", 340, more=[diagonal], tooltip=[*_tooltip("accuracy")[1:], "texts:Q"])


def risk_chart(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], threshold_coverage: float | None = None) -> Chart:
    """One line per name from (coverage (N,), risk (N,)), fractions; a dotted line marks the coverage at the chosen threshold."""
    values = []
    for name, (coverage, risk) in curves.items():
        shown = np.unique(np.linspace(0, len(coverage) - 1, min(len(coverage), MAX_POINTS)).astype(int))
        values += [{"method": name, "coverage": float(coverage[i]), "risk": float(risk[i])} for i in shown]
    x = alt.X("coverage:Q", title="answered (coverage)", axis=_percents(), scale=UNIT)
    y = alt.Y("risk:Q", title="wrong among the answers (risk)", axis=_percents(), scale=UNIT)
    cut = [] if threshold_coverage is None else [_rule({"coverage": threshold_coverage}).encode(x="coverage:Q")]
    return lines_chart(values, x, y, "method", 320, more=cut, dotted="")


def loss_chart(rows: Iterable[Mapping[str, Any]]) -> Chart:
    """Training and held-out loss against tokens read, from the lines of ``metrics.jsonl``.

    Lines with a ``loss`` give ``step``, ``tokens`` and training loss; lines with ``held_out`` give ``step`` and figures, of which
    all whose name ends in "loss" are drawn.
    """
    lines = _loss_lines(list(rows))
    values = [
        {"line": line, "step": step, "tokens": tokens, "loss": loss}
        for line, points in lines.items()
        for step, tokens, loss in points
    ]
    axis = alt.Axis(labelExpr=_BILLIONS, grid=False, tickCount=8)
    x = alt.X("tokens:Q", title="tokens read", axis=axis, scale=alt.Scale(nice=False))
    y = alt.Y("loss:Q", title="loss (nats)", scale=alt.Scale(zero=False))
    tooltip = [alt.Tooltip("step:Q", format=","), alt.Tooltip("loss:Q", format=".4f")]
    return lines_chart(values, x, y, "line", 320, dotted="datum.line != 'training'", tooltip=tooltip)


def _loss_lines(rows: list[Mapping[str, Any]]) -> dict[str, list[tuple[float, float, float]]]:
    """Points (step, tokens, loss) of each line; the training loss is averaged over stretches of a long run."""
    logged = [(row["step"], row["tokens"], row["loss"]) for row in rows if "loss" in row]
    steps, tokens, losses = np.array(logged, dtype=float).reshape(-1, 3).T
    lines: dict[str, list[tuple[float, float, float]]] = {"training": []}
    for part in np.array_split(np.arange(len(logged)), min(len(logged), MAX_POINTS) or 1):
        if len(part):
            lines["training"].append((steps[part[-1]], tokens[part[-1]], losses[part].mean()))
    for row in rows:
        for name, value in row.get("held_out", {}).items():
            if name.endswith("loss"):
                read = np.interp(row["step"], steps, tokens) if len(steps) else 0.0
                lines.setdefault(f"held out {name.removesuffix('loss')}".strip(), []).append((row["step"], read, value))
    return lines


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


def _scores(metric: str) -> alt.Y:
    """The axis of mean scores."""
    axis = alt.Axis(format=".0%", tickMinStep=0.01, tickCount=7)
    return alt.Y("mean:Q", title=_title(metric), scale=alt.Scale(zero=False), axis=axis)


def _percents(ticks: int = 10) -> alt.Axis:
    return alt.Axis(format=".0%", tickCount=ticks)


def _rule(place: Mapping[str, float]) -> alt.Chart:
    """A dotted line at one place."""
    return chart_of([place]).mark_rule(strokeDash=[3, 3], color=QUIET)


def _tooltip(*names: str) -> list[alt.Tooltip]:
    """The method and its figures in percent."""
    return [alt.Tooltip("method:N"), *(alt.Tooltip(f"{name}:Q", format=".1%") for name in names or ("mean", "low", "high"))]


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
