"""Downloads of public data, by URL and checksum; only the commands that exist for it download anything."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from warmstart.errors import DataError
from warmstart.system.storage import atomic_folder

HEADERS = {"User-Agent": "Mozilla/5.0 (warmstart)"}
"""some hosts refuse requests without a user agent"""


def fetch(url: str, checksum: str, folder: Path, *, unpack: bool = True) -> Path:
    """Download the file at ``url`` into ``folder``, unpacked if it is a zip or tar archive; an existing folder stays as it is.

    ``checksum`` is ``"sha256:…"`` or ``"md5:…"``. Raises ``DataError`` if network or checksum fail; then nothing is left behind.
    """
    if folder.exists():
        return folder
    import pooch  # here, because in a notebook it asks for widgets

    name = url.rsplit("/", 1)[-1]
    processor = _unpacker(name) if unpack else None
    pooch.get_logger().setLevel(logging.WARNING)
    with atomic_folder(folder) as aside:
        try:
            downloader = pooch.HTTPDownloader(headers=HEADERS, timeout=60)
            pooch.retrieve(url, checksum, fname=name, path=aside, downloader=downloader, processor=processor)
        except Exception as error:  # network, host, checksum and archive raise errors of many types
            reason = str(error).splitlines()[0]
            raise DataError(f"cannot download {url}: {reason}; download it by hand and name its folder instead") from None
        if processor:
            (aside / name).unlink()
    return folder


def _unpacker(name: str) -> Any:
    import pooch

    if name.endswith(".zip"):
        return pooch.Unzip(extract_dir=".")
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        return pooch.Untar(extract_dir=".")
    return None
