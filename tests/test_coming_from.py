"""The page for those who come from another library: the files that it names become tasks by the lines that it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from helpers.documents import class_label, parquet_table
from warmstart.cli import main
from warmstart.tasks.load import load_task

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "coming-from.md").read_text(encoding="utf-8")
MAILS = [("order", f"Where is parcel {i}?") if i % 2 else ("other", f"Thank you for letter {i}.") for i in range(12)]
LINES = {
    "train.jsonl": [json.dumps({"text": text, "label": name}) for name, text in MAILS],
    "mails.train.txt": [f"__label__{name} {text}" for name, text in MAILS],
    "labels.csv": ["text,label", *(f"{text},{name}" for name, text in MAILS)],
}


def test_a_file_of_another_library_becomes_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``warmstart init FILE``."""
    monkeypatch.chdir(tmp_path)
    for name, lines in LINES.items():
        assert f"warmstart init {name}" in PAGE
        Path(name).write_text("\n".join(lines) + "\n")
        assert main(["init", name, "--force"]) == 0
        task = load_task("task.yaml")
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
    """By ``warmstart init mails_train.parquet``, with the names of labels and the other split."""
    import polars as pl

    monkeypatch.chdir(tmp_path)
    assert "warmstart init mails_train.parquet" in PAGE
    for split in ("train", "test"):
        table = pl.DataFrame({"text": [text for _, text in MAILS], "label": [int(name == "other") for name, _ in MAILS]})
        parquet_table(Path(f"mails_{split}.parquet"), table, {"label": class_label("order", "other")})
    assert main(["init", "mails_train.parquet"]) == 0
    task = load_task("task.yaml")
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
