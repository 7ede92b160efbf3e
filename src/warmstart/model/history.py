"""The history of a model: one record for every command that trained or changed it, oldest first. The card prints it.

Records are written into ``bundle.json`` and read back here and nowhere else. They tell people what was done; of what code asks they
hold the data alone: which texts and labels a model has seen (``tasks/trained_on.py``). The rest stands in the bundle itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from warmstart.config import Config
from warmstart.data.text_key import TextHashes, text_hashes_wanted
from warmstart.stats.intervals import FEW_SEEDS

if TYPE_CHECKING:
    from warmstart.data.audit import Finding
    from warmstart.data.task import Split, Task
    from warmstart.stats.comparison import MethodTable


class Provenance(Config):
    """The origin of a result."""

    command: str
    """the command line"""
    machine: str
    """processor or GPU, cores, threads, the version of torch"""
    date: str
    """day, as in 2026-11-22"""
    warmstart: str
    """version"""


class FindingRecord(Config):
    """One finding of the audit of the data."""

    severity: str
    sentence: str

    @classmethod
    def of(cls, finding: Finding) -> FindingRecord:
        """The record of a finding in memory."""
        return cls(severity=finding.severity, sentence=finding.sentence)


class DataRecord(Config):
    """A data set that was read: a task with its labels, text alone, or a set that an imported model had read before."""

    name: str
    sizes: dict[str, int] = Field(default_factory=dict)
    """split -> number of texts; of text without labels what was counted: texts, tokens, texts left out"""
    with_labels: bool = False
    """its labels were read too"""
    type: str | None = None
    """type of the task"""
    labels: tuple[str, ...] = ()
    splits: dict[str, TextHashes] = Field(default_factory=dict)
    """split -> hashes of its texts, as the task was read; empty if they were not wanted"""
    labelled: TextHashes | None = None
    """hashes of the texts whose labels were looked at, to learn or to choose; None: unknown"""
    pairs: bool | None = None
    """True if each of its texts is a pair of texts; None: not recorded"""
    reading: dict[str, Any] = Field(default_factory=dict)
    """settings with which the training texts were read, which hold for the next file of the same kind"""
    audit: tuple[FindingRecord, ...] | None = None
    """findings of the audit; None: the data was not audited"""
    digest: str = ""
    """hash of the tokens of a corpus"""
    source: str = ""
    """origin of the knowledge, such as a paper, that an imported model has read it"""

    @classmethod
    def of(cls, task: Task, loaded: Task | None = None, apart: Split | None = None) -> DataRecord:
        """The record of a task in memory; with the task as it was ``loaded``, also hashes of the texts.

        ``apart`` are texts whose labels were looked at, but which are no longer part of ``task``.
        """
        kept: dict[str, Any] = {}
        if loaded is not None and text_hashes_wanted():
            seen = [*task.train.keys, *task.validation.keys, *(apart.keys if apart else ())]
            kept = {"splits": loaded.text_hashes(), "labelled": TextHashes.of(seen)}
        sizes = {"train": len(task.train)} | {name: len(split) for name, split in task.held_out().items() if len(split)}
        pairs = not isinstance(task.train.texts[0], str) if task.train.texts else None
        named = {"name": task.name, "with_labels": True, "type": task.type, "labels": task.labels, "sizes": sizes, "pairs": pairs}
        return cls.build({**named, "reading": dict(task.reading), **kept}, "task")


class ScoreTable(Config):
    """Scores of several methods, labels or stages, as a table for people."""

    title: str
    """the table's subject, as the beginning of a sentence"""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Record(Config):
    """One step in the history of a model: what was done, to which data, and how well the model did after it."""

    command: str
    """name of the command without ``warmstart``, or of the class of an estimator"""
    settings: dict[str, Any] = Field(default_factory=dict)
    """settings as plain values"""
    seed: int | None = None
    seconds: float | None = None
    """time of the training"""
    data: tuple[DataRecord, ...] = ()
    """data that was read; the task of the model's head is the last of it"""
    provenance: Provenance | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    """metric -> value of this model on test texts, or on text that was held out"""
    tables: tuple[ScoreTable, ...] = ()
    notes: tuple[str, ...] = ()
    """sentences: findings, decisions, and what the labels were for"""


def compared(comparison: MethodTable, cautions: Sequence[str] = ()) -> dict[str, Any]:
    """Methods compared on one test split as ``tables`` and ``notes`` of a record; ``cautions`` go beside the findings."""
    table = ScoreTable.build(
        {"title": f"{comparison.metric} on the test split", "header": comparison.header, "rows": comparison.table()}, "comparison"
    )
    few = "It was trained with fewer than {} seeds, too few to estimate how much its score varies."
    limits = [few.format(FEW_SEEDS)] * (len(comparison.rows[0].scores) < FEW_SEEDS)
    return {"tables": (table,), "notes": (*comparison.findings(), *cautions, *limits)}


def recorded_tasks(history: Iterable[Record]) -> list[DataRecord]:
    """The tasks that a model was trained on with their labels, oldest first."""
    return [data for record in history for data in record.data if data.with_labels and not data.source]


def seen_labels(history: Iterable[Record], task: str) -> bool:
    """True for a model that was trained on labels of a task of this name before."""
    return any(data.name == task for data in recorded_tasks(history))


def recorded_labels(history: Iterable[Record]) -> tuple[str, ...]:
    """The label names of the task that a model was last fine-tuned for, in the order of its classes; empty if they are unknown."""
    tasks = recorded_tasks(history)
    return tasks[-1].labels if tasks else ()


def last_adaptation(history: Sequence[Record]) -> Record | None:
    """The last record of a task's labels; None: there is none."""
    return next((record for record in reversed(history) if recorded_tasks([record])), None)


IMPORT = "import"
"""command of the record of an imported model; its settings are the ``family`` and the ``config.json`` that it came with"""


def imported(history: Iterable[Record]) -> Mapping[str, Any]:
    """The ``family``, the ``config`` and the ``source`` of the model that was imported first; empty for one that was not."""
    return next((record.settings for record in history if record.command == IMPORT), {})
