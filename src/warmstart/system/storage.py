"""Atomic writes: write a temporary file or folder, flush it to disk, put it in place.

After a full disk, a kill or a power cut either the old folder is there, complete, or the new one. Folders change places in one
system call where there is one (Linux); elsewhere a kill between two renames leaves the old folder under another name, from which
``sweep`` brings it back. What a killed process left is removed when its place is next written or opened; what a living process, or
one on another host, is writing stays.

What people keep is sealed: its JSON holds a hash of itself. A file that only saves time is made again if it cannot be read.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from warmstart.errors import StorageError, WarmstartError
from warmstart.system.limits import TOKENIZER_VALUES, parse_json
from warmstart.system.stopping import has_ended
from warmstart.system.trouble import cure_of

SETTINGS, PAGE_FILE, RUN_FILE = "config.yaml", "report.html", "run.json"
"""files in the folder of a run: its settings, its report, and its description"""
HISTORY_FILE = "history.ndjson"
"""file in the folder of a run: counts of what its model predicted; of a model without a run, after the name of its folder"""
MANIFEST = "bundle.json"
"""names of the manifest in the folder of a model"""
RACE_FILE = "race.json"
"""file in the folder of a race on one task: the scores of every method"""
CURVE_FILE = "curve.json"
"""file in the folder of a curve: the scores of every method at each number of labels"""
STEPS_FOLDER = "steps"
"""folder in that of a run, until its end: its finished steps"""
STANDARD_OUTPUT = "-"
"""the user's name for standard output, in place of a file"""
FORMAT = 1
"""version of saved files (pages, ledgers, shards of tokenized text), counted up when one changes"""
MODEL_FORMAT = 2
"""version of saved models; 2 is that of 0.3.0, the first that later versions read (``model/folder.py``)"""
SEAL = "digest"
"""key of the hash in sealed JSON"""
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<role>writing|old)-(?P<pid>\d+)(?:\.\d+)?(?:@(?P<host>.+))?")
_AT_CURRENT_FOLDER, _EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
"""errors of systems without atomic exchange"""
_ON_WINDOWS = hasattr(os, "O_BINARY")
_MORE_SPACE, _WRITABLE = "free some space or choose another folder", "choose a folder that you may write to"
_CURES = {
    errno.ENOSPC: _MORE_SPACE,
    errno.EDQUOT: _MORE_SPACE,
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.EROFS: _WRITABLE,
    errno.EISDIR: "choose a name that no folder has",
    errno.ENOTDIR: "choose a path of folders: a part of this one is a file",
    errno.EEXIST: "choose a path of folders: a part of this one is a file",
}
"""remedies for a file or folder that cannot be written, by the number of the error"""


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that replaces it when the context ends, and is deleted if it raises.

    Raises ``StorageError`` if the disk is full or read-only; an old folder at ``target`` is then unchanged. The current folder, and
    those around it, are not replaced: who stands there would be left in the old one.
    """
    target = _followed(target)
    temporary = _aside(target, "writing")
    try:
        if target.is_dir() and Path.cwd().is_relative_to(target.resolve()):
            raise StorageError(f"cannot write {target}: the current folder cannot be replaced; name another folder")
        sweep(target.parent, target.name)
        _remove(temporary)
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            _flush_to_disk(file)
        _flush_to_disk(temporary)
        _put_in_place(temporary, target)
        _flush_to_disk(target.parent)
    except OSError as error:
        raise cannot_write(str(target), error) from None
    finally:
        _remove(temporary)  # after an exchange it is the old folder


@contextmanager
def atomic_file(path: Path, noun: str = "") -> Iterator[Path]:
    """A temporary path beside ``path``: the file written there replaces it when the context ends, and is deleted if that raises.

    Its folder is made, if it is not there. A file that is replaced keeps its permissions; a device or a pipe is written to. Raises
    ``StorageError`` if anything fails; its message names the content with ``noun`` ("the tokenizer"), if it is given.
    """
    if path.exists() and not path.is_file():
        with _passed_on(path) as temporary:
            yield temporary
        return
    path = _followed(path)
    temporary = _aside(path, "writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        yield temporary
        if path.exists():
            temporary.chmod(path.stat().st_mode)
        _flush_to_disk(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(f"{noun} to {path}" if noun else str(path), error) from None
    finally:
        _remove(temporary)


@contextmanager
def _passed_on(device: Path) -> Iterator[Path]:
    """A temporary file whose content is copied into a device or a pipe, which cannot be replaced."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "content"
        yield temporary
        try:
            with temporary.open("rb") as content, device.open("wb", buffering=0) as out:
                shutil.copyfileobj(content, out)
        except OSError as error:
            raise cannot_write(device, error) from None


