"""The history of a bundle: a typed record for every command that trained or changed it, oldest first.

Records are written into ``bundle.json`` and read back here and nowhere else; every other part reads attributes.

    Record
    ├── AdaptRecord, ContinualRecord                       a head for labels
    └── LanguageRecord                                     says what the language head was trained on, and whether it generates
        └── PretrainRecord, AnswersRecord, ImportRecord, OtherRecord

``settings`` are the settings of a command as plain values, kept for people; no code reads them.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from warmstart.config import Config
from warmstart.data.task import texts_digest
from warmstart.data.text_key import TextHashes, text_hashes_wanted
from warmstart.objectives.config import ObjectiveConfig
from warmstart.registry import Registry

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


class TaskRecord(Config):
    """A labelled task: its name and the number of texts in each split."""

    name: str
    type: str | None = None
    metric: str | None = None
    labels: tuple[str, ...] = ()
    train: int
    validation: int | None = None
    test: int | None = None
    learned: str | None = None
    """a hash of the training texts, in any order; None: not recorded"""
    splits: dict[str, TextHashes] = Field(default_factory=dict)
    """split -> hashes of its texts, as the task was read; empty if they were not wanted"""
    labelled: TextHashes | None = None
    """hashes of the texts whose labels were looked at, to learn or to choose; None: unknown"""
    pairs: bool | None = None
    """True if each of its texts is a pair of texts; None: not recorded"""
    reading: dict[str, Any] = Field(default_factory=dict)
    """settings with which the training texts were read, which hold for the next file of the same kind"""

    @classmethod
    def of(cls, task: Task, loaded: Task | None = None, apart: Split | None = None) -> TaskRecord:
        """The record of a task in memory; with the task as it was ``loaded``, also hashes of the texts.

        ``apart`` are texts whose labels were looked at, but which are no longer part of ``task``.
        """
        kept: dict[str, Any] = {}
        if loaded is not None and text_hashes_wanted():
            seen = [*task.train.keys, *task.validation.keys, *(apart.keys if apart else ())]
            kept = {"splits": loaded.text_hashes(), "labelled": TextHashes.of(seen)}
        held_out = {name: len(split) or None for name, split in task.held_out().items()}
        named = {"name": task.name, "type": task.type, "metric": task.metric, "labels": task.labels}
        pairs = not isinstance(task.train.texts[0], str) if task.train.texts else None
        known = {"learned": texts_digest(task.train.keys), "pairs": pairs, "reading": dict(task.reading)}
        return cls.build({**named, "train": len(task.train), **held_out, **known, **kept}, "task")


class MethodRecord(Config):
    """The test scores of one method in a comparison."""

    name: str
    scores: tuple[float, ...]
    """score of each seed"""
    mean: float
    low: float | None = None
    """lower end of the 95% interval; None for a single score without resamples"""
    high: float | None = None
    over_texts: bool = False
    """True if the interval covers other test texts, beside other seeds"""
    over_seeds: tuple[float, float] | None = None
    """ends of the 95% interval over seeds alone; None for a single score"""
    seconds: float = 0.0
    """mean training time"""
    trainable: int = 0
    """number of trainable parameters"""
    note: str = ""


class ComparisonRecord(Config):
    """Methods compared on the same splits and seeds; the first one is the method in question."""

    metric: str
    methods: tuple[MethodRecord, ...]
    findings: tuple[str, ...] = ()

    @classmethod
    def of(cls, comparison: MethodTable, cautions: Sequence[str] = ()) -> ComparisonRecord:
        """The record of a comparison in memory; ``cautions`` say what a reader should know beside it."""
        methods = tuple(
            MethodRecord(
                name=row.name,
                scores=row.scores,
                seconds=row.seconds,
                trainable=row.trainable,
                note=row.note,
                over_texts=row.resampled is not None,
                over_seeds=(row.over_seeds.low, row.over_seeds.high) if len(row.scores) > 1 else None,
                **row.interval.to_dict(),
            )
            for row in comparison.rows
        )
        return cls(metric=comparison.metric, methods=methods, findings=(*comparison.findings(), *cautions))


class ClassRecord(Config):
    """The test scores of one label."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    """test texts with this label"""


class ScoresRecord(Config):
    """The test scores of the model that was saved."""

    figures: dict[str, float] = Field(default_factory=dict)
    """metric -> value"""
    per_class: tuple[ClassRecord, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ScoresRecord:
        """The record of scores given as plain values (``to_dict`` of the scores of any task type)."""
        figures = {name: value for name, value in values.items() if isinstance(value, int | float)}
        others = {name: value for name, value in values.items() if name in ("per_class", "note")}
        return cls.build({"figures": figures, **others}, "scores")


class FindingRecord(Config):
    """One finding of the audit of the data."""

    severity: str
    sentence: str

    @classmethod
    def of(cls, finding: Finding) -> FindingRecord:
        """The record of a finding in memory."""
        return cls(severity=finding.severity, sentence=finding.sentence)


class Record(Config):
    """One step in the history of a bundle."""

    provenance: Provenance | None = None

    @property
    def title(self) -> str:
        """Name of the step for people."""
        return str(getattr(self, "type", type(self).__name__)).replace("_", " ")

    @property
    def label_tasks(self) -> tuple[str, ...]:
        """Names of the tasks whose labels were trained on."""
        return ()


class AdaptRecord(Record):
    """``warmstart adapt``, or an estimator."""

    type: Literal["adapt"] = "adapt"
    estimator: str | None = None
    """class of the estimator, if it was one"""
    task: TaskRecord
    audit: tuple[FindingRecord, ...] | None = None
    """findings of the audit; None: the data was not audited"""
    settings: dict[str, Any] = Field(default_factory=dict)
    seed: int
    test: ScoresRecord | None = None
    validation: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """method -> score of each seed on the texts that choose; empty if none chose"""
    chosen: bool = False
    """True if the saved run was chosen among several for its score on these texts"""
    budget: tuple[str, ...] = ()
    """sentences: what the labels were for, and what choosing cost"""
    comparison: ComparisonRecord | None = None

    @property
    def title(self) -> str:
        """The estimator's name, if it was one."""
        return self.estimator or super().title

    @property
    def label_tasks(self) -> tuple[str, ...]:
        """Name of the task."""
        return (self.task.name,)


