"""How every study ends: findings in the terminal, tables as CSV files, figures on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warmstart.config import Config
from warmstart.report.parts import Report, Section, headline
from warmstart.report.result import StudyResult
from warmstart.report.sections import write_run_page
from warmstart.runs.steps import terminal_lines
from warmstart.system.console import console, print_table


def finish_study(
    result: StudyResult,
    sections: Sequence[Section],
    config: Config,
    folder: Path,
    *,
    tiles: Sequence[tuple[str, str]] = (),
) -> StudyResult:
    """Print the findings, and write the tables and the page.

    The page shows the first finding, shortened, as its headline, then ``tiles`` (key figures: name, formatted value), the next
    step, the findings, the ``sections`` of the study, and its settings. Returns the result with these sections.
    """
    if result.summary is not None:
        print_table(result.title, result.summary.rows, result.summary.header)
    for sentence in result.findings:
        _print(sentence)
    for name, table in result.tables.items():
        table.write_csv(folder / f"{name}.csv")
        _print(f"data: {folder / name}.csv")
    first = headline(result.findings[0])
    others = [sentence for sentence in result.findings if sentence != first]
    findings = [Section("Findings", others)] if others else []
    report = Report(result.title, first, tiles, (*findings, *sections), next_step=result.next_step)
    _print(f"report: {write_run_page(report, config, folder)}")
    for line in terminal_lines(filter(None, [result.next_step])):
        _print(line)
    return replace(result, sections=tuple(sections))


def _print(line: str) -> None:
    console.print(line)
