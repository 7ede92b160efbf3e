"""The ``fetch`` command: public data sets from the network; models come by ``warmstart import hf:OWNER/NAME``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Config, Effectless
from warmstart.data.fetch import fetch
from warmstart.system.console import console


class FetchConfig(Config):
    """Download a public data set, verify its checksum and unpack it; a folder that exists is not downloaded again."""

    url: Positional[str]
    """address of the file"""
    checksum: str = Field(pattern="^(sha256|md5):[0-9a-f]+$")
    """expected checksum of the file: sha256:… or md5:…"""
    out: Effectless[str]
    """folder to create"""
    unpack: bool = True
    """unpack zip and tar archives"""


def fetch_data(config: FetchConfig) -> Path:
    """Download and print the number of files; the ``fetch`` command."""
    folder = fetch(config.url, config.checksum, Path(config.out), unpack=config.unpack)
    console.print(f"{folder}: {sum(1 for file in folder.rglob('*') if file.is_file())} files")
    return folder
