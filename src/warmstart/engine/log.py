"""What a run says of itself: lines of ``metrics.jsonl``, and a progress bar.

``metrics.jsonl`` is append-only; a resumed run first drops what came after its checkpoint, and a line torn by a kill.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from warmstart.errors import StorageError

console = Console(stderr=True, highlight=False, soft_wrap=True)


class Metrics:
    """The lines of one run's ``metrics.jsonl``; without a folder they are kept in memory only."""

    def __init__(self, folder: Path | None, upto: int = 0) -> None:
        self.file = folder / "metrics.jsonl" if folder else None
        self.rows: list[dict[str, Any]] = [row for row in read_metrics(self.file) if row["step"] <= upto] if self.file else []
        if self.file:
            self._write("w", self.rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one line."""
        self.rows.append(dict(row))
        if self.file:
            self._write("a", [row])

    def _write(self, mode: str, rows: list[dict[str, Any]] | list[Mapping[str, Any]]) -> None:
        assert self.file
        try:
            with self.file.open(mode, encoding="utf-8") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in rows)
        except OSError as error:
            raise StorageError(f"cannot write {self.file}: {error.strerror}; free some space") from None


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a ``metrics.jsonl``; a torn last line is left out."""
    if not file.exists():
        return []
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


class Bar:
    """A progress bar with loss, tokens per second and the time left; silent where standard error is no terminal."""

    def __init__(self, title: str, *, show: bool = True) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(),
        )  # fmt: skip
        self.progress = Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal))
        self.task = self.progress.add_task(title, total=1.0, figures="")

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, share: float, loss: float, tokens_per_second: float) -> None:
        """Move to ``share`` (0 to 1) of the run."""
        figures = f"loss {loss:.3f} · {tokens_per_second:,.0f} tokens/s"
        self.progress.update(self.task, completed=share, figures=figures)
