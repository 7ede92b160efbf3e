"""From what a user names to a folder on this machine: a folder is used as it is, ``hf:OWNER/NAME`` is downloaded from the hub.

Only a name that begins with ``hf:`` and is not a folder uses the network; of weights only safetensors are read.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from warmstart.errors import ModelError
from warmstart.interop.folder import INDEX, WEIGHTS, shards_of
from warmstart.system.storage import atomic_folder

CACHE = Path.home() / ".cache" / "warmstart" / "models"
"""folder of downloaded models"""
ADDRESS = "https://huggingface.co/{name}/resolve/main/{file}"
"""address of a model's file on the hub"""
NEEDED = ("config.json", "tokenizer.json")
WANTED = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "modules.json", "1_Pooling/config.json",
    "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip
"""read if they exist"""


def find_folder(source: str, cache: str | Path = CACHE) -> Path:
    """The folder of a Hugging Face model: ``source`` itself, without ``hf:``, or the download of ``hf:OWNER/NAME`` in ``cache``.

    Raises ``ModelError`` if it is neither a folder nor a model that can be downloaded.
    """
    name = source.removeprefix("hf:")
    if Path(name).is_dir():
        return Path(name)
    on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name)
    if not on_hub or name == source:
        download = f"hf:{name}" if on_hub else "hf:OWNER/NAME"
        raise ModelError(
            f"there is no folder {name}; give a folder with config.json, {WEIGHTS} and tokenizer.json, or {download}, which "
            "downloads a model from the hub"
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
    """Download one file; returns whether it exists. Raises ``ModelError`` if it is ``needed`` and cannot be downloaded."""
    import pooch  # here, because in a notebook it asks for widgets

    pooch.get_logger().setLevel(logging.WARNING)
    target = folder / file
    try:
        pooch.retrieve(ADDRESS.format(name=name, file=file), None, fname=target.name, path=target.parent)
    except Exception as error:  # network and host raise errors of many kinds
        target.unlink(missing_ok=True)
        if not needed and "404" in str(error):
            return False
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{name} is not a folder, and {file} of this model cannot be downloaded from the hub: {reason}; "
            "check the name and the network, or download the folder elsewhere and give its path"
        ) from None
    return True
