"""The page of ``study ablate``: the effect of each component, ranked, and the heads of all blocks on one grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult
from warmstart.report.theme import DIVERGING, INK, THEME, WHITE
from warmstart.stats.formatting import sentence_case
from warmstart.studies.ablate.result import effect_cells, format_value

if TYPE_CHECKING:
    from warmstart.studies.ablate.measure import AblationMeasurement

_ROW_HEIGHT = 17
_BARS = 40
"""bars at most"""
_TOOLTIP = [alt.Tooltip("component:N"), *(alt.Tooltip(f"{name}:Q", format=".4f") for name in ("effect", "low", "high", "p"))]
_REPLACED_BY = {"mean": "their mean over the texts", "zero": "zero", "resample": "those of other random tokens"}


def ablation_sections(result: StudyResult, ablation: str) -> list[Section]:
    """The effects as figures and as a table; ``ablation`` is mean, zero or resample."""
    measured: AblationMeasurement = result.details
    metric, rows = measured.metric, result.tables["components"].to_dicts()
    axis = f"{metric.name}: worse by, in {metric.unit}"
    heads, others = ([row for row in rows if (row["type"] == "head") == is_head] for is_head in (True, False))
    figures = []
    for name, chosen in (("components", others), ("heads", heads)):
        largest = f", the {_BARS} largest effects" if len(chosen) > _BARS else ""
        caption = f"The effect of ablating one of the {name}{largest}, with 95% intervals over texts; pale: not significant."
        figures += [Figure(name, caption, effects_chart(chosen, axis))] if chosen else []
    if heads:
        caption = "All heads on one grid; a dot: significant after correction for the number of all components."
        figures.append(Figure("grid", caption, heads_chart(heads, axis)))
    text = f"The states of an ablated component are replaced by {_REPLACED_BY[ablation]}; blocks are skipped."
    unit = f"{sentence_case(metric.name)}: worse by, in {metric.unit}."
    return [Section("Effects", (text,), figures), Section("All components", (unit,), (Table(*effect_cells(measured)),))]


def ablation_tiles(result: StudyResult) -> list[tuple[str, str]]:
    """The key figures at the top of the page."""
    measured: AblationMeasurement = result.details
    metric = measured.metric
    score = (metric.name, format_value(metric, result.figures["score"]))
    return [score, ("texts", f"{len(metric.encoded):,}"), ("components", f"{len(measured.effects):,}")]


def effects_chart(rows: Sequence[Mapping[str, Any]], axis: str) -> Chart:
    """The largest effects, from rows with ``component``, ``type``, ``effect``, ``low``, ``high`` and ``significant``."""
    rows = rows[:_BARS]
    types = list(dict.fromkeys(row["type"] for row in rows))
    y = alt.Y("component:N", title=None, sort=[row["component"] for row in rows], axis=alt.Axis(labelLimit=260, **BARE))
    base = chart_of(rows).encode(y=y, tooltip=_TOOLTIP)
    bars = base.mark_bar(height=_ROW_HEIGHT - 6).encode(
        x=alt.X("effect:Q", title=axis, axis=alt.Axis(tickCount=8)),
        color=coloured("type", types),
        opacity=alt.condition("datum.significant", alt.value(1.0), alt.value(0.35)),
    )
    spans = base.mark_rule(strokeWidth=1.4, color=INK).encode(x="low:Q", x2="high:Q")
    return finish(bars + spans, _ROW_HEIGHT * len(rows))


def heads_chart(rows: Sequence[Mapping[str, Any]], axis: str) -> Chart:
    """A cell for each row with ``block`` and ``head`` (from 1), ``effect`` and ``significant``; orange: worse without the head."""
    largest = max((abs(row["effect"]) for row in rows), default=0.0) or 1.0
    blocks = sorted({row["block"] for row in rows})
    base = chart_of(rows).encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, **BARE)),
        y=alt.Y("block:O", title="block", sort=blocks[::-1], axis=alt.Axis(**BARE)),
        tooltip=_TOOLTIP,
    )
    scale = alt.Scale(domain=[-largest, 0, largest], range=DIVERGING, interpolate="rgb")
    legend = alt.Legend(title=axis, titleLimit=300, orient="bottom", gradientLength=240)
    cells = base.mark_rect(stroke=WHITE, strokeWidth=1).encode(color=alt.Color("effect:Q", scale=scale, legend=legend))
    dots = base.transform_filter("datum.significant").mark_point(filled=True, size=26, color=INK, opacity=1)
    size = 34 if len({row["head"] for row in rows}) <= 16 else 22
    # cells keep their size; a narrow screen scrolls
    return (cells + dots).properties(width=alt.Step(size), height=alt.Step(size)).configure(**THEME)
