"""More labels of a task in further files: read as its first table was, and joined with those that are there.

A text that is there already counts once; with another label the newer one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.data.cells import RowText
from warmstart.data.files import is_utf8
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.data.tables import Tables
from warmstart.data.task import Split, Task, joined_splits
from warmstart.errors import ConfigError, DataError
from warmstart.system.console import console
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import is_manifest, load_whole_task, names_beyond, read_sources, read_spec, with_text

_OF_ONE_FILE = ("format", "delimiter", "header", "sheet")
"""settings of a source that hold for files with the same ending"""


def with_added(task: Task, files: Sequence[str], place: Path, flags: LabelledTableFlags, votes: str | None = None) -> Task:
    """The task of the table at ``place`` with the labels in further files, which are read like it, with the same columns.

    Labels that no text had come behind the others. ``votes`` is a column that is not read. Raises ``ConfigError`` or ``DataError``
    for a file that cannot be read so.
    """
    tables = Tables(without=votes)
    for file in files:
        task = _joined(task, file, *_read(task, Path(file), place, flags, tables))
    return task


def _read(
    task: Task, file: Path, place: Path, flags: LabelledTableFlags, tables: Tables
) -> tuple[tuple[str, ...], Split, tuple[str, ...]]:
    """The labels of the task and of a file, the file's labelled texts, and its texts without a label."""
    source = read_spec(place, flags, tables)[1].train[0]
    if file.exists() and is_manifest(file) and source.pattern is None:
        raise ConfigError(f"--add needs a table of texts and labels, but {file} is none; name a table like {place}")
    if file.is_dir() or source.as_label is not None:
        added = load_whole_task(file, LabelledTableFlags(), labels=task.labels)
        return added.labels, with_text(added.train, file), added.unlabelled_texts
    first = next(iter(task.train.texts), "")
    columns = tuple(first.cells) if isinstance(first, RowText) else ()
    own: dict[str, Any] = {"path": str(file), "columns": columns}
    own |= {} if file.suffix == Path(source.path).suffix else {name: Source.model_fields[name].default for name in _OF_ONE_FILE}
    own |= {"encoding": "utf-8"} if is_utf8(file) else {}
    try:
        rows = read_sources([source.model_copy(update=own)], Path(), task.type, tables)
    except DataError as error:
        missing, column, _ = str(error).partition("; name the column")
        raise DataError(f"{missing}; name its columns as in {place}") if column else error from None
    labels = (*task.labels, *names_beyond(rows.targets, task.labels))
    targets = TASK_TYPES[task.type].encode_targets(str(file), rows.targets, labels)
    return labels, with_text(Split(tuple(rows.inputs), targets, rows.groups), file), rows.unlabelled


def _joined(task: Task, file: str, labels: tuple[str, ...], added: Split, unlabelled: tuple[str, ...]) -> Task:
    """The task with the texts of a file, which has ``labels`` behind its own."""
    train, validation, test = (_widened(split, len(labels)) for split in task.splits().values())
    before, after = _labels_by_text(train), _labels_by_text(added)
    changed = {key for key in after if key in before and before[key] != after[key]}
    old = [number for number, key in enumerate(_keys(train)) if key not in changed]
    new = [number for number, key in enumerate(_keys(added)) if key not in before or key in changed]
    if changed:
        have = "text has" if len(changed) == 1 else "texts have"
        console.print(f"{len(changed):,} {have} another label in {file} than before; the newer one counts.")
    parts = {"train": train.take(np.array(old, dtype=np.int64)), file: added.take(np.array(new, dtype=np.int64))}
    more = (*task.unlabelled_texts, *unlabelled)
    return replace(task, labels=labels, train=joined_splits(parts), validation=validation, test=test, unlabelled_texts=more)


def _widened(split: Split, count: int) -> Split:
    """The split with targets (N, C) for so many labels, where a text may have several."""
    more = count - split.labels.shape[1] if split.labels.ndim == 2 else 0
    return replace(split, labels=np.pad(split.labels, ((0, 0), (0, more)))) if more else split


def _keys(split: Split) -> list[str]:
    return [str(key) for key in split.keys]


def _labels_by_text(split: Split) -> dict[str, set[str]]:
    """The labels of each text, by its key: of copies all that they have."""
    found = dict[str, set[str]]()
    for key, label in zip(_keys(split), split.labels.tolist(), strict=True):
        found.setdefault(key, set()).add(str(label))
    return found
