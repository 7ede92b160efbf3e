"""Bringing public data here: by address and checksum, once, and only where a command is told to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pooch

from warmstart.errors import DataError
from warmstart.storage import whole_folder

BROWSER = {"User-Agent": "Mozilla/5.0 (warmstart)"}
"""some hosts refuse what does not name itself"""


def fetch(url: str, checksum: str, folder: Path, *, unpack: bool = True) -> Path:
    """The file at ``url``, unpacked where it is a zip or tar archive, in ``folder``; nothing is fetched that lies there already.

    ``checksum`` is ``"sha256:…"`` or ``"md5:…"``. Raises ``DataError`` where network or checksum fails; nothing is left then.
    """
    if folder.exists():
        return folder
    name = url.rsplit("/", 1)[-1]
    processor = _unpacker(name) if unpack else None
    pooch.get_logger().setLevel(logging.WARNING)
    with whole_folder(folder) as aside:
        try:
            downloader = pooch.HTTPDownloader(headers=BROWSER, timeout=60)
            pooch.retrieve(url, checksum, fname=name, path=aside, downloader=downloader, processor=processor)
        except Exception as error:  # the network, the host, the checksum and the archive each raise their own kind
            reason = str(error).splitlines()[0]
            raise DataError(f"cannot fetch {url}: {reason}; fetch it by hand and name its folder instead") from None
        if processor:
            (aside / name).unlink()
    return folder


def _unpacker(name: str) -> Any:
    if name.endswith(".zip"):
        return pooch.Unzip(extract_dir=".")
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        return pooch.Untar(extract_dir=".")
    return None