def atomic_write(path: Path, data: bytes, noun: str = "") -> None:
    """Replace one file atomically. Raises ``StorageError`` as ``atomic_file`` does."""
    with atomic_file(path, noun) as temporary:
        temporary.write_bytes(data)


def make_folder(folder: Path) -> None:
    """Make a folder, if it is not there. Raises ``StorageError`` if that is impossible, or its name stands for standard output."""
    if str(folder) == STANDARD_OUTPUT:
        raise StorageError(f"a new folder must be named, but '{folder}' stands for standard output; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {folder}: {error.strerror}; {_cure(error)}") from None


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left of atomic writes in a folder, and bring back an old folder whose new one never arrived.

    With ``name`` only what belongs to this file or folder; without, everything, in folders inside too.
    """
    for leftover, target in sorted(_abandoned(folder, name), key=lambda pair: _age(pair[0]), reverse=True):
        with suppress(OSError):
            if target is not None and not target.exists():
                os.replace(leftover, target)
            else:
                _remove(leftover)


def _abandoned(folder: Path, name: str | None = None) -> Iterator[tuple[Path, Path | None]]:
    """The leftovers of killed processes; each with the path that it belongs to, if it was there before the write."""
    for place, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            if (parts := is_leftover(entry)) and name in (None, parts["name"]):
                leftover = Path(place, entry)
                if _is_abandoned(leftover, int(parts["pid"]), parts["host"]):
                    yield leftover, leftover.with_name(parts["name"]) if parts["role"] == "old" else None
        folders[:] = [] if name else [inner for inner in folders if not is_leftover(inner)]


def is_leftover(name: str) -> re.Match[str] | None:
    """The parts of a name that an atomic write gives to what is not in its place; None for any other name."""
    return _LEFTOVER.fullmatch(name)


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, fit for JSON, with a hash of themselves; ``unsealed`` reads them."""
    return {**values, SEAL: _digest(values)}


def unsealed(data: bytes | str, *, values: int = TOKENIZER_VALUES) -> dict[str, Any]:
    """The values in sealed JSON, without their hash.

    Raises ``ValueError`` if anything in them has changed, if there are more ``values`` than so many, or if they have no seal.
    """
    content = parse_json(data.encode() if isinstance(data, str) else data, values)
    if not isinstance(content, dict):
        raise ValueError(f"it must hold values by name, but holds {type(content).__name__}")
    if content.pop(SEAL, None) != _digest(content):
        raise ValueError("its contents do not match its digest")
    return content


def json_or_none(file: Path) -> dict[str, Any] | None:
    """The values by name in a JSON file without a seal; None if there is none, or it holds anything else."""
    try:
        values = parse_json(file.read_bytes(), TOKENIZER_VALUES)
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def require_format(values: Mapping[str, Any], where: Path | str, error: type[WarmstartError], read: int = FORMAT) -> None:
    """Raise ``error`` unless what was saved has the format that this version reads."""
    if (version := values.get("format")) != read:
        writer, newer = values.get("warmstart", "another version"), isinstance(version, int) and version > read
        way = "update warmstart" if newer else "make it again, or use that version"
        raise error(f"{where} has format {version} of warmstart {writer}, but this one reads format {read}; {way}")


def _digest(values: Mapping[str, Any]) -> str:
    return sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode(errors="backslashreplace"))


