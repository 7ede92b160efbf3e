"""What every study returns: findings, tables and figures. This file needs neither torch nor charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from warmstart.notebook import Shown
from warmstart.runs.steps import NextStep

if TYPE_CHECKING:
    import polars as pl

    from warmstart.report.parts import Section


class Summary(NamedTuple):
    """The table that the terminal shows: formatted cells under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


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
    summary: Summary | None = None
    """the table for the terminal"""
    details: Any = None
    """the study's own typed result, for programs that need more than tables"""
    next_step: NextStep | None = None
    """what to do next"""
    sections: Sequence[Section] = ()
    """what the page shows below the findings, once it has been written; a notebook shows the same"""

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
