"""The page of ``study attention``: all heads at a glance, one head token by token, and what each does more than uniform attention.

Tokens are drawn by their position: the same token may occur twice.

Letters: L layers, H heads, T attending tokens (queries), S attended tokens (keys; as many, over one text).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from warmstart.inspection.head_attention import MEASURES
from warmstart.report.charts import WIDTH, Chart, chart_of, distinct
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.theme import DIVERGING, LINE, SEQUENTIAL, THEME, WHITE
from warmstart.studies.attention.result import HEADS_HEADER, head_name, head_rows, relation_rows

if TYPE_CHECKING:
    from warmstart.studies.attention.measure import AttentionMeasured, HeadTests

_PICTURE_SIDE = 128
"""pixels of a head's picture; for longer texts, a pixel is the largest weight in its square"""
MAX_WEIGHTS = 300_000
"""weights that a page holds at most: about 5 MB"""
_SMALLEST = 0.001
"""smaller weights are not drawn"""
_TOOLTIP = ("normalized entropy", "distance", "previous", "first", "itself")
"""figures shown for a head under the mouse"""


def one_text_section(measured: AttentionMeasured) -> Section:
    """The attention of every head over the one text, and of one head token by token."""
    means = measured.text.means
    figures_of = [[{name: float(head[MEASURES.index(name)]) for name in _TOOLTIP} for head in layer] for layer in means]
    entropy = means[:, :, MEASURES.index("normalized entropy")]
    layer, head = (int(i) for i in np.unravel_index(np.argmin(np.nan_to_num(entropy, nan=1.0)), entropy.shape))
    text = [f"{len(measured.tokens)} tokens; weights.safetensors holds every weight and tokens.json the tokens, beside this page."]
    if measured.cut:
        text.append(f"The text was cut: its last {measured.cut} tokens do not fit into the model.")
    all_heads = "Every head: attending tokens downwards, attended tokens to the right; the shade is the square root of the weight."
    one_head = (
        f"The strongest weights of one head, at first {head_name(layer, head)}, the most focused one. Choose layer and head below; "
        "drag to move, shift and wheel to zoom, double-click to reset."
    )
    figures = (
        Figure("heads", all_heads, attention_maps_chart(measured.weights, figures_of)),
        Figure("head", one_head, head_chart(measured.weights, measured.tokens, (layer + 1, head + 1))),
    )
    return Section("One text", text, figures)


def all_heads_section(tests: HeadTests) -> Section:
    """What each head does more than uniform attention, over the corpus."""
    rows = [row for row in head_rows(tests) if row["measure"] not in ("entropy", "distance") and not np.isnan(row["difference"])]
    points = [
        {
            "layer": i + 1,
            "head": j + 1,
            "entropy": tests.value("normalized entropy", i, j)[0],
            "distance": tests.value("distance", i, j)[0],
        }
        for i, j in np.ndindex(tests.p.shape[:2])
    ]
    measures = "What each head does more than uniform attention: normalized entropy, then the weight on each kind of token."
    figures = (
        Figure("measures", measures, differences_chart(rows)),
        Figure("entropy", "How focused a head is, and how far away the tokens are that it attends to.", entropy_chart(points)),
    )
    by = "the lower end of its 95% interval over passages" if tests.is_corpus else "the difference"
    text = (
        "A weight is the mean over tokens that can attend to at least two tokens, one of them of the kind in question. A head is "
        f"above the threshold if {by} is at least {tests.threshold:.2f} more than uniform attention; a dash means that fewer than "
        "two passages have such tokens. Layers and heads count from 1."
    )
    return Section("What heads attend to", (text,), (*figures, Table(HEADS_HEADER, relation_rows(tests))))


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


def differences_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A square for each head, a panel for each measure, from rows of ``heads.csv``.

    Orange is more than uniform attention, blue less. A missing interval (nan) is shown as a dash.
    """
    measures = distinct(row["measure"] for row in rows)
    layers, heads = (max(row[name] for row in rows) for name in ("layer", "head"))
    step = max(7, min(26, 150 // max(layers, heads)))
    end = max((abs(row["difference"]) for row in rows), default=1.0) or 1.0
    scale = alt.Scale(range=DIVERGING, domain=[-end, 0, end], interpolate="rgb")
    ends = ("low", "high")
    figures = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "uniform", "difference")]
    values = [{**row, **{end: "-" if np.isnan(row[end]) else f"{row[end]:.3f}" for end in ends}} for row in rows]
    axis: dict[str, Any] = {"labelAngle": 0, "ticks": False, "domain": False, "labelFontSize": 10 if step > 12 else 7}
    drawn = chart_of(values).mark_rect(stroke=WHITE, strokeWidth=0.5, aria=False)
    return (
        drawn.encode(
            x=alt.X("head:O", axis=alt.Axis(**axis)),
            y=alt.Y("layer:O", axis=alt.Axis(**axis)),
            color=alt.Color("difference:Q", title="against uniform", scale=scale, legend=alt.Legend(title="against uniform")),
            facet=alt.Facet("measure:N", columns=4, sort=measures, title=None),
            tooltip=["measure:N", "layer:O", "head:O", *figures, *(f"{end}:N" for end in ends)],
        )
        .properties(width=alt.Step(step), height=alt.Step(step))
        .configure(**THEME)
    )


def entropy_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A point for each head, from rows of layer, head, entropy (normalized) and distance."""
    legend = alt.Legend(title="layer", columns=1 + max(row["layer"] for row in rows) // 13)
    return (
        chart_of(rows)
        .mark_point(filled=True, size=60, opacity=0.9)
        .encode(
            x=alt.X("distance:Q", title="mean distance of the attended tokens", axis=alt.Axis(grid=False)),
            y=alt.Y("entropy:Q", title="normalized entropy", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "layer:O",
                title="layer",
                scale=alt.Scale(scheme="viridis"),
                legend=legend,
            ),
            tooltip=["layer:O", "head:O", alt.Tooltip("entropy:Q", format=".3f"), alt.Tooltip("distance:Q", format=".2f")],
        )
        .properties(width=WIDTH - 140, height=300)
        .configure(**THEME)
    )
