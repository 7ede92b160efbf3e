"""Labelling without a model: texts come in their order, and the figures are made up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from warmstart.app.project import Project
from warmstart.app.session import LabelSession
from warmstart.app.training import Training


def news(folder: Path, texts: Sequence[str], labels: Sequence[str] = ("sport", "politics", "science"), **settings: Any) -> Project:
    """A project that asks what texts are about."""
    settings = {"type": "classification", "name": "news", "guidelines": "Choose what the text is about."} | settings
    return Project.create(folder, labels=labels, texts=texts, **settings)


class NoModel:
    """A learner that learns nothing."""

    beliefs = None

    def nothing(self) -> None:
        """Nothing is learned, forgotten or ended."""

    wake = forget = close = nothing


class TextsInOrder(LabelSession):
    """A session whose choice of texts is known: disagreements, then new ones in order."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._lock, self._seen = threading.RLock(), {}
        self.learner = cast("Any", NoModel())
        self.training = Training(project)

    def next(self, person: str) -> dict[str, Any] | None:
        """The open draw of a person, else a disagreement, or a new text."""
        with self._lock:
            project = self.project
            if mine := [one for one in project.open_draws() if one.person == person]:
                return self._item(mine[0])
            shown = Counter(one.text for one in project.draws())
            disputed = [(text, "disagreement") for text in project.disagreements() if shown[text] == 2]
            choices = disputed + [(text, "new") for text in range(len(project.texts)) if not shown[text]]
            return self._item(project.draw(text=choices[0][0], person=person, queue=choices[0][1])) if choices else None

    def _doubtful(self) -> list[int]:
        return [0]

    def _note(self, *texts: int) -> None:
        pass

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
            "accuracy": {"estimate": 0.85, "low": 0.72, "labels": 40},
            "sentence": "The model that learns along labels about 87% of the texts correctly.", "waiting": "",
            "target": {"target": 0.9, "proven": labelled > 3, "sentence": "90% lies within the interval."},
            "outlook": {
                "sentence": "100 more labels would bring about 2 points.",
                "points": [[10, 0.6, 0.5, 0.7], [20, 0.75, 0.7, 0.8], [40, 0.87, 0.8, 0.93]],
            },
            "training": self.training.status(),
            "price": {"sentence": "40 labels cost 4.00 so far."},
        }  # fmt: skip
