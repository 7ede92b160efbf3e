"""Prints sentences, metrics and tables: in a terminal on standard error, in a notebook below the cell, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmstart.errors import WarmstartError
from warmstart.system.trouble import COMMANDING

NOTEBOOK_WIDTH = 110
"""characters of a line in the output of a notebook's cell"""
SENTENCE, GAP = 46, 2
"""characters from which on a cell is a sentence, whose lines may be broken; spaces between columns, one of them the box's"""


_VISIBLE = dict.fromkeys(COMMANDING - {ord("\n"), ord("\t")}, "\ufffd")


def harmless(text: str) -> str:
    """A text with a sign in place of each character that commands what shows it."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


class _Latest:
    """A line at the foot of a terminal, with a clock that goes on whatever the program does."""

    def __init__(self, first: str) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._line = self._progress.add_task(_one_line(first), total=None)

    def show(self, line: object) -> None:
        """Show another line."""
        self._progress.update(self._line, description=_one_line(line))

    def __enter__(self) -> _Latest:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class _Console(Console):
    """Shows what would command the terminal, in place of obeying."""

    latest: _Latest | None = None
    """shows the latest line while nothing is printed"""
    called = ("", "")
    """a file that the user did not name, and what it is called instead"""
    logs = False
    """True if each step is printed meanwhile, since no terminal shows the latest"""

    def print(self, *objects: Any, **options: Any) -> None:
        if self.latest and objects:
            self.latest.show(objects[0])
        super().print(*(harmless(part.replace(*self.called)) if isinstance(part, str) else part for part in objects), **options)

    def step(self, line: str) -> None:
        """Print what took long, for a log, while all else is quiet."""
        if self.logs:
            self.quiet = False
            self.print(line)
            self.quiet = True


def make_console() -> _Console:
    """Prints every text as it is: names of files and labels may look like markup.

    A notebook shows standard error as a failure, on red. Its output calls itself a terminal, but is none.
    """
    notebook = in_notebook()
    return _Console(
        stderr=not notebook, highlight=False, soft_wrap=True, markup=False, emoji=False,
        force_jupyter=False, force_terminal=False if notebook else None, width=NOTEBOOK_WIDTH if notebook else None,
    )  # fmt: skip


def in_notebook() -> bool:
    """True if this process runs the cells of a notebook."""
    return Console().is_jupyter


console = make_console()
_SAID = set[str]()
_UNSAID = ContextVar("unsaid", default=False)
"""True if this thread prints nothing of what it takes from a file"""


def print_once(sentence: str) -> None:
    """Print a sentence, unless this process has printed it: what was taken of a file that is read for several ends."""
    if sentence not in _SAID and not _UNSAID.get():
        _SAID.add(sentence)
        console.print(sentence)


@contextmanager
def called(file: Path, name: str) -> Iterator[None]:
    """Let messages call a temporary file by a name that the user knows."""
    console.called = str(file), name
    try:
        yield
    except WarmstartError as error:
        raise type(error)(str(error).replace(*console.called)) from None
    finally:
        console.called = "", ""


@contextmanager
def unsaid() -> Iterator[None]:
    """Let ``print_once`` print nothing in this thread: a file is read again that was read with these words before."""
    before = _UNSAID.set(True)
    try:
        yield
    finally:
        _UNSAID.reset(before)


@contextmanager
def quietly(first: str = "") -> Iterator[None]:
    """Suppress what is printed, such as a race's lines on each trial.

    With a ``first`` line a terminal shows the latest one meanwhile, with the time since the start, and a log has it and each
    ``step``.
    """
    before, console.quiet = (console.quiet, console.logs), True
    status = _Latest(first) if first and console.is_terminal else nullcontext()
    console.logs = bool(first) and not console.is_terminal and not before[0]
    console.step(first)
    try:
        with status as console.latest:
            yield
    finally:
        (console.quiet, console.logs), console.latest = before, None


def progress_line(first: str, *, details: bool) -> AbstractContextManager[None]:
    """``quietly`` where a terminal can show the latest line; a log, and a command with ``details``, has every line."""
    return quietly(first) if console.is_terminal and not details else nullcontext()


def _one_line(text: object) -> str:
    """The text before the first line end, cut where the terminal ends; a spinner, a clock and spaces stand before it."""
    line = Text(harmless(str(text)).split("\n")[0])
    line.truncate(console.width - 11, overflow="ellipsis")
    return line.plain


def print_metrics(title: str, metrics: Mapping[str, float], likelihood: str | None = None) -> None:
    """Print named metrics as a table; ``likelihood`` is that of the language model that they are about."""
    title += ", per masked token" * (likelihood == "masked")
    print_table(title, [(name, f"{value:.5g}") for name, value in metrics.items()], ("metric", "value"))


def print_table(title: str, rows: Iterable[Sequence[Any]], header: Sequence[str]) -> None:
    """Print a table on lines that are not broken; numbers are right-aligned.

    Columns that do not fit the terminal are left out, the last first, and named below. Sentences in cells may be broken.
    """
    cells = [[harmless(str(cell)) for cell in row] for row in rows]
    widths = [_width(name, [row[i] for row in cells]) for i, name in enumerate(header)]
    shown = _columns_that_fit(widths, console.width)
    shape: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, GAP - 1, 0, 0)}
    table = Table(title=harmless(title), title_justify="left", title_style="bold", **shape)
    for i, (name, width) in enumerate(zip(header[:shown], widths, strict=False)):
        numbers = i > 0 and all(row[i][:1] in "-+~0123456789" for row in cells)
        table.add_column(name, justify="right" if numbers else "left", width=None if width > SENTENCE else width, overflow="fold")
    for row in cells:
        table.add_row(*row[:shown])
    console.print(table)
    if left := [name for name in header[shown:] if name]:
        console.print(f"(a wider terminal also shows: {', '.join(left)})")


def _width(name: str, cells: Sequence[str]) -> int:
    """Characters that a column needs: its longest cell, and the longest word of its name."""
    return max(map(cell_len, [*name.split(), *(line for cell in cells for line in cell.split("\n"))]), default=0)


def _columns_that_fit(widths: Sequence[int], width: int) -> int:
    """Number of the first columns that fit; a column of sentences needs only as much as one can be read in."""
    needed = 0
    for i, column in enumerate(widths):
        needed += min(column, SENTENCE) + GAP * (i > 0)
        if needed > width and i > 1:
            return i
    return len(widths)
