"""A labelling session without a model and without a disk, for tests of the page and its requests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from warmstart.errors import DataError

KEYS = "123456789abdefghijklmnopqrtvwxyz"


@dataclass(frozen=True)
class Change:
    """Of a label."""

    at: str
    person: str
    words: str


@dataclass
class SessionDouble:
    """Texts in order, each to one person; those after ``second`` answers come again as disagreements."""

    texts: tuple[str, ...]
    names: tuple[str, ...] = ("sport", "politics", "science")
    type: str = "classification"
    name: str = "news"
    guidelines: str = "Choose what the text is about."
    disagreement: int | None = None
    """a text that is shown as one"""
    changes: list[Change] = field(default_factory=list)
    answers: dict[int, tuple[str, Any, str, float]] = field(default_factory=dict)
    """draw -> person, value, comment, seconds"""
    closed: bool = False

    def __post_init__(self) -> None:
        self.project = self
        self.lock = threading.RLock()
        self.stored: dict[int, tuple[str, str, int | None]] = {
            i + (self.type == "tagging"): (name, KEYS[i] if i < len(KEYS) else "", None) for i, name in enumerate(self.names)
        }
        if self.type == "tagging":
            self.stored[0] = ("O", "", None)
        self.draws: dict[int, tuple[int, str]] = {}
        self.order: dict[str, list[int]] = {}

    def join(self, person: str) -> dict[str, Any]:
        """Somebody is here."""
        if not person.strip():
            raise DataError("a name must hold more than space; give one")
        self.order.setdefault(person, [])
        return {"person": person, "answered": len(self.order[person])}

    def next(self, person: str) -> dict[str, Any] | None:
        """The open draw of a person, else a new one."""
        with self.lock:
            open_ = [draw for draw, (_, who) in self.draws.items() if who == person and draw not in self.answers]
            if not open_:
                if len(self.draws) >= len(self.texts):
                    return None
                open_ = [len(self.draws) + 1]
                self.draws[open_[0]] = (len(self.draws), person)
            return self.item(open_[0])

    def item(self, draw: int) -> dict[str, Any]:
        """What the page gets."""
        text = self.draws[draw][0]
        found = {"draw": draw, "text_id": text, "text": self.texts[text], "queue": "new", "answered": None}
        if self.type == "tagging":
            found["words"] = self.texts[text].split()
        if text == self.disagreement:
            found |= {"queue": "disagreement", "others": [{"person": "<i>Ben</i>", "value": 1}, {"person": "Cem", "value": 2}]}
        return found

    def answer(self, person: str, draw: int, value: Any, seconds: float, comment: str = "") -> None:
        """Store it."""
        with self.lock:
            if self.draws.get(draw, (0, ""))[1] != person:
                raise DataError(f"text {draw} was not shown to {person}; reload the page")
            if isinstance(value, int) and value not in self.stored:
                raise DataError(f"{value} is no label")
            self.answers[draw] = (person, value, comment, seconds)
            self.order[person].append(draw)

    def undo(self, person: str) -> dict[str, Any] | None:
        """The last answer, taken back."""
        with self.lock:
            if not self.order.get(person):
                return None
            draw = self.order[person].pop()
            value = self.answers.pop(draw)[1]
            return self.item(draw) | {"answered": value}

    def labels(self) -> list[dict[str, Any]]:
        """Those that stand."""
        values = [value for _, value, _, _ in self.answers.values()]
        return [
            {"id": i, "name": name, "key": key, "count": values.count(i)}
            for i, (name, key, into) in sorted(self.stored.items())
            if into is None
        ]

    def _note(self, person: str, words: str) -> None:
        self.changes.append(Change("2026-01-01T00:00:00", person, words))

    def add_label(self, person: str, name: str) -> None:
        """One more."""
        if not name.strip() or name in {one[0] for one in self.stored.values()}:
            raise DataError(f"a label must have a name of its own, not {name!r}")
        self.stored[max(self.stored) + 1] = (name, KEYS[len(self.stored)], None)
        self._note(person, f"added {name}")

    def rename_label(self, person: str, label: int, name: str) -> None:
        """Another name."""
        old, key, into = self.stored[label]
        self.stored[label] = (name, key, into)
        self._note(person, f"renamed {old} to {name}")

    def merge_labels(self, person: str, label: int, into: int) -> None:
        """One less."""
        name, key, _ = self.stored[label]
        self.stored[label] = (name, key, into)
        self._note(person, f"merged {name} into {self.stored[into][0]}")

    def history(self) -> list[Change]:
        """Of the labels."""
        return self.changes

    def status(self) -> dict[str, Any]:
        """Figures, made up but for the counts."""
        people = [{"person": one, "answered": len(done), "median_seconds": 1.5} for one, done in self.order.items()]
        return {
            "texts": len(self.texts), "labelled": len(self.answers), "skipped": 0, "people": people,
            "agreement": {"alpha": 0.81, "texts": 12}, "disagreements": 2, "doubtful": 1,
            "model": {"version": 3, "labels": 40, "fitting": False},
            "accuracy": {"estimate": 0.87, "low": 0.8, "high": 0.93, "labels": 40, "sentence": "87.0% of the texts are right."},
            "target": {"target": 0.9, "proven": len(self.answers) > 3, "sentence": "90% lies within the interval."},
            "outlook": {
                "sentence": "100 more labels would bring about 2 points.",
                "points": [[10, 0.6, 0.5, 0.7], [20, 0.75, 0.7, 0.8], [40, 0.87, 0.8, 0.93]],
            },
            "price": {"sentence": "40 labels cost 4.00 so far."},
        }  # fmt: skip

    def close(self) -> None:
        """The server ends."""
        self.closed = True
