"""Exports of Label Studio: tasks as JSON, and rows as csv, tsv or JSON-MIN.

A task has ``data`` and ``annotations``, whose results say by ``source`` or ``to_name`` which text they are of. A row has the data,
``annotator``, ``annotation_id`` and a column for each question: ``ship``, ``{"choices": ["ship", "bill"]}``, or a list of spans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from warmstart.data.annotation_values import (
    Annotation,
    AskedRow,
    RowError,
    UnlabelledRow,
    checked_span,
    label_in,
    labels_in,
    list_in,
    only_label,
    only_text,
    person_in,
    span_in,
    text_in,
    word_tags,
)
from warmstart.errors import DataError

ROW_KEYS = ("annotator", "annotation_id")
"""columns of every export as rows"""
_ABOUT = {*ROW_KEYS, "id", "created_at", "updated_at", "lead_time"}


def is_task(values: Any) -> bool:
    """Whether an entry is a task with annotations."""
    return isinstance(values, Mapping) and isinstance(values.get("annotations", values.get("completions")), list)


def results_of(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What all annotations of a task say."""
    annotations = task.get("annotations", task.get("completions")) or ()
    return [one for annotation in annotations if isinstance(annotation, Mapping)
            for one in annotation.get("result") or () if isinstance(one, Mapping)]  # fmt: skip


def task_text(task: Mapping[str, Any], column: str, results: Sequence[Mapping[str, Any]]) -> Any:
    """The text of a task: that of a column named for it, that of its results, the one called text, or the only string."""
    data = task.get("data")
    if not isinstance(data, Mapping):
        raise RowError("must have data, and annotations with values by name")
    sources = [str(one.get(key)).removeprefix("$") for one in results for key in ("source", "to_name") if one.get(key)]
    return only_text(data, *(() if column == "text" else (column,)), *sources, "text")


def task_readers(task: Any, asked: AskedRow) -> Iterator[Callable[[], Annotation]]:
    """What reads each annotation of a task."""
    if not is_task(task):
        yield partial(_no_annotations, task)
        return
    annotations = task.get("annotations", task.get("completions"))
    for annotation in annotations:
        yield partial(_annotation, task, annotation, asked)
    if not annotations:
        yield _unlabelled


def _no_annotations(task: Any) -> Annotation:
    if not isinstance(task, Mapping):
        raise RowError(f"must hold values by name, but holds {repr(task)[:80]}")
    raise RowError("must have annotations, as in the exports of Label Studio, or a text and a label")


def _unlabelled() -> Annotation:
    raise UnlabelledRow


def _annotation(task: Mapping[str, Any], annotation: Any, asked: AskedRow) -> Annotation:
    if not isinstance(annotation, Mapping):
        raise RowError("must have data, and annotations with values by name")
    given = annotation.get("result")
    results = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    text = text_in(task_text(task, asked.column, results))
    by = annotation.get("completed_by")
    by = by.get("email") or by.get("id") if isinstance(by, Mapping) else by
    known = {"person": asked.person if by is None else str(by), "seconds": _seconds(annotation)}
    if annotation.get("was_cancelled"):
        return asked.answer(text, None, **known)
    kind = "labels" if asked.wanted == "tags" else "choices"
    found = [one for one in (_value(result, kind) for result in list_in(given, "result")) if one is not None]
    if asked.wanted == "tags":
        spans = [checked_span(one["start"], one["end"], only_label(one[kind])) for one in found]
        return asked.answer(text, word_tags(text, spans), **known)
    names = [name for one in found for name in list_in(one[kind], kind)]
    return asked.answer(text, labels_in(names, asked.wanted), **known)


def _seconds(values: Mapping[str, Any]) -> float:
    seconds = values.get("lead_time")
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e7 else 0.0


def _value(result: Any, wanted: str) -> Mapping[str, Any] | None:
    """The value of a result of the wanted type; None for another type."""
    if not isinstance(result, Mapping) or not isinstance(result.get("value"), Mapping):
        raise RowError("must have results with a type and a value")
    if result.get("type") != wanted:
        return None
    value: Mapping[str, Any] = result["value"]
    needed = (wanted, "start", "end") if wanted == "labels" else (wanted,)
    if missing := [key for key in needed if key not in value]:
        raise RowError(f"has a value of {wanted} without {missing[0]}")
    return value


# ------------------------------------------------------------------------------------------------ rows


def row_columns(rows: Sequence[Mapping[str, Any]], column: str) -> tuple[str, str] | None:
    """The columns of the text and of the label in an export as rows; None if it is none. Raises ``DataError`` if they are unclear.

    The label is called so, or has cells of ``choices``, or stands between ``id`` and ``annotator``, or is what is left.
    """
    names = [*dict.fromkeys(name for row in rows for name in row)]
    if not set(ROW_KEYS) <= set(names):
        return None
    others = [name for name in names if name not in _ABOUT]
    between = names[names.index("id") + 1 : names.index("annotator")] if "id" in names else []
    marked = [name for name in others if any("choices" in str(row.get(name))[:12] for row in rows)]
    text = column if column in others else None
    label = next((one[0] for one in (["label"] if "label" in others else [], marked, between) if len(one) == 1), None)
    text = text or _rest(others, label)
    label = label or _rest(others, text)
    if text is None or label is None or text == label:
        raise DataError(
            f"an export of Label Studio must say which column holds the text and which the label, but has {', '.join(others)}; "
            "name the text with --text-column, or call them text and label"
        )
    return text, label


def _rest(names: Sequence[str], taken: str | None) -> str | None:
    """The only other name."""
    others = [name for name in names if name != taken]
    return others[0] if len(others) == 1 else None


def studio_row(values: Mapping[str, Any], columns: tuple[str, str], asked: AskedRow) -> Annotation:
    """One row."""
    text, cell = text_in(values.get(columns[0])), values.get(columns[1])
    if cell in (None, "", "[]"):
        raise UnlabelledRow
    if isinstance(cell, str) and cell[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            cell = json.loads(cell)
    known = {"person": person_in(values, asked.person), "seconds": _seconds(values)}
    parts = cell if isinstance(cell, list) else [cell]
    if asked.wanted == "tags":
        return asked.answer(text, word_tags(text, [span_in(one) for one in parts]), **known)
    names = [name for one in parts for name in (_choices(one) if isinstance(one, Mapping) else [one])]
    return asked.answer(text, labels_in([label_in(name) for name in names], asked.wanted), **known)


def _choices(cell: Mapping[str, Any]) -> list[Any]:
    found = cell.get("choices")
    return [found] if isinstance(found, str) else list_in(found, "choices")
