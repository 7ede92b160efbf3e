"""Fine-tuning within a label budget: what is chosen (the learning rate, the length of the run) is chosen by labels of the budget.

    cross-validation   each learning rate trains a model per fold, which predicts the texts of its fold; the rate with the best
                       out-of-fold score wins, and a last model learns from all texts, for as long as was best in the folds
    holdout            each learning rate trains one model, whose best weights on the texts set apart are kept; the best model wins
    none               one model with the settings as they are

A fold's model predicts with its last weights, because the best ones on the texts that are scored would flatter the score. The test
texts are read once, by the last model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from warmstart.data.budget import LabelBudget
from warmstart.errors import DivergedError
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import FineTuneResult, FineTuning, check_patience, predict_test, run_length, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.runs.run import UNKEPT, Run
from warmstart.system.device import pick_device
from warmstart.tasks.thresholds import scores_left_out
from warmstart.training.config import TrainConfig
from warmstart.training.loop import TrainOutput
from warmstart.types import SelectionName


def kept_fine_tuning(
    tuning: FineTuning, make_model: Callable[[], Model], run: Run, *, weights: bool = True
) -> tuple[FineTuneResult, float]:
    """The result of fine-tuning a model that ``make_model`` makes, a step of ``run`` named by its title, and its seconds.

    Without ``weights`` a result that is read back has an untrained model.
    """
    if run.place is None:
        return _timed(tuning, make_model())
    new: list[FineTuneResult] = []

    def make(step: Run) -> tuple[dict[str, Any], dict[str, Tensor], float]:
        result, seconds = _timed(replace(tuning, workplace=step.place), make_model())
        new.append(result)
        before = _prepared(tuning, make_model()).weights() if weights else {}
        changed = {name: one for name, one in result.model.weights().items() if weights and not one.equal(before[name])}
        values = {field.name: getattr(result, field.name) for field in fields(result) if field.name != "model"}
        return values | {"training": asdict(result.training)}, changed, seconds

    values, changed, seconds = run.step(tuning.title, make)
    if new:
        return new[0], seconds
    model = _prepared(tuning, make_model())
    assert not model.load_state_dict(changed, strict=False).unexpected_keys, "the model is made as it was"
    return FineTuneResult(**values | {"model": model.eval(), "training": TrainOutput(**values["training"])}), seconds


def _prepared(tuning: FineTuning, model: Model) -> Model:
    """A model as fine-tuning begins with it, on the processor."""
    tuning.prepare(model)
    if tuning.scheme.language_weight:
        del model.language
    return model


def _timed(tuning: FineTuning, model: Model) -> tuple[FineTuneResult, float]:
    """The result of a run, and its seconds, with those of the processes that it was begun in; not those of reading features."""
    features = tuning.encoded.features
    started, read = time.perf_counter(), features.seconds_read
    result = tuning.run(model)
    return result, max(time.perf_counter() - started - (features.seconds_read - read), result.training.seconds)


Curve = tuple[tuple[int, float], ...]
"""(step, score) of every evaluation"""


@dataclass(frozen=True)
class SelectionSettings:
    """The texts that choose, and the learning rates to choose from."""

    selection: SelectionName = "holdout"
    rates: tuple[float, ...] = ()
    """learning rates of AdamW; empty, or with ``none``: the configured one"""
    choose: bool = False
    """predict the texts out of fold with ``none``, too, to choose between methods"""
    title: str = ""
    """title of the progress bars; empty: no bars"""
    run: Run = UNKEPT
    """run that has each training run as a step, named by its title"""
    events: Path | None = None
    """the folder where TensorBoard finds each training run that is kept"""
    after_fold: Callable[[Sequence[Any], float], None] | None = None
    """told the predictions of the folds so far and their seconds; may raise to end the run"""
    last: bool = True
    """a last model learns from all texts; else that of the last fold stands for it"""


@dataclass(frozen=True)
class BudgetedRun:
    """A model that was fine-tuned within a label budget, and what chose its settings."""

    final: FineTuneResult
    """the last model, with its predictions for the test split"""
    choosing: Any
    """predictions for ``budget.choosing``: out of fold, or of the last model for texts set apart; None if nothing was to choose"""
    learning_rate: float
    """the chosen one"""
    tried: Mapping[float, float]
    """learning rate -> the metric on ``budget.choosing``"""
    diverged: tuple[float, ...]
    """learning rates at which the loss of some fold diverged"""
    epochs: float
    """passes of the last model over its texts"""
    selection_seconds: float
    """wall time of all but the last model, without reading features of texts"""
    reading_seconds: float
    """seconds of reading them once, now or in an earlier run"""
    curve: Curve
    """the metric on the texts that choose at every evaluation; with folds, their mean"""

    @property
    def seed(self) -> int:
        """The seed of the last model, and of the budget."""
        return self.final.seed

    @property
    def seconds(self) -> float:
        """Seconds of reading features, of the last model's training and of everything that chose."""
        return self.reading_seconds + self.final.training.seconds + self.selection_seconds

    @property
    def validation_score(self) -> float:
        """The metric on ``budget.choosing`` at the chosen learning rate; nan if nothing was to choose."""
        return self.tried.get(self.learning_rate, math.nan)


