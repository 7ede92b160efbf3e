"""Links from the page of a run to the studies of its model.

The run's folder keeps them in ``studies.json``. Its page shows them in two marked places, a link at the top and a section at the
end, which are filled again whenever the page is written or a study is added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from warmstart.report.templates import page_template
from warmstart.storage import atomic_write

LINKS_FILE, PAGE_FILE = "studies.json", "report.html"


@dataclass(frozen=True)
class StudyLink:
    """A study in short, with the way to its page."""

    title: str
    sentences: Sequence[str]
    page: str
    """path of the study's page, relative to the run's folder"""


def read_links(folder: Path) -> list[StudyLink]:
    """The studies that a run's folder links to."""
    file = folder / LINKS_FILE
    return [StudyLink(**link) for link in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def add_link(folder: Path, link: StudyLink) -> None:
    """Link a run's page to a study; a link to the same page is replaced. Raises ``StorageError`` when the disk refuses."""
    links = [*(other for other in read_links(folder) if other.page != link.page), link]
    atomic_write(folder / LINKS_FILE, json.dumps([asdict(other) for other in links], indent=1, ensure_ascii=False).encode())
    page = folder / PAGE_FILE
    atomic_write(page, insert_links(page.read_text(encoding="utf-8"), links).encode())


def insert_links(page: str, links: Sequence[StudyLink]) -> str:
    """The page with its marked places filled; a page of an older version, which has none, stays as it is."""
    shortcut = '<a href="#studies">Studies</a>' if links else ""
    for name, body in (("link", shortcut), ("studies", page_template("studies.html.jinja").render(links=links))):
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start in page:
            before, _, rest = page.partition(start)
            page = before + start + body + end + rest.partition(end)[2]
    return page
