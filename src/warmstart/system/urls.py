"""Text elsewhere: ``s3://``, ``gs://``, ``http(s)://`` and every other protocol that fsspec knows.

A file is copied to this machine whole before it is read. Passwords and keys are those that the protocol's own package finds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstart.errors import ConfigError, DataError
from warmstart.system.storage import atomic_file

INSTALL = 'pip install "warmstart[remote]"'
_SHARDS = {"index.json", "tokenizer.json"}
"""files of a folder of token shards"""


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server or in a bucket."""

    url: str
    size: int | None
    """bytes; None if the server does not say"""
    name: str
    """path of the file in the folder that was named, or its own name"""


def is_url(path: str) -> bool:
    """True if a path names a place elsewhere, or is written as if it did: ``s3://bucket/text``, ``file:///text``."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def remote_files(url: str) -> list[RemoteFile]:
    """The files of text at a URL, by name: one, those of a folder (over http its URL ends with a slash), or a glob.

    Hidden ones are skipped. Raises ``DataError`` if there is none, and ``ConfigError`` if a package is missing.
    """
    system, path = _file_system(url)
    web, pattern = url.lower().startswith("http"), "*" in path
    try:
        if pattern or path.endswith("/") or (not web and system.isdir(path)):
            entries = system.glob(path, detail=True) if pattern else system.find(path, detail=True)
            root = path.partition("*")[0].rpartition("/")[0] if pattern else path.rstrip("/")
        else:
            entries, root = {path: system.info(path)}, path.rpartition("/")[0]
        files = {place: place[len(root) :].lstrip("/") for place, info in sorted(entries.items()) if info["type"] != "directory"}
        if web:  # links of a listing that lead elsewhere, or sort it
            files = {place: name for place, name in files.items() if place.startswith(root) and name and not {*"?#"} & {*name}}
        files = {place: name for place, name in files.items() if not any(part.startswith(".") for part in name.split("/"))}
        sizes = {place: entries[place].get("size") or system.info(place).get("size") for place in files}
    except Exception as error:  # network, host and protocol raise errors of many types
        raise _unreadable(url, error) from None
    if not files:
        raise DataError(f"{url} must hold at least one file that is not hidden, but holds none; check the address")
    if {*files.values()} >= _SHARDS:
        raise DataError(f"{url} holds token shards, which are read on this machine alone; copy the folder here first")
    return [RemoteFile(str(system.unstrip_protocol(place)), sizes[place], name) for place, name in files.items()]


def bring(url: str, target: Path, size: int | None = None) -> Path:
    """Copy the file at a URL to ``target``, which then holds all of it. Raises ``DataError`` if it is not there, or cut short."""
    system, path = _file_system(url)
    with atomic_file(target) as aside:
        try:
            system.get_file(path, str(aside))
        except OSError as error:
            if error.errno is not None and not isinstance(error, FileNotFoundError | ConnectionError):
                raise  # the disk here
            raise _unreadable(url, error) from None
        except Exception as error:
            raise _unreadable(url, error) from None
        if size is not None and aside.stat().st_size != size:
            raise DataError(f"{url} must have {size:,} bytes, but {aside.stat().st_size:,} came; run the same command again")
    return target


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises ``ConfigError`` that says what to install."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
    except ImportError as error:  # of fsspec, or of the package that a protocol needs, which fsspec then names
        raise ConfigError(f"{url} cannot be opened ({error}): {INSTALL}, and the package of its protocol (s3fs, gcsfs)") from None
    except ValueError as error:
        raise ConfigError(f"{url} must have a protocol that fsspec knows, such as s3, gs or https ({error})") from None
    return system, path.rstrip("/") + "/" * url.endswith("/")


def _unreadable(url: str, error: Exception) -> DataError:
    """The error of a server or a protocol's package, in a sentence."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"no such file or folder: {url}; check the address (over http a folder's ends with a slash)")
    reason = " ".join(str(error).split())[:200]
    return DataError(f"cannot read {url} ({type(error).__name__}: {reason}); check the address and the connection")
