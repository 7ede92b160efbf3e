"""The table of all reproductions on one page, read from the tables of each system: ``python -m benchmarks.overview`` writes it."""

from __future__ import annotations

import re

from benchmarks.harness import table
from benchmarks.table import DOCS, blocks, with_block

PAGE, NAME = DOCS / "results" / "reproductions.md", "overview"
SYSTEMS = {
    "altegrad": ("ALTEGRAD", ("altegrad", "french-reviews", "french-reviews-gpu", "french-reviews-e5")),
    "ece1786": ("ECE1786", ("ece1786", "film-reviews", "film-reviews-encoders")),
    "naacl2019": ("NAACL 2019", ("naacl2019", "questions")),
    "cs224n": ("CS224N", ("birthplace", "birthplace-rotary")),
}
"""page -> what it is called, and its tables"""


def overview() -> str:
    """A row for each figure of each system: theirs, ours, labels, minutes, and the recipe or the command."""
    rows = []
    for page, (system, names) in SYSTEMS.items():
        found = blocks((PAGE.parent / f"{page}.md").read_text(encoding="utf-8"))
        for name in names:
            command, recipe = re.findall(r"^warmstart (\w+)|recipes/(\w+)", found[name], flags=re.MULTILINE)[:2]
            how = recipe[1] if command[0] == "recipe" else f"warmstart {command[0]}"
            lines = [line for line in found[name].splitlines() if line.startswith("| ")][2:]
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            rows += [(f"[{system}]({page}.md)", *cell, f"`{how}`") for cell in cells]
    return table(("system", "figure", "theirs", "here", "minutes", "labels", "recipe or command"), rows)


def written() -> str:
    """The page with the table in its place."""
    return with_block(PAGE.read_text(encoding="utf-8"), NAME, overview())


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
