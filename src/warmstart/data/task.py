r"""A labelled task: three splits, label names and a metric, described by a small YAML manifest.

    name: trec
    source: {pattern: '^(?P<label>[A-Z]+):\S+ (?P<text>.*)$', encoding: latin-1}    # holds for every source below
    train: train_5500.label                  # a path, {path: …, as_label: …} or a list of these; relative to the manifest
    validation: 0.1                          # a share or a number of the training examples, stratified; or a source
    test: TREC_10.label                      # the same
    unlabelled: [wiki.txt]                   # more text of the kind, for going on with pretraining

The same files and the same seed give the same splits, everywhere. Nothing is cleaned here: ``audit.py`` tells what is wrong
with a task and ``drop_leaks`` mends it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import ConfigDict, Field, model_validator

from warmstart.config import Config, read_yaml
from warmstart.data.numbering import names_of, numbered, strata
from warmstart.data.source import Source
from warmstart.data.split import held_out_count, sample, stratified
from warmstart.data.targets import read_targets
from warmstart.errors import ConfigError, DataError
from warmstart.storage import whole_folder

Metric = Literal["accuracy", "macro_f1", "micro_f1", "subset", "pearson", "spearman", "r2", "span_f1", "f1", "exact"]
Kind = Literal["label", "labels", "number", "choice", "tags", "span"]
METRICS: dict[str, tuple[str, ...]] = {
    "label": ("accuracy", "macro_f1"),
    "labels": ("micro_f1", "macro_f1", "subset"),
    "number": ("pearson", "spearman", "r2"),
    "choice": ("accuracy",),
    "tags": ("accuracy", "span_f1"),
    "span": ("f1", "exact"),
}
"""what a task of each kind can be scored by; the first is taken where none is named"""


@dataclass(frozen=True, eq=False)
class Split:
    """Texts and their labels; what both are hangs on the kind of the task."""

    texts: tuple[Any, ...]
    """strings; pairs of them; a text and its alternatives; words; a question and its passage"""
    labels: np.ndarray
    """(N,) int64 places in the task's ``labels``; (N, C) of 0 and 1; (N,) numbers; places of the right alternatives; or (N,)
    objects: the tags of each word as numbers, or (start, end, answers)"""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: np.ndarray) -> Split:
        """The examples at these places, in this order."""
        return Split(tuple(self.texts[i] for i in indices), self.labels[indices])


@dataclass(frozen=True, eq=False)
class Task:
    """A labelled task, read and split."""

    name: str
    labels: tuple[str, ...]
    """names of the classes; a class number is a place in here"""
    train: Split
    validation: Split
    test: Split
    metric: Metric = "accuracy"
    """what a score means"""
    unlabelled: tuple[Source, ...] = ()
    """more text of the same kind"""
    kind: Kind = "label"
    """what is asked of a text"""

    def splits(self) -> dict[str, Split]:
        """The three splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def as_texts(self) -> Task:
        """The same as plain texts with one label each, for what looks at texts alone; of other kinds all have one."""
        one = self.kind == "label"
        train, validation, test = (
            Split(tuple(map(plain_text, split.texts)), split.labels if one else np.zeros(len(split), dtype=np.int64))
            for split in self.splits().values()
        )
        names = self.labels if one else ("any",)
        return replace(self, labels=names, kind="label", train=train, validation=validation, test=test)

    def with_train(self, train: Split) -> Task:
        """The same task with other training examples."""
        return replace(self, train=train)

    @cached_property
    def digest(self) -> str:
        """Names the texts, the labels and the metric."""
        found = hashlib.sha256(json.dumps([self.labels, self.metric, self.kind]).encode())
        for split in self.splits().values():
            found.update(json.dumps([split.texts, split.labels.tolist()], default=np.ndarray.tolist).encode())
        return found.hexdigest()

    def summary(self) -> dict[str, Any]:
        """What a log or a report says of the task: name, metric, labels, and the size of each split."""
        sizes = {name: len(split) for name, split in self.splits().items()}
        return {"name": self.name, "kind": self.kind, "metric": self.metric, "labels": list(self.labels), **sizes}


