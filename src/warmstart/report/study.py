"""How every study ends: findings in the terminal, tables as CSV files, figures on a page, and a next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warmstart.config import Config
from warmstart.report.parts import Report, Section, headline
from warmstart.report.result import StudyResult
from warmstart.report.sections import write_run_page
from warmstart.runs.steps import NextStep, command, terminal_lines
from warmstart.system.console import console, print_table


def finish_study(
    result: StudyResult, sections: Sequence[Section], config: Config, folder: Path, *, tiles: Sequence[tuple[str, str]] = ()
) -> StudyResult:
    """Print the findings, and write the tables and the page.

    The page shows the first finding, shortened, as its headline, then ``tiles`` (key figures: name, formatted value), the next
    step, the findings, the ``sections`` of the study, and its settings. A study of a model that names no next step has that of
    trying the model. Returns the result with its sections and its step.
    """
    if result.next_step is None and (model := getattr(config, "model", None)):
        result = replace(result, next_step=NextStep("serve", "Try the model in the browser", command("serve", model)))
    if result.summary is not None:
        print_table(result.title, result.summary.rows, result.summary.header)
    for sentence in result.findings:
        console.print(sentence)
    for name, table in result.tables.items():
        table.write_csv(folder / f"{name}.csv")
        console.print(f"data: {folder / name}.csv")
    first = headline(result.findings[0])
    findings = [sentence for sentence in result.findings if sentence != first]
    shown = (*([Section("Findings", findings)] if findings else []), *sections)
    page = write_run_page(Report(result.title, first, tiles, shown, next_step=result.next_step), config, folder)
    for line in (f"report: {page}", *terminal_lines(filter(None, [result.next_step]))):
        console.print(line)
    return replace(result, sections=tuple(sections))
