"""A labelled task in memory: three splits, label names and a metric."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warmstart.data.source import Source
from warmstart.data.splits import NO_TEXTS, grouped_split, strata, stratified_sample, stratified_split
from warmstart.data.text_key import TextHashes, key_of, plain_text
from warmstart.errors import DataError
from warmstart.notebook import Shown
from warmstart.system.storage import digest_of


@dataclass(frozen=True, eq=False)
class Split:
    """Texts and their targets; the task type decides what they are."""

    texts: tuple[Any, ...]
    """strings; pairs of strings; or words"""
    labels: np.ndarray
    """(N,) int64 indices into the task's ``labels``; (N, C) of 0 and 1; (N,) numbers; (N,) int64 indices of the right alternatives;
    or (N,) objects: the tags of each word as numbers, or (start, end, answers)"""

    groups: np.ndarray | None = None
    """(N,) which texts belong together, as strings; None if every text stands alone"""
    drawn: tuple[Split, np.ndarray] | None = field(default=None, repr=False)
    """the split that this is a part of, and the indices in it: units are found once, among all texts"""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: np.ndarray) -> Split:
        """The examples at these indices, in this order."""
        groups = None if self.groups is None else self.groups[indices]
        whole, places = self.drawn or (self, np.arange(len(self)))
        return Split(tuple(self.texts[i] for i in indices), self.labels[indices], groups, (whole, places[indices]))

    def group_names(self, split: str) -> np.ndarray:
        """(N,) the groups; if every text stands alone, a name for each that no other split has."""
        return np.array([f"{split}:{i}" for i in range(len(self))]) if self.groups is None else self.groups

    @cached_property
    def keys(self) -> list[str | list[str]]:
        """Keys of the texts, alike for texts that count as the same (``text_key``); a list for a text of several parts."""
        return [*map(key_of, self.texts)]

    @cached_property
    def units(self) -> np.ndarray:
        """(N,) int64 independent unit of each text; copies, near copies and the texts of a group share one."""
        if self.drawn is not None:
            whole, places = self.drawn
            return np.unique(whole.units[places], return_inverse=True)[1]
        from warmstart.data.units import independent_units  # imports scipy

        return independent_units(self.texts, self.groups)

    def hold_out(self, fraction_or_count: float, seed: int) -> tuple[Split, Split]:
        """The kept and the held-out examples, stratified if each has a class.

        Copies of a text, and the texts of a group, are on one side.
        """
        labels = strata(self.labels)
        if self.groups is None and not self.has_copies:
            kept, held_out = stratified_split(labels, fraction_or_count, seed)
        else:
            kept, held_out = grouped_split(labels, self.units, fraction_or_count, seed)
        return self.take(kept), self.take(held_out)

    @property
    def has_copies(self) -> bool:
        """True if fewer units than texts are independent."""
        return len(np.unique(self.units)) < len(self)


class Votes(NamedTuple):
    """The answers of a language model to texts: of another annotator, and never the truth."""

    name: str = ""
    """the column that holds them"""
    answers: Mapping[str, int] = {}
    """text -> the number of a label"""
    people: Mapping[str, Mapping[str, int]] = {}
    """person -> the same, where a table says who gave each label"""

    def of(self, texts: Iterable[Any]) -> np.ndarray:
        """(N,) the vote for each text, -1 for none."""
        return np.array([self.answers.get(plain_text(text), -1) for text in texts], dtype=np.int64)


NO_VOTES = Votes()


@dataclass(frozen=True, eq=False)
class Task(Shown, view="report.notebook:task_view"):
    """A labelled task, read and split."""

    name: str
    labels: tuple[str, ...]
    """label names; a class number is an index into them"""
    train: Split
    validation: Split
    test: Split
    metric: str = "accuracy"
    """name of the score"""
    unlabelled: tuple[Source, ...] = ()
    """more text like that of the task"""
    type: str = "classification"
    """the name of the task type, as in ``TASK_TYPES``"""
    manifest: Path | None = None
    """the file that it was read from; the ledger of its test split lies beside it"""
    label_descriptions: Mapping[str, str] = field(default_factory=dict)
    """label name -> what it means, in words, for those that are described"""

    reading: Mapping[str, Any] = field(default_factory=dict)
    """settings with which its training texts were read, as far as they hold for the next file of the same kind"""
    unlabelled_texts: tuple[str, ...] = ()
    """more text like that of the task, in memory"""
    random_texts: frozenset[str] | None = None
    """hashes of the training texts that were drawn at random; None: unknown"""
    votes: Votes = NO_VOTES
    """votes of a language model, if there are any"""

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Sequence[Any],
        *,
        test: float | int | tuple[Sequence[str], Sequence[Any]] = 0.2,
        unlabelled: Iterable[str] = (),
        name: str = "texts",
        seed: int = 0,
    ) -> Task:
        """A task in memory from N texts and their labels.

        One label each makes a classification task, a list or set of labels each a multilabel one, a float each a regression.
        ``test`` are texts and labels that score, or how many of the given ones to hold out for that, as a fraction or a number; 0
        for what needs none, such as ``ws.fit``.
        Raises ``DataError`` for texts that are no strings, and for labels that are of several kinds, too few or missing.
        """
        from warmstart.data.tables import plain_value

        learned, scored = (
            ([*part], [plain_value(target) for target in targets])
            for part, targets in ((texts, labels), test if isinstance(test, tuple) else ((), ()))
        )
        kind = _kind_of((*learned[1], *scored[1]))
        names = sorted(
            {str(name) for target in (*learned[1], *scored[1]) for name in (target if kind == "multilabel" else [target])}
        )
        names = [] if kind == "regression" else names
        train, held_out = (_split_of(*part, names, kind) for part in (learned, scored))
        if not isinstance(test, tuple) and test:
            train, held_out = train.hold_out(test, seed)
        if not len(train):
            raise DataError(f"there must be texts that learn, but there are none beside {len(held_out)} that score; give more")
        metric = {"classification": "accuracy", "multilabel": "micro_f1", "regression": "pearson"}[kind]
        none = train.take(NO_TEXTS)
        more = tuple(unlabelled)
        return cls(name, tuple(names), train, none, held_out, metric, type=kind, unlabelled_texts=more)

    @classmethod
    def from_table(cls, frame: Any, *, text: str = "text", label: str = "label", **settings: Any) -> Task:
        """The task of a data frame (pandas, polars, pyarrow, ``datasets``, or a list of rows) by the names of its columns.

        ``settings`` are those of ``from_lists``; its ``test`` may be a frame as well. Raises ``DataError`` for a missing column.
        """
        held_out = settings.get("test")
        if held_out is not None and not isinstance(held_out, int | float):
            settings["test"] = _columns(held_out, text, label)
        return cls.from_lists(*_columns(frame, text, label), **settings)

    @property
    def has_unlabelled(self) -> bool:
        """True if there is text without labels."""
        return bool(self.unlabelled or self.unlabelled_texts)

    @property
    def label_meanings(self) -> tuple[str, ...]:
        """The meaning of each label: its description, or the words of its name; empty for a name without any letter."""
        return tuple(self.label_descriptions.get(name) or words_of_name(name) for name in self.labels)

    @property
    def single_label(self) -> bool:
        """True if each example has exactly one of the labels, so that ``train.labels`` holds class numbers."""
        return bool(self.labels) and self.train.labels.ndim == 1 and np.issubdtype(self.train.labels.dtype, np.integer)

    def to_dict(self) -> dict[str, Any]:
        """The task as plain values, with the number of texts of each split in place of them."""
        return {
            "name": self.name,
            "type": self.type,
            "labels": list(self.labels),
            "metric": self.metric,
            "texts": {name: len(split) for name, split in self.splits().items()},
        }

    def splits(self) -> dict[str, Split]:
        """The three splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def held_out(self) -> dict[str, Split]:
        """The splits that nothing is trained on, by name."""
        return {"test": self.test, "validation": self.validation}

    def as_texts(self) -> Task:
        """The task with plain texts, for what reads texts alone; targets that are not one label each become one class."""
        single = self.single_label
        train, validation, test = (
            replace(
                split.take(np.arange(len(split))),  # what is independent is known
                texts=tuple(map(plain_text, split.texts)),
                labels=split.labels if single else np.zeros(len(split), dtype=np.int64),
            )
            for split in self.splits().values()
        )
        names = self.labels if single else ("any",)
        return replace(self, labels=names, type="classification", train=train, validation=validation, test=test)

    def with_train(self, train: Split) -> Task:
        """The task with other training examples."""
        return replace(self, train=train)

    @cached_property
    def digest(self) -> str:
        """A hash of the texts, the labels and their descriptions, the votes, the groups, the metric and the type."""
        described = [dict(self.label_descriptions)] if self.label_descriptions else []
        voted = [[*self.votes.answers.items()]] if self.votes.answers else []
        digest = hashlib.sha256(json.dumps([self.labels, self.metric, self.type, *described, *voted]).encode())
        for split in self.splits().values():
            groups = [] if split.groups is None else [split.groups.tolist()]
            digest.update(json.dumps([split.texts, split.labels.tolist(), *groups], default=np.ndarray.tolist).encode())
        return digest.hexdigest()

    @cached_property
    def test_digest(self) -> str:
        """A hash of the test texts, in any order: what the ledger knows the test split by."""
        return texts_digest(self.test.keys)

    def text_hashes(self) -> dict[str, TextHashes]:
        """The texts of each split that has any, in few bytes, with a hash of their targets by name."""
        splits = {name: split for name, split in self.splits().items() if len(split)}
        return {name: TextHashes.of(split.keys, [*map(self.named, split.labels.tolist())]) for name, split in splits.items()}

    def named(self, label: Any) -> Any:
        """A target with names in place of numbers, if the task has names; those of a multilabel task have no order."""
        if not self.labels:
            return label
        if self.test.labels.ndim == 2:
            return sorted(name for name, holds in zip(self.labels, label, strict=True) if holds)
        return self.labels[label] if isinstance(label, int) else [self.labels[number] for number in label]

    def summary(self) -> dict[str, Any]:
        """Name, type, metric, labels and the size of each split, for logs and reports."""
        sizes = {name: len(split) for name, split in self.splits().items()}
        return {"name": self.name, "type": self.type, "metric": self.metric, "labels": list(self.labels), **sizes}


