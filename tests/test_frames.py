"""Data frames and files of other libraries become tasks, iterables text; exports of programs for labelling are refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
import yaml

import warmstart as ws
from helpers.documents import class_label, parquet_table
from helpers.refusals import refused
from warmstart.cli import main
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.data.tables import frame_table, read_table
from warmstart.errors import ConfigError, DataError, WarmstartError
from warmstart.tasks.load import load_task

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

    table = frame_table(Dataset(label=[1, 0, -1], tags=[[0, 1], [1], []]), ["label", "tags"]).frame
    assert table["label"].to_list() == ["pos", "neg", None]
    assert table["tags"].to_list() == [["neg", "pos"], ["pos"], []]


def test_missing_values_and_other_objects_are_plain() -> None:
    """What JSON cannot hold is a string."""
    from datetime import date

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, float("nan")], "b": [pandas.NA, "x"], "c": [pandas.NaT, date(2020, 1, 2)]}, dtype=object)
    assert frame_table(frame, ["a", "b", "c"]).frame.rows() == [(1.5, None, None), (None, "x", "2020-01-02")]


def test_what_is_no_task_is_refused(tmp_path: Path) -> None:
    """With the split and the column; nothing is written. A folder with another file is not replaced."""
    named = {"text": "body", "label": "topic"}
    for frame, settings, message in [
        (COLUMNS, {"label": "topic"}, "train: the frame has no column 'text'"),
        (COLUMNS, {"text": "body", "label": "topics"}, "no column 'topics'; did you mean 'topic'"),
        (COLUMNS, named | {"metrik": "f1"}, "unknown key 'metrik'; did you mean 'metric'"),
        (COLUMNS | {"topic": [None] * 12}, named, "train must have labels in column .topic., but has none .blank 12."),
        ({"text": ["a"], "label": ["x", "y"]}, {}, "must be equally long, but have 1, 2 values"),
        ({"text": ["a", "b"], "label": [["x"], "y"]}, {}, "'label' must hold texts or lists, but holds both"),
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


TEXT = "The van came late."
RESULT = {"from_name": "topic", "to_name": "text", "type": "choices", "value": {"choices": ["ship"]}}
MOOD = {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": ["calm"]}}
RATING = {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": 1}}
RESPONSE = {"value": "ship", "user_id": "bo", "status": "submitted"}
SPAN = {"start": 4, "end": 7, "label": "THING"}
CSV, ACCEPTED, LINE, WORDS = "export it as CSV", "write the accepted rows alone", "write a line for each", "a label for each word"
EXPORTS: list[tuple[str, str, Any, str]] = [
    # program, file, row, how its labels become a table
    ("Label Studio", "a.json", {"data": {"text": TEXT}, "annotations": [{"result": [RESULT, MOOD]}]}, CSV),
    ("Label Studio", "a.json", {"data": {"text": TEXT}, "annotations": [{"result": [RATING]}]}, CSV),
    ("Label Studio", "a.json", {"data": {"text": TEXT}, "predictions": [{"result": [RESULT]}], "annotations": []}, CSV),
    ("Label Studio", "a.json", {"id": 0, "text": TEXT, "sentiment": {"choices": ["ship", "urgent"]}, "annotator": 1}, CSV),
    ("Label Studio", "a.json", {"id": 0, "text": TEXT, "sentiment": "ship", "annotator": 1, "annotation_id": 7}, CSV),
    ("Argilla", "a.jsonl", {"fields": {"text": TEXT}, "suggestions": {"label": {"value": "ship"}}, "responses": {}}, "submitted"),
    ("Argilla", "a.jsonl", {"text": TEXT, "label.responses": ["ship"], "label.responses.status": ["draft"]}, "submitted"),
    ("Argilla", "a.jsonl", {"text": TEXT, "label": [RESPONSE], "label-suggestion": "bill"}, "submitted"),
    ("Argilla", "a.jsonl", {"text": TEXT, "annotation": "ship", "annotation_agent": "bo", "status": "Validated"}, "submitted"),
    ("Prodigy", "a.jsonl", {"text": TEXT, "label": "ship", "answer": "reject"}, ACCEPTED),
    ("Prodigy", "a.jsonl", {"text": TEXT, "options": [], "accept": ["ship"], "answer": "accept", "_task_hash": 1}, ACCEPTED),
    ("Prodigy", "a.jsonl", {"text": TEXT, "spans": [SPAN], "answer": "accept"}, WORDS),
    ("doccano", "a.jsonl", {"id": 1, "text": TEXT, "label": ["ship"], "Comments": []}, CSV),
    ("doccano", "a.jsonl", {"id": 1, "text": TEXT, "label": [[4, 7, "THING"]]}, WORDS),
    ("doccano", "a.jsonl", {"text": TEXT, "entities": [{"label": "THING", "start_offset": 4, "end_offset": 7}]}, WORDS),
    ("spaCy", "a.jsonl", {"text": TEXT, "cats": {"ship": 1.0, "bill": 0.0}}, LINE),
    ("spaCy", "a.json", [TEXT, {"cats": {"ship": True}}], LINE),
    ("spaCy", "a.jsonl", [TEXT, {"entities": [[4, 7, "THING"]]}], WORDS),
    ("spaCy", "a.json", {"id": 0, "paragraphs": [{"raw": TEXT, "cats": [{"label": "ship", "value": 1.0}]}]}, LINE),
]


def write(folder: Path, name: str, *rows: Any) -> Path:
    """A file with a row of JSON a line; json: with all rows as one list."""
    file = folder / name
    file.write_text(json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("command", ["audit", "fit"])
def test_an_export_ends_a_command_with_the_way_to_a_table(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one sentence, also if the file does not begin with what tells the program."""
    for program, name, row, way in EXPORTS[:1] + EXPORTS[3:4] + EXPORTS[5:6] + EXPORTS[9:10]:
        first = {"text": TEXT, "label": "ship"} if isinstance(row, dict) and "text" in row else row
        file = write(tmp_path, name, first, row, row)
        assert main([command, str(file), *(["--out", str(tmp_path / "out")] if command != "audit" else [])]) == 2
        said = capsys.readouterr().err
        assert f"is an export of {program}; " in said, program
        assert way in said, program


