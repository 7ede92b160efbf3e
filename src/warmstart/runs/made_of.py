"""The inputs of the result of a command: its settings, the version, and a hash of every file and folder that they name.

From them a model's run says which task it learned from, and whether that is still what it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple

from warmstart.config import EFFECTLESS, NAMES_FILES, NAMES_TASKS, Config, TaskInput, command_name, read_yaml
from warmstart.data.read import source_files
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.errors import ConfigError, DataError, WarmstartError
from warmstart.interop.encoders import ENCODER_PREFIX, ENCODERS
from warmstart.model.folder import find_bundle, is_model, model_digest
from warmstart.runs.record import read_record_of
from warmstart.system.console import unsaid
from warmstart.system.storage import FORMAT, SETTINGS, file_sha256, sha256
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
    if not files:
        return {}
    start = next(folder for folder in (path, *path.parents) if folder.is_dir())  # so that the hash is that of a moved folder, too
    hashes = [(os.path.relpath(file, start), file_sha256(file)) for file in files]
    return {str(path): sha256(json.dumps(hashes).encode())}


# ------------------------------------------------------------------------------------------------ from a model to its task


class LearnedTask(NamedTuple):
    """The task that a run learned from, where it lies now."""

    path: Path
    """a table, a folder or a manifest; where none is found, as the settings of the run name it"""
    flags: LabelledTableFlags
    """columns of a table"""
    whole: bool
    """True if all its labelled texts were in one split, as ``fit`` reads them"""
    unchanged: bool
    """True if its files have the hashes that the run recorded"""
    start: Path = Path()
    """the folder in which the relative paths of the run start"""
    added: tuple[str, ...] = ()
    """further files of labels"""


class _Labelled(LabelledTableFlags):
    """A task, and how it is read if it is a table."""

    task: TaskInput[str]


def run_of(model: str | Path) -> Path | None:
    """The folder of the run that made a model, given either of them; None if no settings of a run lie there."""
    place = Path(model).resolve()
    return next((folder for folder in (place, place.parent) if (folder / SETTINGS).is_file()), None)


def task_named(run: Path) -> LearnedTask | None:
    """The task that the settings of a run name, or that lies in its folder; None if there is neither.

    A relative path starts where the run was made, even if both were moved since, else in or beside the folder of the run. A file
    that is unchanged goes before one that is only there.
    """
    settings = read_yaml(run / SETTINGS)
    named, own = settings.get("data") or settings.get("task"), run / "task" / "task.yaml"
    flags = {name: settings[name] for name in LabelledTableFlags.model_fields if settings.get(name) is not None}
    table = LabelledTableFlags.build(flags, str(run / SETTINGS))
    if not isinstance(named, str):
        return LearnedTask(own, table, whole=False, unchanged=True) if own.is_file() else None
    record, there = read_record_of(run), list[LearnedTask]()
    labelled = _Labelled.build({"task": named, **flags}, str(run / SETTINGS))
    for start in _starts(run, settings.get("out"), record.get("made_in")):
        if (start / named).exists():
            unchanged = _is_unchanged(labelled, start, record.get("made_of"))
            added = tuple(str(start / file) for file in settings.get("add") or ())
            there.append(LearnedTask(start / named, table, "data" in settings, unchanged, start, added))
    there.sort(key=lambda task: not task.unchanged)
    return next(iter(there), LearnedTask(Path(named), table, "data" in settings, unchanged=False))


def has_grown(file: Path, digest: str) -> bool | None:
    """True if lines were appended to a file that had a hash (``digest``), False if it still has it, None if it is another.

    Of a folder it is never True.
    """
    if not file.is_file():
        return False if digest in _content(file).values() else None
    so_far, grown = hashlib.sha256(), None
    with file.open("rb") as lines:
        for line in lines:
            text = line.rstrip(b"\r\n")
            for part in (text, line[len(text) :]):  # the last line may have had no end
                so_far.update(part)
                grown = grown or so_far.hexdigest() == digest or None
    return False if so_far.hexdigest() == digest else grown


def _starts(run: Path, out: Any, made_in: Any) -> Iterator[Path]:
    """Folders in which the relative paths of a run may start, the likeliest first."""
    parts = Path(out).parts if isinstance(out, str) else ()
    if parts and not Path(out).is_absolute() and parts == run.parts[-len(parts) :]:
        yield run.parents[len(parts) - 1]
    if isinstance(made_in, str):
        yield Path(made_in)
    yield from (run, run.parent, Path.cwd())


def _is_unchanged(settings: Config, start: Path, recorded: Any) -> bool:
    """True if each file that settings name has a hash that a run recorded; their paths differ where the run was moved."""
    try:
        with unsaid():
            hashes = input_hashes(settings, start)
    except (WarmstartError, OSError):
        return False
    return bool(hashes) and isinstance(recorded, dict) and {*hashes.values()} <= {*recorded.values()}
