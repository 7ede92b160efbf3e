"""A teacher: any saved model of the task's labels, whose probabilities for the pool teach a smaller network.

The teacher reads the pool once; every seed and every fold learns from the same probabilities. They are kept in the user's cache by
a hash of the teacher and of the texts, and checked by a hash of their own. Texts of the pool that are equal to a labelled,
validation or test text, or nearly the same, are left out: no text that chooses has soft labels.

The texts that choose decide whether the student with the teacher is saved: it must label more of them correctly than without. A
teacher that learned from these very texts is flattered by them, because it teaches what it knows of them by way of the pool. So
where it did, or where that is unknown, it must win by more than one standard error of the paired difference. Whether it did follows
from the hash of the learning texts that a model's history records.

Letters: N texts, P texts of the pool, C classes, S seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
from pydantic import Field
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise

from warmstart.config import Config, FileInput, InFile
from warmstart.data.budget import LabelBudget
from warmstart.data.pool import Pool, pool_unlike, task_pool
from warmstart.data.task import Split, Task, plain_text, texts_digest
from warmstart.errors import ConfigError, DataError, StorageError
from warmstart.finetuning.ensemble import seconds_per_text
from warmstart.finetuning.losses import SoftTexts
from warmstart.interop.load import load_predictor
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest
from warmstart.model.history import AdaptRecord, TeacherRecord
from warmstart.model.model import Model, parameter_counts
from warmstart.seeding import rng
from warmstart.stack.fitted import FittedBaseline, packed
from warmstart.stack.stack import Stack
from warmstart.stats.calibration import apply_temperature
from warmstart.stats.intervals import standard_error
from warmstart.system.console import console
from warmstart.system.storage import atomic_write, cache_folder, sha256
from warmstart.tasks import check_task_type, task_type_of
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

LARGEST_POOL = 5000
"""texts that the teacher reads; a larger pool is sampled: a run of the usual length reads no more"""
Learned = Literal["others", "these", "unknown"]
"""what a teacher learned from: only texts that do not choose, those that choose too, or it is not known"""


class TeacherConfig(Config):
    """Who teaches, and how much that counts."""

    teacher: FileInput[str | None] = None
    """a saved model of the task's labels (a bundle, a stack, or the folder of a run): its probabilities for the pool teach, too"""
    teacher_weight: InFile[float] = Field(1.0, gt=0)
    """weight of the teacher's loss beside that of the labels"""
    teacher_temperature: InFile[float] = Field(1.0, gt=0)
    """temperature of teacher and student in that loss; above 1, less probable labels count more"""
    pool: FileInput[str] = "rest"
    """what the teacher labels: rest (the manifest's unlabelled text, and training texts whose labels are not used), or a file"""


@dataclass(frozen=True, eq=False)
class Teacher:
    """A model that teaches a task."""

    model: Bundle | Stack
    digest: str
    columns: np.ndarray
    """(C,) the column of each label of the task, by name"""

    @classmethod
    def load(cls, path: str, task: Task) -> Teacher:
        """The model at ``path``. Raises ``ConfigError`` or ``DataError`` if it cannot teach this task."""
        if not task_type_of(task).one_label or not all(isinstance(text, str) for text in task.train.texts):
            raise ConfigError(
                f"--teacher needs a task with one label per text, and texts that are no pairs, but '{task.name}' is another "
                f"({task.type}); remove it"
            )
        model = load_predictor(path)
        check_task_type(model, task)
        if set(model.labels) != set(task.labels):
            raise DataError(
                f"the teacher must know the labels of the task, {', '.join(task.labels)}, and no others, but knows "
                f"{', '.join(model.labels)}; train it on this task"
            )
        return cls(model, model_digest(path), np.array([model.labels.index(name) for name in task.labels]))

    def predict(self, texts: Sequence[Any]) -> np.ndarray:
        """(N, C) its calibrated probabilities, in the order of the task's labels."""
        found: np.ndarray = raw_predictions(self.model, texts)[:, self.columns]
        return found

    def pool_labels(self, texts: Sequence[str]) -> np.ndarray:
        """The same for a pool; read from the user's cache if it predicted these texts before."""
        shape = (len(texts), len(self.model.labels))
        return kept_labels([self.digest, *texts], shape, lambda: raw_predictions(self.model, texts))[:, self.columns]

    def learned(self, budget: LabelBudget) -> Learned:
        """Whether it learned from texts that choose in ``budget``."""
        records = [record for model in (self.model, *_members(self.model)) for record in model.history if record.label_tasks]
        learned = {record.task.learned if isinstance(record, AdaptRecord) else None for record in records}
        if learned != {texts_digest(budget.task.train.keys)}:
            return "unknown"
        return "these" if budget.cross_validated else "others"

    @property
    def own_labels(self) -> int | None:
        """How many labelled texts it learned from, as far as its history says."""
        counts = [record.task.train for record in self.model.history if isinstance(record, AdaptRecord)]
        return counts[-1] if counts else None

    @property
    def parameters(self) -> int:
        """Of its networks, and the numbers of its baselines."""
        models = [one.model for one in self.model.members] if isinstance(self.model, Stack) else [self.model]
        return sum(parameter_counts(one.model)["total"] if isinstance(one, Bundle) else _numbers(one) for one in models)

    def seconds(self, texts: Sequence[Any]) -> float:
        """To predict one of ``texts``."""
        return seconds_per_text(self.model, texts)


