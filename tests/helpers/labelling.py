"""Labelling on a real project but without a model: texts come in their order, and the figures are made up."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from warmstart.labelling.answered import AnsweredQuery, answered_texts, correct
from warmstart.labelling.project import Project
from warmstart.labelling.records import Draw, Value
from warmstart.labelling.training import Training


def news(folder: Path, texts: Sequence[str], labels: Sequence[str] = ("sport", "politics", "science"), **settings: Any) -> Project:
    """A project that asks what texts are about."""
    settings = {"type": "classification", "name": "news", "guidelines": "Choose what the text is about."} | settings
    return Project.create(folder, labels=labels, texts=texts, **settings)


class TextsInOrder:
    """A ``LabelSession`` whose choice of texts is known: new ones in order, those of ``twice`` also to a second person."""

    def __init__(self, project: Project, twice: Iterable[int] = ()) -> None:
        self.project, self.twice = project, {*twice}
        self.lock = threading.RLock()
        self.closed = False
        self.training = Training(project)

    def join(self, person: str, browser: str = "", *, same: bool = False) -> dict[str, Any]:
        """Somebody is here."""
        taken = bool(browser) and not same and self.project.browser_of(person) not in (None, browser)
        if not taken:
            self.project.join(person, browser)
        return {"person": person, "answered": sum(one.person == person for one in self.project.answers()), "taken": taken}

    def next(self, person: str) -> dict[str, Any] | None:
        """The open draw of a person, else a disagreement, a second answer, or a new text."""
        with self.lock:
            project = self.project
            mine = [one for one in project.open_draws() if one.person == person]
            if mine:
                return self._item(mine[0])
            shown: dict[int, list[str]] = {text: [] for text in range(len(project.texts))}
            for one in project.draws():
                shown[one.text].append(one.person)
            choices = {
                "disagreement": [text for text in project.disagreements() if len(shown[text]) == 2],
                "overlap": [text for text in self.twice if len(shown[text]) == 1 and person not in shown[text]],
                "new": [text for text, people in shown.items() if not people],
            }
            for queue, texts in choices.items():
                if texts:
                    return self._item(project.draw(text=texts[0], person=person, queue=queue))
            return None

    def _item(self, draw: Draw, answered: Value | None = None, comment: str = "") -> dict[str, Any]:
        text = self.project.texts[draw.text]
        given = {"answered": answered, "comment": comment, "others": []}
        item: dict[str, Any] = {"draw": draw.id, "text_id": draw.text, "text": text, "queue": draw.queue, **given}
        if draw.queue == "disagreement":
            item["others"] = [{"person": who, "value": value} for who, value in self.project.votes(draw.text).items()]
        return item | ({"words": text.split()} if self.project.type == "tagging" else {})

    def answer(self, person: str, draw: int, value: Any, seconds: float, comment: str = "") -> None:
        """Store it."""
        self.project.answer(draw, person, value, seconds, comment)

    def undo(self, person: str, draw: int | None = None) -> dict[str, Any] | None:
        """The last answer, taken back."""
        with self.lock:
            before = {one.draw: one for one in self.project.answers()}
            found = self.project.undo(person, draw)
            given = before.get(found.id) if found else None
            return found and (self._item(found, given.value, given.comment) if given else self._item(found))

    def find(self, query: AnsweredQuery) -> dict[str, Any]:
        """Answered texts; the first is doubted."""
        return answered_texts(self.project, query, (0,))

    def correct(self, person: str, text: int, value: int | None) -> Any:
        """Another answer."""
        return correct(self.project, person, text, value)

    def last(self, person: str) -> int | None:
        """What undo takes back."""
        answer = self.project.last_answer(person)
        return answer and answer.draw

    def labels(self) -> list[dict[str, Any]]:
        """Those that stand."""
        values = [*self.project.labelled().values()]
        return [{"id": one.id, "name": one.name, "key": one.key, "count": values.count(one.id)} for one in self.project.labels()]

    def add_label(self, person: str, name: str) -> None:
        """One more."""
        self.project.add_label(name, person)

    def rename_label(self, person: str, label: int, name: str) -> None:
        """Another name."""
        self.project.rename_label(label, name, person)

    def merge_labels(self, person: str, label: int, into: int) -> None:
        """One less."""
        self.project.merge_labels(label, into, person)

    def status(self) -> dict[str, Any]:
        """Figures; those of the model are made up."""
        answers = self.project.answers()
        counts = {one: sum(answer.person == one for answer in answers) for one in self.project.people()}
        labelled = len(self.project.labelled())
        people = [{"person": one, "answered": count, "median_seconds": 1.5 if count else None} for one, count in counts.items()]
        return {
            "texts": len(self.project.texts), "labelled": labelled, "skipped": sum(one.value is None for one in answers),
            "people": people,
            "agreement": {"alpha": 0.81, "low": 0.55, "high": 1.0, "texts": 12},
            "progress": {"labels": labelled, "of": 50, "sentence": f"{labelled} texts are labelled; 30 more would prove the goal"},
            "disagreements": len(self.project.disagreements()), "judge": "", "doubtful": 1,
            "model": {"version": 3, "labels": 40, "fitting": False},
            "newest": {"estimate": 0.87, "low": 0.8, "high": 0.93, "tells": True},
            "accuracy": {"estimate": 0.85, "low": 0.72, "labels": 40, "tells": True},
            "sentence": "Today's model labels about 87% of the texts correctly. Proven: at least 72%.", "waiting": "",
            "target": {"target": 0.9, "proven": labelled > 3, "sentence": "90% lies within the interval."},
            "outlook": {
                "sentence": "100 more labels would bring about 2 points.",
                "points": [[10, 0.6, 0.5, 0.7], [20, 0.75, 0.7, 0.8], [40, 0.87, 0.8, 0.93]],
            },
            "training": self.training.status(),
            "price": {"sentence": "40 labels cost 4.00 so far."},
        }  # fmt: skip

    def close(self) -> None:
        """The server ends."""
        self.closed = True
        self.training.close()
        self.project.close()
