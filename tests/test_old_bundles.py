"""Bundles that older versions saved still load, reproduce their stored outputs, and predict what they predicted then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import warmstart as ws
from warmstart.model.files import load_bundle
from warmstart.tasks.answers import answer_questions
from warmstart.tasks.predict import predict

OLD = Path(__file__).parent / "bundles" / "format_1"
PREDICTED = json.loads((OLD / "predictions.json").read_text())
NAMES = sorted(place.name for place in OLD.iterdir() if place.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_an_old_bundle_loads_and_reproduces_itself(name: str) -> None:
    """Every hash, tensor and stored output holds."""
    bundle = load_bundle(OLD / name, selftest=True)
    assert bundle.history
    assert ("predictions" in PREDICTED.get(name, {})) or name == "masked"


def same(one: Any, other: Any) -> bool:
    """Equal values; numbers within rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == pytest.approx(other, abs=2e-3)) if isinstance(one, float) else bool(one == other)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("masked", "answers", "causal")])
def test_an_old_bundle_predicts_what_it_predicted(name: str) -> None:
    """Whatever the task type."""
    texts = [tuple(text) if isinstance(text, list) else text for text in PREDICTED[name]["texts"]]
    assert same(list(predict(load_bundle(OLD / name), texts)), PREDICTED[name]["predictions"])


def test_an_old_language_model_generates_and_answers() -> None:
    """Greedily, the same text; and the same answers with the same confidence."""
    generated = ws.generate(
        load_bundle(OLD / "causal"), PREDICTED["causal"]["texts"], ws.GenerateConfig(max_new_tokens=8, greedy=True)
    )
    assert generated == PREDICTED["causal"]["predictions"]
    found = [
        {"answer": one.text, "confidence": one.confidence}
        for one in answer_questions(load_bundle(OLD / "answers"), PREDICTED["answers"]["texts"])
    ]
    assert same(found, PREDICTED["answers"]["predictions"])
