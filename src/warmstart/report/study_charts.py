"""The charts of studies."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from warmstart.data.probing import BAG, RANDOM
from warmstart.report.charts import (
    BARE,
    DIVERGING,
    GREY,
    INK,
    LINE,
    SEQUENTIAL,
    THEME,
    WHITE,
    WIDTH,
    Chart,
    chart_of,
    coloured,
    distinct,
    finish,
    shapes,
)
from warmstart.stats.intervals import percentiles

if TYPE_CHECKING:
    from warmstart.inspection.probing import TaskProbes

_ROW_HEIGHT = 16
_PANEL_WIDTH, _PANEL_HEIGHT, _PANELS_PER_ROW = 210, 150, 3
_DASHES = ([2, 3], [7, 4], [10, 3, 2, 3], [1, 5], [14, 5], [5, 2, 1, 2])
"""dash patterns of baselines; the seventh baseline begins again with the first"""
ProbePoint = tuple[str, str, str, float, float, float]
"""(task, model, layer, value, low, high)"""


def _intervals(rows: Sequence[Mapping[str, Any]], series: Sequence[str], x: dict[str, Any], form: str) -> alt.LayerChart:
    """A line for each name: a dot for its value in each series, and its interval; pale, if it is not ``clear``.

    Rows have name, series, value, low and high; ``x`` is how their axis looks, ``form`` the format of a number (d3).
    """
    y = alt.Y("name:N", title=None, sort=distinct(row["name"] for row in rows), axis=alt.Axis(labelLimit=340, **BARE))
    pale = alt.condition("datum.clear === false", alt.value(0.35), alt.value(1.0))
    base = chart_of(rows).encode(y=y, color=coloured("series", series), opacity=pale)
    tips = ["name:N", "series:N", *(alt.Tooltip(f"{name}:Q", format=form) for name in ("value", "low", "high"))]
    shape = alt.Shape("series:N", scale=alt.Scale(domain=list(series), range=shapes(series)))
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **x), x2="high:Q")
    dots = base.transform_filter("isValid(datum.value)").mark_point(filled=True, size=56)
    return spans + dots.encode(x=alt.X("value:Q", **x), shape=shape, tooltip=tips)


def pairs_chart(rows: Sequence[tuple[str, str, float, float, float]]) -> Chart:
    """Accuracy on each group of minimal pairs, from (method, group, accuracy, low, high); the dashed line is chance.

    The groups are in the order of the first method's accuracy, best first.
    """
    methods = distinct(method for method, *_ in rows)
    groups = [group for method, group, *_ in sorted(rows, key=lambda row: -row[2]) if method == methods[0]]
    ordered = sorted(rows, key=lambda row: groups.index(row[1]))
    values = [dict(zip(("series", "name", "value", "low", "high"), row, strict=True)) for row in ordered]
    x = {"scale": alt.Scale(domain=[0, 1]), "axis": alt.Axis(format="%", title="accuracy")}
    drawn = _intervals(values, methods, x, ".1%")
    drawn = drawn.encode(yOffset=alt.YOffset("series:N", sort=methods)) if len(methods) > 1 else drawn
    chance = chart_of([{"chance": 0.5}]).mark_rule(strokeDash=[4, 4], opacity=0.6).encode(x="chance:Q")
    return finish(chance + drawn, _ROW_HEIGHT * len(groups))


def probe_points(probes: Sequence[TaskProbes], task: str) -> list[ProbePoint]:
    """Every layer of every model on a task, and of random weights, named after the models that share them."""
    same, sharing = [probed for probed in probes if probed.task.name == task], dict[bytes, list["TaskProbes"]]()
    points = [
        (task, probed.model, layer, *probed.linear[layer].accuracy) for probed in same for layer in probed.linear if layer != BAG
    ]
    for probed in same:
        sharing.setdefault(b"".join(scores.correct.tobytes() for scores in probed.random.values()), []).append(probed)
    for models in sharing.values():
        name = RANDOM if len(sharing) == 1 else f"{RANDOM}, {' and '.join(probed.model for probed in models)}"
        points += [(task, name, layer, *scores.accuracy) for layer, scores in models[0].random.items() if layer != BAG]
    return points


def probe_chart(
    points: Sequence[ProbePoint], layers: Sequence[str], baselines: Sequence[tuple[str, str, float]], form: str = ".0%"
) -> Chart:
    """A panel per task: values by layer with their intervals, and ``baselines`` (task, name, value) as dashed lines.

    ``form`` is the format of the values (d3), fractions in percent by default.
    """
    models = distinct(model for _, model, *_ in points)
    tasks = distinct(task for task, *_ in points)
    values = [
        {"task": task, "model": model, "layer": layer, "value": value, "low": low, "high": high}
        for task, model, layer, value, low, high in points
    ]
    base = chart_of(values + [{"task": task, "baseline": name, "value": value} for task, name, value in baselines])
    x = alt.X("layer:N", sort=list(layers), title=None, axis=alt.Axis(labelAngle=-40, labelLimit=70))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format=form, tickCount=5))
    colour = coloured("model", models)
    tooltip = [
        "task:N",
        "model:N",
        "layer:N",
        *(alt.Tooltip(f"{name}:Q", format=form.replace("0%", "1%")) for name in ("value", "low", "high")),
    ]
    of_layers = base.transform_filter("isValid(datum.layer)")
    lines = of_layers.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour)
    intervals = of_layers.mark_rule(opacity=0.35, strokeWidth=4).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    dots = of_layers.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltip)
    names = distinct(name for _, name, _ in baselines)
    dashes = [_DASHES[i % len(_DASHES)] for i in range(len(names))]
    dash = alt.StrokeDash("baseline:N", title=None, scale=alt.Scale(domain=names, range=dashes), legend=alt.Legend(labelLimit=280))
    dash = dash.sort(["", *names])  # numbered from 1, models from 0: Vega-Lite makes one legend of two with the same numbers
    rules = base.transform_filter("isValid(datum.baseline)").mark_rule(opacity=0.7).encode(y=y, strokeDash=dash)
    panel = alt.layer(rules, intervals, lines, dots).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    return (
        panel.facet(facet=alt.Facet("task:N", sort=tasks, title=None), columns=_PANELS_PER_ROW)
        .resolve_scale(y="independent")
        .configure(**THEME | {"legend": THEME["legend"] | {"orient": "top", "columns": 3}})
    )


_LINE = 96
"""characters on a line of the heat map"""


def heat_chart(words: Sequence[str], values: np.ndarray) -> Chart:
    """Words in lines like running text, coloured by their values (W,) in nats."""
    rows, line, column = [], 0, 0
    for number, (word, value) in enumerate(zip(words, values, strict=True)):
        width = min(len(word), _LINE) + 1
        if column + width > _LINE:
            line, column = line + 1, 0
        rows.append({"number": number, "word": word, "nats": float(value), "line": line, "x": column, "x2": column + width - 0.2})
        column += width
    most = float(np.abs(values).max()) or 1.0
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, _LINE]))
    tips: list[Any] = ["word:N", alt.Tooltip("nats:Q", format="+.3f"), "number:Q"]
    base = chart_of(rows).encode(x=x, y=alt.Y("line:O", axis=None), tooltip=tips)
    shade = alt.Scale(domain=[-most, 0, most], range=DIVERGING[::-1], interpolate="rgb")
    legend = alt.Legend(orient="top", title="nats for the target", gradientLength=240)
    boxes = base.mark_rect(height=20, cornerRadius=3).encode(x2="x2:Q", color=alt.Color("nats:Q", scale=shade, legend=legend))
    dark = alt.condition(f"abs(datum.nats) > {0.85 * most}", alt.value(WHITE), alt.value(INK))
    labels = base.mark_text(align="left", dx=3, font="monospace", fontSize=12).encode(text="word:N", color=dark)
    return finish(boxes + labels, 26 * (line + 1))


def curve_chart(methods: Sequence[str], deletion: np.ndarray, insertion: np.ndarray) -> Chart:
    """Deletion and insertion curves (O, W + 1) of each method, with the middle 90% of random orders, which come after them."""
    names, values = [*methods, "random orders"], []
    panels = {"most important words removed first": deletion, "most important words added first": insertion}
    for panel, curves in panels.items():
        low, middle, high = percentiles(curves[len(methods) :], (0.05, 0.5, 0.95))
        for method, curve in zip(names, [*curves[: len(methods)], middle], strict=True):
            ends = {"low": low, "high": high} if method == names[-1] else {}
            values += [
                {"panel": panel, "method": method, "share": i / (len(curve) - 1), "probability": float(value)}
                | {name: float(end[i]) for name, end in ends.items()}
                for i, value in enumerate(curve)
            ]
    base = chart_of(values)
    x = alt.X("share:Q", title="share of the words", axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("probability:Q", title="probability of the target", scale=alt.Scale(domain=[0, 1]))
    tips = ["method:N", alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("probability:Q", format=".3f")]
    known = base.transform_filter("isValid(datum.low)")
    band = known.mark_area(opacity=0.25, color=GREY).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    lines = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=coloured("method", names), tooltip=tips)
    layered = alt.layer(band, lines).properties(width=280, height=220)
    return layered.facet(facet=alt.Facet("panel:N", sort=list(panels), title=None), columns=2).configure(**THEME)


_PICTURE_SIDE = 128
"""pixels of a head's picture; for longer texts, a pixel is the largest weight in its square"""
MAX_WEIGHTS = 300_000
"""weights that a page holds at most: about 5 MB"""
_SMALLEST = 0.001
"""smaller weights are not drawn"""