def kept_labels(key: Sequence[str], shape: tuple[int, int], predict: Callable[[], np.ndarray]) -> np.ndarray:
    """(P, C) what ``predict`` returns; read from the user's cache if it is there. ``key`` is the model's digest and the P texts."""
    folder, name = cache_folder(), sha256(json.dumps([*key]).encode())
    file = folder / "teachers" / f"{name}.safetensors" if folder else None
    if (kept := _kept(file, shape)) is not None:
        return kept
    found = predict()
    if file:
        with suppress(OSError, StorageError):  # it is only a cache
            atomic_write(file, serialise({"probabilities": np.ascontiguousarray(found)}))
    return found


def _members(model: Bundle | Stack) -> tuple[Bundle, ...]:
    return model.networks if isinstance(model, Stack) else ()


def _numbers(baseline: FittedBaseline) -> int:
    backbone = parameter_counts(baseline.backbone.model)["total"] if baseline.backbone else 0
    return backbone + sum(array.size for array in packed(baseline)[1].values())


def _kept(file: Path | None, shape: tuple[int, int]) -> np.ndarray | None:
    """The probabilities in a file of the cache; None if there is none, or it cannot be read."""
    try:
        found = parse_arrays(file.read_bytes())["probabilities"] if file else None
        return found if found is not None and found.shape == shape else None
    except (OSError, KeyError, ValueError, safetensors.SafetensorError):
        return None


def teachable_texts(budget: LabelBudget, source: str, excluded: Split | None = None, most: int = LARGEST_POOL) -> Pool:
    """At most so many texts that a teacher may label, often none.

    None is like a labelled text of ``budget`` or ``excluded``, a validation or a test text.
    """
    splits = [budget.task.train, budget.task.validation, *([excluded] if excluded else [])]
    labelled = tuple(plain_text(text) for split in splits for text in split.texts)
    found = task_pool(budget.whole, source).without(budget)
    kept = pool_unlike(found.texts, labelled)
    chosen = np.sort(rng(0, "teacher").permutation(len(kept))[:most])
    return Pool(tuple(kept.texts[i] for i in chosen), found.left_out + kept.left_out)


def teaching_pool(budget: LabelBudget, source: str, excluded: Split | None = None) -> Pool:
    """The same; raises ``ConfigError`` if there are none."""
    found = teachable_texts(budget, source, excluded)
    if not found:
        raise ConfigError(
            f"--teacher needs texts without labels, but the pool of '{budget.whole.name}' has none; give --labels, which leaves "
            "the other training texts, write 'unlabelled' into the manifest, or name a file with --pool"
        )
    return found


@dataclass(frozen=True)
class Lesson:
    """A teacher with the texts that it labels, and how much they count."""

    teacher: Teacher
    pool: Pool
    config: TeacherConfig

    def record(self, learned: Learned) -> TeacherRecord:
        """For the history of what it taught."""
        return TeacherRecord(
            path=self.config.teacher or "",
            digest=self.teacher.digest,
            texts=len(self.pool),
            weight=self.config.teacher_weight,
            temperature=self.config.teacher_temperature,
            learned=learned,
        )

    def soft_texts(self, model: Model, tokenizer: Tokenizer, task: Task) -> SoftTexts:
        """The pool as ``model`` reads it, with the teacher's probabilities."""
        left_out = f"{self.pool.left_out:,} like a labelled or held-out text are left out"
        console.print(f"The teacher labels {len(self.pool):,} texts; {left_out}.")
        temperature = self.config.teacher_temperature
        labelled = self.teacher.pool_labels(self.pool.texts)
        probabilities = apply_temperature(labelled, temperature)
        encoded = task_type_of(task).encode(model, tokenizer, self.pool.texts)
        return SoftTexts(encoded, probabilities, self.config.teacher_weight, temperature)


@dataclass(frozen=True)
class TeacherChoice:
    """Whether the student with the teacher is saved, by the texts that choose."""

    without: float
    """fraction of the texts that choose that the student labels correctly without the teacher, mean over seeds"""
    taught: float
    """the same with it"""
    error: float
    """standard error of the paired difference"""
    learned: Learned

    @classmethod
    def of(
        cls, budget: LabelBudget, without: Sequence[np.ndarray], taught: Sequence[np.ndarray], learned: Learned
    ) -> TeacherChoice:
        """From S predictions (N, C) each for ``budget.choosing``."""
        labels = budget.choosing.labels
        right = [np.mean([one.argmax(axis=1) == labels for one in each], axis=0) for each in (without, taught)]
        return cls(float(right[0].mean()), float(right[1].mean()), standard_error(right[1] - right[0]), learned)

    @property
    def kept(self) -> bool:
        """The rule."""
        return self.taught - self.without > (0.0 if self.learned == "others" else self.error)
