"""How every study ends: its findings in the terminal, its data as CSV files, its pictures on a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from warmstart.config import Config
from warmstart.engine import console
from warmstart.report import Report, Section, write_report
from warmstart.report.joined import PAGE, Told, join
from warmstart.workflows.pages import as_sentence, closing_sections, footer
from warmstart.workflows.run import print_table

SHORT = 3
"""sentences of a study that the page of a run tells"""


@dataclass(frozen=True)
class Study:
    """What came of a study."""

    title: str
    findings: Sequence[str]
    """what was found and how sure it is, one sentence each, without capital and full stop; the first is the result"""
    sections: Sequence[Section]
    """figures and tables"""
    data: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """each becomes a file ``NAME.csv`` beside the page"""
    tiles: Sequence[tuple[str, str]] = ()
    """key figures: what, and how much"""
    shown: tuple[Sequence[Sequence[str]], Sequence[str]] | None = None
    """rows and header of the table that the terminal shows"""


@dataclass(frozen=True)
class Part:
    """What one part adds to a study of several; nothing where it was not asked for."""

    findings: Sequence[str] = ()
    sections: Sequence[Section] = ()
    data: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    tiles: Sequence[tuple[str, str]] = ()
    shown: tuple[Sequence[Sequence[str]], Sequence[str]] | None = None


def joined(title: str, parts: Sequence[Part]) -> Study:
    """A study of its parts, one after the other; the terminal shows the first table that there is."""
    return Study(
        title,
        [sentence for part in parts for sentence in part.findings],
        [section for part in parts for section in part.sections],
        {name: table for part in parts for name, table in part.data.items()},
        [tile for part in parts for tile in part.tiles],
        next((part.shown for part in parts if part.shown is not None), None),
    )


def conclude(study: Study, config: Config, folder: Path, models: Sequence[str] = ()) -> Path:
    """Print, write the tables and the page, and tell of it on the pages of the runs whose ``models`` it looked into.

    Returns the page's path.
    """
    if study.shown is not None:
        print_table(study.title, *study.shown)
    for sentence in study.findings:
        console.print(as_sentence(sentence), markup=False, highlight=False)
    for name, table in study.data.items():
        table.write_csv(folder / f"{name}.csv")
        console.print(f"data: {folder / name}.csv", markup=False, highlight=False)
    found = Section("What was found", tuple(as_sentence(sentence) for sentence in study.findings[1:]))
    first, *_ = [as_sentence(sentence) for sentence in study.findings]
    sections = [found, *study.sections] if found.text else list(study.sections)
    page = write_report(Report(study.title, first, study.tiles, (*sections, *closing_sections(config)), footer()), folder)
    console.print(f"report: {page}", markup=False, highlight=False)
    for run in {run: None for model in models if (run := _run_of(model)) is not None}:
        short = [as_sentence(sentence) for sentence in study.findings[:SHORT]]
        join(run, Told(study.title, short, Path(os.path.relpath(page, run)).as_posix()))
        console.print(f"told in: {run / PAGE}", markup=False, highlight=False)
    return page


def _run_of(model: str) -> Path | None:
    """The folder of the run that made a model, where it has a page."""
    place = Path(model)
    return next((run for run in (place, place.parent) if (run / PAGE).exists() and (run / "bundle").is_dir()), None)
