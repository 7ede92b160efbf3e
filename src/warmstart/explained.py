"""``--explain``: what the page of errors says of one of them, in a terminal and without a network.

``errors.md`` beside this file is that page; a test keeps it equal to the one in the documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from warmstart.errors import ConfigError, suggest
from warmstart.json_output import JSON_FLAG, result_document
from warmstart.report.headline import headline

EXPLAIN = "--explain"
ERRORS_FILE = Path(__file__).with_name("errors.md")


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


def explained(words: Sequence[str]) -> str:
    """What is printed of the error that the words after ``--explain`` name, or one line for each error if they name none.

    Raises ``ConfigError`` for an unknown one.
    """
    known = {one.name.lower(): one for one in read_entries(ERRORS_FILE.read_text(encoding="utf-8"))}
    name = " ".join(word for word in words if word != JSON_FLAG)
    wanted = name.strip("`'\"#").lower().replace(" ", "-")
    if wanted and wanted not in known:
        raise ConfigError(f"unknown error '{name}'; {suggest(name, [one.name for one in known.values()])}")
    entries = [known[wanted]] if wanted else [*known.values()]
    if JSON_FLAG in words:
        told = {one.name: {"text": one.text, "messages": one.messages} for one in entries}
        return result_document(EXPLAIN, None, told).rstrip("\n")
    if not wanted:
        return "\n".join(f"{one.name}: {headline(one.gist)}" for one in entries)
    entry = entries[0]
    return "\n\n".join([entry.title, *entry.text, *(f"{message}\n    {remedy}" for message, remedy in entry.messages)])


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
