"""A labelling project: the texts of a pool, label names, the texts that were shown to people, and their answers.

It is a folder with one database (``tables.py``), from which nothing is removed: an answer that was taken back, or replaced by
another one to the same draw, is ``undone``; a label that was merged ``stands_for`` another. Ids of labels, draws and answers never
change and are never used again. Methods may be called from several threads; what they write is on the disk when they return.

A value is a label id (classification), or a tuple of label ids, one for each word (tagging; words are cut at white space, and 0 is
the label ``O``). Label ids begin at 1. What names a label that was merged counts as the label it was merged into.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from warmstart.app.tables import (
    CORRECTION,
    DISAGREEMENT,
    IMPORTED,
    MOST_COMMENT,
    MOST_PEOPLE,
    OUTSIDE,
    OUTSIDE_LABEL,
    AboutProject,
    Database,
    Draw,
    GivenAnswer,
    KnownOfDraw,
    LabelChange,
    LabelName,
    ProjectSettings,
    ProjectType,
    TableRows,
    Value,
    check_label_name,
    check_price,
    check_texts,
    damaged,
    free_key,
    is_unicode,
    now,
    person_name,
)
from warmstart.data.annotations import OUTSIDE_NAME
from warmstart.errors import ConfigError, DataError

_FACTS = ("name", "type", "guidelines", "price", "task", "table")


class Project:
    """The texts, label names, draws and answers of one folder, which is locked until ``close``."""

    name: str
    """name of an exported task"""
    type: ProjectType
    guidelines: str
    """rules of labelling, in words"""
    price: float | None
    """price of one label"""
    task: str
    """the manifest of the task whose pool this labels; empty if there is none"""
    table: Mapping[str, Any]
    """flags by which the task is read, if it is a table"""
    settings: ProjectSettings
    texts: tuple[str, ...]
    """a text's id is its place"""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read()

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
        check_price(about.get("price"))
        facts = {"name": name, "type": type, "guidelines": "", "price": None, "task": "", "table": {}, **about}
        known = [OUTSIDE_LABEL] if type == "tagging" else []
        for number, label in enumerate(map(str.strip, labels), 1):
            check_label_name(label, [row[1] for row in known])
            known.append((number, label, free_key(row[2] for row in known)))
        different = tuple(dict.fromkeys(texts))
        check_texts(different)
        if not different:
            raise DataError("the pool must have at least one text, but has none; name files with texts")
        rows: TableRows = {
            "setting": [(key, json.dumps(value)) for key, value in facts.items()],
            "label": [(*label, None) for label in known],
            "change": [(id, now(), "", id, label, None) for id, label, _ in known if id != OUTSIDE],
            "text": enumerate(different),
        }
        return cls(Database.create(Path(folder), rows))

    @classmethod
    def open(cls, folder: str | Path) -> Project:
        """The project of a folder.

        Raises ``DataError`` if there is none, it has another format, or it is damaged; ``StorageError`` if another process has it
        open.
        """
        database = Database.open(Path(folder))
        try:
            return cls(database)
        except (ValueError, KeyError, TypeError) as error:
            database.close()
            raise damaged(database.folder, f"it cannot be read: {error!r}") from None

    # -------------------------------------------------------------------------------------------- what it is

    @property
    def folder(self) -> Path:
        """The folder of the project."""
        return self._database.folder

    @property
    def unchanged(self) -> AbstractContextManager[bool]:
        """While this context lasts, other threads change nothing: what is read in it agrees."""
        return self._database.lock

    def add_texts(self, texts: Sequence[str]) -> int:
        """Take texts in behind the others, each that is not there once; how many are new. Raises ``DataError`` as ``create``."""
        with self._database.lock:
            known = {*self.texts}
            new = tuple(text for text in dict.fromkeys(texts) if text not in known)
            check_texts(new)
            with self.at_once():
                for number, text in enumerate(new, len(self.texts)):
                    self._database.insert("text", number, text)
            self.texts += new
            return len(new)

    def set(self, *, guidelines: str | None = None, price: float | None = None) -> None:
        """Change the guidelines or the price; None leaves what there is. Raises ``ConfigError`` if the price is not positive."""
        check_price(price)
        changes = {"guidelines": guidelines, "price": price}
        changed = {key: value for key, value in changes.items() if value is not None and value != getattr(self, key)}
        if changed:
            self._set(changed)

    def change_settings(self, **changes: Any) -> dict[str, Any]:
        """Change fields of the settings; None leaves what there is. What was changed, by name."""
        changed = {name: value for name, value in changes.items() if value not in (None, getattr(self.settings, name))}
        if changed:
            self._set(changed)
        return changed

    def _set(self, changed: Mapping[str, Any]) -> None:
        with self.at_once():
            for name, value in changed.items():
                self._database.execute("insert or replace into setting values (?, ?)", name, json.dumps(value))
            self._take(changed)

    # -------------------------------------------------------------------------------------------- labels

    def labels(self) -> list[LabelName]:
        """The labels that stand now, in the order in which they were added."""
        with self._database.lock:
            return [*self._labels.values()]

    def label_ids(self) -> dict[str, int]:
        """Label names, also former ones, and the id of the label that stands for each; a name that is in use now goes first."""
        with self._database.lock:
            former = {name: self._standing_label(label) for _, _, _, label, name, into in self._changes if into is None}
            return former | {label.name: label.id for label in self._labels.values()}

    def add_label(self, name: str, person: str) -> LabelName:
        """A new label. Raises ``ConfigError`` if its name is empty or in use."""
        with self._database.lock:
            check_label_name(name := name.strip(), [label.name for label in self._labels.values()])
            label = LabelName(
                max({OUTSIDE, *self._labels, *self._merged}) + 1, name, free_key(label.key for label in self._labels.values())
            )
            with self._change(person, label.id, name):
                self._database.insert("label", label.id, name, label.key, None)
            self._labels[label.id] = label
            return label

    def rename_label(self, label: int, name: str, person: str) -> LabelName:
        """Give a label another name. Raises ``ConfigError`` if that is empty or in use, ``DataError`` for an unknown label."""
        with self._database.lock:
            label = self._own_label(label)
            if (name := name.strip()) != self._labels[label].name:
                check_label_name(name, [label.name for label in self._labels.values()])
                with self._change(person, label, name):
                    self._database.execute("update label set name = ? where id = ?", name, label)
                self._labels[label] = replace(self._labels[label], name=name)
            return self._labels[label]

    def merge_labels(self, label: int, into: int, person: str) -> None:
        """A label counts as another one from now on, in all answers. Raises ``DataError`` for an unknown label, or the same."""
        with self._database.lock:
            label, into = self._own_label(label), self._known_label(into)
            if label == into:
                raise DataError("a label can be merged into another label only, but both are the same; name two labels")
            with self._change(person, label, "", into):
                self._database.execute("update label set stands_for = ? where id = ?", into, label)
            self._read()

    def history(self) -> list[LabelChange]:
        """All changes of the label names, the first first."""
        names, changes = {OUTSIDE: OUTSIDE_NAME}, list[LabelChange]()
        for _, at, person, label, name, into in [*self._changes]:
            before = names.get(label)
            if into is not None:
                words = f"'{before}' merged into '{names[into]}'"
            else:
                words = f"'{name}' added" if before is None else f"'{before}' renamed '{name}'"
                names[label] = name
            changes.append(LabelChange(at, person, words))
        return changes

    # -------------------------------------------------------------------------------------------- draws and answers

    def people(self) -> list[str]:
        """Everybody who joined, in that order."""
        with self._database.lock:
            return [*self._people]

    def browser_of(self, person: str) -> str | None:
        """The browser in which somebody joined, empty if it was elsewhere; None: nobody has this name."""
        with self._database.lock:
            return self._people.get(person.strip())

    def join(self, person: str, browser: str = "") -> None:
        """Somebody takes part; again changes nothing. Raises ``ConfigError`` for an empty or overlong name."""
        with self._database.lock:
            person = person_name(person)
            if person not in self._people:
                if len(self._people) >= MOST_PEOPLE:
                    raise ConfigError(
                        f"a project has at most {MOST_PEOPLE:,} people, and these have joined; use a name that is known"
                    )
                self._database.insert("person", person, browser)
                self._people[person] = browser

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
            if not (isinstance(text, int) and 0 <= text < len(self.texts)):
                raise DataError(f"a text must be one of 0 to {len(self.texts) - 1}, but is {text!r}")
            draw = Draw(next(reversed(self._draws), 0) + 1, text, person_name(person), now(), queue, **known)
            with self.at_once():
                self.join(draw.person)
                self._database.insert("draw", *draw.row)
            self._draws[draw.id] = draw = self._now_named(draw)
            return draw

    def answer(self, draw: int, person: str, value: Sequence[int] | int | None, seconds: float, comment: str = "") -> GivenAnswer:
        """Store a person's answer to a draw; it replaces the draw's earlier answer, which is undone. None: skipped.

        The answer to a draw of the queue ``disagreement`` decides it. Raises ``DataError`` if the draw is unknown or somebody
        else's, or if the value is no label or does not have one for each word.
        """
        with self._database.lock:
            shown = self._draws.get(draw)
            if shown is None:
                raise DataError(f"there is no draw {draw}; load the page again")
            if shown.person != person_name(person):
                raise DataError(f"draw {draw} was shown to '{shown.person}', so '{person}' cannot answer it; load the page again")
            if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds >= 0):
                raise DataError(f"the seconds of an answer must be a number from 0, but are {seconds!r}")
            if len(comment) > MOST_COMMENT or not is_unicode(comment):
                raise DataError(f"a comment must be Unicode of at most {MOST_COMMENT:,} characters, but has {len(comment):,}")
            known, seconds = self._checked(shown.text, value), float(seconds)
            answer = GivenAnswer(self._last_answer + 1, draw, shown.text, shown.person, now(), known, seconds, comment)
            written = json.dumps(known) if isinstance(known, tuple) else known
            with self.at_once():
                self._withdraw(self._answer_of.get(draw))
                self._database.insert("answer", answer.id, draw, written, seconds, comment, answer.at, 0)
            self._add(answer)
            self._database.copy_if_due()
            return answer

    def last_answer(self, person: str) -> GivenAnswer | None:
        """The last answer of this person that stands and was not imported."""
        with self._database.lock:
            own = (answer for answer in reversed(self._standing.values()) if answer.person == person.strip())
            return next((answer for answer in own if self._draws[answer.draw].queue != IMPORTED), None)

    def undo(self, person: str, draw: int | None = None) -> Draw | None:
        """Take back the last answer of this person that was not imported; its draw, which is open again. None: there is none.

        Who names the draw of that answer can ask twice: an answer that was taken back already stays so, and no other is.
        """
        with self._database.lock:
            last = self.last_answer(person)
            if last is None or draw not in (None, last.draw):
                named = self._draws.get(draw or 0)
                taken_back = named and named.person == person.strip() and named.id not in self._answer_of
                return named if taken_back else None
            with self.at_once():
                self._withdraw(last.id)
            return self._draws[last.draw]

    def answers(self) -> list[GivenAnswer]:
        """The answers that stand, by id."""
        with self._database.lock:
            return [*self._standing.values()]

    def draws(self) -> list[Draw]:
        """All draws, by id."""
        with self._database.lock:
            return [*self._draws.values()]

    def open_draws(self) -> list[Draw]:
        """Draws without an answer that stands, by id."""
        with self._database.lock:
            return [draw for draw in self._draws.values() if draw.id not in self._answer_of]

    def labelled(self) -> dict[int, Value]:
        """Text -> the label that counts: as decided, else what most people said (the last answer of each that is not skipped).

        Texts without an answer, or with equally many votes for two labels, are not in it.
        """
        with self._database.lock:
            return dict(sorted(self._counted.items()))

    def disagreements(self) -> list[int]:
        """Texts that people labelled differently and that nobody decided."""
        with self._database.lock:
            return sorted(self._differing)

    def votes(self, text: int) -> dict[str, Value]:
        """Person -> the last label that they gave a text; a correction to no label takes theirs back."""
        with self._database.lock:
            votes = dict[str, Value]()
            for answer in (self._standing[number] for number in self._by_text.get(text, ())):
                if answer.value is not None:
                    votes[answer.person] = answer.value
                elif self._draws[answer.draw].queue == CORRECTION:
                    votes.pop(answer.person, None)
            return votes

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
        with self._database.at_once(self._read):
            yield

    # -------------------------------------------------------------------------------------------- what the tables hold, in memory

    def _read(self) -> None:
        """Take in all tables."""
        database = self._database
        self.settings = ProjectSettings()
        self._take({name: json.loads(value) for name, value in database.rows("setting")})
        self.texts = tuple(text for _, text in database.rows("text"))
        self._people, self._changes = dict[str, str](database.rows("person")), database.rows("change")
        labels = database.rows("label")
        self._labels = {id: LabelName(id, name, key) for id, name, key, into in labels if into is None}
        self._merged = {id: into for id, _, _, into in labels if into is not None}
        draws = (Draw(*row[:13], named=bool(row[13])) for row in database.rows("draw"))  # type: ignore[misc]
        self._draws = {draw.id: self._now_named(draw) for draw in draws}
        self._standing, self._answer_of, self._by_text = dict[int, GivenAnswer](), dict[int, int](), dict[int, dict[int, None]]()
        self._counted, self._differing, self._last_answer = dict[int, Value](), set[int](), 0
        for id, draw, value, seconds, comment, at, undone in database.rows("answer"):
            self._last_answer = id
            if not undone:
                text, person = self._draws[draw].text, self._draws[draw].person
                value = json.loads(value) if isinstance(value, str) else value
                self._add(GivenAnswer(id, draw, text, person, at, self._standing_value(value), seconds, comment))

    def _take(self, facts: Mapping[str, Any]) -> None:
        """Settings that were read or changed; one that is gone from this version may be among them."""
        self.settings = replace(self.settings, **{name: value for name, value in facts.items() if name in vars(self.settings)})
        vars(self).update({name: value for name, value in facts.items() if name in _FACTS})

    def _add(self, answer: GivenAnswer) -> None:
        """One more answer stands."""
        self._standing[answer.id], self._answer_of[answer.draw] = answer, answer.id
        self._by_text.setdefault(answer.text, {})[answer.id] = None
        self._last_answer = max(answer.id, self._last_answer)
        self._count(answer.text)

    def _withdraw(self, number: int | None) -> None:
        """An answer stands no longer, nor does what it decided."""
        if number is not None:
            self._database.execute("update answer set undone = 1 where id = ?", number)
            answer = self._standing.pop(number)
            del self._answer_of[answer.draw], self._by_text[answer.text][number]
            self._count(answer.text)

    def _count(self, text: int) -> None:
        """Find the label that counts for a text."""
        self._counted.pop(text, None)
        self._differing.discard(text)
        answers = [self._standing[number] for number in self._by_text.get(text, ())]
        decided = [
            answer.value for answer in answers if answer.value is not None and self._draws[answer.draw].queue == DISAGREEMENT
        ]
        if decided:
            self._counted[text] = decided[-1]
            return
        votes = Counter(self.votes(text).values()).most_common(2)
        if len(votes) == 1 or (len(votes) == 2 and votes[0][1] > votes[1][1]):
            self._counted[text] = votes[0][0]
        if len(votes) > 1:
            self._differing.add(text)

    @contextmanager
    def _change(self, person: str, label: int, name: str, into: int | None = None) -> Iterator[None]:
        """A change of a label's row, which the history has, too."""
        row = (len(self._changes) + 1, now(), person_name(person, empty=True), label, name, into)
        with self.at_once():
            yield
            self._database.insert("change", *row)
        self._changes.append(row)

    def _now_named(self, draw: Draw) -> Draw:
        """A draw whose prediction is by a model from before a merge, perhaps, with the label that stands now."""
        label = draw.predicted
        return draw if label is None or label not in self._merged else replace(draw, predicted=self._standing_label(label))

    def _standing_label(self, label: int) -> int:
        """The label that counts for this one."""
        while label in self._merged:
            label = self._merged[label]
        return label

    def _standing_value(self, value: Any) -> Value | None:
        if isinstance(value, list | tuple):
            return tuple(map(self._standing_label, value))
        return None if value is None else self._standing_label(value)

    def _known_label(self, label: int) -> int:
        """The label that stands for this one. Raises ``DataError`` for an unknown one."""
        whole = isinstance(label, int) and not isinstance(label, bool)
        if not whole or (standing := self._standing_label(label)) not in self._labels:
            raise DataError(f"there is no label {label!r}; load the page again")
        return standing

    def _own_label(self, label: int) -> int:
        """The label that stands for this one, if it may be renamed and merged."""
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
