"""A bundle's history: typed records that survive JSON, and entries of older formats that become records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.bundles import language_bundle
from warmstart.data.text_hashes import TextHashes
from warmstart.errors import ConfigError, ModelError
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle
from warmstart.model.history import (
    RECORDS,
    AdaptRecord,
    AnswersRecord,
    ComparisonRecord,
    ContinualRecord,
    ContinuedPretrainingRecord,
    DomainRecord,
    ImportLoraRecord,
    ImportRecord,
    MethodRecord,
    MultitaskRecord,
    OtherRecord,
    PretrainRecord,
    Provenance,
    PruneRecord,
    Record,
    ScoresRecord,
    StageEvaluation,
    TaskRecord,
    ZeroShotRecord,
    read_record,
    seen_labels,
)
from warmstart.model.old_formats import TASK_TYPE_NAMES, record_from_entry
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer

FORMAT_1 = Path(__file__).parent / "bundles" / "format_1"
ORIGIN = Provenance(command="warmstart x", machine="a laptop", date="2026-11-22", warmstart="0.1.0")
TEXTS = TextHashes.of(["a text", ["two", "parts"]], [0, 1])
TASK = TaskRecord(
    name="topics", type="classification", metric="accuracy", labels=("a", "b"), train=8, validation=2, test=4,
    splits={"train": TEXTS}, labelled=TEXTS,
)  # fmt: skip
COMPARISON = ComparisonRecord(
    metric="accuracy", methods=(MethodRecord(name="full", scores=(0.5, 1.0), mean=0.75, low=0.0, high=1.0),)
)
MASKED = ObjectiveConfig(name="masked", mask_rate=0.3)
EVALUATION = StageEvaluation(stage="before", loss=2.5, probe_accuracy=0.5, standard_error=0.0, seconds=0.0)
RECORD_CASES: dict[str, Record] = {
    "pretrain": PretrainRecord(
        objective=MASKED,
        seed=1,
        tokens=9,
        seconds=0.5,
        held_out={"loss": 1.5},
        provenance=ORIGIN,
        domain=DomainRecord(task="topics", texts=9, left_out=2, passages=5, labels=4),
    ),
    "continued_pretraining": ContinuedPretrainingRecord(
        objective=MASKED, task="topics", texts=9, evaluations=(EVALUATION,), kept=True, decision="It helps.", seed=0
    ),
    "adapt": AdaptRecord(task=TASK, seed=0, comparison=COMPARISON, test=ScoresRecord.of({"accuracy": 0.5, "note": "few"})),
    "zero_shot": ZeroShotRecord(meanings={"a": "apples", "b": "b"}),
    "answers": AnswersRecord(task=TASK, seed=0, max_answer_tokens=5, held_out_answers=((0.5, True), (0.25, False))),
    "continual": ContinualRecord(strategy="replay", tasks=("topics", "moods"), task=TASK, seed=0, scores=((0.5,), (0.25, 0.5))),
    "multitask": MultitaskRecord(tasks=("topics", "moods"), task=TASK, seed=0),
    "prune": PruneRecord(kept_heads=((0, 2), (1, 3)), replacement="zero", generates=True),
    "import": ImportRecord(family="gpt2", config={"n_embd": 8}, source="folder", generates=True),
    "import_lora": ImportLoraRecord(source="folder", lora={"rank": 4}),
    "other": OtherRecord(name="mine", details={"anything": [1, None]}),
}


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_survives_json(name: str) -> None:
    """A record that is written to JSON and read back equals itself."""
    record = RECORD_CASES[name]
    again = read_record(json.loads(json.dumps(record.to_dict())))
    assert again == record
    assert type(again) is RECORDS[name]


def test_an_unknown_type_of_record_is_refused_by_name() -> None:
    """The error names the type and the known ones."""
    with pytest.raises(ConfigError, match=r"unknown record of a bundle's history 'adpat'; did you mean 'adapt'\?"):
        read_record({"type": "adpat"})


def test_a_history_of_plain_dictionaries_is_refused(tokenizer: Tokenizer) -> None:
    """The error says what holds anything that no record fits."""
    with pytest.raises(ModelError, match=r"OtherRecord\(name=\.\.\., details=\{\.\.\.\}\) holds anything"):
        replace(language_bundle(tokenizer), history=({"command": "mine"},))


def test_labels_seen_before_are_known(tokenizer: Tokenizer) -> None:
    """Labels of a task, of several tasks, and answers count; text read without its labels does not."""

    def after(name: str) -> Bundle:
        return replace(language_bundle(tokenizer), history=(PretrainRecord(), RECORD_CASES[name]))

    assert all(seen_labels(after(name), "topics") for name in ("adapt", "answers", "continual", "multitask"))
    assert seen_labels(after("continual"), "moods")
    assert not seen_labels(after("continued_pretraining"), "topics")
    assert not seen_labels(after("adapt"), "moods")


OLD_ENTRIES: dict[str, tuple[dict[str, Any], Record]] = {
    "estimator": (
        {"command": "TextClassifier", "tune": {"scheme": "full"}, "seed": 3, "task": {"name": "t", "kind": "label", "train": 9}},
        AdaptRecord(
            estimator="TextClassifier",
            settings={"scheme": "full"},
            seed=3,
            task=TaskRecord(name="t", type="classification", train=9),
        ),
    ),
    "prune": (
        {"command": "study ablate", "kept_heads": [[0], [1]], "by": "zero", "generates": False, "objective": {"name": "masked"}},
        PruneRecord(kept_heads=((0,), (1,)), replacement="zero", objective=ObjectiveConfig(name="masked")),
    ),
    "multitask": (
        {"command": "multitask", "tasks": ["a", "b"], "seed": 0, "task": {"name": "a", "train": 2}},
        MultitaskRecord(tasks=("a", "b"), seed=0, task=TaskRecord(name="a", train=2)),
    ),
    "import": (
        {"command": "import", "family": "gpt2", "config": {"n_embd": 8}, "generates": True, "source": "x"},
        ImportRecord(family="gpt2", config={"n_embd": 8}, generates=True, source="x"),
    ),
    "LoRA": (
        {"command": "import", "source": "x", "lora": {"rank": 2}, "family": "gpt2", "config": {}, "generates": True},
        ImportLoraRecord(source="x", lora={"rank": 2}, generates=True),
    ),
    "made by hand": (
        {"generates": True, "objective": {"name": "causal"}, "note": "mine"},
        OtherRecord(name="made by hand", details={"note": "mine"}, generates=True, objective=ObjectiveConfig(name="causal")),
    ),
}


@pytest.mark.parametrize("name", OLD_ENTRIES)
def test_an_entry_of_format_1_becomes_a_record(name: str) -> None:
    """Each in the type that its command has now, under the present names."""
    entry, record = OLD_ENTRIES[name]
    assert read_record(record_from_entry(entry)) == record


@pytest.mark.parametrize("place", sorted(place.parent.name for place in FORMAT_1.glob("*/bundle.json")))
def test_nothing_of_an_old_history_is_lost(place: str) -> None:
    """Every value of a saved history of format 1 is found in its record, whatever its key is called now."""
    entries = json.loads((FORMAT_1 / place / "bundle.json").read_text())["history"]
    for entry, record in zip(entries, load_bundle(FORMAT_1 / place).history, strict=True):
        old = leaves({key: value for key, value in entry.items() if key != "command"})
        assert {TASK_TYPE_NAMES.get(value, value) for value in old} <= leaves(record.to_dict())


def leaves(values: Any) -> set[str]:
    """All the plain values in nested lists and mappings."""
    if isinstance(values, dict):
        values = list(values.values())
    return set().union(*map(leaves, values)) if isinstance(values, list) else {str(values)}
