"""What studies found in a run's model, told on the page of the run.

A run's folder keeps a list of them, ``studies.json``; its page has two places for it, a link at the top and a section at the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from warmstart.report.templates import template
from warmstart.storage import write_forced

LIST, PAGE = "studies.json", "report.html"


@dataclass(frozen=True)
class Told:
    """A study, in short."""

    title: str
    sentences: Sequence[str]
    page: str
    """where its own page is, seen from the run's; the same study told again takes the place of the older"""


def told(folder: Path) -> list[Told]:
    """The studies that a run's folder tells of."""
    file = folder / LIST
    return [Told(**one) for one in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def join(folder: Path, one: Told) -> None:
    """Tell of a study in a run's folder and on its page. Raises ``StorageError`` when the disk refuses."""
    known = [*(other for other in told(folder) if other.page != one.page), one]
    write_forced(folder / LIST, json.dumps([asdict(other) for other in known], indent=1, ensure_ascii=False).encode())
    page = folder / PAGE
    write_forced(page, filled(page.read_text(encoding="utf-8"), known).encode())


def filled(page: str, studies: Sequence[Told]) -> str:
    """The page with its two places filled; a page that has none stays as it is."""
    link = '<a href="#studies">Studies</a>' if studies else ""
    for name, body in (("link", link), ("studies", template("studies.html.jinja").render(studies=studies))):
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start in page:
            before, _, rest = page.partition(start)
            page = before + start + body + end + rest.partition(end)[2]
    return page
