"""What the estimators that train share: a backbone, a scheme, several seeds, and the best run.

Letters: N texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from warmstart.data.budget import label_budget, labels_sentence
from warmstart.data.pool import pool_unlike
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.data.text_key import plain_text
from warmstart.errors import ConfigError, ModelError
from warmstart.estimators.texts import as_bundle, as_texts, text_tags
from warmstart.finetuning.calibration import fitted_calibration
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.further import continue_pretraining
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.runs import PRETRAINED, best_run
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.heads.settings import WindowPooling
from warmstart.model.bundle import Bundle
from warmstart.model.files import find_bundle, load_bundle, save
from warmstart.model.history import AdaptRecord, TaskRecord
from warmstart.model.model import swap_head
from warmstart.tasks import task_type_for, task_type_of
from warmstart.types import SelectionName

Self = TypeVar("Self", bound="Adapted")


class Adapted(BaseEstimator):  # type: ignore[misc]
    """A backbone fine-tuned on labelled texts.

    - ``backbone``: a bundle, or the folder of one or of a run, or ``hf:FOLDER``
    - ``scheme``: how it is adapted ("full", "lp-ft", "lora+scalar-mix" …)
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
    """what chooses the kept weights and the kept run"""

    def __init__(
        self,
        backbone: str | Path | Bundle = "",
        *,
        scheme: str = "full",
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
        made = cls(**_settings_of(bundle))
        made.bundle_, made.validation_scores_ = bundle, np.array([])
        if bundle.labels:
            made.classes_ = np.array(bundle.labels)
        return made

    def __sklearn_tags__(self) -> Any:
        """Texts, not tables of numbers."""
        return text_tags(super().__sklearn_tags__())

    def _learn(self, examples: Split, labels: tuple[str, ...], unlabelled: Sequence[str] | None = None) -> None:
        """Fit: hold out validation texts if these choose, continue pretraining if requested, run every seed, keep the best."""
        if self.backbone == "":
            raise ConfigError(
                f"{type(self).__name__} must be trained from a backbone, but has none (a loaded one has none: its weights have "
                'seen the labels); name the pretrained model: set_params(backbone="FOLDER")'
            )
        origin, config, first = as_bundle(self.backbone), self._config(), self._first_seed()
        task = self._task(examples, labels, first)
        budgets = [label_budget(task, None, self.selection, seed) for seed in range(first, first + self.seeds)]
        if unlabelled is not None or make_scheme(config.scheme, config.options).continued_pretraining:
            more = as_texts(unlabelled) if unlabelled is not None else []
            texts = (*map(plain_text, task.train.texts), *map(plain_text, more))
            text = pool_unlike(texts, tuple(map(plain_text, task.validation.texts)))
            origin = continue_pretraining(origin, budgets[0], config.options, text)
        reader = swap_head(origin.model, head_config_for(task, config), first)
        encoded, choice = EncodedTask.of(task, reader, origin.tokenizer), SelectionSettings(self.selection)
        runs = [fine_tune_within(origin, encoded, budget, config, choice) for budget in budgets]
        best = best_run({PRETRAINED: tuple(runs)})
        self.validation_scores_ = np.array([run.validation_score for run in runs])
        record = AdaptRecord(
            estimator=type(self).__name__,
            task=TaskRecord.of(task, task),
            settings=config.to_dict(),
            seed=best.seed,
            budget=(labels_sentence(budgets[0], self.selection),),
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

    def _config(self) -> FineTuneConfig:
        given = dict(self.settings or {})
        train = FineTuneConfig().train.to_dict() | {
            "learning_rate": self.learning_rate, "epochs": self.epochs, "batch": self.batch,
        } | given.pop("train", {})  # fmt: skip
        named = {"scheme": self.scheme, "pooling": self.pooling, "windows": self.windows, "train": train}
        return FineTuneConfig.build({**named, **given}, type(self).__name__)


def _settings_of(bundle: Bundle) -> dict[str, Any]:
    """What an estimator is made with, from the settings of the run that trained a model; defaults for any other model."""
    record = next((one for one in reversed(bundle.history) if isinstance(one, AdaptRecord)), None)
    if record is None or not record.settings:
        return {}
    config = FineTuneConfig.build(record.settings)
    named = {name: getattr(config, name) for name in ("scheme", "pooling", "windows")}
    return (
        named | {name: getattr(config.train, name) for name in ("learning_rate", "epochs", "batch")} | {"random_state": record.seed}
    )
