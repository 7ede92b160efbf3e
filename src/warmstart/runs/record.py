"""``run.json``: what a run says of itself, when it opens and when it ends; whoever lists runs or goes on with one reads this.

    {"command": "adapt", "settings": "config.yaml", "state": "finished", "headline": "LoRA is better: 91.2%."}

A sweep adds how many results are ``planned``, and the ``threads`` of each trial.
Between the two, and after a kill, the state is ``running``; whether a process still writes is known by its lock.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warmstart.system.storage import SETTINGS, atomic_write, json_or_none

RUN_FILE = "run.json"


def begin_record(folder: Path, command: str) -> None:
    """Write what is known when a run opens, on top of what it said of itself before it was stopped."""
    write_record(folder, command=command, settings=SETTINGS, state="running", headline="")


def end_record(folder: Path, headline: str) -> None:
    """Write that the run in a folder is complete; nothing is written in a folder that no run has opened."""
    if read_record_of(folder):
        write_record(folder, state="finished", headline=headline)


def read_record_of(folder: Path) -> dict[str, Any]:
    """What the run in a folder says of itself; empty if there is none, or it cannot be read."""
    return json_or_none(folder / RUN_FILE) or {}


def is_complete(folder: Path) -> bool:
    """Whether the run in a folder has come to its end."""
    return read_record_of(folder).get("state") == "finished"


def write_record(folder: Path, **values: Any) -> None:
    """Write some values; the others stay as they are."""
    values = read_record_of(folder) | values
    atomic_write(folder / RUN_FILE, json.dumps(values, ensure_ascii=False).encode(errors="backslashreplace"))
