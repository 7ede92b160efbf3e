"""A task from data frames: written as a folder that every command reads, as a manifest with a file for each split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from warmstart.data.frames import frame_table, write_texts
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.data.task_folder import require_task_folder, task_folder
from warmstart.errors import DataError
from warmstart.tasks.load import TaskSpec, build_task

_COLUMNS = ("text", "second", "label", "group", "separator")
"""settings that belong to the source of a manifest: they name columns, or say how a cell is read"""


def make_task(
    folder: str | Path,
    train: Any,
    test: Any = 0.2,
    validation: Any = None,
    unlabelled: Iterable[str] | None = None,
    **settings: Any,
) -> Task:
    """Write a task from data frames into a folder, and return it; ``"FOLDER/task.yaml"`` is what commands take.

    ``train``, ``test`` and ``validation`` are frames (pandas, polars, pyarrow, datasets, a mapping from names to columns, or a list
    of rows); ``test`` and ``validation`` may be a fraction or a number of training texts to hold out. ``settings`` are keys of
    a manifest (``type``, ``labels``, ``metric``, …) and the columns ``text``, ``label``, ``second``, ``group``. An earlier task in
    the folder is replaced, but not the ledgers of test splits.

        task = ws.make_task("tasks/mails", train=frame, test=0.2, text="body", label="topic")
        ws.adapt(ws.AdaptConfig(model="runs/lm", task="tasks/mails"))

    Raises ``ConfigError`` for wrong settings and for a folder that holds anything else, and ``DataError`` for frames without the
    columns.
    """
    place = Path(folder)
    require_task_folder(place)
    columns = {key: settings.pop(key) for key in _COLUMNS if key in settings}
    source = Source.build({"path": "x", **columns}, "the columns")
    needed = [column for column in (source.text, source.second, source.label, source.group) if column]
    manifest: dict[str, Any] = {"name": place.resolve().name, **settings, "source": {"format": "ndjson", **columns}}
    with task_folder(place) as aside:
        for name, frame in {"train": train, "validation": validation, "test": test}.items():
            if isinstance(frame, int | float) and name != "train":
                manifest[name] = frame
            elif frame is not None:
                manifest[name] = f"{name}.ndjson"
                _write(aside / f"{name}.ndjson", frame, needed, name)
        if unlabelled is not None:
            write_texts(unlabelled, aside / "unlabelled.ndjson")
            manifest["unlabelled"] = [{"path": "unlabelled.ndjson", "text": "text"}]
        try:
            task = build_task(TaskSpec.build(manifest, "the task"), aside)
        except DataError as error:
            raise DataError(str(error).replace(f"{aside}/", "").replace(".ndjson", "")) from None
        (aside / "task.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True), encoding="utf-8")
    more = tuple(one.model_copy(update={"path": str(place / Path(one.path).name)}) for one in task.unlabelled)
    return replace(task, manifest=place / "task.yaml", unlabelled=more)


def _write(file: Path, frame: Any, needed: Sequence[str], name: str) -> None:
    """One split."""
    try:
        table = frame_table(frame, needed).frame
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    if not len(table):
        raise DataError(f"{name} must hold at least one example, but is empty")
    table.write_ndjson(file)
