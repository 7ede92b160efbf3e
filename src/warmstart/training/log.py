"""What a run records of itself: the lines of ``metrics.jsonl``, and a progress bar.

``metrics.jsonl`` is append-only. A resumed run first drops what follows its checkpoint, and a line cut short by a kill.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from warmstart.console import console
from warmstart.errors import StorageError


class MetricsLog:
    """The lines of one run's ``metrics.jsonl`` up to a step; without a folder they are kept in memory only."""

    def __init__(self, folder: Path | None, last_step: int = 0) -> None:
        self.file = folder / "metrics.jsonl" if folder else None
        self.rows: list[dict[str, Any]] = [row for row in read_metrics(self.file) if row["step"] <= last_step] if self.file else []
        self._write("w", self.rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one line."""
        self.rows.append(dict(row))
        self._write("a", [row])

    def _write(self, mode: str, rows: Iterable[Mapping[str, Any]]) -> None:
        if self.file is None:
            return
        try:
            with self.file.open(mode, encoding="utf-8") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in rows)
        except OSError as error:
            raise StorageError(f"cannot write {self.file}: {error.strerror}; free some space") from None


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The complete lines of a ``metrics.jsonl``; a last line that was cut short is left out."""
    if not file.exists():
        return []
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


class ProgressBar:
    """A progress bar with loss, tokens per second and time left; silent if standard error is no terminal."""

    def __init__(self, title: str, *, show: bool = True) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(),
        )  # fmt: skip
        self.progress = Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal))
        self.task = self.progress.add_task(title, total=1.0, figures="")

    def __enter__(self) -> ProgressBar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, progress: float, loss: float, tokens_per_second: float) -> None:
        """Move to ``progress`` (0 to 1)."""
        figures = f"loss {loss:.3f} · {tokens_per_second:,.0f} tokens/s"
        self.progress.update(self.task, completed=progress, figures=figures)