def test_every_form_of_an_export_is_recognised(tmp_path: Path) -> None:
    """As labels and as text, whatever column is named."""
    for program, name, row, way in EXPORTS:
        file = write(tmp_path, name, row)
        for source in (Source(path=str(file)), Source(path=str(file), text="body", label="topic")):
            with pytest.raises(DataError, match=f"is an export of {program}; .*{way}"):
                list(read_documents(source))


def test_ordinary_tables_are_no_exports(tmp_path: Path) -> None:
    """Also where a column is called like a program's; and a column of answers can be learned as the label."""
    for row, label in (
        ({"text": "a", "label": "b"}, "label"),
        ({"text": "a", "answer": "accept"}, "label"),
        ({"text": "a", "label": "b", "answer": "accept"}, "answer"),
        ({"text": "what?", "label": "so", "answer": "maybe"}, "label"),
        ({"text": ["a", "b"], "label": ["x", "y"]}, "label"),
        ({"text": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}}, "label"),
        ({"text": "a", "entities": ["Ada"], "annotations": "none", "responses": 3}, "label"),
    ):
        forms: Any = (("a.jsonl", "ndjson"), ("a.json", "json"))
        for name, form in forms:
            file = write(tmp_path, name, row)
            assert read_table(Source(path=str(file), label=label), file, form).frame.rows(named=True) == [row]


PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "coming-from.md").read_text(encoding="utf-8")
MAILS = [("order", f"Where is parcel {i}?") if i % 2 else ("other", f"Thank you for letter {i}.") for i in range(12)]
LINES = {
    "train.jsonl": [json.dumps({"text": text, "label": name}) for name, text in MAILS],
    "mails.train.txt": [f"__label__{name} {text}" for name, text in MAILS],
    "labels.csv": ["text,label", *(f"{text},{name}" for name, text in MAILS)],
}


def test_a_file_of_another_library_becomes_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name alone."""
    monkeypatch.chdir(tmp_path)
    for name, lines in LINES.items():
        assert re.search(rf"warmstart \w+ {re.escape(name)}", PAGE)
        Path(name).write_text("\n".join(lines) + "\n")
        task = load_task(name)
        assert (task.type, task.labels) == ("classification", ("order", "other"))
        assert len(task.train) + len(task.test) == 12


def test_the_manifest_of_fasttext_reads_its_lines(tmp_path: Path) -> None:
    """As the page shows it."""
    (block,) = [one for one in PAGE.split("```yaml\n")[1:] if "__label__" in one]
    manifest = yaml.safe_load(block.partition("```")[0])
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(manifest))
    for key in ("train", "test"):
        (tmp_path / manifest[key]).write_text("\n".join(LINES["mails.train.txt"]) + "\n")
    assert load_task(tmp_path).train.texts == tuple(text for _, text in MAILS)


def test_tables_of_the_datasets_library_become_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of one split, with the names of labels and the other split."""
    import polars as pl

    monkeypatch.chdir(tmp_path)
    assert "adapt models/base mails_train.parquet" in PAGE
    for split in ("train", "test"):
        table = pl.DataFrame({"text": [text for _, text in MAILS], "label": [int(name == "other") for name, _ in MAILS]})
        parquet_table(Path(f"mails_{split}.parquet"), table, {"label": class_label("order", "other")})
    task = load_task("mails_train.parquet")
    assert (task.labels, len(task.test)) == (("order", "other"), len(MAILS))


def test_spans_become_tags_by_the_lines_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that a span touches has its label, the others O; the table is a tagging task."""
    monkeypatch.chdir(tmp_path)
    (block,) = [one for one in PAGE.split("```python\n")[1:] if "spans.jsonl" in one]
    Path("spans.jsonl").write_text(json.dumps({"text": "Ada, of London", "label": [[0, 3, "PER"], [8, 14, "LOC"]]}) + "\n")
    exec(block.partition("```")[0], {})
    assert json.loads(Path("tags.jsonl").read_text()) == {"text": ["Ada,", "of", "London"], "label": ["PER", "O", "LOC"]}
    Path("task.yaml").write_text("name: t\ntype: tagging\ntrain: tags.jsonl\ntest: tags.jsonl\n")
    assert load_task("task.yaml").train.texts == (("Ada,", "of", "London"),)
