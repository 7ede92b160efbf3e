"""How large is the house? Lines, words, commands and settings, a row each.

    python -m benchmarks.house            print every count beside its row in docs/explanation/architecture.md
    python -m benchmarks.house --write    let the rows that are too large fall to what stands

A row is what stands, not what is allowed: it rises only by hand, with a row that falls as much or with the reason in the commit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from warmstart.commands import COMMANDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "warmstart"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
ROW = re.compile(r"^\| `(?P<room>[^`]+)` \| (?P<limit>[\d,]+) \|", re.MULTILINE)
FILES = {
    "values": "errors types seeding registry dropout version notebook",
    "estimators": "estimators",
    "settings": "config flags json_output",
}
"""rooms that are single files; what is in no other room belongs to ``cli``"""
TEMPLATES = (".html", ".jinja", ".js", ".css", ".svg", ".json", ".txt", ".md", ".yaml")


def counts() -> dict[str, int]:
    """Room -> lines of Python, and every other count by its name."""
    rooms = dict.fromkeys([*FILES, *sorted(place.name for place in SOURCE.iterdir() if (place / "__init__.py").is_file())], 0)
    for file in SOURCE.rglob("*.py"):
        top = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        room = top if top in rooms else next((room for room, names in FILES.items() if top in names.split()), "cli")
        rooms[room] = rooms.get(room, 0) + lines(file)
    python = sum(rooms.values())
    return rooms | {
        "source": python,
        "scripts and templates": sum(lines(file) for file in SOURCE.rglob("*") if file.suffix in TEMPLATES),
        "tests": sum(map(lines, (ROOT / "tests").rglob("*.py"))),
        "benchmarks": sum(map(lines, (ROOT / "benchmarks").rglob("*.py"))),
        "words of documents": sum(map(words, [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])),
        "words of results": sum(map(words, (ROOT / "results").rglob("*.md"))),
        "number of commands": len(COMMANDS),
        "number of settings": sum(len([*fields(command.load_settings())]) for command in COMMANDS.values()),
    }


def lines(file: Path) -> int:
    """How many lines a file has."""
    return len(file.read_text(encoding="utf-8").splitlines())


def words(file: Path) -> int:
    """How many words a document has, as ``wc -w`` counts."""
    return len(file.read_text(encoding="utf-8").split())


def fields(settings: type[BaseModel]) -> Iterator[str]:
    """Every setting that a command reads, those of its groups field by field."""
    for name, field in settings.model_fields.items():
        groups = [*_models(field.annotation)]
        yield from (f"{name}.{inner}" for group in groups for inner in fields(group)) if groups else [name]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def rows() -> dict[str, int]:
    """Room -> its row in the page."""
    return {match["room"]: int(match["limit"].replace(",", "")) for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def problems(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """A sentence for each count above its row, and for each row or room that the other side lacks."""
    above = [
        f"'{room}' has {found[room]:,}, above its row of {limits[room]:,}" for room in limits if found.get(room, 0) > limits[room]
    ]
    return above + [f"'{room}' has no row, or no room" for room in sorted(found.keys() ^ limits.keys())]


def write(found: dict[str, int]) -> None:
    """Let each row that is too large fall to what stands."""
    fallen: Callable[[re.Match[str]], str] = lambda row: row[0].replace(  # noqa: E731
        f"| {row['limit']} |", f"| {min(found.get(row['room'], 0), int(row['limit'].replace(',', ''))):,} |"
    )
    PAGE.write_text(ROW.sub(fallen, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    found = counts()
    if "--write" in sys.argv[1:]:
        write(found)
    limits = rows()
    for room, count in found.items():
        print(f"{room:<24}{count:>8,}{limits.get(room, 0):>8,}")
    sys.exit("\n".join(problems(found, limits)) or 0)
