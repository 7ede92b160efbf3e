"""What the result of a command is made of: its settings, the version, and a hash of every file and folder that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warmstart import __version__
from warmstart.config import Config, read_yaml
from warmstart.data.read import source_files
from warmstart.data.source import Source
from warmstart.model.files import FORMAT, find_bundle, model_digest, saved_as
from warmstart.storage import file_sha256, sha256

OUTPUTS = ("out", "cache", "resume")
"""settings that name what a command writes"""


def made_of(command: str, settings: Config, without: Sequence[str] = ()) -> dict[str, str]:
    """All that a command's result depends on: its settings, the version, and a hash of each file and folder that they name.

    ``without`` names settings that it does not depend on.
    """
    values = {name: value for name, value in settings.to_dict().items() if name not in without}
    made = {"command": command, "the version": f"{__version__}, bundles of format {FORMAT}"}
    made |= {f"'{name}'": json.dumps(value, sort_keys=True) for name, value in values.items()}
    return made | input_hashes({name: value for name, value in values.items() if name not in OUTPUTS}, Path())


def input_hashes(values: Any, place: Path) -> dict[str, str]:
    """Path -> hash of every file and folder that is named in ``values``, and in the manifests among them."""
    if isinstance(values, Mapping | list | tuple):
        inner = values.values() if isinstance(values, Mapping) else values
        return {path: digest for one in inner for path, digest in input_hashes(one, place).items()}
    if not isinstance(values, str) or not _is_there(path := place / values) or path.resolve() == place.resolve():
        return {}
    if path.is_dir() and saved_as(find_bundle(path)):
        return {str(path): model_digest(str(path))}
    if path.is_dir() and not (path / "task.yaml").is_file():
        return {str(path): sha256(json.dumps([file_sha256(file) for file in source_files(Source(path=str(path)))]).encode())}
    file = path / "task.yaml" if path.is_dir() else path
    named = input_hashes(read_yaml(file), file.parent) if file.suffix in (".yaml", ".yml") else {}
    return {str(file): file_sha256(file)} | named


def _is_there(path: Path) -> bool:
    """Whether a path is a file or a folder; what cannot be a path is none."""
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):
        return False
