"""The folder of a task that is written: another one may replace it, but nothing of the user's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from warmstart.data.scorings import SUFFIX, copy_ledgers
from warmstart.errors import ConfigError
from warmstart.system.storage import STANDARD_OUTPUT, atomic_folder, file_sha256, json_or_none

MARK = ".written.json"
"""in the folder: name -> hash of what was written there"""
_NAMED = 5
"""files that a message names"""


@contextmanager
def task_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that replaces ``target`` as that of ``atomic_folder`` does, with the ledgers of an earlier task in it.

    Raises ``ConfigError`` if ``target`` is a file, or holds anything but ledgers and what was written there before, unchanged.
    """
    require_task_folder(target)
    with atomic_folder(target) as aside:
        copy_ledgers(target, aside)
        yield aside
        written = {file.name: file_sha256(file) for file in aside.iterdir() if not file.name.endswith(SUFFIX)}
        (aside / MARK).write_text(json.dumps(written, indent=1), encoding="utf-8")


def require_task_folder(target: Path) -> None:
    """Raise ``ConfigError`` unless a task can be written to a folder and nothing of the user's is lost."""
    if str(target) == STANDARD_OUTPUT:
        raise ConfigError(f"a task is written into a folder, but {target} stands for standard output; name one")
    if target.exists() and not target.is_dir():
        raise ConfigError(f"a task is written into a folder, but {target} is a file; name another")
    if target.is_dir() and (foreign := [*islice(_foreign(target), _NAMED + 1)]):
        more = " and more" if len(foreign) > _NAMED else ""
        raise ConfigError(
            f"a task is written into a new folder, or over an earlier one that nobody has changed, but {target} holds "
            f"{', '.join(foreign[:_NAMED])}{more}; name another folder"
        )


def _foreign(folder: Path) -> Iterator[str]:
    """The names of files and folders that are not as they were written, and of those that were not written at all."""
    written = json_or_none(folder / MARK) or {}
    for one in sorted(folder.iterdir()):
        if one.name == MARK or one.name.endswith(SUFFIX):
            continue
        if one.is_symlink() or not one.is_file() or written.get(one.name) != file_sha256(one):
            yield one.name
