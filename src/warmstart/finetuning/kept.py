"""Fine-tuning as a step of a longer run: what is finished is read back instead of being repeated.

Of the weights only those that training changed are kept: the others are those of the model that the step began with, which is made
again from the same bundle and seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from torch import Tensor

from warmstart.finetuning.finetune import FineTuneResult, FineTuning
from warmstart.model.model import Model
from warmstart.runs.run import Run
from warmstart.training.loop import TrainOutput


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
