"""Paths of output that a user names: over nothing that is read, and over nothing that is not our own.

A file is our own if it is, byte for byte, what ``write_output`` last wrote at its path; the hashes lie in the user's cache. One
that was edited since, or that any other program wrote, is the user's. Where there is no cache every file that exists is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from warmstart.errors import ConfigError, StorageError
from warmstart.system.storage import (
    MANIFEST,
    RUN_FILE,
    STANDARD_OUTPUT,
    atomic_write,
    cache_folder,
    file_sha256,
    json_or_none,
    sha256,
)


def written_here(file: Path) -> bool:
    """True if a file is what ``write_output`` last wrote there, unchanged."""
    known = _known(file)
    return known is not None and file_sha256(file) in _hashes(known)


def free_output(path: str | Path, inputs: Iterable[Path] = (), flag: str = "--out") -> Path:
    """The path of a file that may be written; a device or a pipe always may.

    Raises ``ConfigError`` if it is one of the inputs or lies in a folder that is one, in a model or in a run, if it is a folder, or
    if it exists and is not what warmstart wrote there; ``StorageError`` if no file can be made there.
    """
    place = Path(path)
    if str(path) == STANDARD_OUTPUT:
        raise ConfigError(f"{flag} must name a file, but {path} stands for standard output; name a file")
    if place.is_dir() or str(path).endswith(("/", os.sep)):
        raise ConfigError(f"{flag} must name a file, but {path} is a folder; name a file in it")
    _require_folder(place)
    if place.exists() and not place.is_file():
        return place
    _refuse_inside(place, flag)
    if not place.exists():
        return place
    if read := next((source for source in inputs if _reads(source, place)), None):
        raise ConfigError(f"{flag} must not name a file that is read, but {place} is read as {read}; name another file")
    if not written_here(place):
        raise ConfigError(
            f"{flag} must name a new file, or one that warmstart wrote and nobody changed, but {place} is neither; name another "
            "file, or remove it yourself"
        )
    return place


def free_folder(path: str | Path, flag: str = "--out") -> Path:
    """The path of a folder that is to be made; it may exist if it is empty.

    Raises ``ConfigError`` if it holds anything, or lies in a model or in a run; ``StorageError`` if no folder can be made there.
    """
    target = Path(path)
    if str(path) == STANDARD_OUTPUT:
        raise ConfigError(f"{flag} must name a new folder, but {path} stands for standard output; name a folder")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists and is not empty; choose another {flag}, or remove it")
    _require_folder(target)
    _refuse_inside(target, flag)
    return target


def write_output(file: Path, data: bytes, noun: str = "") -> None:
    """Write a file that ``free_output`` has found free. Raises ``StorageError`` as ``atomic_write`` does."""
    remember_output(file, data)
    atomic_write(file, data, noun)


def remember_output(file: Path, data: bytes) -> None:
    """Keep that warmstart is about to write a file, so that it may be written again; nothing happens where that is impossible."""
    if (known := _known(file)) is not None:
        with suppress(OSError, StorageError):
            known.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(known, "\n".join([sha256(data), *_hashes(known)[:1]]).encode())  # both, in case of a kill in between


def _known(file: Path) -> Path | None:
    """The file with the hashes of what was written at a path; None for a device, and without a cache."""
    cache = cache_folder()
    if cache is None or (file.exists() and not file.is_file()):
        return None
    return cache / "outputs" / sha256(os.fsencode(file.resolve()))


def _hashes(known: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return known.read_text(encoding="ascii").split()
    return []


def _reads(source: Path, place: Path) -> bool:
    """True if an input is a file, maybe by another name, or a folder that holds it."""
    with suppress(OSError):
        return source.samefile(place) if source.is_file() else source.is_dir() and place.resolve().is_relative_to(source.resolve())
    return False


def _refuse_inside(place: Path, flag: str) -> None:
    """Raise ``ConfigError`` for a path in a model or in a run; a recipe's folder holds what its steps write."""
    for folder in place.resolve().parents:
        if (folder / MANIFEST).is_file():
            raise ConfigError(f"{flag} must lie outside of models, but {folder} is one ({MANIFEST}); name another place")
        if (json_or_none(folder / RUN_FILE) or {}).get("command", "recipe") != "recipe":
            raise ConfigError(f"{flag} must lie outside of runs, but {folder} is one ({RUN_FILE}); name another place")


def _require_folder(place: Path) -> None:
    """Raise ``StorageError`` unless something can be written beside a path, whose folder need not exist."""
    around = next(folder for folder in place.absolute().parents if folder.exists())
    if not around.is_dir():
        raise StorageError(f"cannot write {place}: {around} is a file; name another place")
    if not os.access(around, os.W_OK):
        raise StorageError(f"cannot write {place}: {around} may not be written to; name another place")
