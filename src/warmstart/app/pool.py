"""The texts to label: from files with a text on each line, or tables with a column ``text``; and those of a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstart.app.records import MOST_TEXT_BYTES, check_text
from warmstart.data.annotations import Annotation
from warmstart.data.pool import pool_unlike
from warmstart.data.read import mail_text, open_prose, source_files
from warmstart.data.source import PROSE, LabelledTableFlags, Source
from warmstart.data.tables import read_table, reading_alike, source_format
from warmstart.data.task import Task
from warmstart.data.text_key import plain_text
from warmstart.errors import ConfigError
from warmstart.tasks.load import load_task

TASK_PERSON = "task"
"""whose answers the labels of a task are"""


@dataclass(frozen=True)
class PoolTexts:
    """Texts to label."""

    texts: tuple[str, ...]
    """each once"""
    repeated: int = 0
    """further copies of them"""
    left_out: int = 0
    """texts that are equal to a test or validation text of the task, or nearly the same"""


def task_to_label(path: str | Path, flags: Mapping[str, Any] | None = None) -> Task:
    """The task of a manifest or a table; rows of a table that have no label are its pool, texts that are still to be labelled.

    ``flags`` say how a table is read; a manifest says that itself.
    """
    place = Path(path)
    if place.suffix in (".yaml", ".yml") or (place / "task.yaml").is_file():
        return load_task(place)
    return load_task(place, flags=LabelledTableFlags.build({**(flags or {})}))


def read_pool(paths: Sequence[str], task: Task | None = None, reading: Mapping[str, Any] | None = None) -> PoolTexts:
    """The texts of files, without those like a test or validation text of the task; without files, the task's own pool.

    ``reading`` are settings of a ``Source``, such as the column; without them files are read as those of the task were. Blank texts
    are left out.

    Raises ``DataError`` that names file and line of a text that is too long or not Unicode.
    """
    alike = task.reading if task else {}
    given = [Source.build({"path": path, "document": "line"} | reading_alike(alike, path, reading or {})) for path in paths]
    sources = given or list(task.unlabelled if task else ())
    found = [text for source in sources for file in source_files(source) for text in _texts(source, file)]
    if task and not given:
        found += [text for one in task.unlabelled_texts for text in _checked(one, f"{one[:80]!r} of '{task.name}'")]
    different = tuple(dict.fromkeys(found))
    if task is None:
        return PoolTexts(different, len(found) - len(different))
    kept = pool_unlike(different, tuple(plain_text(text) for split in task.held_out().values() for text in split.texts))
    return PoolTexts(kept.texts, len(found) - len(different), kept.left_out)


def task_answers(task: Task) -> list[Annotation]:
    """The training texts of a task, as answers of ``TASK_PERSON``; texts with a word that holds white space cannot be shown.

    Raises ``ConfigError`` for a task that is neither classification of single texts nor tagging.
    """
    wrong = "pairs of texts" if any(not isinstance(text, str) for text in task.train.texts) else ""
    if task.type not in ("classification", "tagging") or (task.type == "classification" and wrong):
        raise ConfigError(
            f"labels are given to single texts (classification) or words (tagging), but '{task.name}' is a task of "
            f"{task.type}{f' of {wrong}' if wrong else ''}; name another task"
        )
    rows = []
    for number, (text, label) in enumerate(zip(task.train.texts, task.train.labels, strict=True), 1):
        where = f"training text {number} of '{task.name}'"
        if isinstance(text, str):
            rows.append(Annotation(where, text, TASK_PERSON, task.labels[int(label)]))
        elif all(word.split() == [word] for word in text):
            rows.append(Annotation(where, " ".join(text), TASK_PERSON, tuple(task.labels[int(tag)] for tag in label)))
    return [row for row in rows if row.text.strip()]


def _texts(source: Source, file: Path) -> Iterator[str]:
    """The texts of one file that are not blank, checked."""
    form = source_format(source, file)
    if form == "eml":
        yield from _checked(mail_text(file), str(file))
        return
    if form in (*PROSE, "pattern"):
        with open_prose(source, file, "text") as lines:
            number = 0
            while line := lines.readline(MOST_TEXT_BYTES + 2):  # a longer line is refused before all of it is in memory
                number += 1
                yield from _checked(line.rstrip("\r\n"), f"line {number} of {file}")
        return
    table = read_table(source, file, form)
    for number, text in enumerate(table.strings(table.text_name(source)), 1):
        yield from _checked(text, f"row {number} of {file}")


def _checked(text: str, where: str) -> Iterator[str]:
    if text.strip():
        check_text(text, where)
        yield text
