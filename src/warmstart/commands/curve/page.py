"""The report of a curve: score against labels, what more would give, and what each size cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt

from warmstart.commands.curve.result import Learned
from warmstart.config import Config
from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.sections import as_sentence, audit_section, closing_sections, footer
from warmstart.report.theme import QUIET, shapes


def curve_page(found: Learned, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    said = found.sentences()
    largest = max(found.stood)
    rows = [
        (name, labels, interval.mean, interval.low, interval.high)
        for name in found.names
        for labels in found.stood
        for interval in [found.at(name, labels).judged.over_seeds]
    ]
    chart = learning_curve(rows, {name: found.ahead(name) for name in found.told}, found.task.metric, found.target)
    caption = (
        f"{found.task.metric} on the test split: mean and 95 % interval over seeds, each of which draws its own texts. Dashed: the "
        f"power law fitted to them, with its 90 % interval. Dotted: {100 * found.target:.1f} %."
    )
    laws = [
        (name, f"{100 * law.law.irreducible_error:.1f} %", f"{law.law.exponent:.2f}", law.sentence(name, found.target))
        for name, law in found.told.items()
    ]
    costs = [
        (f"{labels:,}", s.name, f"{s.rate:g}" if s.rate else "-", f"{s.seconds:.1f}", str(s.collapsed))
        for labels, standings in found.stood.items()
        for s in standings
        if s.name in found.names
    ]
    report = Report(
        f"What labels are worth: {found.task.name}",
        as_sentence(said[0]),
        tuple(
            (f"{name}, {largest:,} labels", f"{100 * found.at(name, largest).judged.over_seeds.mean:.1f} %") for name in found.names
        ),
        (
            Section(
                "By number of labels",
                tuple(as_sentence(sentence) for sentence in said),
                (Figure("curve", caption, chart), Table(found.header(), found.table())),
            ),
            Section(
                "What more labels would give",
                ("error(n) = c + a n^-b, fitted to the means; intervals: refits to scores drawn around it as seeds strayed.",),
                (Table(("method", "error that stays (c)", "b", f"for {100 * found.target:.1f} %"), laws),),
            ),
            Section("Cost", items=(Table(("labels", "method", "rate", "seconds a run", "collapsed runs"), costs),)),
            audit_section(found.audit),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)


def learning_curve(
    rows: Sequence[tuple[str, int, float, float, float]],
    told: Mapping[str, Sequence[tuple[float, float, float, float]]],
    metric: str,
    target: float | None,
) -> Chart:
    """Measured (name, labels, mean, low, high) as points with bands; foretold (labels, score, low, high) by name, dashed.

    A dotted line stands at ``target``.
    """
    names = list(dict.fromkeys(row[0] for row in rows))
    counts = sorted({row[1] for row in rows})
    values = [{"method": name, "labels": n, "mean": mean, "low": low, "high": high} for name, n, mean, low, high in rows]
    ahead = [
        {"method": name, "labels": n, "mean": mean, "low": low, "high": high}
        for name, points in told.items()
        for n, mean, low, high in points
    ]
    scale = alt.Scale(zero=False, nice=True)
    x = alt.X(
        "labels:Q",
        title="labelled training texts (logarithmic; dashed: foretold)",
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
