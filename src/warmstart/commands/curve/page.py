"""The report of a curve: score against number of labels, what more labels would give, and what each size cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt

from warmstart.commands.curve.result import CurveResult
from warmstart.config import Config
from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.sections import audit_section, closing_sections, footer
from warmstart.report.theme import QUIET, shapes
from warmstart.stats.formatting import INTERVAL_OVER, percent, percent_interval, rows_by_source, with_ends


def write_curve_page(result: CurveResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    report = Report(
        f"Learning curve: {result.task.name}",
        headline(result.findings[0]),
        tuple(
            (f"{method.name}, {result.largest:,} labels", with_ends(result.interval(method, result.largest), percent_interval))
            for method in result.methods
        ),
        (
            _scores_section(result),
            _extrapolation_section(result),
            _costs_section(result),
            audit_section(result.audit),
            *closing_sections(config),
        ),
        footer(),
        "where the curve still rises, `warmstart label` adds labels; where it is flat, `warmstart race` compares every method.",
    )
    return write_report(report, folder)


def curve_view(result: CurveResult) -> Report:
    """What a notebook shows: the curve, what more labels would give, and the costs."""
    sections = (_scores_section(result), _extrapolation_section(result), _costs_section(result))
    return Report(f"Learning curve: {result.task.name}", headline(result.findings[0]), (), sections)


def interval_header(result: CurveResult) -> tuple[str, ...]:
    """Names the columns of ``interval_rows``."""
    return ("method", INTERVAL_OVER, *(f"{labels:,} labels" for labels in result.rankings))


def interval_rows(result: CurveResult) -> list[tuple[str, ...]]:
    """Two rows per method: intervals over seeds and texts, and below them over seeds alone; one row each if there is one seed."""
    rows = list[tuple[str, ...]]()
    for method in result.methods:
        both, alone = ([over(method, labels) for labels in result.rankings] for over in (result.interval, result.over_seeds))
        rows += rows_by_source(method.name, result.seeds, both, [one.ends for one in alone])
    return rows


def _scores_section(result: CurveResult) -> Section:
    rows = [
        (method.name, labels, interval.mean, interval.low, interval.high)
        for method in result.methods
        for labels in result.rankings
        for interval in [result.interval(method, labels)]
    ]
    predicted = {method.name: result.predicted(method) for method in result.extrapolations}
    seeds = " and seeds, each of which draws its own labelled texts" if result.seeds > 1 else ""
    caption = (
        f"{result.task.metric} on the test split: mean and 95% interval over test texts{seeds}. Dashed: the power law fitted to "
        f"them, with its 90% interval. Dotted: {percent(result.target)}."
    )
    figure = Figure("curve", caption, learning_curve(rows, predicted, result.task.metric, result.target))
    return Section("By number of labels", result.findings, (figure, Table(interval_header(result), interval_rows(result))))


def _extrapolation_section(result: CurveResult) -> Section:
    rows = [
        (method.name, percent(curve.law.irreducible_error), f"{curve.law.exponent:.2f}", curve.sentence(method.name, result.target))
        for method, curve in result.extrapolations.items()
    ]
    text = "error(n) = c + a n^-b, fitted to the means; 90% intervals over seeds, training pools and test texts, from refits."
    header = ("method", "irreducible error (c)", "b", f"for {percent(result.target)}")
    return Section("What more labels would give", (text,), (Table(header, rows),))


def _costs_section(result: CurveResult) -> Section:
    rows = [
        (
            f"{labels:,}",
            one.name,
            f"{one.seconds:.1f}",
            f"{one.search_seconds / len(one.runs):.1f}",
            one.note,
        )
        for labels, ranked in result.rankings.items()
        for one in ranked
        if one.method in result.methods
    ]
    return Section(
        "Costs",
        items=(Table(("labels", "method", "seconds per run", "seconds of choosing", "note"), rows),),
    )


def learning_curve(
    rows: Sequence[tuple[str, int, float, float, float]],
    predicted: Mapping[str, Sequence[tuple[float, float, float, float]]],
    metric: str,
    target: float | None,
) -> Chart:
    """Measured (name, labels, mean, low, high) as points with bands; predicted (labels, score, low, high) by name, dashed.

    ``target`` is a dotted line.
    """
    names = list(dict.fromkeys(row[0] for row in rows))
    counts = sorted({row[1] for row in rows})
    values = [{"method": name, "labels": n, "mean": mean, "low": low, "high": high} for name, n, mean, low, high in rows]
    ahead = [
        {"method": name, "labels": n, "mean": mean, "low": low, "high": high}
        for name, points in predicted.items()
        for n, mean, low, high in points
    ]
    scale = alt.Scale(zero=False, nice=True)
    x = alt.X(
        "labels:Q",
        title="labelled texts, those that choose included (logarithmic; dashed: predicted)",
        scale=alt.Scale(type="log", padding=30, nice=False),
        axis=alt.Axis(values=counts, format=",.0f", grid=False),
    )
    y = alt.Y("mean:Q", title=metric.replace("_", " "), scale=scale, axis=alt.Axis(format=".0%", tickCount=7))
    tooltip = [
        "method:N",
        alt.Tooltip("labels:Q", format=",.0f"),
        *(alt.Tooltip(f"{k}:Q", format=".1%") for k in ("mean", "low", "high")),
    ]
    base = chart_of(values).encode(x=x, color=coloured("method", names))
    later = chart_of(ahead).encode(x=x, color=coloured("method", names))
    known = base.transform_filter("isValid(datum.low)").encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    shape = alt.Shape("method:N", scale=alt.Scale(domain=names, range=shapes(names)))
    layers = (
        known.mark_area(opacity=0.14, line=False)
        + later.mark_area(opacity=0.06, line=False).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
        + later.mark_line(strokeWidth=1.6, strokeDash=[5, 4]).encode(y=y)
        + base.mark_line(strokeWidth=2.2).encode(y=y)
        + base.mark_point(filled=True, size=60, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    )
    if target is not None:
        layers += chart_of([{"target": target}]).mark_rule(strokeDash=[2, 3], color=QUIET).encode(y=alt.Y("target:Q", scale=scale))
    return finish(layers, 380)