def _columns(frame: Any, *names: str) -> tuple[list[Any], ...]:
    from warmstart.data.tables import frame_table

    table = frame_table(frame, names)
    return tuple(table.column(name).to_list() for name in names)


def _kind_of(labels: Sequence[Any]) -> str:
    """The task type of these labels. Raises ``DataError`` if they are of several kinds, or if one is missing."""
    if any(label is None for label in labels):
        raise DataError("every text must have a label, but some labels are missing; give such texts as 'unlabelled'")
    kinds = {
        "multilabel" if isinstance(label, list) else "regression" if isinstance(label, float) else "classification"
        for label in labels
    }
    if len(kinds) != 1:
        raise DataError(f"labels must be of one kind, but there are {' and '.join(sorted(kinds)) or 'none'}")
    return kinds.pop()


def _split_of(texts: Sequence[str], labels: Sequence[Any], names: Sequence[str], kind: str) -> Split:
    """Texts and labels as numbers."""
    if len(texts) != len(labels):
        raise DataError(f"there must be as many labels as texts, but there are {len(labels)} and {len(texts)}")
    if wrong := next((repr(text) for text in texts if not isinstance(text, str)), None):
        raise DataError(f"every text must be a string, but one is {wrong:.80}")
    places = {name: place for place, name in enumerate(names)}
    if kind == "regression":
        return Split(tuple(texts), np.array(labels, dtype=np.float64))
    if kind == "multilabel":
        rows = np.zeros((len(texts), len(names)), dtype=np.int64)
        for row, own in zip(rows, labels, strict=True):
            row[[places[str(name)] for name in own]] = 1
        return Split(tuple(texts), rows)
    return Split(tuple(texts), np.array([places[str(label)] for label in labels], dtype=np.int64))


