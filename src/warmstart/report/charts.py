"""The charts of a report, each a function from plain rows to an Altair chart; ``page`` draws them, live and as SVG.

A score is a share (0 to 1) and is shown in per cent. The order of the rows is the order of what is drawn, and the first method is
the one in question. What is missing (the interval of a single seed) is nan in the rows and is not drawn.

Nothing is computed here beyond means, lowest and highest; intervals come with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import altair as alt
import numpy as np

from warmstart.report.ink import BLUE, GREY, INK, QUIET, THEME, colours, shapes

Chart = alt.Chart | alt.LayerChart | alt.FacetChart
Key = TypeVar("Key", bound=Hashable)

WIDTH = 780
"""pixels of a whole figure, axes and legend included; narrower screens get a narrower figure"""
BARE: dict[str, Any] = {"ticks": False, "domain": False, "labelPadding": 8}
"""an axis of names"""
BILLIONS = "replace(format(datum.value, '~s'), 'G', 'B')"
"""2,000,000,000 as 2B, where the metric prefix would be 2G"""
POINTS = 400
"""a line of more points than this is thinned: nobody can see more"""
_SUMMARY: list[alt.Tooltip] = [
    alt.Tooltip("method:N"),
    *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("mean", "low", "high")),
]


def loss_curves(rows: Iterable[Mapping[str, Any]]) -> Chart:
    """Training and held-out loss against tokens read, from the lines of ``metrics.jsonl``.

    Lines with a ``loss`` give ``step``, ``tokens`` and training loss; lines with ``held_out`` give ``step`` and figures, of which
    every one whose name ends in "loss" is drawn.
    """
    rows = list(rows)
    logged = [(row["step"], row["tokens"], row["loss"]) for row in rows if "loss" in row]
    steps, tokens, losses = np.array(logged, dtype=float).reshape(-1, 3).T
    lines: dict[str, list[tuple[float, float, float]]] = {"training": []}
    for part in np.array_split(np.arange(len(logged)), min(len(logged), POINTS) or 1):
        if len(part):
            lines["training"].append((steps[part[-1]], tokens[part[-1]], losses[part].mean()))
    for row in rows:
        for name, value in row.get("held_out", {}).items():
            if name.endswith("loss"):
                place = np.interp(row["step"], steps, tokens) if len(steps) else 0.0
                lines.setdefault(f"held out {name.removesuffix('loss')}".strip(), []).append((row["step"], place, value))
    values = [
        {"line": line, "step": step, "tokens": token, "loss": loss}
        for line, points in lines.items()
        for step, token, loss in points
    ]
    base = chart_of(values).encode(
        x=alt.X(
            "tokens:Q", title="tokens read", axis=alt.Axis(labelExpr=BILLIONS, grid=False, tickCount=8), scale=alt.Scale(nice=False)
        ),
        y=alt.Y("loss:Q", title="loss (nats)", scale=alt.Scale(zero=False)),
        color=coloured("line", list(lines)),
        tooltip=[
            "line:N",
            alt.Tooltip("step:Q", format=","),
            alt.Tooltip("tokens:Q", format=","),
            alt.Tooltip("loss:Q", format=".4f"),
        ],
    )
    points = base.transform_filter("datum.line != 'training'").mark_point(filled=True, size=45)
    return finish(base.mark_line(strokeWidth=1.8) + points, 320)


def comparison(rows: Sequence[tuple[str, Sequence[float], float, float, float]], metric: str) -> Chart:
    """One line per (method, score of each seed, mean, low, high): a ring per seed, the mean as a bar, its interval as a stroke."""
    names = [row[0] for row in rows]
    means = [
        {"method": name, "mean": mean, "low": low, "high": high, "said": f"{100 * mean:.1f}" + _around(low, high)}
        for name, _, mean, low, high in rows
    ]
    seeds = [{"method": name, "score": score} for name, scores, *_ in rows for score in scores]
    y = alt.Y("method:N", title=None, sort=names, axis=alt.Axis(**BARE, labelFontSize=13))
    x = alt.Scale(zero=False, nice=True, padding=12)
    colour = coloured("method", names, legend=False)
    base = chart_of(means).encode(y=y, color=colour, tooltip=_SUMMARY)
    spans = base.transform_filter("isValid(datum.low)")
    stroke = spans.mark_rule(strokeWidth=9, opacity=0.3).encode(x=alt.X("low:Q", scale=x), x2="high:Q")
    mean = base.mark_tick(thickness=3, size=24, opacity=1).encode(
        x=alt.X("mean:Q", title=_title(metric), scale=x, axis=alt.Axis(format=".0%", tickMinStep=0.01, tickCount=8))
    )
    rings = (
        chart_of(seeds)
        .mark_point(size=55, strokeWidth=1.6, fill="white")
        .encode(x=alt.X("score:Q", scale=x), y=y, color=colour, tooltip=["method:N", alt.Tooltip("score:Q", format=".1%")])
    )
    said = base.mark_text(dy=-19, fontSize=11.5, color=QUIET).encode(
        x=alt.X("mean:Q", scale=x), text="said:N", color=alt.value(QUIET)
    )
    # room for the words of a mean near the right end
    return finish(stroke + rings + mean + said, 56 * len(names)).properties(padding={"left": 5, "top": 5, "right": 60, "bottom": 5})


def tuning_curves(rows: Iterable[tuple[str, int, float, int]], metric: str) -> Chart:
    """Validation score at each evaluation, from (method, seed, score, its place): mean over seeds, band from lowest to highest."""
    groups = _grouped(((name, place), score) for name, _, score, place in rows)
    values: list[dict[str, Any]] = [
        {
            "method": name,
            "place": place,
            "mean": float(np.mean(scores)),
            "low": min(scores),
            "high": max(scores),
            "seeds": len(scores),
        }
        for (name, place), scores in groups.items()
    ]
    last = max((row["place"] for row in values), default=1)
    x = alt.X(
        "place:Q",
        title="evaluation",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(format="d", tickMinStep=1, grid=False, tickCount=min(last, 12)),
    )
    return _banded(values, x, metric)


def by_labels(rows: Iterable[tuple[str, int, float, float, float]], metric: str) -> Chart:
    """Test score against the number of labels, from (method, labels, mean, low, high): what a label is worth to each method."""
    values: list[dict[str, Any]] = [
        {"method": name, "labels": count, "mean": mean, "low": low, "high": high} for name, count, mean, low, high in rows
    ]
    counts = sorted({row["labels"] for row in values})
    x = alt.X(
        "labels:Q",
        title="labelled training texts (logarithmic)",
        scale=alt.Scale(type="log", padding=30, nice=False),
        axis=alt.Axis(values=counts, format=",.0f", grid=False),
    )
    return _banded(values, x, metric)


def per_class(rows: Sequence[tuple[str, str, float]]) -> Chart:
    """F1 of each class under each method, from (method, class, F1); what the first method does best stands on top."""
    methods = _distinct(row[0] for row in rows)
    order = [label for _, label, _ in sorted((row for row in rows if row[0] == methods[0]), key=lambda row: -row[2])]
    values = [{"method": method, "label": label, "f1": f1} for method, label, f1 in rows]
    ends = [
        {"label": label, "low": min(scores), "high": max(scores)}
        for label, scores in _grouped((label, f1) for _, label, f1 in rows).items()
    ]
    y = alt.Y("label:N", title=None, sort=order, axis=alt.Axis(**BARE))
    bars = chart_of(ends).mark_rule(strokeWidth=2, color="#cbd2d9").encode(y=y, x=alt.X("low:Q"), x2="high:Q")
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


def confusion(matrix: np.ndarray, labels: Sequence[str]) -> Chart:
    """Counts of (true, predicted) class, (C, C); the shade is the share of the true class, so that rare classes show too."""
    totals = np.maximum(matrix.sum(axis=1), 1)
    cells = [
        {"true": labels[i], "predicted": labels[j], "texts": int(matrix[i, j]), "share": float(matrix[i, j] / totals[i])}
        for i in range(len(labels))
        for j in range(len(labels))
    ]
    step = 46 if len(labels) <= 12 else 34 if len(labels) <= 20 else 22
    names = list(labels)
    base = chart_of(cells).encode(
        x=alt.X("predicted:N", sort=names, axis=alt.Axis(**BARE, orient="top", labelAngle=-45, labelLimit=120)),
        y=alt.Y("true:N", sort=names, axis=alt.Axis(**BARE, labelLimit=160)),
        tooltip=["true:N", "predicted:N", alt.Tooltip("texts:Q", format=","), alt.Tooltip("share:Q", format=".1%")],
    )
    shade = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=["#f5f7fa", "#9fc9e5", BLUE]), legend=None)
    counts = (
        base.transform_filter("datum.texts > 0")
        .mark_text(fontSize=12 if step > 22 else 9)
        .encode(text=alt.Text("texts:Q", format=","), color=alt.condition("datum.share > 0.6", alt.value("white"), alt.value(INK)))
    )
    drawn = base.mark_rect(stroke="white", strokeWidth=1).encode(color=shade) + counts
    # cells keep their size, so that the numbers stay readable; a narrow screen scrolls
    return drawn.properties(width=alt.Step(step), height=alt.Step(step)).configure(**THEME)


def class_balance(rows: Sequence[tuple[str, str, int]]) -> Chart:
    """Texts of each class in each split, from (split, class, count)."""
    splits, labels = _distinct(row[0] for row in rows), _distinct(row[1] for row in rows)
    values = [{"split": split, "label": label, "texts": count} for split, label, count in rows]
    bars = (
        chart_of(values)
        .mark_bar()
        .encode(
            x=alt.X("texts:Q", title="texts", axis=alt.Axis(format=",.0f", tickMinStep=1, tickCount=6)),
            y=alt.Y("label:N", title=None, sort=labels, axis=alt.Axis(**BARE), scale=alt.Scale(paddingInner=0.3)),
            yOffset=alt.YOffset("split:N", sort=splits),
            color=coloured("split", splits),
            tooltip=["label:N", "split:N", alt.Tooltip("texts:Q", format=",")],
        )
    )
    return finish(bars, len(labels) * (9 * len(splits) + 8))


def text_lengths(rows: Sequence[tuple[str, float, float, float]]) -> Chart:
    """Words per text, from (split, median, 95th percentile, longest): three marks on one line per split."""
    marks = ("median", "95th percentile", "longest")
    values = [
        {"split": split, "mark": mark, "words": words} for split, *three in rows for mark, words in zip(marks, three, strict=True)
    ]
    y = alt.Y("split:N", title=None, sort=[row[0] for row in rows], axis=alt.Axis(**BARE))
    base = chart_of(values).encode(y=y, x=alt.X("words:Q", title="words per text", axis=alt.Axis(format=",.0f", tickCount=6)))
    spans = chart_of([{"split": split, "low": low, "high": high} for split, low, _, high in rows])
    rule = spans.mark_rule(color=GREY).encode(y=y, x=alt.X("low:Q"), x2="high:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(
        color=coloured("mark", list(marks)),
        shape=alt.Shape("mark:N", scale=alt.Scale(domain=list(marks), range=shapes(marks))),
        tooltip=["split:N", "mark:N", alt.Tooltip("words:Q", format=",")],
    )
    return finish(rule + dots, 34 * len(rows))


def _banded(values: Sequence[dict[str, Any]], x: alt.X, metric: str) -> Chart:
    """Lines of ``mean`` by method with a band from ``low`` to ``high``."""
    methods = _distinct(row["method"] for row in values)
    y = alt.Scale(zero=False)
    base = chart_of(values).encode(x=x, color=coloured("method", methods))
    known = base.transform_filter("isValid(datum.low)").encode(y=alt.Y("low:Q", scale=y), y2="high:Q")
    band = known.mark_area(opacity=0.16, line=False) + known.mark_rule(opacity=0.4)
    tooltip = [alt.Tooltip(x.shorthand, format=","), *_SUMMARY]
    mean = alt.Y("mean:Q", title=_title(metric), scale=y, axis=alt.Axis(format=".0%", tickMinStep=0.01, tickCount=7))
    lines = base.mark_line(strokeWidth=2.2).encode(y=mean)
    shape = alt.Shape("method:N", scale=alt.Scale(domain=methods, range=shapes(methods)))
    points = base.mark_point(filled=True, size=60, opacity=1).encode(y=mean, shape=shape, tooltip=tooltip)
    return finish(band + lines + points, 340)


def chart_of(values: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """A chart of rows; nan becomes null, which JSON can hold and Vega leaves out."""
    clean = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in values]
    return alt.Chart(alt.Data(values=clean))  # type: ignore[no-untyped-call]


def finish(chart: Chart, height: int) -> Chart:
    """The common width and look. The width counts axes and legend, so that a page can make it smaller."""
    return chart.properties(width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).configure(
        **THEME
    )


def coloured(field: str, names: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Each name in the colour it has in every figure."""
    scale = alt.Scale(domain=list(names), range=colours(names))
    return alt.Color(f"{field}:N", scale=scale) if legend else alt.Color(f"{field}:N", scale=scale, legend=None)


def _around(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" ({100 * low:.1f} to {100 * high:.1f})"


def _title(metric: str) -> str:
    return metric.replace("_f1", " F1")


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _grouped(pairs: Iterable[tuple[Key, float]]) -> dict[Key, list[float]]:
    groups: dict[Key, list[float]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
