"""Atomic writes: write a temporary file or folder, flush it to disk, rename it.

After a full disk, a kill or a power cut either the old folder is there, complete, or the new one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmstart.errors import StorageError


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that replaces it when the context ends, and is deleted if it raises.

    Raises ``StorageError`` if the disk is full or read-only; an old folder at ``target`` is then unchanged.
    """
    temporary = target.with_name(f".{target.name}.writing-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            _flush_to_disk(file)
        _flush_to_disk(temporary)
        if target.exists():
            os.replace(target, old)
        os.replace(temporary, target)
        _flush_to_disk(target.parent)
    except OSError as error:
        raise _storage_error(str(target), error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        elif old.exists():
            os.replace(old, target)


def atomic_write(path: Path, data: bytes, noun: str = "") -> None:
    """Replace one file atomically.

    Raises ``StorageError`` if that fails; its message names the content with ``noun`` ("the tokenizer"), if it is given.
    """
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        _flush_to_disk(temporary)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _storage_error(f"{noun} to {path}" if noun else str(path), error) from None


def user_folder(variable: str, default: str) -> Path | None:
    """The folder ``warmstart`` of the user, below that which an environment variable of XDG names; None for a user without a home.

    ``user_folder("XDG_STATE_HOME", ".local/state")``: for what a variable that is not set or not absolute leaves to ``default``,
    relative to the user's home.
    """
    given = os.environ.get(variable, "")
    try:
        return (Path(given) if Path(given).is_absolute() else Path.home() / default) / "warmstart"
    except RuntimeError:
        return None


def inside(folder: Path, name: object) -> Path:
    """The path of a file in ``folder`` whose name was read from another file and cannot be trusted.

    The name must be plain and relative, and not a link out of the folder; links of a Hugging Face cache, from
    ``snapshots/REVISION`` into ``blobs`` beside it, are followed. Raises ``ValueError`` for any other name (``../x``, ``/x``,
    ``.hidden``, a link out).

    >>> inside(Path("model"), "1_Pooling/config.json")
    PosixPath('model/1_Pooling/config.json')
    """
    if not isinstance(name, str) or not all(re.fullmatch(r"\w[\w.+-]*", part) for part in name.split("/")):
        raise ValueError(f"a file's name must be plain and relative, but is {name!r}")
    resolved, home = (folder / name).resolve(), folder.resolve()
    allowed = [home, home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(resolved.is_relative_to(root) for root in allowed):
        raise ValueError(f"{name!r} must lie in {folder}, but leads to {resolved}")
    return folder / name


def sha256(data: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _flush_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _storage_error(target: str, error: OSError) -> StorageError:
    return StorageError(f"cannot write {target}: {error.strerror or error}; free some space or choose another folder")
