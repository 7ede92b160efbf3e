"""Data frames, exports of programs for labelling and spaCy's files become tasks as they are; iterables become text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import warmstart as ws
from helpers.refusals import refused
from warmstart.data.frames import frame_rows
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError, WarmstartError

# ------------------------------------------------------------------------------------------------ frames and iterables

BODY = [f"text number {i}" for i in range(12)]
TOPIC = ["cat", "dog", "cow"] * 4
COLUMNS = {"body": BODY, "topic": TOPIC, "size": list(range(12))}


class Arrow:
    """A table of pyarrow: ``columns`` are not names, and cells are no values of Python."""

    column_names: ClassVar = list(COLUMNS)
    columns: ClassVar = list(COLUMNS.values())

    def __getitem__(self, name: str) -> list[Any]:
        return [SimpleNamespace(as_py=lambda value=value: value) for value in COLUMNS[name]]


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(COLUMNS | {"topic": pandas.Categorical(TOPIC)})


FRAMES = {
    "pandas": pandas_frame,
    "polars": lambda: pl.DataFrame(COLUMNS),
    "pyarrow": Arrow,
    "columns": lambda: COLUMNS,
    "numpy": lambda: {name: np.array(values) for name, values in COLUMNS.items()},
    "rows": lambda: [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)],
}


def test_a_frame_becomes_a_task(tmp_path: Path) -> None:
    """With a split held out; what is returned is what commands read from the folder. Other columns are left out."""
    for kind, frame in FRAMES.items():
        folder = tmp_path / kind / "mails"
        task = ws.make_task(folder, frame(), test=3, text="body", label="topic")
        assert (task.name, task.labels, len(task.train), len(task.test)) == ("mails", ("cat", "cow", "dog"), 9, 3), kind
        assert sorted([*task.train.texts, *task.test.texts]) == sorted(BODY), kind
        read = ws.load_task(folder)
        assert (read.digest, read.manifest) == (task.digest, task.manifest), kind
        assert json.loads((folder / "train.ndjson").read_text().splitlines()[0]) == {"body": BODY[0], "topic": "cat"}, kind


def test_each_split_may_be_a_frame(tmp_path: Path) -> None:
    """And the pool any texts; the same call again replaces the task, but keeps the ledger of its test split."""
    frame = pl.DataFrame(COLUMNS)
    given = {"test": frame[:3], "validation": frame[3:6], "unlabelled": (text.upper() for text in BODY)}
    task = ws.make_task(tmp_path / "t", frame[6:], **given, text="body", label="topic", metric="macro_f1")
    assert [len(split) for split in task.splits().values()] == [6, 3, 3]
    assert task.metric == "macro_f1"
    assert list(read_documents(task.unlabelled[0])) == [text.upper() for text in BODY]
    (tmp_path / "t" / "task.ledger.jsonl").write_text("kept")
    ws.make_task(tmp_path / "t", frame, text="body", label="topic")
    assert sorted(file.name for file in (tmp_path / "t").iterdir()) == [
        ".written.json",
        "task.ledger.jsonl",
        "task.yaml",
        "train.ndjson",
    ]


def test_several_columns_of_a_frame_are_one_text(tmp_path: Path) -> None:
    """As they are of a file; the one that is missing is named."""
    mails = {"subject": ["Re", None, "Fwd"] * 4, **COLUMNS}
    task = ws.make_task(tmp_path / "t", mails, test=3, text="subject+body", label="topic")
    joined = [f"{subject}\n{body}" if subject else body for subject, body in zip(mails["subject"], BODY, strict=True)]
    assert sorted([*task.train.texts, *task.test.texts]) == sorted(joined)
    assert ws.Task.from_table(mails, text="subject+body", label="topic", test=3).train.texts[0] in joined
    wrong = "train: the frame has no column 'subjct'; did you mean 'subject'"
    refused(DataError, wrong, ws.make_task, tmp_path / "u", mails, text="subjct+body", label="topic")


def test_other_types_have_lists_numbers_and_pairs(tmp_path: Path) -> None:
    """Missing values are what they are in a table."""
    several = pl.DataFrame({"text": ["a", "b", "c", "d"], "label": [["x"], ["x", "y"], [], ["y"]]})
    assert ws.make_task(tmp_path / "m", several, test=1, type="multilabel").labels == ("x", "y")
    words = {"text": [["Ada", "ran"], ["Rain"]] * 3, "label": [["PER", "O"], ["O"]] * 3}
    assert ws.make_task(tmp_path / "w", words, test=2, type="tagging").labels == ("O", "PER")
    pairs = {"one": BODY, "two": BODY[::-1], "label": np.linspace(0, 1, 12)}
    task = ws.make_task(tmp_path / "p", pairs, test=3, type="regression", text="one", second="two")
    assert all(len(pair) == 2 for pair in task.train.texts)


def test_labels_of_datasets_get_their_names() -> None:
    """A ``ClassLabel`` is a number in a column; -1 is no label."""
    feature = SimpleNamespace(names=["neg", "pos"])
    nested = SimpleNamespace(feature=feature)

    class Dataset(dict[str, Any]):
        features: ClassVar = {"label": feature, "tags": nested}

    rows = frame_rows(Dataset(label=[1, 0, -1], tags=[[0, 1], [1], []]), ["label", "tags"])
    assert [row["label"] for row in rows] == ["pos", "neg", None]
    assert [row["tags"] for row in rows] == [["neg", "pos"], ["pos"], []]


def test_missing_values_and_other_objects_are_plain() -> None:
    """What JSON cannot hold is a string."""
    from datetime import date

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, float("nan")], "b": [pandas.NA, "x"], "c": [pandas.NaT, date(2020, 1, 2)]}, dtype=object)
    assert frame_rows(frame, ["a", "b", "c"]) == [{"a": 1.5, "b": None, "c": None}, {"a": None, "b": "x", "c": "2020-01-02"}]


def test_what_is_no_task_is_refused(tmp_path: Path) -> None:
    """With the split and the column; nothing is written. A folder with another file is not replaced."""
    named = {"text": "body", "label": "topic"}
    for frame, settings, message in [
        (COLUMNS, {"label": "topic"}, "train: the frame has no column 'text'"),
        (COLUMNS, {"text": "body", "label": "topics"}, "no column 'topics'; did you mean 'topic'"),
        (COLUMNS, named | {"metrik": "f1"}, "unknown key 'metrik'; did you mean 'metric'"),
        (COLUMNS | {"topic": [None] * 12}, named, "every row of train must have a label, but 12 have none"),
        ({"text": ["a"], "label": ["x", "y"]}, {}, "must be equally long, but have 1, 2 values"),
        (pl.DataFrame(COLUMNS).lazy(), {}, "collect\\(\\) it"),
        ({"train": Arrow()}, {}, "give each split"),
        ("mails.csv", {}, "or of lists of rows, but got str"),
        ({"text": [], "label": []}, {}, "train must hold at least one example, but is empty"),
    ]:
        refused(WarmstartError, message, ws.make_task, tmp_path / "t", frame, **settings)
    assert not (tmp_path / "t").exists()
    (tmp_path / "thesis.txt").write_text("mine")
    other = r"into a new folder, or over an earlier one that nobody has changed, but .* holds thesis\.txt"
    refused(ConfigError, other, ws.make_task, tmp_path, COLUMNS, **named)
    refused(ConfigError, "is a file", ws.make_task, tmp_path / "thesis.txt", COLUMNS, **named)


def test_texts_are_written_as_they_come(tmp_path: Path) -> None:
    """Line ends and all; pretrain reads the same. What are no texts is refused, and an earlier file stays."""
    texts = ["one\ntwo", "été ", '"']
    for name in ("a.jsonl", "a.ndjson.gz", "new/a.jsonl.xz"):
        file = ws.write_texts(iter(texts), tmp_path / name)
        assert list(read_documents(Source(path=str(file)))) == texts, name
    assert gzip.decompress((tmp_path / "a.ndjson.gz").read_bytes()).count(b"\n") == 3
    for given, name, message in [
        ("a text", "b.jsonl", "must be several strings, but are 'a text'"),
        (["a", None], "b.jsonl", "every text must be a string, but number 2 is None"),
        ([], "b.jsonl", "at least one text"),
        (["a"], "b.txt", r"written as \.jsonl, .*, but the file is .*b\.txt"),
    ]:
        (tmp_path / name).write_text("earlier")
        refused(DataError, message, ws.write_texts, given, tmp_path / name)
        assert (tmp_path / name).read_text() == "earlier"
