"""What a sweep is made of, written into its folder: by this a worker knows that it would run the very same trials.

Version, source, data and settings are compared one by one, and a difference is named. Also recorded: how many trials are planned,
and with how many threads each computes, so that the numbers are the same wherever a trial runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

from warmstart import __version__
from warmstart.config import Config
from warmstart.console import console
from warmstart.errors import ConfigError
from warmstart.parts import differences
from warmstart.run_state import SWEEP_FILE, sealed_values
from warmstart.storage import atomic_write, sealed, sha256

LOOK_FOR_SWEEP = 1.0
"""seconds between two looks for a sweep that has not begun"""
FREE_SETTINGS = {
    "task", "more_tasks", "backbones", "out", "jobs", "threads", "budget", "estimate", "worker", "backend", "slurm", "save",
    "target",
}  # fmt: skip
"""settings in which a worker may differ: they change no trial, or what they name is compared by its content"""


def sweep_made_of(config: Config, contents: Mapping[str, str]) -> dict[str, str]:
    """All that the trials of a sweep depend on: version, source, torch, settings, and the ``contents`` by digest."""
    made = {"the version of warmstart": f"{__version__}, source {source_digest()}", "the version of torch": torch.__version__}
    settings = {name: value for name, value in config.to_dict().items() if name not in FREE_SETTINGS}
    return made | dict(contents) | {f"'{name}'": json.dumps(value, sort_keys=True) for name, value in settings.items()}


@cache
def source_digest() -> str:
    """A short digest of the source of this package: versions under development share a number."""
    root = Path(__file__).parents[1]
    return sha256(b"".join(file.read_bytes() for file in sorted(root.rglob("*.py"))))[:12]


def write_sweep(folder: Path, made: Mapping[str, str], threads: int, planned: int) -> None:
    """Let workers begin."""
    values = {"made_of": dict(made), "threads": threads, "planned": planned}
    atomic_write(folder / SWEEP_FILE, json.dumps(sealed(values), indent=1).encode())


def forget_other_sweep(folder: Path, made: Mapping[str, str]) -> None:
    """Remove the record of an earlier sweep with other trials, so that no worker takes up with it."""
    if (sealed_values(folder / SWEEP_FILE) or {}).get("made_of") != dict(made):
        (folder / SWEEP_FILE).unlink(missing_ok=True)


def recorded_threads(folder: Path) -> int | None:
    """The threads of each trial that the sweep in a folder has fixed; None if there is none."""
    found = (sealed_values(folder / SWEEP_FILE) or {}).get("threads")
    return found if isinstance(found, int) and found > 0 else None


def await_sweep(folder: Path, made: Mapping[str, str]) -> None:
    """Wait until the sweep in a folder lets workers begin.

    Raises ``ConfigError`` that names the differences if a worker with ``made`` would run other trials.
    """
    told = False
    while (found := sealed_values(folder / SWEEP_FILE)) is None:
        if not told:
            console.print(f"waiting for the sweep in {folder}; the same command without --worker begins it")
            told = True
        time.sleep(LOOK_FOR_SWEEP)
    theirs = found.get("made_of")
    theirs = theirs if isinstance(theirs, dict) else {}
    if others := differences(theirs, made):
        named = "; ".join(f"{name}: {made.get(name, 'none')} here, {theirs.get(name, 'none')} there" for name in others[:3])
        more = f"; and {len(others) - 3} more" if len(others) > 3 else ""
        raise ConfigError(
            f"a worker must run the same trials as the sweep in {folder}, but differs from it in {named}{more}; "
            "use the same installation, data and flags"
        )
