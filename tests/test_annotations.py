"""Exports of programs for labelling, and spaCy's training files, are tasks as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from warmstart.cli import main
from warmstart.data.annotations import annotated_target
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.labelling.reading import read_pool
from warmstart.tasks.load import load_task

TEXTS = ["The cat sat.", "A dog ran.", "No bird sang.", "Ada went to London."]
LABELS = ["cat", "dog", "cat", "dog"]
HASHES = {"_input_hash": 1, "_task_hash": 2}


def studio(text: str, *values: dict[str, Any]) -> dict[str, Any]:
    """A task of Label Studio with one annotation."""
    kind = "labels" if values and "start" in values[0] else "choices"
    results = [{"type": kind, "from_name": "a", "to_name": "text", "value": value} for value in values]
    return {"id": 1, "data": {"text": text}, "annotations": [{"completed_by": 1, "result": results}]}


ONE_LABEL: dict[str, tuple[str, list[Any]]] = {
    "prodigy": ("a.jsonl", [{"text": t, "label": n, "answer": "accept", **HASHES} for t, n in zip(TEXTS, LABELS, strict=True)]),
    "prodigy, choices": (
        "a.jsonl",
        [{"text": t, "options": [], "accept": [n], "answer": "accept", **HASHES} for t, n in zip(TEXTS, LABELS, strict=True)],
    ),
    "doccano": ("a.jsonl", [{"id": 1, "text": t, "label": [n], "Comments": []} for t, n in zip(TEXTS, LABELS, strict=True)]),
    "label studio": ("a.json", [studio(t, {"choices": [n]}) for t, n in zip(TEXTS, LABELS, strict=True)]),
    "spacy": (
        "a.jsonl",
        [{"text": t, "cats": {"cat": float(n == "cat"), "dog": float(n == "dog")}} for t, n in zip(TEXTS, LABELS, strict=True)],
    ),
    "spacy, pairs": (
        "a.jsonl",
        [[t, {"cats": {"cat": n == "cat", "dog": n == "dog"}}] for t, n in zip(TEXTS, LABELS, strict=True)],
    ),
    "spacy, pairs in a list": ("a.json", [[t, {"cats": {n: 1}}] for t, n in zip(TEXTS, LABELS, strict=True)]),
    "spacy, version 2": (
        "a.json",
        [{"id": 0, "paragraphs": [{"raw": t, "cats": [{"label": n, "value": 1.0}]}]} for t, n in zip(TEXTS, LABELS, strict=True)],
    ),
}
SPANS: dict[str, tuple[str, list[Any]]] = {
    "prodigy": ("a.jsonl", [{"text": TEXTS[3], "spans": [{"start": 0, "end": 3, "label": "PER"}], "answer": "accept", **HASHES}]),
    "doccano": ("a.jsonl", [{"id": 1, "text": TEXTS[3], "label": [[0, 3, "PER"]]}]),
    "doccano, entities": (
        "a.jsonl",
        [{"id": 1, "text": TEXTS[3], "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3}], "relations": []}],
    ),
    "label studio": ("a.json", [studio(TEXTS[3], {"start": 0, "end": 3, "text": "Ada", "labels": ["PER"]})]),
    "spacy, pairs": ("a.jsonl", [[TEXTS[3], {"entities": [[0, 3, "PER"]]}]]),
}


def write(folder: Path, name: str, rows: list[Any]) -> Path:
    file = folder / name
    lines = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
    file.write_text(lines, encoding="utf-8")
    return file


def task_of(folder: Path, rows: list[Any], name: str = "a.jsonl", **manifest: Any) -> Any:
    write(folder, name, rows)
    values = {"name": "t", "train": name, "test": name, **manifest}
    (folder / "task.yaml").write_text(yaml.safe_dump(values))
    return load_task(folder)


@pytest.mark.parametrize("kind", ONE_LABEL)
def test_one_label_of_each_text(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a source of a task, by init, as text to pretrain on, and as a pool to label: no conversion, and no setting."""
    name, rows = ONE_LABEL[kind]
    task = task_of(tmp_path, rows, name)
    assert list(task.train.texts) == TEXTS
    assert [task.labels[number] for number in task.train.labels] == LABELS
    file = tmp_path / name
    assert main(["init", str(file), "--out", str(tmp_path / "made.yaml"), "--test", "2"]) == 0
    assert yaml.safe_load((tmp_path / "made.yaml").read_text()) == {"name": "a", "type": "classification", "train": name, "test": 2}
    assert list(read_documents(Source(path=str(file)))) == TEXTS
    assert read_pool([str(file)]).texts == tuple(TEXTS)


