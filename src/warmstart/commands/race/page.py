"""The report of a race: who stands where, what it costs, which rates were tried, and what to take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from warmstart.baselines.majority import constant_score
from warmstart.commands.race.result import Race
from warmstart.config import Config
from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import comparison_chart
from warmstart.report.sections import as_sentence, audit_section, closing_sections, footer
from warmstart.report.theme import INK, QUIET, shapes
from warmstart.sweep.ranking import Standing


def race_page(race: Race, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    advice, *others = race.sentences()
    best = race.best
    report = Report(
        f"Race: {race.task.name}",
        as_sentence(advice),
        (
            (f"{race.task.metric}, {best.name}", f"{100 * best.judged.over_seeds.mean:.1f} %"),
            ("training texts", f"{race.labels:,}"),
            ("validation texts", f"{len(race.task.validation):,}"),
            ("test texts", f"{len(race.task.test):,}"),
            ("methods", str(len(race.standings))),
            ("seeds", str(race.seeds)),
        ),
        (
            _standings_section(race, others),
            _pairs_section(race),
            _runs_section(race),
            Section("What it costs", (), tuple(_trade_offs(race))),
            _rates_section(race),
            audit_section(race.audit),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)


def _standings_section(race: Race, said: list[str]) -> Section:
    rows = [(s.name, s.judged.scores, *_ends(s)) for s in race.standings]
    figure = Figure(
        "standings",
        f"{race.task.metric} on the test split: each seed, mean and 95 % interval over seeds.",
        comparison_chart(rows, race.task.metric),
    )
    text = (
        "Seconds and memory are of one run, training and evaluation: memory at its highest, on top of the program, the backbone "
        "and the texts. New: parameters that the backbone has not. A task: bytes to keep beside the backbone.",
    )
    return Section("Standings", (*(as_sentence(sentence) for sentence in said), *text), (figure, Table(race.HEADER, race.table())))


def _pairs_section(race: Race) -> Section:
    over = "over both" if race.seeds > 1 else "over test texts alone, as one seed tells nothing of others"
    text = (
        f"Every method against {race.best.name}, which is best on validation, in points on the test split: paired by seed and by "
        f"test text, {over}; probabilities corrected for the number of methods (Holm 1979)."
    )
    return Section("Can a difference be seen?", (text,), (Table(race.PAIRS, race.pairs()),))


def _runs_section(race: Race) -> Section:
    rows = [(s.name, s.judged.scores, [run.collapsed for run in s.runs]) for s in race.standings if s.name != "majority"]
    figure = Figure(
        "restarts",
        "A cross a run; the bar is the mean, the stroke one standard deviation each way. Red: no better than the commonest label.",
        restarts(rows, race.task.metric, constant_score(race.task)),
    )
    return Section("Restarts", items=(figure,))


def _trade_offs(race: Race) -> Iterator[Figure]:
    costs: list[tuple[str, str, Callable[[Standing], float]]] = [
        ("time", "seconds of one run", lambda s: s.seconds),
        ("parameters", "parameters that train", lambda s: s.runs[0].trainable),
        ("memory", "bytes of memory", lambda s: s.memory or 0),
        ("disk", "bytes to keep a task", lambda s: s.runs[0].disk),
    ]
    for name, title, cost in costs:
        rows = [(s.name, float(cost(s)), *_ends(s)) for s in race.standings if cost(s) and s.name != "majority"]
        if rows:
            caption = f"Score against {title}; the line joins what nothing beats at its price."
            yield Figure(f"score-and-{name}", caption, trade_off(rows, title, race.task.metric))


def _rates_section(race: Race) -> Section:
    trained = [standing for standing in race.standings if standing.tried]
    rates = sorted({rate for standing in trained for rate in (*standing.tried, *standing.diverged)})
    rows = [(s.name, *(_at(s, rate) for rate in rates), f"{s.rate:g}", f"{s.search:.1f}") for s in trained]
    total = sum(standing.search for standing in trained)
    text = (
        f"{race.task.metric} on the {len(race.task.validation):,} validation texts at each rate, first seed. Rates that were not "
        f"chosen cost {total:.0f} seconds in all. A scheme multiplies the rate for its parts, so one rate means the same for all."
    )
    header = ("method", *(f"{rate:g}" for rate in rates), "chosen", "seconds spent on the others")
    return Section("Learning rates", (text,), (Table(header, rows),))


def _at(standing: Standing, rate: float) -> str:
    if rate in standing.tried:
        return f"{100 * standing.tried[rate]:.1f}"
    return "diverged" if rate in standing.diverged else "-"


def _ends(standing: Standing) -> tuple[float, float, float]:
    found = standing.judged.over_seeds
    return found.mean, found.low, found.high


LOST = "#c0392b"
"""the colour of what went wrong"""


def restarts(rows: Sequence[tuple[str, Sequence[float], Sequence[bool]]], metric: str, floor: float) -> Chart:
    """One column a method, from (name, scores, collapsed): a cross a run, a bar at the mean, a stroke of one standard deviation.

    Collapsed runs are red; the dashed line at ``floor`` is what takes no learning. With many seeds this is the picture of restarts
    in the NAACL 2019 transfer-learning tutorial.
    """
    names = [name for name, *_ in rows]
    crosses = [
        {"method": name, "run": run, "score": score, "state": "collapsed" if lost else "learned"}
        for name, scores, losses in rows
        for run, (score, lost) in enumerate(zip(scores, losses, strict=True))
    ]
    means = []
    for name, scores, _ in rows:
        mean, spread = float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
        means.append({"method": name, "mean": mean, "spread": spread, "low": mean - spread, "high": mean + spread})
    x = alt.X("method:N", title=None, sort=names, axis=alt.Axis(**BARE, labelAngle=-30, labelLimit=160))
    y = alt.Scale(zero=False, nice=True, padding=8)
    axis = alt.Axis(format=".0%", tickCount=7)
    spans = chart_of(means).transform_filter("isValid(datum.low)").mark_rule(strokeWidth=12, opacity=0.16, color=INK)
    stroke = spans.encode(x=x, y=alt.Y("low:Q", title=metric.replace("_", " "), scale=y, axis=axis), y2="high:Q")
    mean = (
        chart_of(means)
        .mark_tick(orient="horizontal", thickness=2.5, size=30, color=INK)
        .encode(
            x=x,
            y=alt.Y("mean:Q", scale=y),
            tooltip=["method:N", alt.Tooltip("mean:Q", format=".1%"), alt.Tooltip("spread:Q", format=".2%")],
        )
    )
    state = alt.Color("state:N", scale=alt.Scale(domain=["learned", "collapsed"], range=["#1f77b4", LOST]), title=None)
    runs = (
        chart_of(crosses)
        .mark_point(shape="cross", angle=45, size=70, filled=True, opacity=0.75)
        .encode(x=x, y=alt.Y("score:Q", scale=y), color=state, tooltip=["method:N", "run:Q", alt.Tooltip("score:Q", format=".2%")])
    )
    line = chart_of([{"floor": floor}]).mark_rule(strokeDash=[4, 4], color=QUIET).encode(y=alt.Y("floor:Q", scale=y))
    return finish(stroke + mean + runs + (line if any(any(lost) for *_, lost in rows) else alt.LayerChart()), 340)


def trade_off(rows: Sequence[tuple[str, float, float, float, float]], cost: str, metric: str) -> Chart:
    """Score against a cost on a logarithmic axis, from (name, cost, mean, low, high); a line joins what nothing beats."""
    names = [name for name, *_ in rows]
    values: list[dict[str, Any]] = [
        {"method": name, "cost": price, "mean": mean, "low": max(0.0, low), "high": min(1.0, high)}
        for name, price, mean, low, high in rows
        if price > 0
    ]
    front, highest = [], -math.inf
    for row in sorted(values, key=lambda row: (row["cost"], -row["mean"])):
        if row["mean"] > highest:
            front.append(row)
            highest = row["mean"]
    axis = alt.Axis(format="~g" if cost.startswith("seconds") else "~s", grid=False, tickCount=6)
    x = alt.X("cost:Q", title=f"{cost} (logarithmic)", scale=alt.Scale(type="log", padding=40, nice=False), axis=axis)
    scale = alt.Scale(zero=False, nice=True, padding=12)
    y = alt.Y("mean:Q", title=metric.replace("_", " "), scale=scale, axis=alt.Axis(format=".0%", tickCount=7))
    base = chart_of(values).encode(x=x, color=coloured("method", names))
    rule = base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.45).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    tooltip = ["method:N", alt.Tooltip("cost:Q", format=".3~s"), alt.Tooltip("mean:Q", format=".1%")]
    shape = alt.Shape("method:N", scale=alt.Scale(domain=names, range=shapes(names)))
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    named = chart_of(front).mark_text(align="left", dx=9, dy=-7, fontSize=11, color=QUIET)
    said = named.encode(x=x, y=y, text="method:N")
    line = chart_of(front).mark_line(strokeDash=[3, 3], color=QUIET, interpolate="step-after").encode(x=x, y=y)
    return finish(line + rule + dots + said, 360)
