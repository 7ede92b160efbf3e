"""Prints sentences, metrics and tables: in a terminal on standard error, in a notebook below the cell, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from warmstart.stats.comparison import Comparison

NOTEBOOK_WIDTH = 110
"""characters of a line in the output of a notebook's cell"""


_HIDDEN = {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\n"), ord("\t")}
_VISIBLE = dict.fromkeys(_HIDDEN, "\ufffd")
"""characters that command a terminal, or turn the direction of what follows: labels and texts of strangers may hold them"""


def harmless(text: str) -> str:
    """A text with a sign in place of each character that commands what shows it."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


class _Console(Console):
    """Shows what would command the terminal, in place of obeying."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(harmless(one) if isinstance(one, str) else one for one in objects), **options)


def make_console() -> Console:
    """Prints every text as it is: names of files and labels may look like markup.

    A notebook shows standard error as a failure, on red. Its output calls itself a terminal, but is none.
    """
    notebook = in_notebook()
    return _Console(
        stderr=not notebook, highlight=False, soft_wrap=True, markup=False, emoji=False,
        force_jupyter=False, force_terminal=False if notebook else None, width=NOTEBOOK_WIDTH if notebook else None,
    )  # fmt: skip


def in_notebook() -> bool:
    """Whether this process runs the cells of a notebook."""
    return Console().is_jupyter


console = make_console()


def print_comparison(title: str, comparison: Comparison) -> None:
    """Print a comparison: its table, then its findings."""
    print_table(title, comparison.table(), comparison.header)
    for sentence in comparison.findings():
        console.print(sentence)


def print_metrics(title: str, metrics: Mapping[str, float]) -> None:
    """Print named metrics as a table."""
    print_table(title, [(name, f"{value:.5g}") for name, value in metrics.items()], ("metric", "value"))


def print_table(title: str, rows: Iterable[Sequence[Any]], header: Sequence[str]) -> None:
    """Print a table; the first column is left-aligned, the others right-aligned."""
    table = Table(title=harmless(title), title_justify="left", title_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(harmless(str(cell)) for cell in row))
    console.print(table)