def words_of_name(name: str) -> str:
    """The words of a label's name, such as "abbreviation meaning" of ``abbreviation_meaning``; empty for one without any letter."""
    words = " ".join(re.findall(r"[^\W_]+", name))
    return words if re.search(r"[^\W\d_]", words) else ""


def texts_digest(keys: Iterable[str | Sequence[str]]) -> str:
    """A hash of texts in any order, given as their ``text_key``."""
    return digest_of(sorted(map(json.dumps, keys)))


def subsample(task: Task, count: int, seed: int) -> Task:
    """The task with ``count`` training examples, stratified, at least one of each class. Other splits stay as they are."""
    return task.with_train(task.train.take(stratified_sample(strata(task.train.labels), count, seed)))


def resplit(task: Task, seed: int) -> Task:
    """The task with its training, validation and test texts pooled and split again, at random and into equal sizes.

    The split is stratified like that of a manifest. Copies of a text, and the texts of a group, are on one side; where there are
    any, sizes are only about the same. Raises ``DataError`` if a split would be empty.
    """
    pool = joined_splits(task.splits())
    rest, test = pool.hold_out(len(task.test), seed)
    train, validation = rest.hold_out(len(task.validation), seed) if len(task.validation) else (rest, rest.take(NO_TEXTS))
    return replace(task, train=train, validation=validation, test=test)


def joined_splits(parts: Mapping[str, Split]) -> Split:
    """All examples of several splits, in their order."""
    labels = np.concatenate([split.labels for split in parts.values()])
    groups = None
    if any(split.groups is not None for split in parts.values()):
        groups = np.concatenate([split.group_names(name) for name, split in parts.items()])
    return Split(tuple(text for split in parts.values() for text in split.texts), labels, groups)
