"""The restarts of a served model that ``adapt`` trained with several seeds: the scores of each, as the model's record has them."""

from __future__ import annotations

from typing import Any

from warmstart.finetuning.runs import DISTILLED, PRETRAINED, SCRATCH
from warmstart.model.bundle import Bundle
from warmstart.model.history import AdaptRecord
from warmstart.stack.stack import Stack


def restarts_of(model: Bundle | Stack) -> dict[str, Any] | None:
    """The task, and for each trained method the scores of its runs, in the order of their seeds; None for a single run.

    ``saved`` is the place of the saved run among those of the first method; None if that is an average of them. ``validation`` are
    the scores on the texts that chose, None if none did.
    """
    record = next((one for one in reversed(model.history) if isinstance(one, AdaptRecord)), None)
    if record is None or record.comparison is None or len(record.comparison.methods[0].scores) < 2:
        return None
    saved = _saved_run(record)
    trained = [one for one in record.comparison.methods if one.name in (PRETRAINED, DISTILLED, SCRATCH)]
    return {
        "task": record.task.name,
        "metric": record.comparison.metric,
        "test_texts": record.task.test,
        "seeds": None if saved is None else [record.seed - saved + i for i in range(len(record.comparison.methods[0].scores))],
        "saved": saved,
        "methods": [
            {"method": one.name, "test": list(one.scores), "validation": _validation(record, one.name, len(one.scores))}
            for one in trained
        ],
    }


def _validation(record: AdaptRecord, name: str, runs: int) -> list[float] | None:
    found = record.validation.get(name, ())
    return list(found) if len(found) == runs else None


def _saved_run(record: AdaptRecord) -> int | None:
    """The place of the saved run: the best on the texts that choose, or the first; None unless it has the saved model's score."""
    assert record.comparison is not None
    first = record.comparison.methods[0]
    validation = record.validation.get(first.name, ())
    place = validation.index(max(validation)) if record.chosen and len(validation) == len(first.scores) else 0
    score = record.test.figures.get(record.comparison.metric) if record.test else None
    return place if score == first.scores[place] else None
