"""What all charts share: their size and theme, the data they hold, and a colour for every name.

A chart function takes plain rows and returns an Altair chart; ``page`` draws it, live and as SVG. The order of the rows is the
order of what is drawn, and the first method is the one in question. A missing number (the interval of a single seed) is nan in the
rows and is not drawn. Nothing is computed in a chart beyond means, lowest and highest; intervals come with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import altair as alt

from warmstart.report.theme import THEME, colours

Chart = alt.Chart | alt.LayerChart | alt.FacetChart
_Key = TypeVar("_Key", bound=Hashable)

WIDTH = 780
"""pixels of a whole figure, axes and legend included; narrower screens get a narrower figure"""
BARE: dict[str, Any] = {"ticks": False, "domain": False, "labelPadding": 8}
"""an axis of names"""
MAX_POINTS = 400
"""a line with more points is thinned: the eye cannot tell more apart"""


def chart_of(values: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """A chart of rows. nan becomes null, which JSON can hold and Vega leaves out."""
    clean = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in values]
    return alt.Chart(alt.Data(values=clean))  # type: ignore[no-untyped-call]


def finish(chart: Chart, height: int) -> Chart:
    """The common width and theme. The width includes axes and legend, so that a page can make it smaller."""
    return chart.properties(width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).configure(
        **THEME
    )


def coloured(field: str, names: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Each name in the colour it has in every figure."""
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
