"""How well the labels of a budget can be read from the frozen features of a model: what decides whether pretraining helps.

A logistic regression on the features of the last layer; with cross-validation one for each fold, so that every text that chooses is
classified by one that did not learn from it. Letters: N texts that choose.
"""

from __future__ import annotations

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from warmstart.data.budget import LabelBudget
from warmstart.finetuning.features import pooled_layers
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.model.model import Model, swap_head
from warmstart.tasks import TASK_TYPES
from warmstart.tokenizer.tokenizer import Tokenizer

PROBE_TEXTS = 2000
"""training texts that the probe reads at most"""


class FrozenProbe:
    """Always the same probe, for a task with one label per text."""

    def __init__(self, tokenizer: Tokenizer, budget: LabelBudget) -> None:
        self.tokenizer, self.budget = tokenizer, budget
        self.learn = [np.sort(np.random.default_rng(0).permutation(fold.learn)[:PROBE_TEXTS]) for fold in budget.folds]
        """indices of the training texts that the probe of each fold learns from"""

    def correct(self, model: Model) -> np.ndarray:
        """(N,) 1 for each text that chooses if the probe classifies it correctly, else 0. The model is not changed."""
        reader = swap_head(model, ClassificationHeadConfig(classes=2), 0)  # only its pooling is used
        task_type, pad_id, splits = TASK_TYPES["classification"], self.tokenizer.specials.pad, self.budget.whole.splits()

        def features(split: str, indices: np.ndarray) -> np.ndarray:
            encoded = task_type.encode(reader, self.tokenizer, splits[split].take(indices).texts)
            return pooled_layers(reader, encoded, pad_id)[:, -1].numpy()

        read = np.unique(np.concatenate([*self.learn, *(fold.choose for fold in self.budget.folds if fold.of == "train")]))
        train, correct = features("train", read), list[np.ndarray]()
        for fold, learn in zip(self.budget.folds, self.learn, strict=True):
            labels, rows = splits["train"].labels[learn], train[np.searchsorted(read, learn)]
            chosen = train[np.searchsorted(read, fold.choose)] if fold.of == "train" else features(fold.of, fold.choose)
            probe = LogisticRegression(C=0.1, max_iter=1000) if len(np.unique(labels)) > 1 else DummyClassifier()
            predicted = make_pipeline(StandardScaler(), probe).fit(rows, labels).predict(chosen)
            correct.append(np.asarray(predicted == splits[fold.of].labels[fold.choose], dtype=float))
        joined: np.ndarray = self.budget.joined(correct)
        return joined

    def majority_correct(self) -> np.ndarray:
        """(N,) the same for the most frequent label of the texts that learn."""
        splits, correct = self.budget.whole.splits(), list[np.ndarray]()
        for fold, learn in zip(self.budget.folds, self.learn, strict=True):
            most = np.bincount(splits["train"].labels[learn]).argmax()
            correct.append(np.asarray(splits[fold.of].labels[fold.choose] == most, dtype=float))
        joined: np.ndarray = self.budget.joined(correct)
        return joined
