"""The inputs of the result of a command: its settings, the version, and a hash of every file and folder that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from glob import has_magic
from pathlib import Path

from warmstart.config import EFFECTLESS, NAMES_FILES, NAMES_TASKS, Config, command_name
from warmstart.data.read import source_files
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.errors import ConfigError, DataError
from warmstart.interop.encoders import ENCODER_PREFIX, ENCODERS
from warmstart.model.files import find_bundle, model_digest
from warmstart.model.folder import is_model
from warmstart.system.storage import FORMAT, file_sha256, sha256
from warmstart.tasks.load import read_spec
from warmstart.version import __version__


def made_of(settings: Config) -> dict[str, str]:
    """All that a command's result depends on: its settings, the version, and a hash of each file and folder that they name."""
    made = {"command": command_name(settings), "the version": f"{__version__}, bundles of format {FORMAT}"}
    made |= {f"'{name}'": json.dumps(one, sort_keys=True) for name, one in settings.effective().items()}
    return made | input_hashes(settings)


def input_hashes(settings: Config, place: Path = Path()) -> dict[str, str]:
    """Path -> hash of all files, folders, globs and models that settings name (``FileInput``, ``TaskInput``), from ``place`` on.

    Those that the manifests of tasks name are among them.
    """
    found = dict[str, str]()
    for path in input_paths(settings, place):
        bare = str(path).removeprefix(ENCODER_PREFIX)
        here = bare in ENCODERS and not path.exists()
        found |= {bare: ENCODERS[bare].package} if here else _content(path)
    return found


def input_paths(settings: Config, place: Path = Path()) -> Iterator[Path]:
    """All files, folders, globs and models themselves, in the order of the settings; some may not be there."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Config) and EFFECTLESS not in field.metadata:
                yield from input_paths(one, place)
            elif NAMES_TASKS in field.metadata and one:
                flags = LabelledTableFlags.of(settings) if isinstance(settings, LabelledTableFlags) else None
                yield from _task_paths(place / one, flags)
            elif NAMES_FILES in field.metadata and one:
                yield place / one


def _task_paths(path: Path, flags: LabelledTableFlags | None) -> Iterator[Path]:
    """A manifest and what it names, or whatever else a task is read from."""
    try:
        file, spec = read_spec(path, flags)
    except (ConfigError, DataError):
        yield path
        return
    if file.is_file():
        yield file
    yield from input_paths(spec, file.parent)


def _content(path: Path) -> dict[str, str]:
    """The hash of a file, of a model, or of the files that are read from a folder or a glob; none of what is not there."""
    try:
        if path.is_file():
            return {str(path): file_sha256(path)}
        if path.is_dir() and is_model(find_bundle(path)):
            return {str(path): model_digest(str(path))}
        files = source_files(Source(path=str(path))) if path.is_dir() or has_magic(str(path)) else ()
    except (OSError, ValueError, DataError):
        return {}
    return {str(path): sha256(json.dumps([(str(file), file_sha256(file)) for file in files]).encode())} if files else {}
