"""The progress of training: a bar in a terminal, a bar below the cell of a notebook, and nothing elsewhere."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from warmstart.stats.formatting import percent, time_span
from warmstart.system.console import console, in_notebook

SECONDS_BETWEEN = 0.25
"""shortest time between updates: a notebook keeps up with four a second"""


class _Bar(Protocol):
    def update(self, progress: float, figures: str) -> None: ...
    def close(self) -> None: ...


class ProgressBar:
    """A progress bar with loss, tokens per second and time left, while the context lasts."""

    def __init__(self, title: str, *, show: bool = True) -> None:
        self.title, self.show = title, show
        self.bar: _Bar | None = None

    def __enter__(self) -> ProgressBar:
        if self.show:
            self.bar = NotebookBar(self.title) if in_notebook() else TerminalBar(self.title) if console.is_terminal else None
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.close()

    def update(self, progress: float, loss: float, tokens_per_second: float) -> None:
        """Move to ``progress`` (0 to 1)."""
        if self.bar:
            self.bar.update(progress, f"loss {loss:.3f} · {tokens_per_second:,.0f} tokens/s")


class TerminalBar:
    """On standard error; it vanishes at the end."""

    def __init__(self, title: str) -> None:
        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(),
        )  # fmt: skip
        self.progress = Progress(*columns, console=console, transient=True)
        self.task = self.progress.add_task(title, total=1.0, figures="")
        self.progress.start()

    def update(self, progress: float, figures: str) -> None:
        """Move to ``progress`` (0 to 1)."""
        self.progress.update(self.task, completed=progress, figures=figures)

    def close(self) -> None:
        """Take it away."""
        self.progress.stop()


class NotebookBar:
    """An output of the cell that is replaced in place, as HTML and as plain text; it is empty at the end. No widgets are needed.

    All bars of a cell share one output, which comes with the first update.
    """

    _places: ClassVar[dict[int, Any]] = {}
    """the output of the cell that runs, by its number"""

    def __init__(self, title: str) -> None:
        self.title, self.started, self.shown = title, time.monotonic(), 0.0

    def update(self, progress: float, figures: str) -> None:
        """Move to ``progress`` (0 to 1), but not more often than a notebook can follow."""
        now = time.monotonic()
        if now - max(self.started, self.shown) >= SECONDS_BETWEEN:
            left = (now - self.started) * (1 - progress) / progress if progress > 0 else 0.0
            text = f"{self.title}: {percent(progress, 0)} · {figures} · {time_span(left)} left"
            escaped = html.escape(text)
            self._show(text, f'<progress max="1" value="{progress:.3f}" aria-label="{escaped}"></progress> {escaped}')
            self.shown = now

    def close(self) -> None:
        """Empty the output, if there is one."""
        if self.shown:
            self._show("", "")

    def _show(self, text: str, shown: str) -> None:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        content = {"text/plain": text, "text/html": shown}
        shell = get_ipython()
        cell = shell.execution_count if shell else 0
        if cell in self._places:
            self._places[cell].update(content, raw=True)
        else:
            self._places.clear()
            self._places[cell] = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]


@contextmanager
def counting(title: str, total: int, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """Adds to what is done of ``total``, under a bar with the time left, while the context lasts."""
    done = 0
    with ProgressBar(title, show=show) as progress:

        def add(count: int) -> None:
            nonlocal done
            done += count
            if progress.bar:
                progress.bar.update(done / total, f"{done:,} of {total:,}")

        yield add
