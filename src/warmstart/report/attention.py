"""The charts of attention: all heads at a glance, one head token by token, and what each does more than uniform attention.

Tokens are drawn by their place: the same one may come twice, and no text of a user's becomes a name that a scale knows.

Letters: L layers, H heads, T tokens asking, S tokens seen (as many, over one text).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from warmstart.report.charts import WIDTH, Chart, chart_of
from warmstart.report.ink import BLUE, THEME

RAMP = ["#ffffff", "#9fc9e5", BLUE, "#08243a"]
"""weights from 0 to 1; by their square root, so that small ones show"""
SIDE = 128
"""pixels of a head's picture; of longer texts, each pixel is the largest weight in its square"""
CELLS = 300_000
"""weights that a page holds at most: about 5 MB"""
LEAST = 0.001
"""weights below are not drawn"""


def overview(weights: np.ndarray, tips: Sequence[Sequence[Mapping[str, float]]]) -> Chart:
    """A small picture of each head, layers downwards, from weights (L, H, T, S); ``tips`` are figures of each head."""
    depth, heads = weights.shape[:2]
    step = max(28, min(150, (WIDTH - 60) // heads))
    values = [
        {"layer": i + 1, "head": j + 1, "picture": _picture(weights[i, j]), **tips[i][j]}
        for i in range(depth)
        for j in range(heads)
    ]
    names = [alt.Tooltip(f"{name}:Q", format=".3f") for name in tips[0][0]]
    drawn = chart_of(values).mark_image(width=step - 6, height=step - 6, smooth=False, aria=False)
    drawn = drawn.encode(
        x=alt.X("head:O", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("layer:O", axis=alt.Axis(ticks=False, domain=False)),
        url="picture:N",
        tooltip=["layer:O", "head:O", *names],
    )
    frames = chart_of(values).mark_rect(filled=False, stroke="#cbd2d9", aria=False).encode(x="head:O", y="layer:O")
    return (drawn + frames).properties(width=alt.Step(step), height=alt.Step(step)).configure(**THEME)


def _picture(weights: np.ndarray) -> str:
    """Weights (T, S) as the address of a PNG picture that stands in the address itself."""
    pool = -(-len(weights) // SIDE)
    rest = -len(weights) % pool
    square = np.pad(weights, ((0, rest), (0, rest))).reshape((len(weights) + rest) // pool, pool, -1, pool).max(axis=(1, 3))
    shades = np.round(255 * np.sqrt(np.clip(square, 0, 1))).astype(np.uint8)
    lines = np.pad(shades, ((0, 0), (1, 0)))  # a zero before every line: it is filtered in no way
    stops = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in RAMP])
    where = np.linspace(0, 1, len(RAMP))
    palette = np.stack([np.interp(np.linspace(0, 1, 256), where, stops[:, i]) for i in range(3)], axis=1).round().astype(np.uint8)
    head = struct.pack(">IIBBBBB", *shades.shape[::-1], 8, 3, 0, 0, 0)
    parts = (b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")
    made = b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + made).decode()


def close_up(weights: np.ndarray, tokens: Sequence[str], first: tuple[int, int]) -> Chart:
    """The strongest weights of one head at a time, from weights (L, H, T, S); ``first`` is the layer and head shown at first.

    Where scripts run, layer and head are chosen, and the mouse moves and (with shift) zooms.
    """
    depth, heads, count, _ = weights.shape
    room = CELLS // (depth * heads)
    values = [{"layer": i + 1, "head": j + 1, **_strongest(weights[i, j], room)} for i in range(depth) for j in range(heads)]
    choices = [
        alt.param(name=f"chosen_{name}", value=value, bind=alt.binding_select(options=list(range(1, size + 1)), name=f"{name} "))
        for name, value, size in (("layer", first[0], depth), ("head", first[1], heads))
    ]
    zoom = alt.selection_interval(bind="scales", zoom="wheel![event.shiftKey]", encodings=["x", "y"])
    axis: dict[str, Any] = {"labelExpr": "tokens[datum.value]", "tickMinStep": 1, "tickCount": count, "labelOverlap": "greedy"}
    look: dict[str, Any] = {
        "grid": False,
        "labelFontSize": 8 if count > 40 else 11,
        "labelLimit": 90,
        "ticks": False,
        "labelPadding": 3,
    }
    shade = alt.Scale(type="sqrt", domain=[0, 1], range=RAMP, interpolate="rgb")
    span = alt.Scale(domain=[-0.5, count - 0.5], nice=False, zero=False)
    drawn = (
        chart_of(values)
        .transform_filter("datum.layer === chosen_layer && datum.head === chosen_head")
        .transform_calculate(**{name: f"split(datum.{name}, ' ')" for name in ("query", "key", "weight")})
        .transform_flatten(["query", "key", "weight"])
        .transform_calculate(
            left="toNumber(datum.key) - 0.5",
            right="toNumber(datum.key) + 0.5",
            top="toNumber(datum.query) - 0.5",
            bottom="toNumber(datum.query) + 0.5",
            share="datum.weight / 1000",
            asking="tokens[datum.query]",
            seen="tokens[datum.key]",
        )
        .mark_rect(clip=True, aria=False)
        .encode(
            x=alt.X("left:Q", title="token seen", scale=span, axis=alt.Axis(orient="top", labelAngle=-90, **axis, **look)),
            x2="right:Q",
            y=alt.Y("top:Q", title="token asking", scale=alt.Scale(reverse=True, **span.to_dict()), axis=alt.Axis(**axis, **look)),
            y2="bottom:Q",
            color=alt.Color("share:Q", title="weight", scale=shade),
            tooltip=[
                alt.Tooltip("asking:N", title="asking"),
                alt.Tooltip("query:Q", title="at place"),
                alt.Tooltip("seen:N", title="seen"),
                alt.Tooltip("key:Q", title="at place "),
                alt.Tooltip("share:Q", title="weight", format=".3f"),
            ],
        )
    )
    shown = alt.param(name="tokens", value=[token.replace("\n", "↵") for token in tokens])
    side = max(220, min(1100, count * 9))
    return (
        drawn.add_params(shown, *choices, zoom).properties(width=min(WIDTH - 200, max(side, 320)), height=side).configure(**THEME)
    )


def _strongest(weights: np.ndarray, room: int) -> dict[str, str]:
    """The places and thousandths of at most ``room`` weights of (T, S), the strongest, in the order of reading.

    Each is one text of numbers: a list of so many would be checked number by number, which takes long.
    """
    flat = weights.ravel()
    order = np.argsort(-flat, kind="stable")[:room]
    kept = np.sort(order[flat[order] >= LEAST])
    query, key = np.divmod(kept, weights.shape[1])
    columns = {"query": query, "key": key, "weight": np.round(1000 * flat[kept]).astype(int)}
    return {name: " ".join(map(str, column.tolist())) for name, column in columns.items()}


def grid(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A square for each head, a picture for each measure, from rows of ``heads.csv``.

    Orange is more than uniform attention, blue less. Ends of intervals that nobody knows (nan) are told as a dash.
    """
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    layers, heads = (max(row[name] for row in rows) for name in ("layer", "head"))
    step = max(7, min(26, 150 // max(layers, heads)))
    end = max((abs(row["difference"]) for row in rows), default=1.0) or 1.0
    scale = alt.Scale(scheme="blueorange", domain=[-end, end], domainMid=0)
    ends = ("low", "high")
    figures = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "uniform", "difference")]
    told = [{**row, **{end: "-" if np.isnan(row[end]) else f"{row[end]:.3f}" for end in ends}} for row in rows]
    axis: dict[str, Any] = {"labelAngle": 0, "ticks": False, "domain": False, "labelFontSize": 10 if step > 12 else 7}
    drawn = chart_of(told).mark_rect(stroke="white", strokeWidth=0.5, aria=False)
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


def scatter(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A point for each head, from rows of layer, head, evenness, distance."""
    legend = alt.Legend(title="layer", columns=1 + max(row["layer"] for row in rows) // 13)
    return (
        chart_of(rows)
        .mark_point(filled=True, size=60, opacity=0.9)
        .encode(
            x=alt.X("distance:Q", title="mean distance of what is looked at, tokens", axis=alt.Axis(grid=False)),
            y=alt.Y("evenness:Q", title="entropy, as a share of uniform attention's", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "layer:O",
                title="layer",
                scale=alt.Scale(scheme="viridis"),
                legend=legend,
            ),
            tooltip=["layer:O", "head:O", alt.Tooltip("evenness:Q", format=".3f"), alt.Tooltip("distance:Q", format=".2f")],
        )
        .properties(width=WIDTH - 140, height=300)
        .configure(**THEME)
    )
