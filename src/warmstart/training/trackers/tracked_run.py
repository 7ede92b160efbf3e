"""What a tracker must know of a training run: where it lies, what it is called, and which steps a tool has already."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warmstart.system.storage import atomic_write

PROJECT = "warmstart"
"""what every tool calls all these runs"""


@dataclass(frozen=True)
class TrackedRun:
    """One training run of a command."""

    folder: Path
    """of the command's run"""
    title: str = ""
    """of several: "pretrained, seed 0"; empty: it is the only one"""

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.folder.name}: {self.title}" if self.title else self.folder.name

    @property
    def path(self) -> str:
        """What no other run is called."""
        return str(self.folder.resolve() / self.file_name)

    @property
    def file_name(self) -> str:
        """The title as the name of a file or folder; empty without one."""
        return re.sub(r"[^\w+-]+", "-", self.title)


class LoggedSteps:
    """The id of a run in a tool, and the last step of each number there: a file in the folder of the run keeps both.

    A new folder is a new run.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.id: str = kept.get("id", uuid.uuid4().hex[:12])
        self.last: dict[str, int] = kept.get("last", {})
        if not kept:
            self.save()

    def new(self, step: int, values: Mapping[str, float]) -> dict[str, float]:
        """The numbers that the tool does not have yet; it is about to have them."""
        found = {name: value for name, value in values.items() if step > self.last.get(name, -1)}
        self.last |= dict.fromkeys(found, step)
        return found

    def save(self) -> None:
        """Write the file."""
        atomic_write(self._file, json.dumps({"id": self.id, "last": self.last}).encode())