def fine_tune_within(
    bundle: Bundle,
    encoded: EncodedTask,
    budget: LabelBudget,
    config: FineTuneConfig,
    choice: SelectionSettings = SelectionSettings(),
    *,
    scratch: bool = False,
) -> BudgetedRun:
    """Choose the settings and train the last model, all within the budget and by its seed; ``encoded`` is the whole task.

    Nothing is encoded again, and features of a frozen backbone are shared. Raises ``DivergedError`` if the loss diverges at every
    learning rate, ``DataError`` if there are too few texts for folds.
    """
    assert (choice.selection == "holdout") != budget.cross_validated, "a budget with texts set apart is for selection by holdout"
    check_patience(budget.task, config)
    return _Selection(bundle, encoded, budget, config, choice, scratch).run()


def best_rate(tried: Mapping[float, float], default_rate: float) -> float:
    """The learning rate with the highest score; of equals, the one nearest to ``default_rate``, by their ratio."""
    return max(tried, key=lambda rate: (tried[rate], -abs(math.log(rate / default_rate))))


@dataclass(frozen=True)
class _Tried:
    """The scores of one learning rate on the texts that choose."""

    choosing: Any
    score: float
    curves: tuple[Curve, ...]
    """curve of each fold"""
    last: FineTuneResult
    """result of the last fold; with several, its model may be untrained"""
    seconds: float


