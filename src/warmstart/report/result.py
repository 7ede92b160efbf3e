"""Results of studies, and their output: findings in the terminal, tables as CSV files, figures on a page, and a next step.

This file needs neither torch nor charts, but to write the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.config import Config
from warmstart.notebook import Shown
from warmstart.report.parts import Report, Section, Table, headline
from warmstart.runs.steps import NextStep, command, terminal_lines
from warmstart.system.console import console, print_table

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class StudyResult(Shown, view="report.notebook:study_view"):
    """The result of a study, in words and in numbers."""

    title: str
    findings: Sequence[str]
    """complete sentences: each says what the study shows and how certain it is; the first is the main result"""
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """every number behind the findings; each table is also written as ``NAME.csv`` beside the page"""
    figures: Mapping[str, float] = field(default_factory=dict)
    """the key figures by name"""
    summary: Table | None = None
    """the table for the terminal"""
    details: Any = None
    """the study's own typed result, for programs that need more than tables"""
    next_step: NextStep | None = None
    """next command"""
    sections: Sequence[Section] = ()
    """sections of the page below the findings, once it has been written; a notebook shows them too"""

    def __post_init__(self) -> None:
        assert self.findings, "a study needs at least one finding"
        unfinished = [sentence for sentence in self.findings if not sentence.endswith((".", "!", "?"))]
        assert not unfinished, f"findings are complete sentences with a full stop: {unfinished}"

    def to_dict(self) -> dict[str, Any]:
        """Findings, figures and tables as plain values, fit for JSON. A table is a list of rows; a missing number is None."""
        return {
            "title": self.title,
            "findings": list(self.findings),
            "figures": {name: _plain(value) for name, value in self.figures.items()},
            "tables": {name: [_plain_row(row) for row in table.iter_rows(named=True)] for name, table in self.tables.items()},
        }


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """A number as JSON can hold it: None for nan."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def finish_study(
    result: StudyResult, sections: Sequence[Section], config: Config, folder: Path, *, tiles: Sequence[tuple[str, str]] = ()
) -> StudyResult:
    """Print the findings, and write the tables and the page.

    The page shows the first finding, shortened, as its headline, then ``tiles`` (key figures: name, formatted value), the next
    step, the findings, the ``sections`` of the study, and its settings. A study of a model that names no next step has that of
    trying the model. Returns the result with its sections and its step.
    """
    from warmstart.report.sections import write_run_page

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
