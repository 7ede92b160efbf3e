"""Votes of a language model in a column of a table: read beside the labels, and how often they agree with these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warmstart.data.annotations import PERSON_KEYS
from warmstart.data.label_cells import as_label, signs_of_none
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.data.tables import Tables
from warmstart.data.task import Task, Votes
from warmstart.data.text_key import label_key
from warmstart.errors import DataError, suggest
from warmstart.stats.alternative import AlternativeAnnotator, alternative_annotator_test
from warmstart.stats.formatting import first_of, of_100
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import wilson_interval
from warmstart.tasks.load import is_manifest


def with_votes(task: Task, place: Path, flags: LabelledTableFlags, column: str) -> Task:
    """The task of a table with the votes of one of its columns, spelled in any case; of equal texts the first vote counts.

    Raises ``DataError`` unless each vote is a label of the task, and a row without a label has one.
    """
    if place.is_dir() or is_manifest(place):
        raise DataError(f"--votes names a column of a table, but {place} is none; put texts, labels and votes into one table")
    if not task.single_label or not all(isinstance(text, str) for text in task.train.texts):
        raise DataError(f"--votes goes with one label for each text, but this is a {task.type} task; leave it out")
    source = Source.build({"path": str(place), **task.reading, "document": "line"})
    table = Tables().read(source, place)
    if column not in table.frame.columns:
        raise DataError(
            f"{place} has no column '{column}'; {suggest(column, table.frame.columns)}; --votes names that of the votes"
        )
    names = {label_key(name): number for number, name in enumerate(task.labels)} | {name: i for i, name in enumerate(task.labels)}
    cells, texts = as_label([cell.strip() for cell in table.strings(column)]), table.inputs(source)
    signs, doubtful = signs_of_none(cells)
    given = {*cells} - ({"", *signs, *doubtful} - {*task.labels})
    numbers = {cell: names.get(cell, names.get(label_key(cell), -1)) for cell in given}
    if unknown := sorted(cell for cell, number in numbers.items() if number < 0):
        wrong = first_of([repr(cell[:40]) for cell in unknown], 3, "others")
        raise DataError(
            f"each vote in column '{column}' must be a label of the texts ({first_of(task.labels, 4, 'others')}), but some are "
            f"{wrong}; correct them or leave them blank, or name new labels in --labels-file"
        )
    rows = reversed([*zip(texts, cells, strict=True)])
    answers = {text: numbers[cell] for text, cell in rows if cell in numbers and text.strip()}
    if not ({*task.unlabelled_texts} - {*task.train.texts}) & {*answers}:
        where = "only rows that have a label have votes" if answers else "none has one"
        raise DataError(f"rows without a label must have votes in '{column}', but {where}; let the model vote on more texts")
    people = dict[str, dict[str, int]]()
    if who := next((name for name in PERSON_KEYS if name in table.frame.columns and name != column), None):
        labels = as_label([cell.strip() for cell in table.strings(source.label, "label")])
        for person, text, label in zip(table.strings(who), texts, labels, strict=True):
            if person and label in names:
                people.setdefault(person, {})[text] = names[label]
    return replace(task, votes=Votes(column, answers, people))


class Agreement(NamedTuple):
    """How often votes agree with people's labels."""

    name: str
    """the column of the votes"""
    overall: Estimate
    texts: int
    """texts that have a label and a vote"""
    labels: tuple[tuple[str, int, Estimate, str], ...]
    """name, texts with it that have a vote, share of these votes that agree, and the most frequent other vote, if any"""
    people: AlternativeAnnotator | None
    """whether the votes may stand in for a person; None unless several have answered the same texts"""

    @property
    def sentence(self) -> str:
        """The agreement in words, without a stop."""
        if not self.texts:
            return f"No labelled text has a vote of {self.name}, so how good they are is not known"
        right, low, high = self.overall
        return f"The votes of {self.name} agree with {of_100(right)} of 100 labels (likely {of_100(low)} to {of_100(high)})"

    @property
    def replacing(self) -> str:
        """Whether the model may replace a person, as a sentence; empty where too few people have answered the same texts."""
        if not self.people:
            return ""
        found, may = self.people, "may" if self.people.passes else "must not yet"
        return (
            f"{self.name} {may} replace a person: in the place of {found.replaced} of {found.people} people it agrees with the "
            f"others about as often ({found.texts:,} texts)."
        )


def agreement_of(task: Task) -> Agreement | None:
    """The agreement of a task's votes with its labels; None without votes."""
    if not task.votes.answers:
        return None
    votes, labels = task.votes.of(task.train.texts), task.train.labels
    both, units = votes >= 0, task.train.units
    right, rows = votes == labels, list[tuple[str, int, Estimate, str]]()

    def share(chosen: np.ndarray) -> tuple[int, Estimate]:
        """The number of texts, of copies one, and the share that agrees."""
        count = len(np.unique(units[chosen]))
        return count, wilson_interval(float(right[chosen].mean()), count) if count else Estimate(np.nan, 0.0, 1.0)

    for number, name in enumerate(task.labels):
        if (own := both & (labels == number)).any():
            others = np.bincount(votes[own & ~right], minlength=len(task.labels))
            rows.append((name, *share(own), task.labels[others.argmax()] if others.any() else ""))
    texts = [*dict.fromkeys(text for answers in task.votes.people.values() for text in answers)]
    answered = [Votes(answers=answers).of(texts) for answers in task.votes.people.values()]
    people = alternative_annotator_test(np.stack(answered), task.votes.of(texts)) if answered else None
    count, overall = share(both)
    return Agreement(task.votes.name, overall, count, tuple(rows), people)
