"""Writing so that nothing is ever half there: write aside, force to disk, rename.

A full disk, a kill or a power cut leaves either the old folder or the new one, whole.
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
def whole_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that takes its place when the context ends well, and vanishes when it does not.

    Raises ``StorageError`` when the disk refuses; what stood at ``target`` before is then untouched.
    """
    aside = target.with_name(f".{target.name}.writing-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        for file in aside.iterdir():
            _force(file)
        _force(aside)
        if target.exists():
            os.replace(target, old)
        os.replace(aside, target)
        _force(target.parent)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}; free some space or choose another folder") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        elif old.exists():
            os.replace(old, target)


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


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_forced(path: Path, data: bytes, noun: str = "") -> None:
    """Write one file aside, force it to disk, rename it into place. Raises ``StorageError`` when the disk refuses.

    The message says ``noun`` for what was to be written ("the tokenizer"), where it is given.
    """
    aside = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        aside.write_bytes(data)
        _force(aside)
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        what = f"{noun} to {path}" if noun else str(path)
        raise StorageError(f"cannot write {what}: {error.strerror or error}; free some space or choose another folder") from None
