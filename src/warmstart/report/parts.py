"""What a report is made of: sentences, tables and charts in sections. It knows neither what is reported nor how it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmstart.report.charts import Chart
from warmstart.runs.steps import NextStep
from warmstart.runs.verdict import Verdict

NUMBER = re.compile(
    r"(< )?[-+−]?[\d.,]+( to [-+−]?[\d.,]+)?(\s?(%|s|ms|min|points|bytes|[kKMGT]i?B))?(\s\(.*\))?|-|–|nan|too few seeds|one run"
)
"""a cell that is right-aligned: a number, with its unit or interval, or the ends of an interval, or why there is none"""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    name: str
    """name of the SVG file, unique in a report"""
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; columns of numbers are right-aligned."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def columns(self, kept: Callable[[str], bool]) -> Table:
        """Those whose names are ``kept``."""
        places = [place for place, name in enumerate(self.header) if kept(name)]
        return Table([self.header[place] for place in places], [[row[place] for place in places] for row in self.rows])

    def numeric(self) -> list[bool]:
        """Which columns hold numbers only. Empty cells are ignored; a column of empty cells is text."""
        columns = [[row[i] for row in self.rows if row[i]] for i in range(len(self.header))]
        return [bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Section:
    """A heading, sentences, then figures and tables, then preformatted text."""

    title: str
    text: Sequence[str] = ()
    """one paragraph each"""
    items: Sequence[Figure | Table] = ()
    pre: str = ""
    """preformatted text: commands and settings"""
    folded: bool = False
    """closed until the reader opens it"""

    @property
    def anchor(self) -> str:
        """The target of links inside the page: ``"Audit of the data"`` -> ``"audit-of-the-data"``."""
        return re.sub(r"[^\w]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Report:
    """Everything on one page."""

    title: str
    sentence: str
    """the result, in fewer than twenty words"""
    tiles: Sequence[tuple[str, str]]
    """key figures: name and formatted value"""
    sections: Sequence[Section]
    footer: str = ""
    """where the figures come from"""
    next_step: NextStep | None = None
    """what to do next"""
    verdict: Verdict | None = None
    """the first screen, in the place of sentence, tiles and next step; the sections are folded below it"""

    def figures(self) -> list[Figure]:
        """All figures, in the page's order."""
        return [item for section in self.sections for item in section.items if isinstance(item, Figure)]
