"""A task as one backbone reads it: its texts encoded once, for every run on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from warmstart.data.budget import Fold, LabelBudget
from warmstart.data.encode import Encoded
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Task
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.soft_labels import SoftTexts
from warmstart.model.model import Model
from warmstart.system.array_store import ArrayStore
from warmstart.tasks import task_type_of
from warmstart.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class EncodedTask:
    """A task with its splits as token ids."""

    task: Task
    train: Encoded
    validation: Encoded
    test: Encoded
    pad_id: int
    features: FeatureCache = field(default_factory=FeatureCache)
    """features of frozen backbones, shared by all runs on these texts"""
    soft: SoftTexts | None = None
    """texts without labels of which a teacher gave probabilities; None: no teacher"""

    @classmethod
    def of(cls, task: Task, model: Model, tokenizer: Tokenizer) -> EncodedTask:
        """Encode all three splits as ``model`` reads them."""
        splits = (task.train, task.validation, task.test)
        train, validation, test = (task_type_of(task).encode(model, tokenizer, split.texts) for split in splits)
        return cls(task, train, validation, test, tokenizer.specials.pad, FeatureCache(ArrayStore.of_user()))

    def within(self, budget: LabelBudget) -> EncodedTask:
        """The texts of the last model of a budget of this task, and the test texts."""
        chosen = self.train.take(budget.train), self.validation.take(budget.validation)
        return replace(self, task=budget.task, train=chosen[0], validation=chosen[1])

    def training_ids(self) -> np.ndarray:
        """(R,), ascending: the ids of all tokens in batches of the training split and of the pool, padding included."""
        soft = self.soft.encoded.rows if self.soft else ()
        return np.unique(np.concatenate([*self.train.rows, *soft, [self.pad_id]]))

    def fold(self, fold: Fold) -> EncodedTask:
        """The texts of a fold of a budget of this task: those that learn, those that choose, and no test texts."""
        choose = {"train": self.train, "validation": self.validation}[fold.of].take(fold.choose)
        task = fold.task(self.task)
        return replace(self, task=task, train=self.train.take(fold.learn), validation=choose, test=self.test.take(NO_TEXTS))
