"""The scikit-learn face: raw strings in, labels out.

    ws.TextClassifier("runs/lm", scheme="lp-ft").fit(texts, labels).predict_proba(texts)

A ``TextClassifier`` is a classifier as scikit-learn means it: clone, pipelines, grid search, cross-validation and whatever takes
a classifier take it too. It swaps the backbone's head, holds out a share of the texts to choose the kept weights by, and keeps the
best of its seeds. A ``TextEncoder`` gives the backbone's pooled states, for any other estimator. Nothing is pickled when it is
saved: it is a bundle.

Letters: N texts, C classes, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from warmstart.data import Split, Task, stratified
from warmstart.errors import DataError, ModelError
from warmstart.evaluate import predict
from warmstart.evaluate.predict import encode_for
from warmstart.heads import POOLINGS, ClassifyHeadConfig
from warmstart.model import Bundle, load, save, swap_head
from warmstart.schemes import Language
from warmstart.schemes.features import pooled_layers
from warmstart.workflows.adapt import task_model
from warmstart.workflows.finetune import FineTuneConfig, FineTuned, Splits, fine_tune
from warmstart.workflows.run import find_bundle


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A backbone fine-tuned on labelled texts.

    - ``backbone``: a bundle, or the folder of one or of a run
    - ``scheme``: how it adapts ("full", "lp-ft", "lora+mix" …)
    - ``learning_rate``, ``epochs``, ``batch``: of a run; without ``epochs`` it is ten, and at least 200 steps
    - ``pooling``: which state of a text the head reads
    - ``validation``: the share of the texts that chooses the kept weights; it is not trained on
    - ``seeds``: so many runs, of which the one that is best on validation is kept; ``random_state`` is the first seed
    - ``settings``: any other field of ``FineTuneConfig``, as nested dictionaries

    After ``fit``: ``classes_`` (C,), ``bundle_``, ``validation_scores_`` (accuracy of each seed).
    """

    def __init__(
        self,
        backbone: str | Path | Bundle = "",
        *,
        scheme: str = "full",
        learning_rate: float = 5e-4,
        epochs: float | None = None,
        batch: int = 16,
        pooling: str = "mean",
        validation: float = 0.1,
        seeds: int = 1,
        random_state: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = backbone
        self.scheme = scheme
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch = batch
        self.pooling = pooling
        self.validation = validation
        self.seeds = seeds
        self.random_state = random_state
        self.settings = settings

    def fit(self, texts: Sequence[str], y: Sequence[Any]) -> TextClassifier:
        """Fine-tune on N texts with their labels, of any type that can be sorted. Raises ``DataError`` for what is no text."""
        texts, labels = as_texts(texts), np.asarray(y)
        check_classification_targets(labels)
        if len(texts) != len(labels):
            raise DataError(f"each text needs one label, but {len(texts)} texts and {len(labels)} labels came")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"at least two classes are needed, but every label is {self.classes_[0]!r}")
        origin, config = as_bundle(self.backbone), self._config()
        task = _task(texts, numbers.astype(np.int64), [str(name) for name in self.classes_], self.validation, self.random_state)
        runs = [self._run(origin, task, config, seed) for seed in range(self.random_state, self.random_state + self.seeds)]
        best = max(runs, key=lambda run: run.validation)
        self.validation_scores_ = np.array([run.validation for run in runs])
        entry = {"command": "TextClassifier", "tune": config.plain(), "seed": best.seed, "task": task.summary()}
        self.bundle_ = Bundle(best.model, origin.tokenizer, task.labels, (*origin.history, entry))
        return self

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """(N, C) probabilities, columns in the order of ``classes_``."""
        check_is_fitted(self)
        return predict(self.bundle_, as_texts(texts))

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) the likeliest class of each text."""
        return self.classes_[self.predict_proba(texts).argmax(axis=1)]

    def save(self, folder: str | Path) -> Path:
        """Keep the fitted model as a bundle; every command and ``TextClassifier.load`` read it."""
        check_is_fitted(self)
        return save(self.bundle_, folder)

    @classmethod
    def load(cls, folder: str | Path) -> TextClassifier:
        """A fitted classifier from a bundle or a run's folder, ``warmstart adapt``'s too; its classes are names."""
        bundle = load(find_bundle(folder))
        if not bundle.labels:
            raise ModelError(f"a model that gives labels is needed, but {folder} has a {bundle.model.head.config.kind} head")
        made = cls(str(folder))
        made.bundle_, made.classes_ = bundle, np.array(bundle.labels)
        made.validation_scores_ = np.array([])
        return made

    def _config(self) -> FineTuneConfig:
        given = dict(self.settings or {})
        train = FineTuneConfig().train.plain() | {
            "learning_rate": self.learning_rate, "epochs": self.epochs, "batch": self.batch,
        } | given.pop("train", {})  # fmt: skip
        return FineTuneConfig.build({"scheme": self.scheme, "pooling": self.pooling, "train": train, **given}, "TextClassifier")

    def _run(self, origin: Bundle, task: Task, config: FineTuneConfig, seed: int) -> FineTuned:
        model = task_model(origin, task, config, seed, scratch=False)
        splits = Splits.of(task, model, origin.tokenizer)
        return fine_tune(model, splits, config, seed, "", Language.of(origin))

    def __sklearn_tags__(self) -> Any:
        """Texts, not tables of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags = replace(tags.input_tags, string=True, two_d_array=False, one_d_array=True)
        return tags


class TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to the pooled states of a frozen backbone: what another estimator can learn from.

    ``layer``: -1 for what heads read, 0 for the embedding, up to L for the sum after the last block.
    """

    def __init__(self, backbone: str | Path | Bundle = "", *, pooling: str = "mean", layer: int = -1) -> None:
        self.backbone = backbone
        self.pooling = pooling
        self.layer = layer

    def fit(self, texts: Sequence[str], y: Any = None) -> TextEncoder:
        """Load the backbone; the texts teach it nothing."""
        bundle = as_bundle(self.backbone)
        depth = bundle.model.backbone.config.depth
        if not -1 <= self.layer <= depth:
            raise ModelError(f"the layer must lie in -1..{depth}, but is {self.layer}")
        head = ClassifyHeadConfig(classes=2, pooling=POOLINGS.known(self.pooling))  # its scores are not read
        self.reader_ = Bundle(swap_head(bundle.model, head, 0), bundle.tokenizer, ("0", "1"))
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D) float32."""
        check_is_fitted(self)
        model, tokenizer = self.reader_.model, self.reader_.tokenizer
        found = pooled_layers(model, encode_for(model, tokenizer, as_texts(texts)), tokenizer.specials.pad)
        return found[:, self.layer].numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """``state0`` … as other transformers of scikit-learn name theirs."""
        check_is_fitted(self)
        return np.array([f"state{i}" for i in range(self.reader_.model.backbone.config.width)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Texts, not tables of numbers; nothing is learned."""
        tags = super().__sklearn_tags__()
        tags.input_tags = replace(tags.input_tags, string=True, two_d_array=False, one_d_array=True)
        tags.requires_fit = True
        return tags


def as_texts(texts: Any) -> list[str]:
    """A sequence of strings as a list; raises ``DataError`` where it is one string, or holds what is no text."""
    if isinstance(texts, str | bytes):
        raise DataError("a list of texts is needed, but one text came; write [text]")
    flat = list(np.asarray(texts, dtype=object).ravel()) if np.ndim(texts) < 2 else None
    if flat is None:
        raise DataError(f"a flat list of texts is needed, but an array of shape {np.shape(texts)} came; give one column")
    if strange := [text for text in flat if not isinstance(text, str)]:
        raise DataError(f"every text must be a string, but {strange[0]!r} came")
    if not flat:
        raise DataError("at least one text is needed, but none came")
    return [str(text) for text in flat]


def as_bundle(backbone: str | Path | Bundle) -> Bundle:
    """The bundle itself, or the one in a folder."""
    return backbone if isinstance(backbone, Bundle) else load(find_bundle(backbone))


def _task(texts: list[str], labels: np.ndarray, names: list[str], share: float, seed: int) -> Task:
    """The texts cut into what trains and what chooses. Nothing is tested: what chooses stands in for a test split, unreported."""
    kept, held_out = stratified(labels, share, seed)
    whole = Split(tuple(texts), labels)
    return Task("texts", tuple(names), whole.take(kept), whole.take(held_out), whole.take(held_out))
