"""A labelling project: the texts of a pool, label names, the texts that were shown to people, and their answers.

It is a folder with one database (``database.py``), which holds events and never forgets one: what stands now follows from all of
them. Ids of labels, draws and answers never change and are never used again. Methods may be called from several threads; what they
write is on the disk when they return.

A value is a label id (classification), or a tuple of label ids, one for each word (tagging; words are cut at white space, and 0 is
the label ``O``). Label ids begin at 1. What names a label that was merged counts as the label it was merged into.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Unpack

from warmstart.data.annotations import OUTSIDE_NAME
from warmstart.errors import ConfigError, DataError
from warmstart.labelling.database import Database, Event
from warmstart.labelling.records import (
    IMPORTED,
    OUTSIDE,
    AboutProject,
    Draw,
    GivenAnswer,
    KnownOfDraw,
    LabelChange,
    LabelName,
    ProjectSettings,
    ProjectType,
    Value,
)
from warmstart.labelling.state import ProjectState, apply_event, apply_new_label, first_labels, standing_label, votes_of

MOST_TEXT_BYTES = 1 << 20
"""of a text in UTF-8"""
MOST_COMMENT = 10_000
"""characters of a comment, or of a person's or a label's name (a hundredth of them)"""
MOST_PEOPLE = 1_000
"""who may join"""


class Project:
    """The texts, label names, draws and answers of one folder, which is locked until ``close``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._state = ProjectState()
        self._fold_all()

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        name: str,
        type: ProjectType,
        labels: Sequence[str],
        texts: Sequence[str],
        **about: Unpack[AboutProject],
    ) -> Project:
        """A new project in a folder that has none; ``task`` is the manifest that it belongs to.

        Texts that are repeated are taken once. Raises ``ConfigError`` for an unknown type, a label name that is empty or repeated,
        or a price that is not positive; ``DataError`` if there is no text, or one is too long or not Unicode.
        """
        if type not in ("classification", "tagging"):
            raise ConfigError(f"the type of a project must be classification or tagging, but is '{type}'")
        _check_price(about.get("price"))
        entries: list[tuple[str, Mapping[str, Any]]] = [
            ("project", {"name": name, "type": type, "guidelines": "", "price": None, "task": "", **about})
        ]
        state = ProjectState(type=type, labels=first_labels(type))
        for one in labels:
            apply_new_label(state, _new_label(state, one, ""))
            entries.append(("label", {"id": state.next_label - 1, "name": one.strip(), "person": ""}))
        different = tuple(dict.fromkeys(texts))
        _check_texts(different)
        if not different:
            raise DataError("the pool must have at least one text, but has none; name files with texts")
        return cls(Database.create(Path(folder), entries, different))

    @classmethod
    def open(cls, folder: str | Path) -> Project:
        """The project of a folder. ``notice`` says if it was damaged and the last good copy was restored.

        Raises ``DataError`` if there is none, it has another format, or it and its copy are damaged; ``StorageError`` if another
        process has it open.
        """
        return cls(Database.open(Path(folder)))

    # -------------------------------------------------------------------------------------------- what it is

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._database.folder

    @property
    def notice(self) -> str:
        """What happened when it was opened that its owner should know; mostly empty."""
        return self._database.notice

    @property
    def unchanged(self) -> AbstractContextManager[bool]:
        """While this context lasts, other threads change nothing: what is read in it agrees."""
        return self._database.lock

    @property
    def name(self) -> str:
        """What an exported task is called."""
        return self._state.name

    @property
    def type(self) -> ProjectType:
        """The task type: classification or tagging."""
        return self._state.type

    @property
    def guidelines(self) -> str:
        """How to label, in words."""
        return self._state.guidelines

    @property
    def price(self) -> float | None:
        """Of one label."""
        return self._state.price

    @property
    def task(self) -> str:
        """The manifest of the task whose pool this labels; empty if there is none."""
        return self._state.task

    @property
    def table(self) -> Mapping[str, Any]:
        """How that is read, if it is a table: the flags that were given."""
        return self._state.table

    @property
    def settings(self) -> ProjectSettings:
        """How it goes on."""
        return self._state.settings

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts; a text's id is its place."""
        return self._database.texts

    def add_texts(self, texts: Sequence[str]) -> int:
        """Take texts in behind the others, each that is not there once; how many are new. Raises ``DataError`` as ``create``."""
        with self._database.lock:
            known = {*self.texts}
            new = tuple(text for text in dict.fromkeys(texts) if text not in known)
            _check_texts(new)
            if new:
                self._database.add_texts(new)
            return len(new)

    def set(self, *, guidelines: str | None = None, price: float | None = None) -> None:
        """Change the guidelines or the price; None leaves what there is. Raises ``ConfigError`` if the price is not positive."""
        _check_price(price)
        given = {"guidelines": guidelines, "price": price}
        changed = {key: value for key, value in given.items() if value is not None and value != getattr(self, key)}
        if changed:
            self._record("project", changed)

    def change_settings(self, **changes: Any) -> dict[str, Any]:
        """Change fields of the settings; None leaves what there is. What was changed, by name."""
        changed = {name: value for name, value in changes.items() if value not in (None, getattr(self.settings, name))}
        if changed:
            self._record("settings", changed)
        return changed

    # -------------------------------------------------------------------------------------------- labels

    def labels(self) -> list[LabelName]:
        """The labels that stand now, in the order in which they were added."""
        with self._database.lock:
            return [*self._state.labels.values()]

    def label_ids(self) -> dict[str, int]:
        """Label names, also former ones, and the id of the label that stands for each; a name that is in use now goes first."""
        with self._database.lock:
            former = {name: standing_label(self._state, label) for name, label in self._state.named.items()}
            return former | {label.name: label.id for label in self._state.labels.values()}

    def add_label(self, name: str, person: str) -> LabelName:
        """A new label. Raises ``ConfigError`` if its name is empty or in use."""
        with self._database.lock:
            body = {**_new_label(self._state, name, person)}
            self._record("label", body)
            return self._state.labels[body["id"]]

    def rename_label(self, label: int, name: str, person: str) -> LabelName:
        """Give a label another name. Raises ``ConfigError`` if that is empty or in use, ``DataError`` for an unknown label."""
        with self._database.lock:
            label = self._own_label(label)
            if (stripped := name.strip()) != self._state.labels[label].name:
                _check_name(self._state, stripped, "a label")
                self._record("rename", {"label": label, "name": stripped, "person": _person(person, empty=True)})
            return self._state.labels[label]

    def merge_labels(self, label: int, into: int, person: str) -> None:
        """A label counts as another one from now on, in all answers. Raises ``DataError`` for an unknown label, or the same."""
        with self._database.lock:
            label, into = self._own_label(label), self._known_label(into)
            if label == into:
                raise DataError("a label can be merged into another label only, but both are the same; name two labels")
            self._record("merge", {"label": label, "into": into, "person": _person(person, empty=True)})

    def history(self) -> list[LabelChange]:
        """All changes of the label names, the first first."""
        with self._database.lock:
            return [*self._state.history]

    # -------------------------------------------------------------------------------------------- draws and answers

    def people(self) -> list[str]:
        """Everybody who joined, in that order."""
        with self._database.lock:
            return [*self._state.people]

    def browser_of(self, person: str) -> str | None:
        """The browser in which somebody joined, empty if it was elsewhere; None: nobody has this name."""
        with self._database.lock:
            return self._state.people.get(person.strip())

    def join(self, person: str, browser: str = "") -> None:
        """Somebody takes part; again changes nothing. Raises ``ConfigError`` for an empty or overlong name."""
        with self._database.lock:
            person = _person(person)
            if person not in self._state.people:
                if len(self._state.people) >= MOST_PEOPLE:
                    raise ConfigError(
                        f"a project has at most {MOST_PEOPLE:,} people, and these have joined; use a name that is known"
                    )
                self._record("join", {"person": person, "browser": browser})

    def draw(
        self,
        *,
        text: int,
        person: str,
        queue: str,
        **known: Unpack[KnownOfDraw],
    ) -> Draw:
        """A text is shown to a person, who joins if need be. Raises ``DataError`` for a text that is not there."""
        with self._database.lock:
            self._check_text(text)
            if (person := _person(person)) in self._state.people:
                return self._state.draws[self._record("draw", {"text": text, "person": person, "queue": queue, **known}).id]
            with self.at_once():
                self.join(person)
                return self.draw(text=text, person=person, queue=queue, **known)

    def answer(self, draw: int, person: str, value: Sequence[int] | int | None, seconds: float, comment: str = "") -> GivenAnswer:
        """What a person says of a draw; it replaces the draw's earlier answer, which stays in the events. None: skipped.

        The answer to a draw of the queue ``disagreement`` decides it. Raises ``DataError`` if the draw is unknown or somebody
        else's, or if the value is no label or does not have one for each word.
        """
        with self._database.lock:
            found = self._state.draws.get(draw)
            if found is None:
                raise DataError(f"there is no draw {draw}; load the page again")
            if found.person != _person(person):
                raise DataError(f"draw {draw} was shown to '{found.person}', so '{person}' cannot answer it; load the page again")
            if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds >= 0):
                raise DataError(f"the seconds of an answer must be a number from 0, but are {seconds!r}")
            if len(comment) > MOST_COMMENT or not _is_unicode(comment):
                raise DataError(f"a comment must be Unicode of at most {MOST_COMMENT:,} characters, but has {len(comment):,}")
            body = {"draw": draw, "value": self._checked(found.text, value), "seconds": float(seconds), "comment": comment}
            answer = self._state.standing[self._record("answer", body).id]
            self._database.copy_if_due()
            return answer

    def last_answer(self, person: str) -> GivenAnswer | None:
        """The last answer of this person that stands and was not imported."""
        with self._database.lock:
            own = (answer for answer in reversed(self._state.standing.values()) if answer.person == person.strip())
            return next((answer for answer in own if self._state.draws[answer.draw].queue != IMPORTED), None)

    def undo(self, person: str, draw: int | None = None) -> Draw | None:
        """Take back the last answer of this person that was not imported; its draw, which is open again. None: there is none.

        Who names the draw of that answer can ask twice: an answer that was taken back already stays so, and no other is.
        """
        with self._database.lock:
            last = self.last_answer(person)
            if last is None or draw not in (None, last.draw):
                named = self._state.draws.get(draw or 0)
                taken_back = named and named.person == person.strip() and named.id not in self._state.answer_of
                return named if taken_back else None
            self._record("undo", {"answer": last.id})
            return self._state.draws[last.draw]

    def answers(self) -> list[GivenAnswer]:
        """The answers that stand, by id."""
        with self._database.lock:
            return [*self._state.standing.values()]

    def draws(self) -> list[Draw]:
        """All draws, by id."""
        with self._database.lock:
            return [*self._state.draws.values()]

    def open_draws(self) -> list[Draw]:
        """Draws without an answer that stands, by id."""
        with self._database.lock:
            return [draw for draw in self._state.draws.values() if draw.id not in self._state.answer_of]

    def resolve(self, text: int, value: Sequence[int] | int | None, person: str) -> None:
        """Decide which label of a text counts, whatever its answers are; None: none does. Raises ``DataError`` as ``answer``."""
        with self._database.lock:
            self._check_text(text)
            self._record("resolve", {"text": text, "value": self._checked(text, value), "person": _person(person)})

    def labelled(self) -> dict[int, Value]:
        """Text -> the label that counts: as resolved, else what most people said (the last answer of each that is not skipped).

        Texts without an answer, with equally many votes for two labels, or resolved to none are not in it.
        """
        with self._database.lock:
            return dict(sorted(self._state.counted.items()))

    def disagreements(self) -> list[int]:
        """Texts that people labelled differently and that are not resolved."""
        with self._database.lock:
            return sorted(self._state.differing)

    def votes(self, text: int) -> dict[str, Value]:
        """Person -> label, of those who labelled a text: the last answer of each that is not skipped."""
        with self._database.lock:
            return votes_of(self._state, text)

    def close(self) -> None:
        """Make a copy of what is new, and unlock the folder."""
        self._database.close()

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """All that is written inside is on the disk at the end, or nothing of it if it raises."""
        with self._database.lock:
            try:
                with self._database.at_once():
                    yield
            except BaseException:
                self._fold_all()
                raise

    # -------------------------------------------------------------------------------------------- inside

    def _record(self, kind: str, body: Mapping[str, Any]) -> Event:
        event = self._database.record(kind, body)
        apply_event(self._state, event)
        return event

    def _fold_all(self) -> None:
        self._state = ProjectState()
        for event in self._database.events:
            apply_event(self._state, event)

    def _check_text(self, text: int) -> None:
        if not (isinstance(text, int) and 0 <= text < len(self.texts)):
            raise DataError(f"a text must be one of 0 to {len(self.texts) - 1}, but is {text!r}")

    def _known_label(self, label: int) -> int:
        """The label that stands for this one. Raises ``DataError`` for an unknown one."""
        standing = standing_label(self._state, label) if isinstance(label, int) and not isinstance(label, bool) else None
        if standing not in self._state.labels:
            raise DataError(f"there is no label {label!r}; load the page again")
        return standing

    def _own_label(self, label: int) -> int:
        """The same, of a label that may be renamed and merged."""
        label = self._known_label(label)
        if label == OUTSIDE:
            raise DataError(f"the label {OUTSIDE_NAME} of words that have no other must stay as it is; rename or merge another one")
        return label

    def _checked(self, text: int, value: Sequence[int] | int | None) -> Value | None:
        """The value that stands now. Raises ``DataError`` if it is not one of this text."""
        if value is None:
            return None
        if self.type == "classification":
            if not isinstance(value, int):
                raise DataError(f"an answer must be the id of one label, but is {value!r}")
            return self._known_label(value)
        words = len(self.texts[text].split())
        if isinstance(value, int | str) or len(value) != words:
            came = "not a list" if isinstance(value, int | str) else f"{len(value)}"
            raise DataError(f"an answer must have a label for each of the {words} words of the text, but has {came}")
        return tuple(map(self._known_label, value))


