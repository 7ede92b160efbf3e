"""Parts of a report: sentences, tables and charts in sections, of any subject and for any display.

The headline of a page is a finding in fewer than twenty words; the complete sentence stands below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warmstart.runs.steps import NextStep
from warmstart.runs.verdict import Verdict

if TYPE_CHECKING:
    from warmstart.report.charts import Chart

NUMBER = re.compile(
    r"(< )?[-+−]?[\d.,]+( to [-+−]?[\d.,]+)?(\s?(%|s|ms|min|points|bytes|[kKMGT]i?B))?(\s\(.*\))?|-|–|nan|too few seeds|one run"
)
"""a cell that is right-aligned: a number, with its unit or interval, or the ends of an interval, or why there is none"""
HEADLINE_WORDS = 19
_FEWEST_WORDS = 6
"""a shorter beginning, such as "With 100 labels", says nothing"""
_LONGEST_NAME = 40
"""characters of a word"""
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_BRACKETS = re.compile(r"\s*\([^()]*\)")


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
        """True for each column of numbers only. Empty cells are ignored; a column of empty cells is text."""
        columns = [[row[i] for row in self.rows if row[i]] for i in range(len(self.header))]
        return [bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Live:
    """Something on a page to be tried: HTML of this package, and the script that moves it, which the page's policy names."""

    html: str
    script: str


@dataclass(frozen=True)
class Section:
    """A heading, sentences, something to try, then figures and tables, then preformatted text."""

    title: str
    text: Sequence[str] = ()
    """one paragraph each"""
    items: Sequence[Figure | Table] = ()
    pre: str = ""
    """preformatted text: commands and settings"""
    folded: bool = False
    """closed until the reader opens it"""
    live: Live | None = None

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
    """origin of the figures"""
    next_step: NextStep | None = None
    """next command"""
    verdict: Verdict | None = None
    """the first screen, in the place of sentence, tiles and next step; the sections are folded below it"""

    def figures(self) -> list[Figure]:
        """All figures, in the page's order."""
        return [item for section in self.sections for item in section.items if isinstance(item, Figure)]


def headline(finding: str) -> str:
    """The first sentence without what stands in brackets; of a longer one, as many clauses from its start as fit.

    ``"LoRA is better than TF-IDF by 3.1 points (95% interval 1.0 to 5.2). …"`` -> ``"LoRA is better than TF-IDF by 3.1 points."``
    """
    sentence = _BRACKETS.sub("", _SENTENCES.split(finding)[0])
    at_colons, at_commas = (_shortened(sentence, ends) for ends in (r"(?<=[;:])\s+", r"(?<=[;:,])\s+"))
    sentence = at_colons if _FEWEST_WORDS <= len(at_colons.split()) <= HEADLINE_WORDS else at_commas
    return _bounded(f"{sentence.rstrip(' .;:,')}." if sentence[-1:] not in "!?" else sentence)


def _bounded(sentence: str) -> str:
    """The sentence, with an ellipsis in names that are too long, and at the end of a single clause that is."""
    words = [word if len(word) <= _LONGEST_NAME else f"{word[:20]}…{word[-12:]}" for word in sentence.split()]
    return " ".join(words if len(words) <= HEADLINE_WORDS else [*words[: HEADLINE_WORDS - 1], "…"])


def _shortened(sentence: str, ends: str) -> str:
    """As many clauses from the start as a headline holds, at least one."""
    clauses = re.split(ends, sentence)
    while len(clauses) > 1 and len(" ".join(clauses).split()) > HEADLINE_WORDS:
        clauses.pop()
    return " ".join(clauses)


def paragraphs_once(report: Report) -> Report:
    """A report whose paragraphs stand only where they come first, without the sentence that is the headline."""
    seen = {report.sentence, "", *(report.verdict.for_terminals.sentences if report.verdict else ())}
    sections = []
    for section in report.sections:
        paragraphs = (text.removeprefix(report.sentence).strip() for text in section.text)
        kept = [text for text in dict.fromkeys(paragraphs) if text not in seen]
        seen.update(kept)
        sections.append(replace(section, text=kept))
    return replace(report, sections=sections)
