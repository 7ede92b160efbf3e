"""Common parts of charts: their size and theme, the data they hold, and a colour for every name.

A chart function takes plain rows and returns an Altair chart; ``page`` draws it, live and as SVG. The order of the rows is the
order of what is drawn, and the first method is the one in question. A missing number (the interval of a single seed) is nan in the
rows and is not drawn. Nothing is computed in a chart beyond means, lowest and highest; intervals come with the rows. Altair is
imported where a chart is drawn, so that a command that draws none starts without it.

Names are drawn by number (``number_categories``): Vega keeps categories as keys of JavaScript objects, so a label named
``constructor`` or ``toString`` would end in an error. Every channel that shows names reads their numbers instead (field ``label``
becomes ``label_number``); axes, legends and headers look the names up in a list, and tooltips and the descriptions for screen
readers still read the names.

Every method has one colour and one shape, the same in all figures of all reports. The colours are those of Okabe and Ito (Color
Universal Design, 2008), which people with any kind of colour vision can tell apart; shapes repeat the distinction for print without
colours. A method that is not in the table takes the next free colour.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import altair as alt


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


Spec = dict[str, Any]
Chart: TypeAlias = "alt.Chart | alt.LayerChart | alt.FacetChart"
_Key = TypeVar("_Key", bound=Hashable)

WIDTH = 780
"""pixels of a whole figure, axes and legend included; narrower screens get a narrower figure"""
GUIDES = {"x": "axis", "y": "axis", "facet": "header", "row": "header", "column": "header"}
"""guide in which a channel shows its names; the channels not listed here have a legend"""
WITHOUT_GUIDE = ("xOffset", "yOffset", "detail")
UNSCALED = ("tooltip", "text", "url", "href", "key", "order", "description")
"""channels that show each value as it is"""
BARE: dict[str, Any] = {"ticks": False, "domain": False, "labelPadding": 8}
"""an axis of names"""
MAX_POINTS = 400
"""a line with more points is thinned: the eye cannot tell more apart"""


def chart_of(values: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """A chart of rows. nan becomes null, which JSON can hold and Vega leaves out."""
    import altair as alt

    clean = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in values]
    return alt.Chart(alt.Data(values=clean))  # type: ignore[no-untyped-call]


def finish(chart: Chart, height: int) -> Chart:
    """The common width and theme. The width includes axes and legend, so that a page can make it smaller."""
    return chart.properties(width=WIDTH, height=height, autosize={"type": "fit-x", "contains": "padding"}).configure(**THEME)


def coloured(field: str, names: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Each name in the colour it has in every figure."""
    import altair as alt

    scale = alt.Scale(domain=list(names), range=colours(names))
    return alt.Color(f"{field}:N", scale=scale) if legend else alt.Color(f"{field}:N", scale=scale, legend=None)


def distinct(names: Iterable[str]) -> list[str]:
    """Every name once, in order of first appearance."""
    return list(dict.fromkeys(names))


def grouped(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, list[float]]:
    """The values of each key, in order of first appearance: ``[("a", 1), ("b", 2), ("a", 3)]`` -> ``{"a": [1, 3], "b": [2]}``."""
    groups: dict[_Key, list[float]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def number_categories(spec: Spec) -> Spec:
    """A copy of a Vega-Lite spec whose channels of names read numbers; the rows of data hold both.

    ``{"x": {"field": "label", "type": "nominal"}}`` -> ``{"x": {"field": "label_number", ...}}``, with the names as parameter
    ``label_names``.
    """
    spec = copy.deepcopy(spec)
    _describe(spec)
    channels = [(name, channel) for name, channel in _channels(spec) if channel.get("type") in ("nominal", "ordinal")]
    rows = list(_rows(spec))
    for field in dict.fromkeys(channel["field"] for _, channel in channels if "field" in channel):
        same = [(name, channel) for name, channel in channels if channel.get("field") == field]
        names = _names(field, [channel for _, channel in same], rows)
        if all(isinstance(name, str) for name in names):
            _number_field(field, names, same, rows)
            spec.setdefault("params", []).append({"name": f"{field}_names", "value": names})
    return spec


def _names(field: str, channels: Sequence[Spec], rows: Sequence[Spec]) -> list[Any]:
    """All values of a field: first those that a channel lists, in its order, then the others in alphabetical order."""
    lists = [values for channel in channels for values in (channel.get("sort"), _domain(channel)) if isinstance(values, list)]
    listed = dict.fromkeys(name for values in lists for name in values)
    present = {row[field] for row in rows if row.get(field) is not None}
    return [*listed, *sorted(present - listed.keys(), key=str)]


def _number_field(field: str, names: Sequence[str], channels: Sequence[tuple[str, Spec]], rows: Sequence[Spec]) -> None:
    """Put the number of each name beside it in the rows, and let the channels of the field read the numbers."""
    number = {name: i for i, name in enumerate(names)}
    for row in rows:
        if row.get(field) is not None:
            row[f"{field}_number"] = number[row[field]]
    for name, channel in channels:
        channel["field"] = f"{field}_number"
        if isinstance(channel.get("sort"), list):
            channel["sort"] = [number[value] for value in channel["sort"]]
        if isinstance(domain := _domain(channel), list):
            channel["scale"]["domain"] = [number[value] for value in domain]
        guide = GUIDES.get(name, "legend")
        if name not in WITHOUT_GUIDE and channel.get(guide, {}) is not None:
            hidden = {} if guide == "header" else {"aria": False}  # a screen reader would read the numbers; marks say the names
            channel[guide] = {"labelExpr": f"{field}_names[datum.value]"} | hidden | channel.get(guide, {})
        if guide == "axis":
            channel.setdefault("title", field)


def _describe(node: Spec) -> None:
    """Give every mark that shows names a description for screen readers; Vega-Lite's own would say the numbers."""
    channels = [channel for _, channel in _channels({"encoding": node.get("encoding", {})}) if "field" in channel]
    if "mark" in node and any(channel.get("type") in ("nominal", "ordinal") for channel in channels):
        fields = dict.fromkeys(channel["field"] for channel in channels)
        described = " + '; ' + ".join(f"'{field}: ' + datum['{field}']" for field in fields)
        node["mark"] = {"description": {"expr": described}, **node["mark"]}
    for part in _parts(node):
        _describe(part)


def _domain(channel: Spec) -> Any:
    return (channel.get("scale") or {}).get("domain")


def _channels(node: Spec) -> Iterator[tuple[str, Spec]]:
    """Every scaled channel of a spec and its parts, with its name."""
    for name, channel in node.get("encoding", {}).items():
        if name not in UNSCALED and isinstance(channel, dict):
            yield name, channel
    if isinstance(facet := node.get("facet"), dict):
        yield "facet", facet
    for part in _parts(node):
        yield from _channels(part)


def _rows(node: Spec) -> Iterator[Spec]:
    """Every row of data of a spec and its parts."""
    for values in node.get("datasets", {}).values():
        yield from values
    yield from (node.get("data") or {}).get("values", ())
    for part in _parts(node):
        yield from _rows(part)


def _parts(node: Spec) -> list[Spec]:
    """The layers of a layered spec, or what a faceted one repeats."""
    return [*node.get("layer", ()), *([node["spec"]] if "spec" in node else ())]
