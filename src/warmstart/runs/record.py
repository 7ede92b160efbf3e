"""``run.json``: what a run says of itself when it opens, at each step and at its end; whoever lists or continues runs reads this.

    {"command": "adapt", "settings": "config.yaml", "state": "finished", "headline": "LoRA is better: 91.2%.", "done": 6,
     "made_of": {"task.yaml": "ab…", …}, "made_in": "/home/ann/tickets", "provenance": {…}}

A recipe and a sweep add how many steps or results are ``planned``, a sweep the ``threads`` of each trial; whatever compares methods
adds the test ``score`` of the one in question: its name and mean, or null if that is not known.
Between the two, and after a kill, the state is ``running``; whether a process still writes is known by its lock.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from warmstart.system.storage import RUN_FILE, STEPS_FOLDER, atomic_write, json_or_none


def read_record_of(folder: Path) -> dict[str, Any]:
    """The record of the run in a folder; empty if there is none, or it cannot be read."""
    return json_or_none(folder / RUN_FILE) or {}


def write_record(folder: Path, **values: Any) -> None:
    """Write some values; the others stay as they are."""
    values = read_record_of(folder) | values
    atomic_write(folder / RUN_FILE, json.dumps(values, ensure_ascii=False).encode(errors="backslashreplace"))


def is_complete(folder: Path) -> bool:
    """True for a run that has come to its end; then its steps, which it needs no longer, are removed."""
    record = read_record_of(folder)
    if (complete := record.get("state") == "finished") and "made_of" in record:  # else the steps are none of ours
        shutil.rmtree(folder / STEPS_FOLDER, ignore_errors=True)
    return complete


def end_record(folder: Path, headline: str) -> None:
    """Write that the run in a folder is complete; nothing is written in a folder that no run has opened."""
    if read_record_of(folder):
        write_record(folder, state="finished", headline=headline)
        is_complete(folder)
