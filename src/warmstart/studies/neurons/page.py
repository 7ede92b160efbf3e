"""The page of ``study neurons``: the best neuron of each property, the layers they are in, and texts coloured by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import polars as pl

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult
from warmstart.report.theme import DIVERGING, INK, SEQUENTIAL, THEME, WHITE

if TYPE_CHECKING:
    from warmstart.studies.neurons.measure import ColouredText, NeuronMeasurement, PropertyResult

_LINE = 104
"""characters of a line of coloured tokens"""
_CHARACTER = 6.7
"""pixels of one"""
_SERIES = ("best neuron", "permutation threshold", "threshold of untrained backbones")


def neurons_sections(result: StudyResult, shifts: int, passages: int) -> list[Section]:
    """The correlations, and where neurons are most active; ``passages`` are listed of each neuron."""
    measured: NeuronMeasurement = result.details
    assert result.summary is not None
    names = [one.name for one in measured.results]
    caption = "The best neuron of each property, with its 95% interval over passages, and both thresholds."
    items = (
        Figure("best", caption, best_chart(measured.results)),
        Figure("layers", "The largest correlation in each layer.", layer_grid(_largest_by_layer(measured), names, measured)),
        Table(*result.summary),
    )
    table = Table(("neuron", "property", "activation", "passage"), _passage_rows(result.tables["passages"], measured, passages))
    colours = (
        "Activations relative to the neuron's largest in the corpus: orange is positive, blue negative. Choose the neuron below."
    )
    figure = Figure("texts", colours, coloured_texts(measured.texts))
    return [
        Section("Properties of neurons", (_explanation(measured, shifts),), items),
        Section("Largest activations", items=(figure, table)),
    ]


def neurons_tiles(result: StudyResult) -> list[tuple[str, str]]:
    """The key figures at the top of the page."""
    return [(name, f"{value:,.0f}") for name, value in result.figures.items()]


def _largest_by_layer(measured: NeuronMeasurement) -> np.ndarray:
    """(layers, P) the largest absolute r of any neuron of each layer, in the order of the results."""
    layout, known = measured.layout, measured.properties.names
    largest = np.abs(measured.correlations.r).reshape(layout.layers, layout.width, -1).max(axis=1)
    return largest[:, [known.index(one.name) for one in measured.results]]


def _passage_rows(passages: pl.DataFrame, measured: NeuronMeasurement, count: int) -> list[tuple[str, ...]]:
    """The largest activations as rows of text, the token between marks."""
    properties = {measured.neuron(one): one.name for one in reversed(measured.results)}
    rows = list[tuple[str, ...]]()
    for row in passages.filter(pl.col("rank") <= count).iter_rows(named=True):
        text = f"{row['before'].strip()} «{row['token'].strip()}» {row['after'].strip()}".strip()
        name = (row["neuron"], properties.get(row["neuron"], "")) if row["rank"] == 1 else ("", "")
        rows.append((*name, f"{row['activation']:.2f}", text))
    return rows


def _explanation(measured: NeuronMeasurement, shifts: int) -> str:
    control = measured.results[0].control
    untrained = (
        f" Untrained: the best neurons of {len(control.largest)} backbones of the same shape with random weights. A neuron is "
        "above them if its whole interval is above a prediction bound for one more of them (error rate 2.5% for all properties "
        "together) and above the end of the first one's interval over passages."
        if control
        else ""
    )
    return (
        f"Permutation threshold: properties are shifted circularly within each passage, at random, {shifts} times; each time the "
        f"largest correlation over all neurons is taken, and 95% of these are below the threshold.{untrained} Layers and neurons "
        "count from 1; layer 0 is the embedding."
    )


def best_chart(properties: Sequence[PropertyResult]) -> Chart:
    """The best neuron of each property with its interval, and both thresholds, as absolute correlations."""
    names = [one.name for one in properties]
    values: list[dict[str, Any]] = []
    for one in properties:
        low, high = one.best.ends
        untrained = one.control.threshold if one.control else np.nan
        for series, r in zip(_SERIES, (abs(one.best.r), one.threshold, untrained), strict=True):
            ends = {"low": low, "high": high} if series == _SERIES[0] else {"low": np.nan, "high": np.nan}
            values.append({"property": one.name, "series": series, "r": r} | ends)
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("property:N", title=None, sort=names, axis=alt.Axis(labelLimit=220, **BARE))
    base = chart_of(values).encode(y=y, color=coloured("series", _SERIES))
    x = alt.X("r:Q", scale=scale, title="absolute correlation with the property", axis=alt.Axis(tickCount=10, format=".1f"))
    tips = [
        alt.Tooltip("property:N"),
        alt.Tooltip("series:N"),
        *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("r", "low", "high")),
    ]
    best, permuted, untrained_marks = (
        base.transform_filter(f"datum.series === '{series}' && isValid(datum.r)").encode(x=x, tooltip=tips) for series in _SERIES
    )
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=5, opacity=0.35)
    chart = (
        spans.encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
        + permuted.mark_tick(thickness=2.5, size=15, opacity=1)
        + untrained_marks.mark_point(filled=True, size=55, opacity=1, shape="triangle-up")
        + best.mark_point(filled=True, size=60, opacity=1)
    )
    return finish(chart, 24 * len(names))


def layer_grid(largest: np.ndarray, properties: Sequence[str], measured: NeuronMeasurement) -> Chart:
    """The largest absolute r of any neuron of each layer, (layers, P)."""
    first = measured.layout.first
    values = [{"layer": first + i, "property": properties[j], "r": float(largest[i, j])} for i, j in np.ndindex(*largest.shape)]
    chart = chart_of(values).mark_rect(stroke=WHITE, strokeWidth=1, aria=False)
    chart = chart.encode(
        x=alt.X("layer:O", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("property:N", title=None, sort=list(properties), axis=alt.Axis(labelLimit=220, **BARE)),
        color=alt.Color("r:Q", scale=alt.Scale(domain=[0, 1], range=SEQUENTIAL)),
        tooltip=["property:N", "layer:O", alt.Tooltip("r:Q", format=".3f")],
    )
    step = max(14, min(40, 560 // len(largest)))
    return chart.properties(width=alt.Step(step), height=alt.Step(20)).configure(**THEME)


def coloured_texts(texts: Sequence[ColouredText]) -> Chart:
    """Texts coloured by one neuron at a time, orange for positive and blue for negative activations; the reader chooses it."""
    neurons = list(dict.fromkeys(text.neuron for text in texts))
    values = [row for number, name in enumerate(neurons) for row in _token_boxes(number, [t for t in texts if t.neuron == name])]
    chosen = alt.param(
        name="chosen_neuron", value=0, bind=alt.binding_select(options=list(range(len(neurons))), labels=neurons, name="neuron ")
    )
    scale = alt.Scale(domain=[0, _LINE], nice=False)
    base = chart_of(values).transform_filter("datum.neuron === chosen_neuron")
    base = base.encode(
        x=alt.X("from:Q", scale=scale, axis=None),
        y=alt.Y("line:Q", axis=None, scale=alt.Scale(reverse=True, nice=False, zero=True)),
    )
    under = base.transform_calculate(bottom="datum.line + 0.9").mark_rect(aria=False)
    under = under.encode(
        x=alt.X("from:Q", scale=scale, axis=None),
        x2="to:Q",
        y2="bottom:Q",
        color=alt.Color("share:Q", legend=None, scale=alt.Scale(range=DIVERGING, domain=[-1.4, 0, 1.4], interpolate="rgb")),
        tooltip=[alt.Tooltip("token:N"), alt.Tooltip("share:Q", title="relative to its largest", format=".0%")],
    )
    text = base.mark_text(align="left", baseline="top", dx=1, dy=3, font="monospace", fontSize=11, color=INK, tooltip=None)
    lines = max(row["line"] for row in values) + 1
    view = {"stroke": None, "continuousWidth": _LINE * _CHARACTER, "continuousHeight": 20 * lines}
    return (
        (under + text.encode(x=alt.X("begin:Q", scale=scale), text="token:N"))
        .add_params(chosen)
        .configure(**(THEME | {"view": view}))
    )


def _token_boxes(neuron: int, texts: Sequence[ColouredText]) -> list[dict[str, Any]]:
    """One box for each token of a neuron's texts, in lines like running text."""
    boxes, line = list[dict[str, Any]](), 0
    for text in texts:
        column = 0
        for token, share in zip(text.tokens, text.activations, strict=True):
            shown = token.replace("\n", "↵")[:_LINE] or " "
            if column + len(shown) > _LINE:
                line, column = line + 1, 0
            indent = len(shown) - len(shown.lstrip())  # white space at the ends of a drawn text is lost
            box = {"neuron": neuron, "line": line, "from": column, "to": column + len(shown), "begin": column + indent}
            boxes.append(box | {"token": shown, "share": round(share, 3)})
            column += len(shown)
        line += 2
    return boxes
