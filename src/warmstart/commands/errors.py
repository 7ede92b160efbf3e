"""The ``errors`` command: what the page of errors says of one of them, in a terminal and without a network.

``errors.md`` beside the package is that page; a test keeps it equal to the one in the documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tyro.conf import Positional

import warmstart
from warmstart.config import Config
from warmstart.errors import ConfigError, suggest
from warmstart.notebook import Shown
from warmstart.report.headline import headline
from warmstart.report.page import Report, Section, Table
from warmstart.system.console import console

ERRORS_FILE = Path(warmstart.__file__).parent / "errors.md"
_HEADER = ("message", "what to do")


class ErrorsConfig(Config):
    """Explain an error: what it means, its commonest messages, and what to do about each."""

    name: Positional[str | None] = None
    """the error, as the line after its message names it: ConfigError, not-enough-memory; default: list all"""


class ErrorEntry(NamedTuple):
    """One part of the page."""

    title: str
    text: Sequence[str]
    """paragraphs, and lines of code"""
    messages: Sequence[Sequence[str]]
    """each of the commonest messages with what to do"""

    @property
    def gist(self) -> str:
        """The first paragraph that is not a message."""
        return next((text for text in self.text if not text.startswith("`")), self.text[0])

    @property
    def name(self) -> str:
        """What the command line calls it: ``Not enough memory`` -> ``not-enough-memory``; a class keeps its own name."""
        return self.title.lower().replace(" ", "-") if " " in self.title else self.title


@dataclass(frozen=True)
class ErrorsResult(Shown, view="commands.errors:errors_view"):
    """The entries that were asked for."""

    entries: tuple[ErrorEntry, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, fit for JSON."""
        return {one.name: {"text": list(one.text), "messages": [list(row) for row in one.messages]} for one in self.entries}


def explain_errors(config: ErrorsConfig) -> ErrorsResult:
    """Print one entry, or the names of all; the ``errors`` command."""
    known = {one.name.lower(): one for one in read_entries(ERRORS_FILE.read_text(encoding="utf-8"))}
    if config.name is None:
        for one in known.values():
            console.print(f"{one.name}: {headline(one.gist)}")
        return ErrorsResult(tuple(known.values()))
    wanted = config.name.strip("`'\"#").lower().replace(" ", "-")
    if wanted not in known:
        raise ConfigError(f"unknown error '{config.name}'; {suggest(config.name, [one.name for one in known.values()])}")
    entry = known[wanted]
    console.print(f"{entry.title}\n\n" + "\n\n".join(entry.text))
    for message, remedy in entry.messages:
        console.print(f"\n{message}\n    {remedy}")
    return ErrorsResult((entry,))


def errors_view(result: ErrorsResult) -> Report:
    """What a notebook shows."""
    sections = [Section(one.title, one.text, (Table(_HEADER, one.messages),) if one.messages else ()) for one in result.entries]
    return Report("Errors", headline(result.entries[0].gist), (), sections)


def read_entries(page: str) -> Iterator[ErrorEntry]:
    """The parts of the page below its introduction; links become their texts, and paragraphs one line each."""
    for part in re.split(r"^## ", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", page), flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        text, messages = list[str](), list[list[str]]()
        for block in re.findall(r"^```.*?^```|^\|.*?(?=\n\n|\Z)|^\S.*?(?=\n\n|\Z)", body, flags=re.MULTILINE | re.DOTALL):
            if block.startswith("```"):
                text.append(block.partition("\n")[2].removesuffix("```").rstrip())
            elif block.startswith("|"):
                messages += [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in block.splitlines()[2:]]
            else:
                text.append(" ".join(block.split()))
        yield ErrorEntry(title, text, messages)
