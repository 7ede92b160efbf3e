"""The report of multi-task training: each task together with the others, and alone."""

from __future__ import annotations

from pathlib import Path

from warmstart.commands.multitask.result import TOGETHER, MultitaskResult
from warmstart.config import Config
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import comparison_chart
from warmstart.report.sections import closing_sections, footer
from warmstart.stats.formatting import percent_interval, sources_of_interval, with_ends

_TITLE = "Several tasks, one backbone"


def write_multitask_page(result: MultitaskResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    tiles = [
        (f"{task}, {TOGETHER}", with_ends(comparison.rows[0].interval, percent_interval))
        for task, comparison in zip(result.tasks, result.comparisons(), strict=True)
    ]
    sections = (*_sections(result), *closing_sections(config))
    return write_report(Report(_TITLE, headline(result.findings[0]), tiles, sections, footer()), folder)


def multitask_view(result: MultitaskResult) -> Report:
    """What a notebook shows: all tasks, then each by itself."""
    return Report(_TITLE, headline(result.findings[0]), (), _sections(result))


def _sections(result: MultitaskResult) -> list[Section]:
    overview = Section("All tasks", result.one_split_caution, (Table(result.header, result.table()),))
    return [overview, *(_task_section(result, task) for task in range(len(result.tasks)))]


def _task_section(result: MultitaskResult, task: int) -> Section:
    comparison = result.comparison(task)
    rows = [(row.name, row.scores, row.interval.mean, row.interval.low, row.interval.high) for row in comparison.rows]
    over = sources_of_interval(len(result.runs), "test texts")
    caption = f"{result.tasks[task]}, test score: each seed, mean and 95% interval over {over}."
    figure = Figure(f"task-{task}", caption, comparison_chart(rows, "score"))
    text = (
        result.sentences()[task],
        *result.labels[task : task + 1],
        *(finding for ledger in result.ledgers[task : task + 1] for finding in ledger.findings),
    )
    return Section(result.tasks[task], text, (figure, Table(comparison.header, comparison.table())))