@dataclass(frozen=True)
class _Selection:
    """One call of ``fine_tune_within``."""

    bundle: Bundle
    encoded: EncodedTask
    budget: LabelBudget
    config: FineTuneConfig
    choice: SelectionSettings
    scratch: bool

    def run(self) -> BudgetedRun:
        """Choose, then train the last model; a model that kept its best weights on texts set apart is the last model."""
        default_rate, features = self.config.train.learning_rate, self.encoded.features
        features.begin_count()
        tried, diverged, best, spent = dict[float, float](), list[float](), None, 0.0
        for rate in self._rates():
            began = time.perf_counter() - features.seconds_read
            try:
                found = self._try(rate)
            except DivergedError:
                if len(self._rates()) == 1:
                    raise
                diverged.append(rate)
                spent += time.perf_counter() - features.seconds_read - began
                continue
            tried[rate] = found.score
            spent += found.seconds
            if best_rate(tried, default_rate) == rate:
                best = found
        if diverged and best is None:
            rates = ", ".join(f"{rate:g}" for rate in diverged)
            raise DivergedError(f"the loss must stay finite at one learning rate at least, but diverged at {rates}; try lower ones")
        rate = best_rate(tried, default_rate) if tried else default_rate
        if best is not None and not self.budget.cross_validated:
            final, spent = self._with_test(best.last), spent - best.seconds
        elif best is not None and not self.choice.last:
            final = best.last
        else:
            final, _ = self._fit(self.encoded.within(self.budget), self._last_config(rate, best), "")
        return BudgetedRun(
            final=final,
            choosing=best.choosing if best else None,
            learning_rate=rate,
            tried=tried,
            diverged=tuple(diverged),
            epochs=final.training.steps * self.config.train.accumulate / -(-len(self.budget.train) // self.config.train.batch),
            selection_seconds=spent,
            reading_seconds=features.seconds_read + features.seconds_saved,
            curve=_mean_curve(best.curves) if best else (),
        )

    def _rates(self) -> tuple[float, ...]:
        """The learning rates to try."""
        if self.choice.selection != "none":
            return self.choice.rates or (self.config.train.learning_rate,)
        return (self.config.train.learning_rate,) if self.choice.choose else ()

    @property
    def _chooses_length(self) -> bool:
        """True if the folds choose how long the last model trains."""
        return self.choice.selection == "cross-validation" and self.config.keep == "best"

    def _try(self, rate: float) -> _Tried:
        """Train a model per fold. Raises ``DivergedError`` as soon as one diverges."""
        config, folds = self.config.at_learning_rate(rate), self.budget.folds
        if self.budget.cross_validated:
            every = config.train.evaluate_every if self._chooses_length else NEVER
            train = config.train.model_copy(update={"evaluate_every": every})
            config = config.model_copy(update={"keep": "last", "train": train})
        predictions, curves, seconds = list[Any](), list[Curve](), 0.0
        for number, fold in enumerate(folds, 1):
            name = f", learning rate {rate:g}" * (len(self._rates()) > 1) + f", fold {number} of {len(folds)}" * (len(folds) > 1)
            last, took = self._fit(self.encoded.fold(fold), config, name)
            seconds += took
            predictions.append(last.validation_predictions)
            curves.append(last.curve)
            if self.choice.after_fold:
                self.choice.after_fold(predictions, seconds)
        task, choosing = self.budget.task, self.budget.joined(predictions)
        score = scores_left_out(task, self.budget.choosing, choosing).score(task.metric)
        return _Tried(choosing, score, tuple(curves), last, seconds)

    def _fit(self, part: EncodedTask, config: FineTuneConfig, name: str) -> tuple[FineTuneResult, float]:
        """The result of one run, and the seconds that it took, without the weights of a fold."""
        seed, title = self.budget.seed, self.choice.title
        run = FineTuning(part, config, seed, title and title + name, LanguageTask.of(self.bundle), events=self.choice.events)
        weights = not (name and self.budget.cross_validated)
        make_model = partial(task_model, self.bundle, part.task, config, seed, scratch=self.scratch)
        return kept_fine_tuning(run, make_model, self.choice.run, weights=weights)

    def _last_config(self, rate: float, best: _Tried | None) -> FineTuneConfig:
        """The settings of the last model: as long as the best evaluations of the folds say, of equals the later one."""
        config = self.config.at_learning_rate(rate)
        if best is None or not self._chooses_length:
            return config
        ends = [max(curve, key=lambda one: (one[1], one[0]))[0] / curve[-1][0] for curve in best.curves]
        scheme = make_scheme(config.scheme, config.options)
        steps, _ = run_length(self.encoded.within(self.budget), config.train, scheme)
        return config.model_copy(update={"train": _shortened(config.train, steps, float(np.mean(ends)))})

    def _with_test(self, run: FineTuneResult) -> FineTuneResult:
        model = run.model.to(pick_device())
        predictions = predict_test(model, self.encoded, self.config)
        return replace(run, model=run.model.cpu(), test_predictions=predictions)


NEVER = 1 << 30
"""steps between evaluations of a run that is evaluated at its end only"""


def _shortened(train: TrainConfig, steps: int | None, fraction: float) -> TrainConfig:
    """A fraction of the run of ``steps`` steps, or of its minutes."""
    if steps is None:
        return train.model_copy(update={"minutes": (train.minutes or 0.0) * fraction})
    return train.model_copy(update={"steps": max(1, round(fraction * steps)), "tokens": None, "epochs": None})


def _mean_curve(curves: tuple[Curve, ...]) -> Curve:
    """The mean over folds of each evaluation that all folds have, at the steps of the first."""
    return tuple((points[0][0], float(np.mean([score for _, score in points]))) for points in zip(*curves, strict=False))
