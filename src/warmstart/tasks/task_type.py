"""The decisions of a task type: how its rows are read, its head, what the head predicts, and how predictions are scored.

Most types read one vector per text. This file does what they share; each file beside it holds what is particular to one type.

Letters: B batch, N examples, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from warmstart.data.batches import labelled_batches
from warmstart.data.encode import Encoded, encode
from warmstart.data.source import TABLE_FORMATS, Source
from warmstart.data.task import Split, Task
from warmstart.data.text_key import label_key
from warmstart.errors import ConfigError, DataError
from warmstart.heads.head import TaskHead
from warmstart.heads.settings import CUT, HeadActivation, TaskHeadConfig, WindowPooling
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.stats.formatting import first_of
from warmstart.stats.resampling import DRAWS, resample_indices
from warmstart.stats.scores import Scores
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

if TYPE_CHECKING:
    from warmstart.data.tables import Tables, TextTable

Batches = Callable[[int], list[Batch]]
"""step -> the batches of that step"""
Examples = tuple[list[Any], list[Any]]
"""inputs and their targets, equally many"""


class Rows(NamedTuple):
    """Inputs, targets and groups of sources, with the texts that have no label."""

    inputs: list[Any]
    targets: list[Any]
    groups: np.ndarray | None
    """(N,) the group of each, as a string; None if no source has groups"""
    unlabelled: tuple[str, ...]
    """the texts of rows without a label"""


class HeadSettings(NamedTuple):
    """Settings of a head that a user chooses."""

    pooling: str = "mean"
    dropout: float = 0.1
    hidden: HeadActivation = "none"
    windows: WindowPooling = "none"
    window_overlap: float = CUT.window_overlap
    max_windows: int = 0

    def pooled(self) -> dict[str, Any]:
        """All settings but the hidden layer: those of any head that reads one state per text."""
        return {name: value for name, value in self._asdict().items() if name != "hidden"}


class TaskType(ABC):
    """A type of task. A new one is a subclass in a file of its own, and one row in ``TASK_TYPES``."""

    name: ClassVar[str]
    """name in manifests"""
    head_config: ClassVar[type[TaskHeadConfig]]
    """the settings class of the head that it needs"""
    metrics: ClassVar[tuple[str, ...]]
    """metrics that can score a task; the first is the default"""
    pooled: ClassVar[bool] = True
    """the head reads one pooled vector per text, so the features of a frozen backbone can be cached"""
    bounded: ClassVar[bool] = True
    """scores lie between 0 and 1"""
    probabilistic: ClassVar[bool] = False
    """predictions are (N, C) probabilities"""
    one_label: ClassVar[bool] = False
    """each example has one label and the loss is cross-entropy, so classes can be weighted and probabilities calibrated"""
    several_labels: ClassVar[bool] = False
    """each example has any number of labels, each of which has a threshold"""
    constant_rule: ClassVar[str]
    """the rule of ``constant`` in words"""

    # ------------------------------------------------------------------------------------------------ examples

    @abstractmethod
    def examples(self, table: TextTable, source: Source) -> Examples:
        """The inputs of the rows of a table and their targets, with names as names."""

    def lines(self, source: Source) -> Examples | None:
        """Inputs and targets of a source that is no table; None if it is one."""
        return None

    def read(self, sources: Sequence[Source], tables: Tables | None = None, prefix: str = "") -> Rows:
        """The rows of sources; ``tables`` are those that were read before.

        An example without a group gets one of its own, whose name begins with ``prefix``, if any source has groups. Raises
        ``DataError`` if a source has no example, or a row lacks what the type needs.
        """
        parts = [self._of_source(source, tables) for source in sources]
        inputs, targets, _, unlabelled = ([*chain(*several)] for several in zip(*parts, strict=True))
        named = (
            group or f"{prefix}{number}:{row}" for number, (*_, groups, _) in enumerate(parts) for row, group in enumerate(groups)
        )
        groups = np.array([*named]) if any(source.group for source in sources) else None
        return Rows(inputs, targets, groups, tuple(unlabelled))

    def _of_source(self, source: Source, tables: Tables | None) -> tuple[list[Any], list[Any], list[str], list[str]]:
        """Inputs, targets and groups, ``""`` for an example that has none; and the texts of rows without a label."""
        from warmstart.data.read import tables_of

        lines = self.lines(source)
        inputs, targets = lines or (list[Any](), list[Any]())
        groups, unlabelled = [""] * len(inputs), list[str]()
        if lines and source.group:
            raise DataError(f"{source.path} must be a table with the column '{source.group}', since group names one")
        for table in () if lines else tables_of(source, tables):
            labelled, without = table.labelled(source, several=self.several_labels) if self.pooled else (table, None)
            more, their = self.examples(labelled, source)
            inputs += more
            targets += their
            groups += labelled.groups(source)
            if without and len(without.frame) and source.second is None:
                unlabelled += filter(str.strip, without.inputs(source))
        if not inputs:
            raise DataError(f"{source.path} must hold at least one example, but is empty")
        return inputs[: source.limit], targets[: source.limit], groups[: source.limit], unlabelled

    def inputs(self, table: TextTable, source: Source) -> list[Any]:
        """The inputs of the rows of a table: texts, or pairs if the source names a second column."""
        return table.inputs(source)

    def read_inputs(self, source: Source, tables: Tables | None = None) -> list[Any]:
        """The inputs of a source that has no targets; of plain text every line is one, also if it is blank."""
        from warmstart.data.read import read_rows, source_files, tables_of
        from warmstart.data.tables import source_format

        if source.second is None and not all(source_format(source, file) in TABLE_FORMATS for file in source_files(source)):
            return [*map(self.parse, read_rows(source))]
        return [item for table in tables_of(source, tables) for item in self.inputs(table, source)][: source.limit]

    def parse(self, text: str) -> Any:
        """One input from a string, as typed on a command line. Raises ``DataError`` if the type needs more than one string."""
        return text

    def label_names(self, targets: Sequence[Any], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        """The label names, in the order of their numbers. This type has none."""
        if wanted is not None:
            raise ConfigError(f"a task of type '{self.name}' has no labels; remove 'labels'")
        return ()

    @abstractmethod
    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N, …) targets with names as numbers: see ``Split.labels``. Raises ``DataError`` for a name outside ``labels``."""

    # ------------------------------------------------------------------------------------------------ model

    @abstractmethod
    def head(self, task: Task, settings: HeadSettings) -> TaskHeadConfig:
        """The settings of the head that a task needs."""

    def encode(self, model: Model, tokenizer: Tokenizer, inputs: Sequence[Any]) -> Encoded:
        """Inputs as token ids."""
        head, backbone = model.head.config, model.backbone.config
        appended, typed = getattr(head, "pooling", "") == "appended", backbone.token_types > 1
        return encode(tokenizer, inputs, backbone.max_length, appended=appended, typed=typed, windows=head.window_settings)

    def batches(self, split: Split, encoded: Encoded, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool) -> Batches:
        """``batches(step)`` for training; ``size`` is (examples per batch, batches per step)."""
        return labelled_batches(encoded, split.labels, size, seed, pad_id, causal=causal)

    def predict(self, model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> Any:
        """(N, ·) what the head predicts for each example, in order; without calibration."""
        predictions = np.empty(0)
        for indices, logits in run_in_batches(model, encoded, pad_id, precision):
            rows = predictions_of(model, logits).numpy()
            if not len(predictions):
                predictions = np.empty((len(encoded), *rows.shape[1:]))
            predictions[indices] = rows
        return predictions

    # ------------------------------------------------------------------------------------------------ predictions

    @abstractmethod
    def scores(self, split: Split, predictions: Any, task: Task) -> Scores:
        """Every metric of predictions for the examples of a split."""

    @abstractmethod
    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> Any:
        """Predictions for ``inputs`` that ignore them: the same for each, fitted to the targets of ``fitted``."""

    @abstractmethod
    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """Each prediction as plain values, fit for a line of JSON; with probabilities of the ``top`` most probable classes."""

    def resampled_scores(self, split: Split, predictions: Any, task: Task) -> np.ndarray:
        """(R,) the task's metric on resamples of the split; the resamples are the same for every method."""
        draws = resample_indices(len(split), DRAWS // 5, split.units)
        return np.array([self.scores(split.take(i), take_predictions(predictions, i), task).score(task.metric) for i in draws])


def predictions_of(model: Model, logits: Tensor) -> Tensor:
    """Predictions from the head's logits, in float64 on the processor."""
    assert isinstance(model.head, TaskHead)
    return model.head.predictions(logits.float().cpu().double())


def head_loss(model: Model, logits: Tensor, targets: Tensor) -> Tensor:
    """The head's own loss, summed over the batch."""
    assert isinstance(model.head, TaskHead)
    return model.head.loss(logits, targets)


def take_predictions(predictions: Any, indices: np.ndarray) -> Any:
    """The predictions for the examples at ``indices``."""
    return predictions[indices] if isinstance(predictions, np.ndarray) else [predictions[index] for index in indices]


def label_names(present: Sequence[str], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The label names in the order of their numbers: as ``wanted``, else sorted.

    Names that differ in case, spaces or punctuation alone are one label, in its most frequent spelling, unless they are ``wanted``.
    Names that are all whole numbers are sorted as numbers (``"2"`` before ``"10"``). ``present`` holds the labels of all training
    examples. Raises ``DataError`` for fewer than two different ones, ``ConfigError`` if ``wanted`` repeats a name.
    """
    names = set(present)
    if len(names) < 2 and wanted is None:
        problem = f"all {len(present)} training examples have {names.pop()!r}" if names else "no training example has one"
        raise DataError(f"a task needs at least two labels, but {problem}")
    if wanted is None:
        names = {*_one_spelling(present).values()}
        numeric = all(name.removeprefix("-").isdecimal() for name in names)
        return tuple(sorted(names, key=lambda name: (int(name) if numeric else 0, name)))
    if len(set(wanted)) != len(wanted):
        raise ConfigError(f"'labels' must name each label once, but repeats {Counter(wanted).most_common(1)[0][0]!r}")
    return wanted


def _one_spelling(names: Iterable[str]) -> dict[str, str]:
    """Key of each label -> its most frequent spelling, of equally frequent ones that in small letters."""
    counts = sorted(Counter(names).items(), key=lambda pair: (pair[1], pair[0]))
    return {label_key(name): name for name, _ in counts}


def label_numbers(split: str, used: Iterable[str], labels: tuple[str, ...]) -> dict[str, int]:
    """Label name -> number. Raises ``DataError`` if the split uses a name that is not in ``labels``."""
    from warmstart.system.console import print_once

    numbers = {label: number for number, label in enumerate(labels)}
    unknown = Counter(label for label in used if label not in numbers)
    spelled = _one_spelling(labels) if len({*map(label_key, labels)}) == len(labels) else {}
    if read := {label: spelled[key] for label in unknown if (key := label_key(label)) in spelled}:
        listed = first_of([f"{label!r} as {name!r}" for label, name in read.items()], 3, "more")
        print_once(
            f"Labels of the {split} split are read as one: {listed}. A manifest that names both in 'labels' keeps them apart."
        )
        numbers |= {label: numbers[name] for label, name in read.items()}
        unknown = Counter({label: count for label, count in unknown.items() if label not in read})
    if unknown:
        listed = ", ".join(f"{label!r} ({count}×)" for label, count in unknown.most_common(5))
        raise DataError(
            f"every label of the {split} split must be one of {', '.join(labels)}, but it has {listed}; "
            "correct the labels, or add training examples with them"
        )
    return numbers