def attention_maps_chart(weights: np.ndarray, figures: Sequence[Sequence[Mapping[str, float]]]) -> Chart:
    """A small picture of each head, layers downwards, from weights (L, H, T, S); ``figures`` are shown in its tooltip."""
    depth, heads = weights.shape[:2]
    step = max(28, min(150, (WIDTH - 60) // heads))
    values = [
        {"layer": i + 1, "head": j + 1, "picture": _picture(weights[i, j]), **figures[i][j]}
        for i in range(depth)
        for j in range(heads)
    ]
    names = [alt.Tooltip(f"{name}:Q", format=".3f") for name in figures[0][0]]
    drawn = chart_of(values).mark_image(width=step - 6, height=step - 6, smooth=False, aria=False)
    drawn = drawn.encode(
        x=alt.X("head:O", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("layer:O", axis=alt.Axis(ticks=False, domain=False)),
        url="picture:N",
        tooltip=["layer:O", "head:O", *names],
    )
    frames = chart_of(values).mark_rect(filled=False, stroke=LINE, aria=False).encode(x="head:O", y="layer:O")
    return (drawn + frames).properties(width=alt.Step(step), height=alt.Step(step)).configure(**THEME)


def _picture(weights: np.ndarray) -> str:
    """Weights (T, S) as a PNG in a data URL."""
    pool = -(-len(weights) // _PICTURE_SIDE)
    rest = -len(weights) % pool
    square = np.pad(weights, ((0, rest), (0, rest))).reshape((len(weights) + rest) // pool, pool, -1, pool).max(axis=(1, 3))
    shades = np.round(255 * np.sqrt(np.clip(square, 0, 1))).astype(np.uint8)
    lines = np.pad(shades, ((0, 0), (1, 0)))  # a zero before every line: no PNG filter
    stops = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in SEQUENTIAL])
    at = np.linspace(0, 1, len(SEQUENTIAL))
    palette = np.stack([np.interp(np.linspace(0, 1, 256), at, stops[:, i]) for i in range(3)], axis=1).round().astype(np.uint8)
    head = struct.pack(">IIBBBBB", *shades.shape[::-1], 8, 3, 0, 0, 0)
    parts = (b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")
    chunks = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def head_chart(weights: np.ndarray, tokens: Sequence[str], first: tuple[int, int]) -> Chart:
    """The strongest weights of one head at a time, from weights (L, H, T, S); ``first`` is the layer and head shown at first.

    If scripts run, the reader chooses layer and head, moves with the mouse, and zooms with shift and wheel.
    """
    depth, heads, count, _ = weights.shape
    choices = [
        alt.param(name=f"chosen_{name}", value=value, bind=alt.binding_select(options=list(range(1, size + 1)), name=f"{name} "))
        for name, value, size in (("layer", first[0], depth), ("head", first[1], heads))
    ]
    zoom = alt.selection_interval(bind="scales", zoom="wheel![event.shiftKey]", encodings=["x", "y"])
    axis: dict[str, Any] = {
        "labelExpr": "tokens[datum.value]", "tickMinStep": 1, "tickCount": count, "labelOverlap": "greedy", "grid": False,
        "labelFontSize": 8 if count > 40 else 11, "labelLimit": 90, "ticks": False, "labelPadding": 3,
    }  # fmt: skip
    shade = alt.Scale(type="sqrt", domain=[0, 1], range=SEQUENTIAL, interpolate="rgb")
    x = alt.Scale(domain=[-0.5, count - 0.5], nice=False, zero=False)
    y = alt.Scale(reverse=True, **x.to_dict())
    drawn = _weight_rows(weights).encode(
        x=alt.X("left:Q", title="attended token", scale=x, axis=alt.Axis(orient="top", labelAngle=-90, **axis)),
        x2="right:Q",
        y=alt.Y("top:Q", title="attending token", scale=y, axis=alt.Axis(**axis)),
        y2="bottom:Q",
        color=alt.Color("fraction:Q", title="weight", scale=shade),
        tooltip=[
            alt.Tooltip("attending:N", title="attending"),
            alt.Tooltip("query:Q", title="at position"),
            alt.Tooltip("attended:N", title="attended"),
            alt.Tooltip("key:Q", title="at position "),
            alt.Tooltip("fraction:Q", title="weight", format=".3f"),
        ],
    )
    shown = alt.param(name="tokens", value=[token.replace("\n", "↵") for token in tokens])
    side = max(220, min(1100, count * 9))
    drawn = drawn.add_params(shown, *choices, zoom).properties(width=min(WIDTH - 200, max(side, 320)), height=side)
    return drawn.configure(**THEME)


def _weight_rows(weights: np.ndarray) -> alt.Chart:
    """A square for each of the strongest weights (L, H, T, S) of the chosen layer and head, with its tokens' positions."""
    depth, heads = weights.shape[:2]
    most = MAX_WEIGHTS // (depth * heads)
    values = [{"layer": i + 1, "head": j + 1, **_strongest(weights[i, j], most)} for i in range(depth) for j in range(heads)]
    return (
        chart_of(values)
        .transform_filter("datum.layer === chosen_layer && datum.head === chosen_head")
        .transform_calculate(**{name: f"split(datum.{name}, ' ')" for name in ("query", "key", "weight")})
        .transform_flatten(["query", "key", "weight"])
        .transform_calculate(
            left="toNumber(datum.key) - 0.5",
            right="toNumber(datum.key) + 0.5",
            top="toNumber(datum.query) - 0.5",
            bottom="toNumber(datum.query) + 0.5",
            fraction="datum.weight / 1000",
            attending="tokens[datum.query]",
            attended="tokens[datum.key]",
        )
        .mark_rect(clip=True, aria=False)
    )


def _strongest(weights: np.ndarray, most: int) -> dict[str, str]:
    """The positions and thousandths of the ``most`` strongest of weights (T, S), in reading order.

    Each is one text of numbers: Altair would check a long list number by number, which takes long.
    """
    flat = weights.ravel()
    order = np.argsort(-flat, kind="stable")[:most]
    kept = np.sort(order[flat[order] >= _SMALLEST])
    query, key = np.divmod(kept, weights.shape[1])
    columns = {"query": query, "key": key, "weight": np.round(1000 * flat[kept]).astype(int)}
    return {name: " ".join(map(str, column.tolist())) for name, column in columns.items()}


def _cells(
    rows: Sequence[Mapping[str, Any]], names: tuple[str, str], colour: alt.Color, tips: Sequence[Any], step: int
) -> alt.Chart:
    """A cell for each row, at the place that the columns ``names`` say, those of the first row on top."""
    across, down = names
    axis: dict[str, Any] = {**BARE, "labelAngle": 0, "labelLimit": 220, "labelFontSize": 12 if step > 12 else 7, "labelPadding": 4}
    order = distinct(row[down] for row in rows)
    drawn = chart_of(rows).mark_rect(stroke=WHITE, strokeWidth=0.5, aria=False)
    x, y = alt.X(f"{across}:O", axis=alt.Axis(**axis)), alt.Y(f"{down}:O", sort=order, axis=alt.Axis(**axis))
    return drawn.encode(x=x, y=y, color=colour, tooltip=list(tips)).properties(width=alt.Step(step), height=alt.Step(step))


def _signed(rows: Sequence[Mapping[str, Any]], name: str, title: str, **legend: Any) -> alt.Color:
    """Orange above zero, blue below."""
    end = max((abs(row[name]) for row in rows), default=0.0) or 1.0
    scale = alt.Scale(domain=[-end, 0, end], range=DIVERGING, interpolate="rgb")
    return alt.Color(f"{name}:Q", scale=scale, legend=alt.Legend(title=title, titleLimit=300, **legend))


def differences_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A square for each head, a panel for each measure, from rows of ``heads.csv``.

    Orange is more than uniform attention, blue less. A missing interval (nan) is shown as a dash.
    """
    step = max(7, min(26, 150 // max(max(row["layer"], row["head"]) for row in rows)))
    ends = ("low", "high")
    values = [{**row, **{end: "-" if np.isnan(row[end]) else f"{row[end]:.3f}" for end in ends}} for row in rows]
    figures = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "uniform", "difference")]
    tips = ["measure:N", "layer:O", "head:O", *figures, *(f"{end}:N" for end in ends)]
    cells = _cells(values, ("head", "layer"), _signed(rows, "difference", "against uniform"), tips, step)
    panels = alt.Facet("measure:N", columns=4, sort=distinct(row["measure"] for row in rows), title=None)
    return cells.encode(facet=panels).configure(**THEME)


def entropy_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A point for each head, from rows of layer, head, entropy (normalized) and distance."""
    legend = alt.Legend(title="layer", columns=1 + max(row["layer"] for row in rows) // 13)
    return (
        chart_of(rows)
        .mark_point(filled=True, size=60, opacity=0.9)
        .encode(
            x=alt.X("distance:Q", title="mean distance of the attended tokens", axis=alt.Axis(grid=False)),
            y=alt.Y("entropy:Q", title="normalized entropy", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("layer:O", title="layer", scale=alt.Scale(scheme="viridis"), legend=legend),
            tooltip=["layer:O", "head:O", alt.Tooltip("entropy:Q", format=".3f"), alt.Tooltip("distance:Q", format=".2f")],
        )
        .properties(width=WIDTH - 140, height=300)
        .configure(**THEME)
    )


_EFFECT_TIPS = [alt.Tooltip("component:N"), *(alt.Tooltip(f"{name}:Q", format=".4f") for name in ("effect", "low", "high", "p"))]


def effects_chart(rows: Sequence[Mapping[str, Any]], axis: str) -> Chart:
    """From rows with ``component``, ``type``, ``effect``, ``low``, ``high`` and ``significant``."""
    names = {"component": "name", "type": "series", "effect": "value", "low": "low", "high": "high", "significant": "clear"}
    values = [{new: row[old] for old, new in names.items()} for row in rows]
    drawn = _intervals(values, distinct(row["series"] for row in values), {"title": axis, "axis": alt.Axis(tickCount=8)}, ".4f")
    zero = chart_of([{"zero": 0}]).mark_rule(opacity=0.6).encode(x="zero:Q")
    return finish(zero + drawn, _ROW_HEIGHT * len(rows))


def heads_chart(rows: Sequence[Mapping[str, Any]], axis: str) -> Chart:
    """A cell for each row with ``block`` and ``head`` (from 1), ``effect`` and ``significant``; orange: worse without the head."""
    colour = _signed(rows, "effect", axis, orient="bottom", gradientLength=240)
    size = 34 if len({row["head"] for row in rows}) <= 16 else 22  # cells keep their size; a narrow screen scrolls
    cells = _cells(sorted(rows, key=lambda row: -row["block"]), ("head", "block"), colour, _EFFECT_TIPS, size)
    dots = cells.transform_filter("datum.significant").mark_point(filled=True, size=26, color=INK, opacity=1)
    return (cells + dots.encode(color=alt.value(INK))).configure(**THEME)


_TOKEN_LINE, _CHARACTER = 104, 6.7
"""characters of a line of coloured tokens, and pixels of one"""
_SERIES = ("best neuron", "permutation threshold", "threshold of untrained backbones")


def best_chart(rows: Sequence[tuple[str, Sequence[float], tuple[float, float]]]) -> Chart:
    """The best neuron of each property with its interval, and both thresholds, as absolute correlations.

    A row is the property, the three in the order of ``_SERIES`` (nan for none), and the ends of the interval.
    """
    values = list[dict[str, Any]]()
    for name, three, (low, high) in rows:
        values += [{"name": name, "series": series, "value": r} for series, r in zip(_SERIES, three, strict=True)]
        values[-len(_SERIES)] |= {"low": low, "high": high}
    axis = alt.Axis(tickCount=10, format=".1f")
    x = {"scale": alt.Scale(domain=[0, 1]), "title": "absolute correlation with the property", "axis": axis}
    return finish(_intervals(values, _SERIES, x, ".3f"), 24 * len(rows))


def layer_grid(largest: np.ndarray, properties: Sequence[str], first: int) -> Chart:
    """The largest absolute r of any neuron of each layer, (layers, P); ``first`` is the number of the first layer."""
    values = [{"layer": first + i, "property": properties[j], "r": float(largest[i, j])} for j, i in np.ndindex(*largest.T.shape)]
    colour = alt.Color("r:Q", scale=alt.Scale(domain=[0, 1], range=SEQUENTIAL))
    tips = ["property:N", "layer:O", alt.Tooltip("r:Q", format=".3f")]
    return _cells(values, ("layer", "property"), colour, tips, max(14, min(24, 560 // len(largest)))).configure(**THEME)


def coloured_texts(texts: Sequence[tuple[str, Sequence[str], Sequence[float]]]) -> Chart:
    """Texts (neuron, tokens, activations) coloured by one neuron at a time, which the reader chooses.

    Orange is a positive activation, blue a negative one.
    """
    neurons = distinct(neuron for neuron, *_ in texts)
    values = [row for i, name in enumerate(neurons) for row in _token_boxes(i, [rest for neuron, *rest in texts if neuron == name])]
    chosen = alt.param(
        name="chosen_neuron", value=0, bind=alt.binding_select(options=list(range(len(neurons))), labels=neurons, name="neuron ")
    )
    scale = alt.Scale(domain=[0, _TOKEN_LINE], nice=False)
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
    view = {"stroke": None, "continuousWidth": _TOKEN_LINE * _CHARACTER, "continuousHeight": 20 * lines}
    return (
        (under + text.encode(x=alt.X("begin:Q", scale=scale), text="token:N"))
        .add_params(chosen)
        .configure(**(THEME | {"view": view}))
    )


def _token_boxes(neuron: int, texts: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """One box for each token of a neuron's texts, in lines like running text."""
    boxes, line = list[dict[str, Any]](), 0
    for tokens, activations in texts:
        column = 0
        for token, share in zip(tokens, activations, strict=True):
            shown = token.replace("\n", "↵")[:_TOKEN_LINE] or " "
            if column + len(shown) > _TOKEN_LINE:
                line, column = line + 1, 0
            indent = len(shown) - len(shown.lstrip())  # white space at the ends of a drawn text is lost
            box = {"neuron": neuron, "line": line, "from": column, "to": column + len(shown), "begin": column + indent}
            boxes.append(box | {"token": shown, "share": round(share, 3)})
            column += len(shown)
        line += 2
    return boxes


def curves_chart(curves: Mapping[str, np.ndarray], axes: tuple[str, str]) -> Chart:
    """Curves of points (points, 2) by name: the closed form is drawn as a line, the others as points."""
    values = [{"line": name, "x": float(x), "y": float(y)} for name, points in curves.items() for x, y in points]
    base = chart_of(values).encode(
        x=alt.X("x:Q", title=axes[0], axis=alt.Axis(grid=False, tickCount=10)),
        y=alt.Y("y:Q", title=axes[1], scale=alt.Scale(domain=[0, 1])),
        color=coloured("line", list(curves)),
        tooltip=["line:N", alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q", format=".4f")],
    )
    line = base.transform_filter("datum.line === 'closed form'").mark_line(strokeWidth=2)
    points = base.transform_filter("datum.line !== 'closed form'").mark_point(filled=True, size=45)
    return finish(line + points, 260)