@pytest.mark.parametrize("kind", SPANS)
def test_spans_become_tags_of_words(kind: str, tmp_path: Path) -> None:
    """Words that a span touches have its label, the others O."""
    name, rows = SPANS[kind]
    task = task_of(tmp_path, rows, name, type="tagging")
    assert task.train.texts == (("Ada", "went", "to", "London."),)
    assert [task.labels[number] for number in task.train.labels[0]] == ["PER", "O", "O", "O"]
    assert annotated_target(tmp_path / name) == "tags"


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "text": TEXTS[0], "label": ["cat", "pet"]}, {"id": 2, "text": TEXTS[2], "label": []}],
        [{"text": TEXTS[0], "accept": ["cat", "pet"], "answer": "accept", **HASHES},
         {"text": TEXTS[2], "accept": [], "answer": "accept", **HASHES}],
        [{"text": TEXTS[0], "cats": {"cat": 1, "pet": 0.7}}, {"text": TEXTS[2], "cats": {"cat": 0, "pet": 0.2}}],
        [studio(TEXTS[0], {"choices": ["cat", "pet"]}), studio(TEXTS[2])],
    ],
    ids=["doccano", "prodigy", "spacy", "label studio"],
)  # fmt: skip
def test_several_labels_or_none_of_each_text(rows: list[Any], tmp_path: Path) -> None:
    """A text that has none counts; for one label each it is refused, with its place, or left out as not labelled."""
    name = "a.json" if "data" in rows[0] else "a.jsonl"
    task = task_of(tmp_path, rows, name, type="multilabel")
    assert task.train.texts == (TEXTS[0], TEXTS[2])
    assert task.labels == ("cat", "pet")
    assert task.train.labels.tolist() == [[1, 1], [0, 0]]
    assert annotated_target(tmp_path / name) == "labels"
    with pytest.raises(DataError, match=r"a\.jsonl?, (line|task) 1 must have one label, but has 2"):
        task_of(tmp_path, rows, name)


def test_rows_without_an_answer_are_no_examples(tmp_path: Path) -> None:
    """Rejected, ignored and cancelled ones; each person's answer is one, so that the audit sees where they differ."""
    rows = ONE_LABEL["prodigy"][1]
    others = [{**rows[0], "answer": "reject"}, {**rows[1], "answer": "ignore"}, {**rows[0], "label": "dog"}]
    task = task_of(tmp_path, rows + others)
    assert list(task.train.texts) == [*TEXTS, TEXTS[0]]
    assert list(read_documents(Source(path=str(tmp_path / "a.jsonl")))) == [*TEXTS, TEXTS[0], TEXTS[1], TEXTS[0]]


@pytest.mark.parametrize(
    "row",
    [
        {"text": "a", "label": "b"},
        {"text": "what?", "label": "so", "answer": "accept"},
        {"text": ["a", "b"], "label": ["x", "y"]},
        {"text": "q", "alternatives": ["a", "b"], "label": 0},
        {"body": "a", "label": ["b"]},
    ],
)
def test_ordinary_tables_stay_tables(row: dict[str, Any], tmp_path: Path) -> None:
    """Their columns are read by polars, as before."""
    from warmstart.data.read import source_format

    file = write(tmp_path, "a.jsonl", [row])
    assert source_format(Source(path=str(file)), file) == "ndjson"
    assert source_format(Source(path=str(file), label="topic"), file) == "ndjson"
    (tmp_path / "squad.json").write_text('{"data": []}')
    assert source_format(Source(path=str(tmp_path / "squad.json")), tmp_path / "squad.json") == "text"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a", "cats": {"x": "yes"}}], "a number for each name in cats, but has 'yes'"),
        ([{"text": "a", "cats": {"x": 1}}, {"cats": {"x": 1}}], r"a\.jsonl, line 2 must have a text, but has None"),
        ([{"text": "a", "cats": {"x": 1}}, 3], "line 2 must hold values by name, but holds 3"),
    ],
)
def test_rows_that_say_nothing_readable_are_named(rows: list[Any], message: str, tmp_path: Path) -> None:
    """With file and line, and exit code 2."""
    with pytest.raises(DataError, match=message):
        task_of(tmp_path, rows)
    assert main(["init", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "made.yaml")]) == 2