# ------------------------------------------------------------------------------------------------ what may be written


def _new_label(state: ProjectState, name: str, person: str) -> dict[str, Any]:
    name = name.strip()
    _check_name(state, name, "a label")
    return {"id": state.next_label, "name": name, "person": _person(person, empty=True)}


def _check_name(state: ProjectState, name: str, what: str) -> None:
    _check_words(name, what)
    holder = state.labels.get(state.named.get(name, OUTSIDE))
    if holder is not None and holder.name == name:
        raise ConfigError(f"each label needs its own name, but there is a label '{name}' already; choose another name")


def _check_words(name: str, what: str) -> None:
    most = MOST_COMMENT // 100
    if not name or len(name) > most or not name.isprintable():
        raise ConfigError(f"the name of {what} must have 1 to {most} characters that can be printed, but is {name[: 2 * most]!r}")


def _person(person: str, *, empty: bool = False) -> str:
    """A person's name. Raises ``ConfigError`` if it is too long or empty (unless ``empty``: the program itself acts)."""
    person = person.strip()
    if person or not empty:
        _check_words(person, "a person")
    return person


def _check_price(price: float | None) -> None:
    if price is not None and not (math.isfinite(price) and price > 0):
        raise ConfigError(f"the price of a label must be a number above 0, but is {price}")


def _check_texts(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, 1):
        check_text(text, f"text {number}")


def check_text(text: str, where: str) -> None:
    """Raise ``DataError`` that says ``where`` unless a text is Unicode, not blank, and at most ``MOST_TEXT_BYTES`` long."""
    if not _is_unicode(text):
        raise DataError(f"{where} must be Unicode, but has half of a surrogate pair; correct it")
    if (size := len(text.encode())) > MOST_TEXT_BYTES:
        raise DataError(f"{where} must have at most {MOST_TEXT_BYTES:,} bytes, but has {size:,}; cut it into parts")
    if not text.strip():
        raise DataError(f"{where} must have words, but is blank; remove it")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
