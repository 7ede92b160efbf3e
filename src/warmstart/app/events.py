"""Projects as versions up to 0.2 wrote them: one list of all that happened, which becomes the tables of today."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any

from warmstart.app.records import DISAGREEMENT, OUTSIDE, OUTSIDE_LABEL, Draw, free_key

EVENTS_FORMAT = 1
"""``user_version`` of these files"""


def rows_of_events(connection: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Table -> rows, in an order in which they can be inserted. Raises ``ValueError`` if one is damaged."""
    texts = [text for (text,) in connection.execute("select text from texts order by id")]
    made, end = _Tables(), 0
    for number, at, kind, body in _events(connection):
        if kind == "texts":
            start, end = end, end + body["count"]
            if zlib.crc32(json.dumps(texts[start:end]).encode()) != body["digest"]:
                raise ValueError("its texts are not what was written")
        else:
            made.add(number, at, kind, body)
    if end != len(texts):
        raise ValueError(f"it must hold {end} texts, but holds {len(texts)}")
    return {
        "setting": [(name, json.dumps(value)) for name, value in made.settings.items()],
        "label": [*map(tuple, made.labels.values())],
        "change": made.changes,
        "text": [*enumerate(texts)],
        "person": [*made.people.items()],
        "draw": made.draws,
        "answer": [*map(tuple, made.answers.values())],
    }


def _events(connection: sqlite3.Connection) -> Iterator[tuple[int, str, str, dict[str, Any]]]:
    """Number, time, kind and content of each event; each has a checksum of itself and of all before it."""
    checksum = 0
    for place, (*row, found) in enumerate(connection.execute("select id, at, kind, body, checksum from events order by id"), 1):
        checksum = zlib.crc32(json.dumps(row).encode(), checksum)
        if row[0] != place or found != checksum:
            raise ValueError(f"event {place} is not what was written")
        yield row[0], row[1], row[2], json.loads(row[3])


class _Tables:
    """The rows so far."""

    def __init__(self) -> None:
        self.settings, self.people = dict[str, Any](), dict[str, str]()
        self.labels, self.answers, self.answer_of = dict[int, list[Any]](), dict[int, list[Any]](), dict[int, int]()
        self.changes, self.draws = list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    def add(self, number: int, at: str, kind: str, body: dict[str, Any]) -> None:
        """The rows of one event."""
        match kind:
            case "project" | "settings":
                self.settings |= body
                if self.settings["type"] == "tagging":
                    self.labels.setdefault(OUTSIDE, [*OUTSIDE_LABEL, None])
            case "label" | "rename" | "merge":
                self._label(at, kind, body)
            case "join":
                self.people[body["person"]] = body["browser"]
            case "draw":
                self._draw(Draw(number, at=at, **body))
            case "answer":
                self._answer(number, at, body)
            case "undo":
                self.answers[body["answer"]][-1] = 1
            case "resolve":
                self._draw(Draw(number, body["text"], body["person"], at, DISAGREEMENT))
                self._answer(number, at, {"draw": number, "value": body["value"], "seconds": 0.0, "comment": ""})

    def _label(self, at: str, kind: str, body: dict[str, Any]) -> None:
        label, name, into = body["id" if kind == "label" else "label"], body.get("name", ""), body.get("into")
        if kind == "label":
            self.labels[label] = [label, name, free_key(one[2] for one in self.labels.values() if one[3] is None), None]
        elif kind == "rename":
            self.labels[label][1] = name
        else:
            self.labels[label][3] = into
        self.changes.append((len(self.changes) + 1, at, body["person"], label, name, into))

    def _draw(self, draw: Draw) -> None:
        self.people.setdefault(draw.person, "")
        self.draws.append(draw.row)

    def _answer(self, number: int, at: str, body: dict[str, Any]) -> None:
        if earlier := self.answer_of.get(body["draw"]):
            self.answers[earlier][-1] = 1
        self.answer_of[body["draw"]] = number
        value = json.dumps(body["value"]) if isinstance(body["value"], list) else body["value"]
        self.answers[number] = [number, body["draw"], value, body["seconds"], body["comment"], at, 0]
