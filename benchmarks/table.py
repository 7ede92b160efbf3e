"""A measured table of the documents, and its place on a page.

A place is a block between ``<!-- NAME -->`` and ``<!-- end -->``: the command lines, the table with what was found, and the line
that says on which machine, when, and how long. All of it is written by ``python -m benchmarks NAME --write``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import Measured

DOCS = Path(__file__).parent.parent
WIDTH = 140
TO_MEASURE = "to be measured again"
"""ends the line of a table that was not measured with the present statistics"""
Render = Callable[[Sequence[dict[str, Any]]], str]
"""the results of a table's commands, in order, as Markdown"""


@dataclass(frozen=True)
class Table:
    """One table: where it stands, the command lines behind it, and how their results become Markdown."""

    name: str
    pages: tuple[str, ...]
    """paths from the root of the repository; none for a model that only other tables need"""
    commands: tuple[str, ...]
    render: Render
    needs: tuple[str, ...] = ()
    """names of the tables whose commands come first"""
    shown: int | None = None
    """how many of the command lines its page shows; None: all"""
    minutes: float = 0.0
    """what it takes on one core of the machine of the documents, about"""

    def block(self, measured: Sequence[Measured]) -> str:
        """What stands between the markers."""
        lines = [line for line in self.commands[: self.shown] if line.startswith("warmstart")]
        parts = [shell(lines)] if lines else []
        parts += [self.render([one.result for one in measured]), origin(self.name, measured)]
        return "\n\n".join(parts)


def shell(commands: Sequence[str]) -> str:
    """Command lines in a fence, broken before a flag where they are too long."""
    lines = []
    for command in commands:
        line = ""
        for part in re.split(r" (?=--)", command):
            if line and len(line.split("\n")[-1]) + len(part) > WIDTH - 4:
                line += f" \\\n  {part}"
            else:
                line += f" {part}" if line else part
        lines.append(line)
    return "\n".join(["```sh", *lines, "```"])


def origin(name: str, measured: Sequence[Measured]) -> str:
    """Machine, what disturbed it, date and minutes of a table, and the command that measures it."""
    minutes = f"{sum(one.seconds for one in measured) / 60:,.1f} minutes"
    described = [", ".join(part for part in (one.machine, one.clock) if part) for one in reversed(measured)]
    places = {re.sub(r"\d+ GFLOP/s", "", one): one for one in described}  # one machine, whatever rate a command measured
    return f"{'; '.join(reversed(places.values()))}, {max(one.date for one in measured)}, {minutes}, `python -m benchmarks {name}`"


def paragraph(text: str) -> str:
    """Running text with lines of the width of the documents."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def blocks(page: str) -> dict[str, str]:
    """Name and content of every block of a page."""
    return dict(re.findall(r"<!-- ([\w-]+) -->\n(.*?)<!-- end -->", page, flags=re.DOTALL))


def with_block(page: str, name: str, content: str) -> str:
    """The page with this block replaced. Raises ``ValueError`` if it has no such block."""
    if name not in blocks(page):
        raise ValueError(f"the page has no block <!-- {name} --> … <!-- end -->")
    body = f"<!-- {name} -->\n\n{content}\n\n<!-- end -->"
    return re.sub(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _: body, page, flags=re.DOTALL)


def last_measured(table: Table) -> str:
    """Date and minutes of a table, read from its first page."""
    content = blocks((DOCS / table.pages[0]).read_text(encoding="utf-8"))[table.name]
    date = (re.findall(r"\d{4}-\d\d-\d\d", content) or ["never"])[-1]
    minutes = (re.findall(r"([\d.,]+ minutes), `python", content) or [f"about {table.minutes:g} minutes"])[-1]
    return f"{date}, {minutes}{', ' + TO_MEASURE if TO_MEASURE in content else ''}"
