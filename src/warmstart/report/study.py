"""How every study ends: findings in the terminal, tables as CSV files, figures on a page, and links from the runs of its models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warmstart.config import Advanced, Config, Effectless, ThreadsConfig
from warmstart.report.headline import headline
from warmstart.report.page import Report, Section, write_report
from warmstart.report.result import StudyResult
from warmstart.report.sections import closing_sections, footer
from warmstart.report.study_links import StudyLink, add_link
from warmstart.runs.steps import terminal_lines
from warmstart.system.console import console, print_table
from warmstart.system.storage import PAGE_FILE

LINKED_FINDINGS = 3
"""how many findings of a study the page of the run repeats"""


class LinkedConfig(ThreadsConfig):
    """Settings of a study of saved models."""

    link: Effectless[Advanced[bool]] = True
    """add a link to the page of the run that made a model, if its folder can be written"""


def finish_study(
    result: StudyResult,
    sections: Sequence[Section],
    config: Config,
    folder: Path,
    *,
    models: Sequence[str] = (),
    tiles: Sequence[tuple[str, str]] = (),
) -> StudyResult:
    """Print the findings, write the tables and the page, and link to the page from the runs that made ``models``.

    The page shows the first finding, shortened, as its headline, then ``tiles`` (key figures: name, formatted value), the next
    step, the findings, the ``sections`` of the study, and its settings. Nothing is linked from a run whose folder cannot be
    written, or with ``--no-link``. Returns the result with these sections.
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
    report = Report(result.title, first, tiles, (*findings, *sections, *closing_sections(config)), footer(), result.next_step)
    page = write_report(report, folder)
    _print(f"report: {page}")
    linked = models if isinstance(config, LinkedConfig) and config.link else ()
    for run in {run: None for model in linked if (run := _run_of(model)) is not None}:
        if os.access(run, os.W_OK) and os.access(run / PAGE_FILE, os.W_OK):
            _print(f"writing a link to it into {run / PAGE_FILE}")
            add_link(run, StudyLink(result.title, result.findings[:LINKED_FINDINGS], Path(os.path.relpath(page, run)).as_posix()))
    for line in terminal_lines(filter(None, [result.next_step])):
        _print(line)
    return replace(result, sections=tuple(sections))


def _print(line: str) -> None:
    console.print(line)


def _run_of(model: str) -> Path | None:
    """The folder of the run that made a model, if it has a page: ``runs/lm`` for ``runs/lm`` and for ``runs/lm/bundle``."""
    path = Path(model)
    return next((run for run in (path, path.parent) if (run / PAGE_FILE).exists() and (run / "bundle").is_dir()), None)
