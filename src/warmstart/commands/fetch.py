"""The ``fetch`` command: the only one that uses the network."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Config
from warmstart.console import console
from warmstart.data.fetch import fetch


class FetchConfig(Config):
    """Fetch a public data set by address and checksum, and unpack it; what lies there already is not fetched again."""

    url: Positional[str]
    """where it lies"""
    checksum: str = Field(pattern="^(sha256|md5):[0-9a-f]+$")
    """what it must be: sha256:… or md5:…"""
    out: str
    """folder to make"""
    unpack: bool = True
    """unpack zip and tar archives"""


def fetch_data(config: FetchConfig) -> Path:
    """Fetch and say where."""
    place = fetch(config.url, config.checksum, Path(config.out), unpack=config.unpack)
    console.print(f"{place}: {sum(1 for file in place.rglob('*') if file.is_file())} files", markup=False)
    return place
