"""Labels from tables (``data/annotations.py``), as answers of the people who gave them.

A text is the one of the pool that is equal, else one of the same letters and digits (``text_key``), else it is added. All rows are
taken, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmstart.app.project import Project
from warmstart.app.records import IMPORTED, Value, check_text
from warmstart.data.annotations import Annotation, read_annotations, refuse_rows
from warmstart.data.pool import pool_unlike
from warmstart.data.text_key import text_key
from warmstart.errors import ConfigError, DataError


@dataclass
class ImportSummary:
    """What came of an import."""

    answers: int = 0
    unlabelled: int = 0
    """rows without a label"""
    known: int = 0
    """rows that had been imported before"""
    left_out: int = 0
    """rows whose texts are like those that score models"""
    new_texts: int = 0
    new_labels: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)


def import_files(
    project: Project, files: Sequence[str | Path], held_out: Sequence[str] = (), reading: Mapping[str, Any] | None = None
) -> ImportSummary:
    """Read labels from files into a project, without texts that are like those ``held_out`` to score models.

    ``reading`` are settings of a ``Source``, such as the column of the text, where a file has several.

    Raises ``DataError`` that names the first rows that cannot be read; then none is.
    """
    summary, rows, wrong = ImportSummary(), list[Annotation](), list[str]()
    for file in map(Path, files):
        tags = project.type == "tagging"
        read, unlabelled, refused = read_annotations(file, tags=tags, check=check_text, reading=reading)
        rows += read
        wrong += refused
        summary.unlabelled += unlabelled
    refuse_rows(wrong)
    if held_out:
        allowed = {*pool_unlike(tuple(row.text for row in rows), tuple(held_out)).texts}
        summary.left_out = sum(row.text not in allowed for row in rows)
        rows = [row for row in rows if row.text in allowed]
    take_rows(project, rows, summary)
    return summary


def take_rows(project: Project, rows: Sequence[Annotation], summary: ImportSummary | None = None) -> ImportSummary:
    """Write rows into a project, all or none. Raises ``DataError`` that names a row whose labels do not fit its text."""
    summary = ImportSummary() if summary is None else summary
    with project.at_once():
        places = _places(project, rows)
        summary.new_texts = project.add_texts([row.text for row, place in zip(rows, places, strict=True) if place is None])
        at = {text: number for number, text in enumerate(project.texts)}
        labels = project.label_ids()
        done = {(draw.text, draw.person) for draw in project.draws() if draw.queue == IMPORTED}
        said = {(answer.text, answer.person, answer.value) for answer in project.answers()} if done else set()
        for row, place in zip(rows, places, strict=True):
            text = at[row.text] if place is None else place
            value = _value(project, row, labels, summary)
            person = row.person.strip()
            if (text, person) in done and (text, person, value) in said:
                summary.known += 1
                continue
            _check_words(project.texts[text], value, row)
            draw = project.draw(text=text, person=person, queue=IMPORTED)
            project.answer(draw.id, person, value, 0.0)
            summary.answers += 1
            if person not in summary.people:
                summary.people.append(person)
    return summary


def _places(project: Project, rows: Sequence[Annotation]) -> list[int | None]:
    """The text of the pool that each row labels; None if there is none."""
    exact = {text: number for number, text in enumerate(project.texts)}
    near: dict[str, int] = {}
    if any(row.text not in exact for row in rows):
        for number, text in enumerate(project.texts):
            near.setdefault(text_key(text), number)
    return [exact[row.text] if row.text in exact else near.get(text_key(row.text)) for row in rows]


def _value(project: Project, row: Annotation, labels: dict[str, int], summary: ImportSummary) -> Value:
    """The ids of a row's labels; labels that are new are added."""
    for name in [row.label] if isinstance(row.label, str) else row.label:
        if name not in labels:
            try:
                labels[name] = project.add_label(name, row.person).id
            except ConfigError as error:
                raise DataError(f"{row.where}: {error}") from None
            summary.new_labels.append(name)
    return labels[row.label] if isinstance(row.label, str) else tuple(labels[name] for name in row.label)


def _check_words(text: str, value: Value, row: Annotation) -> None:
    if isinstance(value, tuple) and len(value) != len(text.split()):
        raise DataError(
            f"{row.where} must have a label for each word, but has {len(value)} for the {len(text.split())} words of {text[:80]!r}"
        )
