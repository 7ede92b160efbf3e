"""Every error that a user can cause, as one tree.

    WarmstartError
    ├── ConfigError       a setting is unknown, missing or out of range
    ├── DataError         a file, a label or a split is not what the task needs
    ├── TokenizerError    a vocabulary cannot be trained, read or fitted to a model
    ├── ModelError        shapes, lengths or weights do not fit each other
    │   └── DivergedError the loss of a run became infinite or nan
    ├── BundleError       a saved model is incomplete or damaged
    ├── CheckpointError   a run cannot be resumed from what its folder holds
    ├── StorageError      a file cannot be written (disk full, read-only, no permission)
    ├── ReportError       a model is saved, but what describes it cannot be written
    ├── LostProcessError  another process of the same run has ended by a fault
    └── GateError         a model has not passed the gate of a build

The command line prints the message alone and exits with code 2, or that of a gate. A message says what must hold, what was given,
and what to do.
A broken invariant of the package itself is an ``AssertionError`` and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class WarmstartError(Exception):
    """The root of all errors that a user can cause and fix."""

    result: Any = None
    """result that exists all the same, for ``--json``"""
    exit_code = 2


class ConfigError(WarmstartError):
    """A setting is unknown, missing or out of range."""


class DataError(WarmstartError):
    """A file, a label or a split is not what the task needs."""


class TokenizerError(WarmstartError):
    """A vocabulary cannot be trained, read or fitted to a model."""


class ModelError(WarmstartError):
    """Shapes, lengths or weights do not fit each other."""


class DivergedError(ModelError):
    """The loss of a run became infinite or nan."""


class BundleError(WarmstartError):
    """A saved model is incomplete or damaged."""


class CheckpointError(WarmstartError):
    """A run cannot be resumed from what its folder holds."""


class StorageError(WarmstartError):
    """A file cannot be written: the disk is full or read-only, or permission is missing."""


class ReportError(WarmstartError):
    """A model is saved, but what describes it cannot be written."""


class LostProcessError(WarmstartError):
    """Another process of the same run has ended by a fault."""


class GateError(WarmstartError):
    """A model has not passed the gate of a build: it is too bad (exit code 1), or the labels are too few to tell (3)."""

    def __init__(self, message: str, exit_code: int, result: Any) -> None:
        super().__init__(message)
        self.exit_code, self.result = exit_code, result


class UncheckedWarning(UserWarning):
    """A model was saved but could not be checked in a fresh process. The command line then exits with code 1."""


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known name, and all known names.

    ``suggest("maskd", ["masked", "causal"])`` -> ``"did you mean 'masked'? known: causal, masked"``
    """
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6)
    return (f"did you mean '{near[0]}'? " if near else "") + f"known: {', '.join(names)}"


def nearest_path(path: str | Path) -> str:
    """The same for a path where nothing is: ``"did you mean 'data/news.csv'? "``, or nothing."""
    place = Path(path)
    try:
        missing = next((one for one in (*reversed(place.parents), place) if not one.exists()), None)
        if missing is None:
            return ""
        beside = sorted(one.name for one in missing.parent.iterdir())
    except OSError:
        return ""
    near = get_close_matches(missing.name, beside, n=1, cutoff=0.6)
    found = missing.with_name(near[0]) / place.relative_to(missing) if near else place
    return f"did you mean '{found}'? " if found.exists() else ""
