"""The page of ``study explain``: heat maps of the words, the curves that test them, and faithfulness over texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np
from rich.text import Text

from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult
from warmstart.report.theme import DIVERGING, GREY, INK, THEME, WHITE
from warmstart.stats.formatting import sentence_case
from warmstart.stats.intervals import percentiles
from warmstart.studies.explain.result import ExplainDetails, printed, signed_interval

if TYPE_CHECKING:
    from warmstart.inspection.explanations import Explanation

_LINE = 96
"""characters on a line of the heat map"""
_RANDOM = "random orders"
_SHOWN_PHRASES = 8


def explain_sections(result: StudyResult) -> list[Section]:
    """The explanation of one text, and the faithfulness of the methods over many."""
    details: ExplainDetails = result.details
    sections = [_explanation(details.explanation)] if details.explanation else []
    if details.faithfulness:
        rows = [(method, signed_interval(interval)) for method, interval in details.faithfulness.items()]
        text = (
            "The area between the insertion and the deletion curve, minus its mean over random orders; 95% intervals over texts.",
        )
        sections.append(Section("Faithfulness over texts", text, (Table(("method", "above random orders"), rows),)))
    return sections


def _explanation(one: Explanation) -> Section:
    items: list[Figure | Table] = [
        Figure(
            f"heat-{method.replace(' ', '-')}",
            f"{sentence_case(method)}: blue words support {one.target!r}, orange words oppose it.",
            heat_chart(one.words, values),
        )
        for method, values in one.values.items()
    ]
    caption = "Faithful orders fall fast and rise fast; grey: the middle 90% of random orders."
    items.append(Figure("faithfulness", caption, curve_chart(one)))
    rows = [(" ".join(map(printed, one.words[start:end])), f"{nats:+.3f}") for start, end, nats in one.phrases[:_SHOWN_PHRASES]]
    return Section(f"Why {one.target!r}", (), (*items, Table(("phrase", "nats lost without it"), rows)))


def heat_text(words: Sequence[str], values: np.ndarray) -> Text:
    """Words on blue if they support the target and on orange if they oppose it, from values (W,): the darker, the larger."""
    text, most = Text(), float(np.abs(values).max()) or 1.0
    for word, value in zip(words, values, strict=True):
        red, green, blue = _shade(float(value) / most)
        text.append(printed(word), style=f"{INK} on rgb({red},{green},{blue})").append(" ")
    return text


def _shade(share: float) -> tuple[int, int, int]:
    """From white to the colour of the sign, by the share (-1 to 1)."""
    goal = (86, 180, 233) if share > 0 else (230, 159, 0)
    return tuple(round(255 + (end - 255) * abs(share)) for end in goal)  # type: ignore[return-value]


def heat_chart(words: Sequence[str], values: np.ndarray) -> Chart:
    """Words in lines like running text, coloured by their values (W,) in nats."""
    rows, line, column = [], 0, 0
    for number, (word, value) in enumerate(zip(map(printed, words), values, strict=True)):
        width = min(len(word), _LINE) + 1
        if column + width > _LINE:
            line, column = line + 1, 0
        rows.append({"number": number, "word": word, "nats": float(value), "line": line, "x": column, "x2": column + width - 0.2})
        column += width
    most = float(np.abs(values).max()) or 1.0
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, _LINE]))
    base = chart_of(rows).encode(
        y=alt.Y("line:O", axis=None),
        tooltip=["word:N", alt.Tooltip("nats:Q", format="+.3f"), "number:Q"],
    )
    shade = alt.Scale(domain=[-most, 0, most], range=DIVERGING[::-1], interpolate="rgb")
    legend = alt.Legend(orient="top", title="nats for the target", gradientLength=240)
    boxes = base.mark_rect(height=20, cornerRadius=3).encode(x=x, x2="x2:Q", color=alt.Color("nats:Q", scale=shade, legend=legend))
    dark = alt.condition(f"abs(datum.nats) > {0.85 * most}", alt.value(WHITE), alt.value(INK))
    labels = base.mark_text(align="left", dx=3, font="monospace", fontSize=12).encode(x=x, text="word:N", color=dark)
    return finish(boxes + labels, 26 * (line + 1))


def curve_chart(one: Explanation) -> Chart:
    """Deletion and insertion curves of each method, with the middle 90% of random orders."""
    methods, values = list(one.values), []
    panels = {"most important words removed first": one.deletion, "most important words added first": one.insertion}
    fractions = np.linspace(0, 1, len(one.words) + 1).tolist()
    for panel, curves in panels.items():
        low, middle, high = percentiles(curves[len(methods) :], (0.05, 0.5, 0.95))
        for method, curve in zip([*methods, _RANDOM], [*curves[: len(methods)], middle], strict=True):
            rows = [
                {"panel": panel, "method": method, "share": share, "probability": float(value)}
                for share, value in zip(fractions, curve, strict=True)
            ]
            if method == _RANDOM:
                rows = [row | {"low": float(a), "high": float(b)} for row, a, b in zip(rows, low, high, strict=True)]
            values += rows
    base = chart_of(values)
    x = alt.X("share:Q", title="share of the words", axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("probability:Q", title="probability of the target", scale=alt.Scale(domain=[0, 1]))
    tips = ["method:N", alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("probability:Q", format=".3f")]
    known = base.transform_filter("isValid(datum.low)")
    band = known.mark_area(opacity=0.25, color=GREY).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    lines = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=coloured("method", [*methods, _RANDOM]), tooltip=tips)
    layered = alt.layer(band, lines).properties(width=280, height=220)
    return layered.facet(facet=alt.Facet("panel:N", sort=list(panels), title=None), columns=2).configure(**THEME)
