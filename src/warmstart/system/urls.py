"""Files elsewhere: ``s3://``, ``gs://``, ``hdfs://``, ``http(s)://`` and every other protocol that fsspec knows.

A file is brought here whole before it is read: under another name until it is complete, tried ``ATTEMPTS`` times, and checked by
its size, and by its hash where one is known. Nothing is fetched unless somebody names a URL. Passwords and keys are those that the
protocol's own package finds (environment, configuration files); warmstart stores none.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstart.errors import ConfigError, DataError, WarmstartError
from warmstart.system.storage import atomic_file, file_sha256

ATTEMPTS = 4
"""times that a file is asked for"""
PAUSE = 1.0
"""seconds before the second attempt, twice as many before each further one"""
INSTALL = 'pip install "warmstart[remote]"'
PROTOCOL_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hdfs": "pyarrow",
    "abfs": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
}
"""protocol -> the package that fsspec needs for it; that of http comes with the extra"""


@dataclass(frozen=True)
class RemoteFile:
    """One file elsewhere."""

    url: str
    size: int | None
    """bytes; None if the server does not say"""
    name: str
    """its path in the folder that was named, or its own name"""


def is_url(path: str) -> bool:
    """Whether a path names a place elsewhere, or is written as if it did: ``s3://bucket/text``, ``file:///text``."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def remote_files(url: str) -> list[RemoteFile]:
    """The files that a URL names, in the order of their names: one, those of a folder (hidden ones are skipped), or a glob.

    Over http a folder's URL ends with a slash. Raises ``DataError`` if there is none, and ``ConfigError`` if a package is missing.
    """
    system, path = _file_system(url)
    web = _protocol(url).startswith("http")
    with _understood(url):
        if "*" in path or ("[" in path and not web):
            found, root = system.glob(path, detail=True), re.split(r"[*\[]", path)[0].rpartition("/")[0]
        elif path.endswith("/") or url.endswith("/") or (not web and system.isdir(path)):
            found, root = system.find(path, detail=True), path.rstrip("/")
        else:
            found, root = {path: system.info(path)}, path.rpartition("/")[0]
        files = [(place, info) for place, info in sorted(found.items()) if info.get("type") != "directory"]
        names = {place: place[len(root) :].lstrip("/") for place, _ in files}
        if web:  # links of a listing that lead elsewhere, or sort it
            files = [one for one in files if one[0].startswith(root) and names[one[0]] and not {*"?#"} & {*names[one[0]]}]
        shown = [(place, info) for place, info in files if not any(part.startswith(".") for part in names[place].split("/"))]
        sizes = {place: info.get("size") or (system.info(place).get("size") if web else info.get("size")) for place, info in shown}
    if not shown:
        raise DataError(f"{url} must hold at least one file that is not hidden, but holds none; check the address")
    return [RemoteFile(str(system.unstrip_protocol(place)), sizes[place], names[place]) for place, _ in shown]


def exists_at(url: str, name: str) -> bool:
    """Whether a folder at a URL holds a file of this name."""
    system, path = _file_system(url)
    with _understood(url):
        return bool(system.exists(f"{path.rstrip('/')}/{name}"))


def bring(url: str, target: Path, size: int | None = None, sha256: str | None = None) -> Path:
    """Copy the file at a URL to ``target``, which holds all of it or does not exist.

    Raises ``DataError`` if it is not there, not of this ``size`` or hash, or if the connection fails ``ATTEMPTS`` times.
    """
    system, path = _file_system(url)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with atomic_file(target) as aside:
                reason = _copy(system, path, aside, size)
                if reason:
                    raise _IncompleteError(reason)
                if sha256 is not None and file_sha256(aside) != sha256:
                    raise DataError(
                        f"{url} must have the sha256 {sha256[:12]}… that its index names, but has another; tokenize the text again"
                    )
            return target
        except _IncompleteError as error:
            if attempt == ATTEMPTS:
                raise DataError(
                    f"cannot read {url} ({error}) after {ATTEMPTS} attempts; check the address and the connection: "
                    "what is complete is kept"
                ) from None
            time.sleep(PAUSE * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


class _IncompleteError(Exception):
    """A file came only in part, or not at all."""


def _copy(system: Any, path: str, target: Path, size: int | None) -> str:
    """Copy once; why it is not complete, or nothing."""
    try:
        expected = size if size is not None else system.info(path).get("size")
        system.get_file(path, str(target))
    except FileNotFoundError:
        raise DataError(f"no such file: {system.unstrip_protocol(path)}; check the address") from None
    except Exception as error:  # network, host and protocol raise errors of many types
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
            raise  # what fails is the writing
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    came = target.stat().st_size
    return "" if expected is None or came == expected else f"{came:,} of {expected:,} bytes came"


def read_range(url: str, start: int, length: int) -> bytes:
    """Some bytes of the file at a URL."""
    system, path = _file_system(url)
    with _understood(url):
        found: bytes = system.cat_file(path, start=start, end=start + length)
        return found[:length]


def _protocol(url: str) -> str:
    return url.partition("://")[0].lower()


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises ``ConfigError`` that names what to install."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ConfigError(f"{url} is a URL, for which the package fsspec must be installed: {INSTALL}") from None
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        protocol = _protocol(url)
        install = " ".join([INSTALL, *([PROTOCOL_PACKAGES[protocol]] if protocol in PROTOCOL_PACKAGES else [])])
        raise ConfigError(f"{url} needs a package for {protocol}:// that is not installed ({error}): {install}") from None
    except ValueError as error:
        raise ConfigError(f"{url} must have a protocol that fsspec knows, such as s3, gs, hdfs or https ({error})") from None
    if url.endswith("/") and not path.endswith("/"):
        path += "/"
    return system, path


@contextmanager
def _understood(url: str) -> Iterator[None]:
    """What a server or a protocol's package raises, as one error."""
    try:
        yield
    except WarmstartError:
        raise
    except FileNotFoundError:
        raise DataError(f"no such file or folder: {url}; check the address (over http a folder's ends with a slash)") from None
    except Exception as error:  # network, host and protocol raise errors of many types
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"cannot read {url} ({type(error).__name__}: {reason}); check the address and the connection") from None