class ContinualRecord(Record):
    """``warmstart continual``: several tasks one after another, or jointly; the bundle holds the head of one of them."""

    type: Literal["continual"] = "continual"
    strategy: str
    """strategy of learning: none (in turn), or joint"""
    tasks: tuple[str, ...]
    """names of the tasks, in the order of training"""
    task: TaskRecord
    """task of this bundle's head"""
    seed: int
    scores: tuple[tuple[float, ...], ...] = ()
    """test scores of every task so far, after each task; jointly: of all tasks"""

    @property
    def label_tasks(self) -> tuple[str, ...]:
        """Names of all tasks."""
        return self.tasks


class LanguageRecord(Record):
    """A step after which the bundle may have a language head."""

    objective: ObjectiveConfig | None = None
    """objective of the language head; None: unknown, or there is no language head"""
    generates: bool = False
    """the language head was trained to generate text from left to right"""


class DomainRecord(Config):
    """The task whose domain was read in pretraining."""

    task: str
    """its name"""
    texts: int
    """number of the task's own texts, read without labels"""
    left_out: int
    """texts and passages left out because they are like one of validation or test"""
    passages: int = 0
    """kept passages of other text, each counted once"""


class PretrainRecord(LanguageRecord):
    """``warmstart pretrain``."""

    type: Literal["pretrain"] = "pretrain"
    settings: dict[str, Any] = Field(default_factory=dict)
    seed: int | None = None
    corpus: str | None = None
    """digest of the tokens"""
    tokens: int | None = None
    """tokens read"""
    seconds: float | None = None
    held_out: dict[str, float] = Field(default_factory=dict)
    """figure -> value on held-out text"""
    held_out_words: int | None = None
    """words of the held-out text, line ends included; None: no text is held out"""
    domain: DomainRecord | None = None
    """task that the text was chosen for; None: it was not"""


