"""What the result of a command is made of: its settings, the version, and a hash of every file and folder that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from glob import has_magic
from pathlib import Path
from typing import Any

from warmstart import __version__
from warmstart.config import Config, command_name, read_yaml
from warmstart.data.read import source_files
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.interop.encoders import ENCODERS
from warmstart.model.files import find_bundle, model_digest, saved_as
from warmstart.system.storage import FORMAT, file_sha256, sha256
from warmstart.tasks.load import manifest_of

TASKS = ("task", "tasks", "more_tasks", "for_task")
"""settings that name manifests, whatever their endings"""
WORDS = ("scheme", "schemes", "name", "objective", "optimizer", "schedule", "precision", "selection", "keep", "preset")
"""settings whose values are words: a file or folder of that name has nothing to do with them"""


def made_of(settings: Config) -> dict[str, str]:
    """All that a command's result depends on: its settings, the version, and a hash of each file and folder that they name."""
    values = settings.effective()
    made = {"command": command_name(settings), "the version": f"{__version__}, bundles of format {FORMAT}"}
    return made | {f"'{name}'": json.dumps(one, sort_keys=True) for name, one in values.items()} | input_hashes(values, Path())


def input_hashes(values: Any, place: Path, name: str = "") -> dict[str, str]:
    """Path -> hash of all files, folders and globs that are named in ``values``, and in the manifests among them.

    ``name`` is that of the setting.
    """
    if isinstance(values, Mapping):
        return {path: digest for key, one in values.items() for path, digest in input_hashes(one, place, str(key)).items()}
    if isinstance(values, list | tuple):
        return {path: digest for one in values for path, digest in input_hashes(one, place, name).items()}
    if not isinstance(values, str) or name in WORDS:
        return {}
    path = place / values
    if not _is_there(path):
        if values in ENCODERS:
            return {values: ENCODERS[values].package}
        return _content_of(path) if has_magic(values) else {}
    if path.is_dir() and saved_as(find_bundle(path)):
        return {str(path): model_digest(str(path))}
    if name in TASKS:
        file, inside = manifest_of(path)
    elif path.resolve() == place.resolve():
        return {}
    elif path.is_dir() and not (path / "task.yaml").is_file():
        return _content_of(path)
    else:
        file = path / "task.yaml" if path.is_dir() else path
        inside = read_yaml(file) if file.suffix in (".yaml", ".yml") else {}
    return ({str(file): file_sha256(file)} if file.is_file() else {}) | input_hashes(inside, file.parent)


def _content_of(path: Path) -> dict[str, str]:
    """The hash of the names and contents of the files that are read from a folder or a glob, if there are any."""
    try:
        files = source_files(Source(path=str(path)))
    except DataError:
        return {}
    return {str(path): sha256(json.dumps([(str(file), file_sha256(file)) for file in files]).encode())}


def _is_there(path: Path) -> bool:
    """Whether a path is a file or a folder; what cannot be a path is none."""
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):
        return False
