"""From what a user names to a folder on this machine: a folder stays what it is, a hub's name is fetched.

The only file of this concern that uses the network, and only for a name that is no folder.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pooch

from warmstart.errors import ModelError
from warmstart.interop.folder import INDEX, WEIGHTS, shards_of
from warmstart.storage import atomic_folder

CACHE = Path.home() / ".cache" / "warmstart" / "models"
"""where a hub's models are kept once they are fetched"""
ADDRESS = "https://huggingface.co/{name}/resolve/main/{file}"
"""where the hub keeps the files of a model"""
NEEDED = ("config.json", "tokenizer.json")
WANTED = ("tokenizer_config.json", "special_tokens_map.json", "modules.json", "1_Pooling/config.json")
"""read where they exist"""


def find_folder(source: str, cache: str | Path = CACHE) -> Path:
    """The folder of a foreign model: ``source`` itself (``hf:`` before it is dropped), or what is fetched into ``cache``.

    Raises ``ModelError`` where it is neither a folder nor the name of a model that can be fetched.
    """
    name = source.removeprefix("hf:")
    if Path(name).is_dir():
        return Path(name)
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        raise ModelError(
            f"there is no folder {name}; give a model's folder (config.json, {WEIGHTS}, tokenizer.json) or a hub's owner/name"
        )
    place = Path(cache) / name.replace("/", "--")
    if not place.is_dir():
        with atomic_folder(place) as aside:
            _fetch_all(name, aside)
    return place


def _fetch_all(name: str, folder: Path) -> None:
    for file in NEEDED:
        _fetch(name, file, folder)
    for file in WANTED:
        _fetch(name, file, folder, needed=False)
    if not _fetch(name, WEIGHTS, folder, needed=False):
        _fetch(name, INDEX, folder)
        for shard in shards_of(folder):
            _fetch(name, shard.relative_to(folder).as_posix(), folder)


def _fetch(name: str, file: str, folder: Path, *, needed: bool = True) -> bool:
    """Fetch one file; whether it came. Raises ``ModelError`` where one that is ``needed`` does not."""
    pooch.get_logger().setLevel(logging.WARNING)
    target = folder / file
    try:
        pooch.retrieve(ADDRESS.format(name=name, file=file), None, fname=target.name, path=target.parent)
    except Exception as error:  # the network and the host each raise their own kind
        target.unlink(missing_ok=True)
        if not needed and "404" in str(error):
            return False
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{name} is no folder here, and {file} of the hub's model of that name cannot be fetched: {reason}; "
            "check the name and the network, or fetch the folder elsewhere and give its path"
        ) from None
    return True
