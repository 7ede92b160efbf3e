"""The reproductions at a glance, read from the tables of each system: ``python -m benchmarks.overview`` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.harness import table
from benchmarks.table import DOCS, blocks, with_block

PAGE, NAME, IN_SHORT = DOCS / "results" / "reproductions.md", "overview", "in-short"
SYSTEMS = {
    "altegrad": ("ALTEGRAD", ("altegrad", "french-reviews", "french-reviews-gpu", "french-reviews-e5")),
    "ece1786": ("ECE1786", ("ece1786", "film-reviews", "film-reviews-encoders")),
    "naacl2019": ("NAACL 2019", ("naacl2019", "questions")),
    "cs224n": ("CS224N", ("birthplace", "birthplace-evening", "birthplace-rotary")),
}
"""page -> what it is called, and its tables"""


def figures(page: str) -> list[tuple[str, ...]]:
    """A row for each figure of a system: figure, theirs, ours, minutes, labels, and the recipe or the command."""
    rows, found = [], blocks((PAGE.parent / f"{page}.md").read_text(encoding="utf-8"))
    for name in SYSTEMS[page][1]:
        command, recipe = re.findall(r"^warmstart (\w+)|recipes/(\w+)", found[name], flags=re.MULTILINE)[:2]
        how = recipe[1] if command[0] == "recipe" else f"warmstart {command[0]}"
        lines = [line for line in found[name].splitlines() if line.startswith("| ")][2:]
        rows += [(*(cell.strip() for cell in line.strip("|").split("|")), f"`{how}`") for line in lines]
    return rows


def pages() -> dict[Path, str]:
    """The pages as they must be: all figures on that of the reproductions; on a system's own, first, those that it has itself."""
    every = [(f"[{system}]({page}.md)", *row) for page, (system, _) in SYSTEMS.items() for row in figures(page)]
    header = ("figure", "theirs", "here", "minutes", "labels", "recipe or command")
    tables = {PAGE: (NAME, table(("system", *header), every))}
    for page in SYSTEMS:
        first = [(*row[:4], row[5]) for row in figures(page) if row[1]]
        tables[PAGE.parent / f"{page}.md"] = (IN_SHORT, table((*header[:4], header[5]), first))
    return {place: with_block(place.read_text(encoding="utf-8"), *block) for place, block in tables.items()}


def write_pages() -> None:
    """Write all of them."""
    for place, text in pages().items():
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
