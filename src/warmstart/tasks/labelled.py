"""Labelled texts for ``fit``: a table, whose rows without a label are texts to read, or a manifest, all of whose labels learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from warmstart.data.source import LabelledTableFlags, Source
from warmstart.data.tables import reading_alike
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DataError
from warmstart.stats.formatting import first_of
from warmstart.system.console import console
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_whole_task, read_descriptions
from warmstart.tasks.predict import is_blank


def labelled_task(place: Path, flags: LabelledTableFlags, *, test: str | None = None, unlabelled: Sequence[str] = ()) -> Task:
    """The labelled texts of a table or a manifest, all of which learn, those without a label, and ``test`` texts if named.

    Blank texts are left out. ``flags`` say how a table is read; ``unlabelled`` names files of more texts. Raises ``ConfigError`` or
    ``DataError`` for what cannot be read so.
    """
    task = load_whole_task(place, flags, test)
    learned, tested = (_with_text(split, place) for split in (task.train, task.test))
    return _with_more(replace(task, train=learned, test=tested), unlabelled)


def _with_text(split: Split, place: Path) -> Split:
    """The examples that have a text."""
    kept = [number for number, text in enumerate(split.texts) if not is_blank(text)]
    if len(kept) == len(split):
        return split
    console.print(f"Left out, since they have no text: {len(split) - len(kept):,} of {len(split):,} rows of {place}.")
    return split.take(np.array(kept, dtype=np.int64))


def _with_more(task: Task, files: Sequence[str]) -> Task:
    """The task with the files of unlabelled texts: tables like that of the labels, or one text per line."""
    sources = [Source.build({"path": path, "document": "line", **reading_alike(task.reading, path, {})}) for path in files]
    return replace(task, unlabelled=(*task.unlabelled, *sources))


def with_descriptions(task: Task, file: str) -> Task:
    """The task with what a file says of its labels, and with labels that only the file names, which have no text."""
    meanings = read_descriptions(Path(file), task.labels)
    new = [name for name in meanings if name not in task.labels]
    if new and not task.single_label:
        raise DataError(f"{file} must name labels that texts have, but none has {', '.join(new[:5])}; leave them out")
    if new:
        console.print(f"Labels without a text, from {file}: {first_of(new, 5)}. Methods that read names can give them.")
    return replace(task, labels=(*task.labels, *new), label_descriptions=meanings)


def with_metric(task: Task, metric: str | None) -> Task:
    """The task with a metric; None: its own. Raises ``ConfigError`` for one that such a task does not have."""
    if metric is None:
        return task
    if metric not in (known := task_type_of(task).metrics):
        raise ConfigError(f"--metric must be {' or '.join(known)} for a {task.type} task, but is {metric}")
    return replace(task, metric=metric)