class AnswersRecord(LanguageRecord):
    """``warmstart adapt`` to a task of type answers."""

    type: Literal["answers"] = "answers"
    task: TaskRecord
    settings: dict[str, Any] = Field(default_factory=dict)
    seed: int
    comparison: ComparisonRecord | None = None
    max_answer_tokens: int
    """largest number of tokens in an answer"""
    held_out_answers: tuple[tuple[float, bool], ...] = ()
    """confidence and correctness of each answer to held-out questions, which chose nothing; thresholds are chosen on them"""

    @property
    def label_tasks(self) -> tuple[str, ...]:
        """Name of the task, whose answers were trained on."""
        return (self.task.name,)


class ReadRecord(Config):
    """Data sets that a pretrained model has read before it was imported, as far as is known."""

    labelled: tuple[str, ...] = ()
    """data sets whose texts it has read with their labels in words"""
    texts: tuple[str, ...] = ()
    """data sets whose texts it has read"""
    source: str
    """origin of this knowledge, such as a paper"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all data sets."""
        return (*self.labelled, *self.texts)


class ImportRecord(LanguageRecord):
    """``warmstart import`` of a model in the Hugging Face format."""

    type: Literal["import"] = "import"
    family: str
    """``model_type`` of its ``config.json``"""
    config: dict[str, Any]
    """its ``config.json``"""
    source: str | None = None
    """folder, or name on the hub"""
    read: ReadRecord | None = None
    """data sets that it has read before; None: unknown"""

    @property
    def title(self) -> str:
        """Name of the step with the family."""
        return f"import ({self.family})"


class OtherRecord(LanguageRecord):
    """Any other way to make a bundle, such as code of your own."""

    type: Literal["other"] = "other"
    name: str
    details: dict[str, Any] = Field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name that the step was given."""
        return self.name


RECORDS: Registry[type[Record]] = Registry(
    "record of a bundle's history",
    {
        "pretrain": PretrainRecord,
        "adapt": AdaptRecord,
        "answers": AnswersRecord,
        "continual": ContinualRecord,
        "import": ImportRecord,
        "other": OtherRecord,
    },
)
"""Every type of record by the ``type`` that ``bundle.json`` names."""


def read_record(values: Mapping[str, Any]) -> Record:
    """A record from its plain values, the inverse of ``to_dict``.

    Fields that this version does not know are left out: a model is not lost to a setting that is gone. Raises ``ConfigError`` for
    an unknown type of record, and for values that do not fit.
    """
    kind, known = RECORDS[str(values.get("type"))], copy.deepcopy(dict(values))
    try:
        return kind.model_validate(known)
    except ValidationError as error:
        for *path, name in (detail["loc"] for detail in error.errors() if detail["type"] == "extra_forbidden"):
            del functools.reduce(operator.getitem, path, known)[name]  # type: ignore[arg-type]
    return kind.build(known, "bundle.json, history")


def seen_labels(history: Iterable[Record], task: str) -> bool:
    """Whether a model was trained on labels of a task of this name before."""
    return any(task in record.label_tasks for record in history)


def recorded_task_type(history: Iterable[Record]) -> str | None:
    """The type of the task that a model was last fine-tuned for; None if its history names none."""
    tasks = recorded_tasks(history)
    return tasks[-1].type if tasks else None


def recorded_labels(history: Iterable[Record]) -> tuple[str, ...]:
    """The label names of the task that a model was last fine-tuned for, in the order of its classes; empty if they are unknown."""
    tasks = recorded_tasks(history)
    return tasks[-1].labels if tasks else ()


def recorded_tasks(history: Iterable[Record]) -> list[TaskRecord]:
    """The labelled tasks of the steps of a history, oldest first."""
    return [task for record in history if isinstance(task := getattr(record, "task", None), TaskRecord)]
