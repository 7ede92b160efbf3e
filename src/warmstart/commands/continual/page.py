"""The report of continual learning: every task after every stage, for each strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import altair as alt

from warmstart.commands.continual.result import ContinualResult
from warmstart.config import Config
from warmstart.report.charts import Chart, chart_of, coloured, finish
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.sections import closing_sections, footer
from warmstart.report.theme import shapes
from warmstart.stats.formatting import INTERVAL_OVER, percent_interval, sources_of_interval, with_ends

EXPLAINED = (
    "Right after learning: mean over tasks of the score when each had just been learned. Backward transfer: mean over all but the "
    "last task of (score at the end - score right after learning). Forgetting: mean over them of (best score before the end - "
    "score at the end). The second column says what the intervals of a row cover."
)
TESTED = (
    "Scores at the end and right after learning, strategies against the first one that learns the tasks in turn, and the "
    "language-model loss at the end and before the first task; significance is corrected for the number of each kind (Holm). "
    "Smallest detectable: the true difference that a repetition finds significant with 80% power."
)


def write_continual_page(result: ContinualResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    report = Report(
        _title(result),
        headline(result.findings[0]),
        tuple(
            (f"average at the end, {strategy}", with_ends(result.interval(strategy, "average"), percent_interval))
            for strategy in result.runs
        ),
        (*_sections(result), *closing_sections(config)),
        f"{footer()} {result.seeds} seed{'' if result.seeds == 1 else 's'}.",
    )
    return write_report(report, folder)


def continual_view(result: ContinualResult) -> Report:
    """What a notebook shows: what was forgotten, what was tested, and every task after every stage."""
    return Report(_title(result), headline(result.findings[0]), (), tuple(_sections(result)))


def _title(result: ContinualResult) -> str:
    return f"Continual learning: {' → '.join(result.tasks)}"


def _sections(result: ContinualResult) -> Iterator[Section]:
    yield Section("What was forgotten", (*result.findings, EXPLAINED), (Table(result.HEADER, result.table()),))
    yield Section("Everything that was tested", (TESTED,), (Table(result.TESTED_HEADER, result.tested()),))
    yield from (_strategy_section(result, strategy) for strategy in result.runs)


def _strategy_section(result: ContinualResult, strategy: str) -> Section:
    """The scores of every task after every stage, and the language-model loss."""
    learned = [(stage, task) for stage, row in enumerate(result.runs[strategy][0].scores) for task in range(len(row))]
    scores = {(stage, task): result.score(strategy, stage, task) for stage, task in learned}
    rows = [(result.tasks[task], stage, score.mean, score.low, score.high) for (stage, task), score in scores.items()]
    losses = " → ".join(f"{loss:.3f}" for loss in result.language_losses(strategy))
    after = "after each task" if result.in_turn(strategy) else "at the end"
    text = [f"Language-model loss at the start and {after}, mean over seeds: {losses} nats."] if losses else []
    over = sources_of_interval(result.seeds, "test texts")
    caption = f"{strategy}: test score of each task after every stage; mean and 95% interval over {over}."
    figure = Figure(f"continual-{strategy}", caption, continual_chart(rows, result.stages(strategy), "score"))
    table = Table(("after learning", INTERVAL_OVER, *result.tasks), result.stage_rows(strategy))
    return Section(f"Strategy: {strategy}", text, (figure, table))


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
