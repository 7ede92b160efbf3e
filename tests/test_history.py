"""A bundle's history: typed records that survive JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from helpers.bundles import language_bundle
from warmstart.data.text_hashes import TextHashes
from warmstart.errors import ConfigError, ModelError
from warmstart.model.bundle import Bundle
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
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer

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