class TaskSpec(Config):
    """A task's manifest."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # YAML reads `labels: [0, 1]` as numbers

    name: str
    """what reports call the task"""
    kind: Kind = "label"
    """what is asked of a text: one label, several labels, a number, a choice among alternatives, tags of its words, a span of it"""
    train: tuple[Source, ...]
    """labelled text to learn from"""
    validation: int | float | tuple[Source, ...]
    """labelled text to choose by: sources, or the share (below 1) or number of training examples to hold out"""
    test: int | float | tuple[Source, ...]
    """labelled text to report on: sources, or the share (below 1) or number of training examples to hold out"""
    unlabelled: tuple[Source, ...] = ()
    """more text of the same kind"""
    labels: tuple[str, ...] | None = None
    """names of the classes in the order wanted; else they are sorted"""
    metric: Metric | None = None
    """what a score means; label: accuracy, or macro_f1 where classes are of very different size and each matters as much"""
    limit: int | None = Field(default=None, gt=1)
    """use only so many training examples, stratified"""
    source: dict[str, Any] = Field(default_factory=dict)
    """settings that hold for every source which does not say otherwise"""

    @model_validator(mode="before")
    @classmethod
    def _sources(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Write every form of source in full: a bare path, one mapping, or a list of these, over the common settings."""
        common = values.get("source", {})
        if not isinstance(common, dict):
            raise ValueError(f"'source' must hold settings such as 'encoding: latin-1', common to all sources; got {common!r}")
        if "test" not in values:
            raise ValueError("key 'test' is required; to cut one from the training examples give a share, for instance test: 0.2")
        full: dict[str, Any] = {
            key: values[key] if _is_number(values[key]) else _full(key, values[key], common)
            for key in ("train", "validation", "test", "unlabelled")
            if key in values
        }
        return {**values, **full}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _full(key: str, value: Any, common: Mapping[str, Any]) -> tuple[Source, ...]:
    entries = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(entry, str | dict | Source) for entry in entries) or (key != "unlabelled" and not entries):
        number = ", a share or a number of examples" if key in ("validation", "test") else ""
        raise ValueError(f"'{key}' must be a path, a source with a path, a list of these{number}; got {value!r}")
    try:
        return tuple(_one(entry, common, f"source of '{key}'") for entry in entries)
    except ConfigError as error:
        raise ValueError(str(error)) from None  # so that the manifest's name comes before it, as before all other mistakes


def _one(entry: str | dict[str, Any] | Source, common: Mapping[str, Any], where: str) -> Source:
    if isinstance(entry, Source):
        return entry
    return Source.build({**common, **({"path": entry} if isinstance(entry, str) else entry)}, where)


def load_task(path: str | Path, seed: int = 0) -> Task:
    """The task in a manifest (or in the ``task.yaml`` of a folder); paths in it start at its own folder.

    Raises ``ConfigError`` if the manifest is wrong and ``DataError`` if what it names is.
    """
    file, spec = read_spec(path)
    try:
        return build_task(spec, file.parent, seed)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def read_spec(path: str | Path) -> tuple[Path, TaskSpec]:
    """A manifest (or the ``task.yaml`` of a folder): where it lies, and what it says. Raises ``ConfigError`` if it is wrong."""
    file = Path(path) / "task.yaml" if Path(path).is_dir() else Path(path)
    return file, TaskSpec.build(read_yaml(file), str(file))


