"""Links from the page of a run to the studies of its model.

The run's folder keeps them in ``studies.json``. Its page shows them in two marked places, a link at the top and a section at the
end, which are filled again whenever the page is written or a study is added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from warmstart.errors import DataError
from warmstart.report.templates import page_template
from warmstart.system.limits import MANIFEST_BYTES, parse_json
from warmstart.system.storage import PAGE_FILE, atomic_write, inside, read_inside

LINKS_FILE = "studies.json"


@dataclass(frozen=True)
class StudyLink:
    """A study in short, with the way to its page."""

    title: str
    sentences: Sequence[str]
    page: str
    """path of the study's page, relative to the run's folder"""


def read_links(folder: Path) -> list[StudyLink]:
    """The studies that a run's folder links to. Raises ``DataError`` if its list of them is damaged."""
    if not (folder / LINKS_FILE).exists():
        return []
    try:
        return [StudyLink(**link) for link in parse_json(read_inside(folder, LINKS_FILE, MANIFEST_BYTES))]
    except (ValueError, TypeError) as error:
        raise DataError(f"{folder / LINKS_FILE} is damaged: {error}; remove it") from None


def add_link(folder: Path, link: StudyLink) -> None:
    """Link a run's page to a study; a link to the same page is replaced. Raises ``StorageError`` when the disk refuses."""
    links = [*(other for other in read_links(folder) if other.page != link.page), link]
    atomic_write(folder / LINKS_FILE, json.dumps([asdict(other) for other in links], indent=1, ensure_ascii=False).encode())
    page = folder / PAGE_FILE
    try:
        old = inside(folder, PAGE_FILE).read_text(encoding="utf-8")
    except ValueError as error:
        raise DataError(f"cannot link {page} to a study: {error}; remove it") from None
    atomic_write(page, insert_links(old, links).encode())


def insert_links(page: str, links: Sequence[StudyLink]) -> str:
    """The page with its marked places filled; one that has none stays as it is."""
    shortcut = '<a href="#studies">Studies</a>' if links else ""
    for name, body in (("link", shortcut), ("studies", page_template("studies.html.jinja").render(links=links))):
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start in page:
            before, _, rest = page.partition(start)
            page = before + start + body + end + rest.partition(end)[2]
    return page
