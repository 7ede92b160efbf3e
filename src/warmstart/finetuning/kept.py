"""Fine-tuning runs as parts of a longer one: a run that is finished is kept, and read back instead of being repeated.

Of the weights only those that training changed are kept: the others are those of the model that the run began with, which is made
again from the same bundle and seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from warmstart.finetuning.finetune import FineTuneResult, FineTuning
from warmstart.model.model import Model
from warmstart.runs.parts import Parts, Workplace
from warmstart.training.loop import TrainOutput

_SECONDS, _WEIGHTS = "wall_seconds", "weights"


def kept_fine_tuning(
    run: FineTuning, make_model: Callable[[], Model], parts: Parts | None, *, weights: bool = True
) -> tuple[FineTuneResult, float]:
    """The result of a run on a model that ``make_model`` makes, and the seconds that it took; read from ``parts`` if it is there.

    Its title is the name of the part. Without ``weights`` a result that is read back has an untrained model.
    """
    if parts is None:
        return _timed(run, make_model())
    new: list[FineTuneResult] = []

    def make(workplace: Workplace) -> dict[str, Any]:
        result, seconds = _timed(replace(run, workplace=workplace), make_model())
        new.append(result)
        values = {field.name: getattr(result, field.name) for field in fields(result) if field.name != "model"}
        changed = changed_weights(result.model, _prepared(run, make_model())) if weights else {}
        return values | {"training": asdict(result.training), _WEIGHTS: changed, _SECONDS: seconds}

    values = parts.kept(run.title, make)
    seconds = values.pop(_SECONDS)
    if new:
        return new[0], seconds
    model = _prepared(run, make_model())
    load_changed(model, values.pop(_WEIGHTS))
    return FineTuneResult(**values | {"model": model.eval(), "training": TrainOutput(**values["training"])}), seconds


def changed_weights(model: Model, origin: Model) -> dict[str, Any]:
    """The tensors of a model that differ from those of the one that it began with, by name."""
    before = origin.weights()
    return {name: tensor for name, tensor in model.weights().items() if not tensor.equal(before[name])}


def load_changed(model: Model, weights: dict[str, Any]) -> None:
    """Give a model that a run begins with the weights at its end."""
    found = model.load_state_dict(weights, strict=False)
    assert not found.unexpected_keys, f"no such weights: {found.unexpected_keys}"


def _prepared(run: FineTuning, model: Model) -> Model:
    """A model as the run begins with it, on the processor."""
    run.prepare(model)
    if run.scheme.language_weight:
        del model.language
    return model


def _timed(run: FineTuning, model: Model) -> tuple[FineTuneResult, float]:
    """The result of a run, and its seconds, with those of the processes that it was begun in; not those of reading features."""
    features = run.encoded.features
    started, read = time.perf_counter(), features.seconds_read
    result = run.run(model)
    return result, max(time.perf_counter() - started - (features.seconds_read - read), result.training.seconds)
