"""The label budget: which labelled texts a run may look at, and which of them choose its settings.

    100 labels, cross-validation   100 texts of the training split; 5 folds of 20 choose, then all 100 learn
    100 labels, holdout            80 texts of the training split learn, 20 of the validation split choose
    all labels, holdout            the training split learns, the validation split chooses

Everything labelled that anything looks at is in the budget ("true few-shot learning", Perez et al. 2021). Every seed draws its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from warmstart.data.splits import NO_TEXTS, cross_validation_folds, strata, stratified_sample, stratified_split
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.types import SelectionName

FOLDS = 5
HOLDOUT_SHARE = 0.2
"""the share of the labels that choose with ``holdout``"""


@dataclass(frozen=True)
class Fold:
    """Some labelled texts learn, and others choose."""

    learn: np.ndarray
    """ascending indices into the training split"""
    choose: np.ndarray
    """ascending indices into the split ``of``"""
    of: Literal["train", "validation"]

    def task(self, task: Task) -> Task:
        """The task of this fold: its own training and validation texts, and no test texts."""
        chosen = task.splits()[self.of].take(self.choose)
        return replace(task, train=task.train.take(self.learn), validation=chosen, test=task.test.take(NO_TEXTS))


@dataclass(frozen=True, eq=False)
class LabelBudget:
    """The labelled texts of a task that one run may look at."""

    whole: Task
    """the task with all its texts"""
    train: np.ndarray
    """ascending indices into its training split: the texts that learn"""
    validation: np.ndarray
    """ascending indices into its validation split: texts that choose and do not learn"""
    seed: int
    fold_seed: int | None = None
    """draws the folds; None: ``seed`` does"""
    share: float = 1.0
    """share of the texts that learn in each fold; the others are left out, as if there were so many fewer labels"""
    parts: int = FOLDS
    """largest number of folds"""

    def __len__(self) -> int:
        return len(self.train) + len(self.validation)

    @property
    def labels(self) -> np.ndarray:
        """(N, ·) the labels of all its texts."""
        return np.concatenate([self.whole.train.labels[self.train], self.whole.validation.labels[self.validation]])

    @property
    def cross_validated(self) -> bool:
        """True if the texts that choose also learn, so that a last model learns from all of them."""
        return not len(self.validation)

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """Each text that can choose does so once. Raises ``DataError`` if there are too few texts for two folds."""
        if not self.cross_validated:
            return (Fold(self.train, self.validation, "validation"),)
        split = self.whole.train.take(self.train)
        chosen = cross_validation_folds(
            strata(split.labels), split.units, self.parts, self.seed if self.fold_seed is None else self.fold_seed
        )
        learn = [np.delete(np.arange(len(self.train)), part) for part in chosen]
        if self.share < 1:
            drawn = [stratified_sample(strata(split.labels[texts]), self._kept(split, texts), self.seed) for texts in learn]
            learn = [texts[kept] for texts, kept in zip(learn, drawn, strict=True)]
        return tuple(Fold(self.train[texts], self.train[part], "train") for texts, part in zip(learn, chosen, strict=True))

    def _kept(self, split: Split, learn: np.ndarray) -> int:
        """Number of the texts ``learn`` that are the share of them, at least one of each class."""
        return max(round(self.share * len(learn)), len(np.unique(strata(split.labels[learn]))))

    def for_seed(self, seed: int) -> LabelBudget:
        """The texts and folds for networks of another seed."""
        return replace(self, seed=seed, fold_seed=self.seed if self.fold_seed is None else self.fold_seed)

    @property
    def task(self) -> Task:
        """The task of the last model: all texts that learn, and the validation texts of the budget, often none."""
        return replace(self.whole, train=self.whole.train.take(self.train), validation=self.whole.validation.take(self.validation))

    @cached_property
    def choosing(self) -> Split:
        """The texts that choose, in the order of their indices."""
        return self.whole.splits()[self.folds[0].of].take(np.sort(np.concatenate([fold.choose for fold in self.folds])))

    def joined(self, predictions: Sequence[Any]) -> Any:
        """Predictions for ``choosing``, from those of each fold for the texts that choose in it."""
        order = np.argsort(np.concatenate([fold.choose for fold in self.folds]))
        if isinstance(predictions[0], np.ndarray):
            return np.concatenate(predictions)[order]
        flat = [prediction for part in predictions for prediction in part]
        return [flat[i] for i in order]

    @property
    def sentence(self) -> str:
        """The use of the labels, as a complete sentence: ``"100 labels: 80 to learn, 20 to choose."``."""
        if not self.cross_validated:
            return f"{len(self):,} labels: {len(self.train):,} to learn, {len(self.validation):,} to choose."
        return (
            f"{len(self):,} labels: all of them learn, and {len(self.folds)}-fold cross-validation on them chooses.{self._single}"
        )

    @property
    def _single(self) -> str:
        """A sentence on classes with one text, after another sentence; empty if there are none."""
        alone = len(self.train) - len(self.choosing)
        verb = "learns" if alone == 1 else "learn"
        return f" Of these, {alone} {verb} in every fold: no other text has the same class." if alone else ""

    def sentence_with_fixed_settings(self, chosen: str) -> str:
        """The use of the labels if the settings of a network are fixed; ``chosen`` names what cross-validation still chooses.

        -> ``"100 labels: all of them learn. 5-fold cross-validation on them chooses the method; a network's settings are fixed."``
        """
        learn = f"{len(self):,} labels: all of them learn"
        if not chosen:
            return f"{learn}, and none chooses the settings of a network."
        folds = f"{len(self.folds)}-fold cross-validation on them chooses"
        return f"{learn}. {folds} {chosen}; a network's settings are fixed.{self._single}"


def labels_sentence(budget: LabelBudget, selection: SelectionName, chosen: str = "") -> str:
    """The use of the labels; ``chosen`` names what cross-validation chooses with ``none``, too, such as ``"the method"``."""
    return budget.sentence_with_fixed_settings(chosen) if selection == "none" else budget.sentence


def label_budget(task: Task, labels: int | None, selection: SelectionName, seed: int) -> LabelBudget:
    """Draw ``labels`` labelled texts, stratified, at least one of each class among those that learn; None: all there are.

    With ``holdout`` a fifth of them comes from the validation split, or all of that split if it is smaller. Otherwise all come from
    the training split. Raises ``DataError`` if there are fewer labels than classes, fewer texts than labels, or no validation texts
    for a holdout.
    """
    if selection == "holdout" and not len(task.validation):
        raise DataError(
            f"selection by holdout needs validation texts, but '{task.name}' has none; write 'validation: 0.1' into its manifest, "
            "or use another --selection"
        )
    classes, held_out = strata(task.train.labels), NO_TEXTS
    if labels is None:
        all_texts = np.arange(len(task.validation)) if selection == "holdout" else NO_TEXTS
        return LabelBudget(task, np.arange(len(task.train)), all_texts, seed)
    if selection == "holdout":
        count = min(len(task.validation), max(1, round(HOLDOUT_SHARE * labels)))
        whole = count == len(task.validation)
        held_out = np.arange(count) if whole else stratified_split(strata(task.validation.labels), count, seed)[1]
    learning, least, most = labels - len(held_out), len(np.unique(classes)), len(task.train)
    if learning < least:
        need = f"one label of each of the {least} classes must learn"
        raise DataError(f"{need}, but of {labels} labels only {learning} would; use more labels")
    if learning > most:
        raise DataError(f"there are {most:,} training texts, but {learning:,} labels should learn; use fewer labels")
    return LabelBudget(task, stratified_sample(classes, learning, seed), held_out, seed)
