"""Exports of labelling programs are refused with the way to a table; tables stay tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warmstart.cli import main
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError

TEXT = "The van came late."
RESULT = {"from_name": "topic", "to_name": "text", "type": "choices", "value": {"choices": ["ship"]}}
MOOD = {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": ["calm"]}}
RATING = {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": 1}}
RESPONSE = {"value": "ship", "user_id": "bo", "status": "submitted"}
SPAN = {"start": 4, "end": 7, "label": "THING"}
CSV, ACCEPTED, LINE, WORDS = "export it as CSV", "write the accepted rows alone", "write a line for each", "a label for each word"
EXPORTS: list[tuple[str, str, Any, str]] = [
    # program, file, row, how its labels become a table
    (
        "Label Studio",
        "a.json",
        {"data": {"text": TEXT}, "annotations": [{"result": [RESULT, MOOD]}]},
        CSV,
    ),
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


@pytest.mark.parametrize("command", ["init", "audit", "fit"])
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
            assert read_table(Source(path=str(file), label=label), file, form).rows(named=True) == [row]
