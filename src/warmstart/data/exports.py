"""Exports of labelling programs, which are refused: rejected, skipped and suggested labels stand in them beside people's answers.

Each refusal names the way to a table of texts and labels. JSON, and lines of JSON, are recognised by their first entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from warmstart.errors import DataError

_PEEK = 1 << 20
"""characters of a file by which it is recognised"""
_WAYS = {
    "Label Studio": "export it as CSV, and name the columns of the text and of one question with --text-column and "
    "--label-column, or call them text and label",
    "Argilla": "write the submitted responses, by its Python client, as a csv with the columns text and label, and person if "
    "several people labelled",
    "Prodigy": 'write the accepted rows alone, for instance by jq -c \'select(.answer == "accept") | {text, label: '
    '(.label // (.accept | join("|")))}\' FILE > labels.jsonl',
    "doccano": "export it as CSV, with the columns text and label",
    "spaCy": 'write a line for each text with the name of its category, {"text": "…", "label": "…"}',
}
"""program -> how its labels become a table"""
_SPANS = 'write a label for each word, O for words in no span, as lists: {"text": ["Ada", "sang"], "label": ["PER", "O"]}'
"""the same where labels belong to spans of a text"""


def refuse_export(text: str, file: Path, label: str = "label") -> None:
    """Raise ``DataError`` if a file that holds this JSON is the export of a labelling program; ``label`` is the column to read."""
    for entry in _entries(text):
        if program := _program(entry, label):
            values = entry[1] if isinstance(entry, list) else entry  # spaCy's pair
            way = _SPANS if any(map(_holds_spans, values.values())) else _WAYS[program]
            raise DataError(f"{file} must be a table of texts and labels, but is an export of {program}; {way}")


def _entries(text: str) -> Iterator[Any]:
    """The first entries of a list, or of lines, that are whole and can be read."""
    start, decoder = text[:_PEEK].lstrip(), json.JSONDecoder()
    at = 1 if start[:1] == "[" and start[1:].lstrip()[:1] in ("{", "[") else 0
    while True:
        while at < len(start) and start[at] in ", \t\r\n":
            at += 1
        try:
            entry, at = decoder.raw_decode(start, at)
        except (ValueError, RecursionError):
            return
        yield entry


def _program(entry: Any, label: str) -> str | None:
    """The program that wrote an entry; None: it may be a row of any table."""
    if isinstance(entry, list):
        return "spaCy" if len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], Mapping) else None
    if not isinstance(entry, Mapping):
        return None
    keys = entry.keys()
    if _is_label_studio(entry):
        return "Label Studio"
    if (isinstance(entry.get("fields"), Mapping) and "responses" in keys) or {"annotation", "annotation_agent"} <= keys:
        return "Argilla"
    if any(str(name).endswith(".responses") or _is_response(value) for name, value in entry.items()):
        return "Argilla"
    about = keys & {"label", "accept", "spans", "options", "_input_hash", "_task_hash"}
    if entry.get("answer") in ("accept", "reject", "ignore") and about and label != "answer":
        return "Prodigy"
    if isinstance(entry.get("paragraphs"), list) or _is_numbers(entry.get("cats")):
        return "spaCy"
    said = [entry[name] for name in ("label", "labels", "entities", "ents") if name in keys]
    commented = isinstance(entry.get("Comments"), list) and any(isinstance(value, list) for value in said)
    return "doccano" if commented or any(map(_holds_spans, said)) else None


def _is_label_studio(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is a task with its data, or a row of JSON-MIN."""
    if isinstance(entry.get("data"), Mapping):
        return bool({"annotations", "completions", "predictions"} & entry.keys())
    choices = [value["choices"] for value in entry.values() if isinstance(value, Mapping) and set(value) == {"choices"}]
    return {"annotator", "annotation_id"} <= entry.keys() or any(isinstance(value, str | list) for value in choices)


def _is_response(value: Any) -> bool:
    """Whether a value lists what people responded in Argilla's first version."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and {"value", "user_id"} <= value[0].keys()


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(number, bool | int | float) for number in value.values())


def _holds_spans(value: Any) -> bool:
    """Whether a value lists spans: ``[[0, 3, "PER"]]`` or ``[{"start": 0, "end": 3, "label": "PER"}]``."""
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    if isinstance(first, Mapping):
        return bool({"start", "start_offset"} & first.keys()) and bool({"label", "labels"} & first.keys())
    return isinstance(first, Sequence) and [*map(type, first)] == [int, int, str]
