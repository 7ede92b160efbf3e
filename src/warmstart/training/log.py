"""The record that a run keeps of itself: the lines of ``metrics.jsonl``.

``metrics.jsonl`` is append-only. A resumed run first cuts off what follows its checkpoint, which has a hash of the lines before.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warmstart.errors import ConfigError
from warmstart.system.console import console
from warmstart.system.storage import atomic_write, cannot_write, sha256

FOLDER = "tensorboard"
"""name in the folder of a run"""


def events_folder(out: str | Path, *, wanted: bool) -> Path | None:
    """Folder of the event files of a run; None if they are not wanted. Raises ``ConfigError`` if TensorBoard is not installed."""
    if wanted and find_spec("tensorboard") is None:
        raise ConfigError('--tensorboard needs tensorboard; pip install "warmstart[tensorboard]"')
    return Path(out) / FOLDER if wanted else None


@contextmanager
def shown(folder: Path | None, title: str = "") -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
    """A function for each new line of the log of a training run; of several runs each has a ``title``. None without a folder."""
    if folder is None:
        yield None
        return
    place, opened, failed = folder / re.sub(r"[^\w+-]+", "-", title), list[Any](), list[Exception]()

    def show(row: Mapping[str, Any]) -> None:
        try:
            if not opened and not failed:
                from torch.utils.tensorboard import SummaryWriter

                opened.append(SummaryWriter(str(place), purge_step=row["step"]))  # hides what an earlier process wrote later
            for name, value in numbers(row).items() if not failed else ():
                opened[0].add_scalar(name, value, row["step"])
        except Exception as error:  # a tool for watching must not end what is watched
            failed.append(error)
            console.print(f"TensorBoard gets no more of this run: {error}", markup=False)

    try:
        yield show
    finally:
        for writer in opened:
            writer.close()


def numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a line but its step, those of groups with a path: ``{"held_out": {"loss": 2.0}}`` -> ``held_out/loss``."""
    figures: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            figures |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            figures[f"{prefix}{name}"] = float(value)
    return figures


class MetricsLog:
    """The lines of one run's ``metrics.jsonl`` up to a step; without a folder they are kept in memory only.

    ``observe`` gets each new line. If the checkpoint of this step has another ``digest`` of the lines before it, that is said; so
    is a line cut short by a kill.
    """

    def __init__(
        self, folder: Path | None, last_step: int = 0, digest: str = "", observe: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        self.observe = observe
        self.file = folder / "metrics.jsonl" if folder else None
        self.rows: list[dict[str, Any]] = []
        if self.file is None or not (self.file.exists() or digest):
            return
        before = self.file.read_bytes() if self.file.exists() else b""
        self.rows = [row for row in read_metrics(self.file) if row["step"] <= last_step] if before else []
        if digest and digest != self.digest():
            console.print(f"{self.file} is damaged: lines before step {last_step} are lost or changed")
        elif before and not before.endswith(b"\n"):
            console.print(f"the last line of {self.file} was cut short, and is removed")
        kept = _lines(self.rows)
        if before.startswith(kept) and self.file.exists():
            os.truncate(self.file, len(kept))
        else:
            atomic_write(self.file, kept)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one line."""
        self.rows.append(dict(row))
        if self.file is None:
            return
        try:
            with self.file.open("ab") as stream:
                stream.write(_lines([row]))
        except OSError as error:
            raise cannot_write(self.file, error) from None
        if self.observe is not None:
            self.observe(row)

    def digest(self) -> str:
        """A hash of all lines."""
        return sha256(_lines(self.rows))


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The lines of a ``metrics.jsonl``; damaged ones, and a last one that was cut short, are left out."""
    rows = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows
