"""The report of multi-task training: each task together with the others, and alone."""

from __future__ import annotations

from pathlib import Path

from warmstart.commands.multitask.result import TOGETHER, MultitaskResult
from warmstart.config import Config
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import comparison_chart
from warmstart.report.sections import closing_sections, footer
from warmstart.stats.formatting import percent


def write_multitask_page(result: MultitaskResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    tiles = [
        (f"{task}, {TOGETHER}", percent(comparison.rows[0].interval.mean))
        for task, comparison in zip(result.tasks, result.comparisons(), strict=True)
    ]
    sections = [_task_section(result, task) for task in range(len(result.tasks))]
    overview = Section("All tasks", (), (Table(result.header, result.table()),))
    report = Report(
        "Several tasks, one backbone", result.findings[0], tiles, (overview, *sections, *closing_sections(config)), footer()
    )
    return write_report(report, folder)


def _task_section(result: MultitaskResult, task: int) -> Section:
    comparison = result.comparison(task)
    rows = [(row.name, row.scores, row.interval.mean, row.interval.low, row.interval.high) for row in comparison.rows]
    caption = "Test score: each seed, mean and 95% interval over seeds and test texts."
    figure = Figure(f"task-{task}", caption, comparison_chart(rows, "score"))
    text = (
        result.sentences()[task],
        *result.labels[task : task + 1],
        *(finding for ledger in result.ledgers[task : task + 1] for finding in ledger.findings),
    )
    return Section(result.tasks[task], text, (figure, Table(comparison.header, comparison.table())))