def cache_folder() -> Path | None:
    """The user's cache of warmstart: below ``$XDG_CACHE_HOME``, or ``~/.cache``; None for a user without a home."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(folder) if Path(folder).is_absolute() else Path.home() / ".cache") / "warmstart"
    except RuntimeError:
        return None


def inside(folder: Path, name: object) -> Path:
    """The path of a file in ``folder`` whose name was read from another file, or that may be a link, and cannot be trusted.

    The name must be plain and relative, and not a link out of the folder; links of a Hugging Face cache, from
    ``snapshots/REVISION`` into ``blobs`` beside it, are followed. Raises ``ValueError`` for any other name (``../x``, ``/x``,
    ``.hidden``, a link out), and for what exists but is no ordinary file.

    >>> inside(Path("model"), "1_Pooling/config.json")
    PosixPath('model/1_Pooling/config.json')
    """
    if not isinstance(name, str) or not all(re.fullmatch(r"\w[\w.+-]*", part) for part in name.split("/")):
        raise ValueError(f"a file's name must be plain and relative, but is {name!r}")
    try:
        resolved, home = (folder / name).resolve(), folder.resolve()
    except RuntimeError:
        raise ValueError(f"{name!r} must be a file, but is a link to itself") from None
    allowed = [home, home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(resolved.is_relative_to(root) for root in allowed):
        raise ValueError(f"{name!r} must lie in {folder}, but leads to {resolved}")
    if resolved.exists() and not resolved.is_file():
        raise ValueError(f"{name!r} must be an ordinary file, but is not")
    return folder / name


def read_inside(folder: Path, name: object, most: int) -> bytes:
    """The bytes of a file from a stranger. Raises ``ValueError`` for a name that leads elsewhere or more than ``most`` bytes."""
    file = inside(folder, name)
    if (size := file.stat().st_size) > most:
        raise ValueError(f"{name!r} must have at most {most:,} bytes, but has {size:,}")
    return file.read_bytes()


def names_a_folder(name: str) -> bool:
    """True if a name that was read from a file can be that of one new folder: ``a task`` can, ``..`` and ``a/b`` cannot."""
    return bool(name) and Path(name).name == name and name != ".." and name.isprintable()


def sha256(data: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_of(values: Any) -> str:
    """A short digest of plain values."""
    return sha256(json.dumps(values, sort_keys=True).encode())[:16]


def file_sha256(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; it is read in pieces."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _followed(target: Path) -> Path:
    """The target of a link, so that what it names is replaced, and not the link; and of ``.`` and ``..``."""
    return target.resolve() if target.is_symlink() or target.name in ("", "..") else target


def _aside(target: Path, role: str) -> Path:
    """The path beside a file or folder under which this thread keeps it while it is not in its place."""
    thread = "" if threading.current_thread() is threading.main_thread() else f".{threading.get_native_id()}"
    return target.with_name(f".{target.name}.{role}-{os.getpid()}{thread}@{platform.node()}")


def _put_in_place(new: Path, target: Path) -> None:
    """Move ``new`` to ``target``; what was there is afterwards at ``new``, or gone."""
    if not target.exists():
        os.replace(new, target)
    elif not _exchange(new, target):
        old = _aside(target, "old")
        _remove(old)
        try:
            os.replace(target, old)
            os.replace(new, target)
        finally:
            if target.exists():
                _remove(old)
            else:
                os.replace(old, target)


def _exchange(first: Path, second: Path) -> bool:
    """Let two files or folders change places at one instant; False if the system cannot."""
    rename = None if _ON_WINDOWS else getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_CURRENT_FOLDER, os.fsencode(first), _AT_CURRENT_FOLDER, os.fsencode(second), _EXCHANGE) == 0:
        return True
    if (number := ctypes.get_errno()) in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number))


def _is_abandoned(leftover: Path, pid: int, host: str | None) -> bool:
    """True if the process that wrote it is dead, or its number now belongs to a younger process."""
    with suppress(OSError):
        return host in (None, platform.node()) and has_ended(pid, leftover.lstat().st_ctime)
    return False


def _age(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_ctime
    return 0.0


def _remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk. Windows flushes no folder, and a file only through a handle that can write."""
    if _ON_WINDOWS and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if _ON_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(target: object, error: OSError) -> StorageError:
    """The error that says what could not be written, why, and what to do."""
    return StorageError(f"cannot write {target}: {error.strerror or error}; {_cure(error)}")


def _cure(error: OSError) -> str:
    return _CURES.get(error.errno or 0) or cure_of(error) or "choose another folder"