def build_task(spec: TaskSpec, folder: Path, seed: int = 0) -> Task:
    """Read what a manifest in ``folder`` names, cut what it asks to be cut, number the labels, and check it all.

    Test and validation are cut from the training examples in this order; a share is always one of all training examples given.
    """
    if spec.metric and spec.metric not in METRICS[spec.kind]:
        raise ConfigError(
            f"a task of kind '{spec.kind}' is scored by {', '.join(METRICS[spec.kind])}, but 'metric' is {spec.metric}"
        )
    texts, targets = read_sources(spec.train, folder, spec.kind)
    labels = names_of(spec.kind, targets, spec.labels)
    train = Split(tuple(texts), numbered("train", targets, labels, spec.kind))
    given, splits = len(train), {}
    for name, wanted in (("test", spec.test), ("validation", spec.validation)):
        if isinstance(wanted, tuple):
            others, asked = read_sources(wanted, folder, spec.kind)
            splits[name] = Split(tuple(others), numbered(name, asked, labels, spec.kind))
        else:
            kept, held_out = stratified(strata(train.labels), held_out_count(given, wanted), seed)
            train, splits[name] = train.take(kept), train.take(held_out)
    if spec.kind == "label":
        _check_train_covers(train, splits, labels)
    unlabelled = tuple(_at(source, folder) for source in spec.unlabelled)
    metric = spec.metric or METRICS[spec.kind][0]
    task = Task(spec.name, labels, train, splits["validation"], splits["test"], metric, unlabelled, spec.kind)  # type: ignore[arg-type]
    return task if spec.limit is None or spec.limit >= len(train) else subsample(task, spec.limit, seed)


def subsample(task: Task, count: int, seed: int) -> Task:
    """The task with only ``count`` training examples: stratified, at least one of each class. Other splits stay."""
    return task.with_train(task.train.take(sample(strata(task.train.labels), count, seed)))


def save_task(task: Task, folder: str | Path) -> Path:
    """Write a task as ``task.yaml`` and one ndjson file per split, which ``load_task`` reads back as it was.

    Raises ``DataError`` for other tasks than those with one label a text.
    """
    if task.kind != "label" or not all(isinstance(text, str) for split in task.splits().values() for text in split.texts):
        raise DataError(f"only tasks with one label for a single text are written, but '{task.name}' is of another kind")
    manifest: dict[str, Any] = {
        "name": task.name,
        **{name: f"{name}.ndjson" for name in task.splits()},
        "unlabelled": [_at(source, Path.cwd()).plain() for source in task.unlabelled],
        "labels": list(task.labels),
        "metric": task.metric,
    }
    with whole_folder(Path(folder)) as aside:
        for name, split in task.splits().items():
            rows = zip(split.texts, split.labels, strict=True)
            lines = [json.dumps({"text": text, "label": task.labels[label]}, ensure_ascii=False) + "\n" for text, label in rows]
            (aside / f"{name}.ndjson").write_text("".join(lines), encoding="utf-8", newline="\n")
        (aside / "task.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return Path(folder) / "task.yaml"


def _at(source: Source, folder: Path) -> Source:
    """The source with its paths starting at ``folder``."""
    labels_path = None if source.labels_path is None else str(folder / source.labels_path)
    return source.model_copy(update={"path": str(folder / source.path), "labels_path": labels_path})


def plain_text(text: Any) -> str:
    """A text of any kind as one string."""
    return text if isinstance(text, str) else " ".join(text)


def read_sources(sources: Sequence[Source], folder: Path, kind: str = "label") -> tuple[list[Any], list[Any]]:
    """All texts of sources whose paths start at ``folder``, and what is asked of each."""
    parts = [read_targets(kind, _at(source, folder)) for source in sources]
    return [text for texts, _ in parts for text in texts], [label for _, labels in parts for label in labels]


def _check_train_covers(train: Split, splits: Mapping[str, Split], labels: tuple[str, ...]) -> None:
    """Raise ``DataError`` if a class has no training example (left)."""
    for number in sorted(set(range(len(labels))) - set(train.labels.tolist())):
        elsewhere = ", ".join(f"{name} {int((split.labels == number).sum())}" for name, split in splits.items())
        raise DataError(
            f"every label needs a training example, but {labels[number]!r} has none (examples elsewhere: {elsewhere}); "
            "give some, or leave the label out"
        )
