"""The report of continual learning: every task after every stage, for each strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt

from warmstart.commands.continual.result import ContinualResult
from warmstart.config import Config
from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.sections import closing_sections, footer
from warmstart.report.theme import shapes
from warmstart.stats.formatting import percent

METRICS = (
    "Right after learning: mean over tasks of the score when each had just been learned. Backward transfer: mean over all but the "
    "last task of (score at the end - score right after learning). Forgetting: mean over them of (best score before the end - "
    "score at the end). Intervals are 95%, over seeds and test texts."
)
TESTED = (
    "Scores at the end and right after learning, strategies against the first one, and the language-model loss at the end and "
    "before the first task; significance is corrected for the number of each kind (Holm)."
)


def write_continual_page(result: ContinualResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    findings = result.findings
    seeds = len(next(iter(result.runs.values())))
    report = Report(
        f"Continual learning: {' → '.join(result.tasks)}",
        findings[0],
        tuple(
            (f"average at the end, {strategy}", percent(result.metric(strategy, "average").over_both.mean))
            for strategy in result.runs
        ),
        (
            Section("What was forgotten", (*findings, METRICS), (Table(result.HEADER, result.table()),)),
            Section("Everything that was tested", (TESTED,), (Table(result.TESTED_HEADER, result.tested()),)),
            *(_strategy_section(result, strategy) for strategy in result.runs),
            *closing_sections(config),
        ),
        f"{footer()} {seeds} seeds.",
    )
    return write_report(report, folder)


def _strategy_section(result: ContinualResult, strategy: str) -> Section:
    """The scores of every task after every stage, and the language-model loss."""
    stages = range(len(result.tasks))
    scores = {(stage, task): result.score(strategy, stage, task) for stage in stages for task in range(stage + 1)}
    rows = [(result.tasks[task], stage, score.mean, score.low, score.high) for (stage, task), score in scores.items()]
    table = [(result.tasks[stage], *(str(scores[stage, task]) if task <= stage else "" for task in stages)) for stage in stages]
    losses = " → ".join(f"{loss:.3f}" for loss in result.language_losses(strategy))
    text = [f"Language-model loss at the start and after each task, mean over seeds: {losses} nats."] if losses else []
    caption = "Test score of each task after every stage; mean and 95% interval over seeds and test texts."
    figure = Figure(f"continual-{strategy}", caption, continual_chart(rows, result.tasks, "score"))
    return Section(f"Strategy: {strategy}", text, (figure, Table(("after learning", *result.tasks), table)))


def continual_chart(rows: Sequence[tuple[str, int, float, float, float]], stages: Sequence[str], metric: str) -> Chart:
    """Lines from (task, stage, mean, low, high): one per task, from the stage at which it was learned."""
    names = list(dict.fromkeys(row[0] for row in rows))
    values = [
        {"task": name, "stage": stages[stage], "mean": mean, "low": low, "high": high} for name, stage, mean, low, high in rows
    ]
    x = alt.X("stage:N", title="after learning", sort=list(stages), axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("mean:Q", title=metric, scale=scale, axis=alt.Axis(format=".0%"))
    base = chart_of(values).encode(x=x, color=coloured("task", names))
    with_interval = base.transform_filter("isValid(datum.low)")
    rule = with_interval.mark_rule(strokeWidth=6, opacity=0.2).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    shape = alt.Shape("task:N", scale=alt.Scale(domain=names, range=shapes(names)))
    tooltip = ["task:N", "stage:N", alt.Tooltip("mean:Q", format=".1%")]
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tooltip)
    return finish(rule + base.mark_line(strokeWidth=2).encode(y=y) + dots, 280)
