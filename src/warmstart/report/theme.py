"""The theme of every figure, with one colour and one shape per method, the same in all figures of all reports.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; shapes repeat the distinction
for print without colours. A method that is not in the table takes the next free colour.

Source: M. Okabe, K. Ito, Color Universal Design (2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

INK, QUIET, FAINT = "#1f2933", "#52606d", "#e4e7eb"
WHITE, PALE, LINE, AXIS = "#ffffff", "#f5f7fa", "#cbd2d9", "#9aa5b1"
BLUE, RED, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#7b8794"
SKY, ORANGE, PINK = "#56b4e9", "#e69f00", "#cc79a7"
SEQUENTIAL = (PALE, "#9fc9e5", BLUE, "#08243a")
"""shades from the lowest to the highest value"""
DIVERGING = (BLUE, PALE, ORANGE)
"""shades of values below zero, at zero and above"""

DARK = {
    WHITE: "#1b232c", PALE: "#26313c", FAINT: "#323e4a", LINE: "#52606d", AXIS: "#7b8794", INK: "#e4e7eb", QUIET: "#a3afbd",
    BLUE: "#3d9bdb", RED: "#e8722a", SKY: "#9bd7fb", "#9fc9e5": "#1f5f8c", "#08243a": "#d6ecfa",
}  # fmt: skip
"""each colour that changes where the page is dark; the others can be seen on both grounds"""
NOT_COLOURS = ("data", "datasets", "domain", "params")
"""parts of a spec that hold names and numbers, which may look like colours"""

COLOURS = {
    "pretrained": BLUE, "from scratch": RED, "TF-IDF": GREEN, "majority": GREY,
    "training": GREY, "held out": BLUE,
    "train": BLUE, "validation": SKY, "test": ORANGE,
}  # fmt: skip
"""colour of each name that begins so"""
SPARE = (ORANGE, PINK, SKY, INK, GREEN, RED, BLUE)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")

FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"

THEME: dict[str, Any] = {
    "background": WHITE,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "labelFontSize": 12, "labelLimit": 340,
        "titleColor": QUIET, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10,
        "labelFlush": False, "gridColor": FAINT, "domainColor": AXIS, "tickColor": AXIS,
    },
    "legend": {
        "labelColor": INK, "labelFontSize": 12, "labelLimit": 220,
        "titleColor": QUIET, "symbolSize": 90, "symbolOpacity": 1, "rowPadding": 4, "title": None,
    },
    "header": {"labelColor": INK, "titleColor": QUIET},
    "mark": {"color": BLUE}, "rule": {"color": INK}, "text": {"color": INK}, "tick": {"color": INK},
}  # fmt: skip


def in_dark(spec: Any) -> Any:
    """A Vega-Lite spec, or a part of one, in the colours of a dark page."""
    if isinstance(spec, dict):
        return {key: value if key in NOT_COLOURS else in_dark(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [in_dark(part) for part in spec]
    return DARK.get(spec, spec) if isinstance(spec, str) else spec


def colours(names: Sequence[str]) -> list[str]:
    """A colour for each name: its own unless an earlier name has it already, else the next free one.

    ``colours(["TF-IDF + logistic regression", "LoRA"])`` -> ``["#009e73", "#e69f00"]``
    """
    chosen: dict[str, str] = {}
    for name in names:
        own = next((colour for start, colour in COLOURS.items() if name.startswith(start)), None)
        if own and own not in chosen.values():
            chosen[name] = own
    free = [colour for colour in SPARE if colour not in chosen.values()]
    rest = [name for name in names if name not in chosen]
    chosen |= {name: free[i % len(free)] for i, name in enumerate(rest)}
    return [chosen[name] for name in names]


def shapes(names: Sequence[str]) -> list[str]:
    """A point's shape for each name, in order."""
    return [SHAPES[i % len(SHAPES)] for i in range(len(names))]
