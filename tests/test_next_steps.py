"""``warmstart`` alone suggests the next command from what lies in the folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from helpers.bundles import classifier, language_bundle
from helpers.workbook import workbook
from warmstart.cli import main, read_command
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.next_steps import next_steps
from warmstart.tokenizer.tokenizer import Tokenizer


def commands(folder: Path) -> list[str]:
    """The suggested commands, each of which the command line can read."""
    found = [command for _, command in next_steps(folder)]
    for command in found:
        read_command(shlex.split(command)[1:])
    return found


def test_every_stage_has_its_next_command(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """From an empty folder to a model that labels texts."""
    assert commands(tmp_path) == ["warmstart quickstart"]
    (tmp_path / "my mails").mkdir()
    (tmp_path / "my mails" / "one.txt").write_text("A text.")
    pretrain, label = commands(tmp_path)
    assert pretrain == "warmstart pretrain 'my mails' --objective masked --minutes 10 --out runs/lm"
    assert label == "warmstart label 'my mails' --labels yes no --out labels"
    (tmp_path / "labelled.csv").write_text("text,label\na,b\n")
    assert commands(tmp_path) == ["warmstart fit labelled.csv --unlabelled 'my mails'"]
    save(language_bundle(tokenizer), tmp_path / "runs" / "lm" / "bundle")
    assert [one.split()[1] for one in commands(tmp_path)] == ["serve", "fit", "race"]
    assert "--backbones runs/lm" in commands(tmp_path)[-1]
    save(Bundle(classifier(tokenizer), tokenizer, ("no", "yes")), tmp_path / "runs" / "topics" / "bundle")
    assert commands(tmp_path)[0] == "warmstart predict runs/topics 'A new text.'"


def test_what_has_no_labels_is_not_learned_from(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """New rows beside labelled ones, what predict wrote, and a test split; a sheet is read, too."""
    columns = "id,customer,subject,body"
    for name, header in (
        ("a new.csv", columns),
        ("labelled.csv", f"{columns},label,probability"),
        ("my_test.csv", f"{columns},queue"),
    ):
        (tmp_path / name).write_text(f"{header}\n1,Ann,Hello,I wait.,x,0.9\n")
    assert commands(tmp_path) == ["warmstart label 'a new.csv' --text-column body --labels yes no --out labels"]
    (tmp_path / "tickets.xlsx").write_bytes(workbook([[*columns.split(","), "category"], ["1", "Ann", "Hello", "I wait.", "mail"]]))
    assert commands(tmp_path) == ["warmstart fit tickets.xlsx"]
    save(Bundle(classifier(tokenizer), tokenizer, ("no", "yes")), tmp_path / "runs" / "topics" / "bundle")
    assert commands(tmp_path)[0] == "warmstart predict runs/topics 'a new.csv' --out labelled.csv"


def test_lines_are_texts_of_their_own(tmp_path: Path) -> None:
    """Where no line of a file is blank."""
    (tmp_path / "reviews.txt").write_text("Good.\nBad.\n")
    assert "--document line" in commands(tmp_path)[0]
    (tmp_path / "reviews.txt").write_text("Good,\nvery good.\n\nBad.\n")
    assert "--document" not in commands(tmp_path)[0]


def test_what_a_fit_saved_labels_texts(tmp_path: Path) -> None:
    """Also if it is made of several models."""
    (tmp_path / "runs" / "fit" / "bundle").mkdir(parents=True)
    (tmp_path / "runs" / "fit" / "bundle" / "stack.json").touch()
    assert [one.split()[:3] for one in commands(tmp_path)] == [["warmstart", way, "runs/fit"] for way in ("predict", "serve")]


def test_a_project_of_labels_goes_on(tmp_path: Path) -> None:
    """Where there is a folder in which texts are labelled."""
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "project.sqlite").touch()
    assert commands(tmp_path) == ["warmstart label --out labels"]


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """A damaged model, a file that is no Unicode, a link that leads nowhere."""
    (tmp_path / "runs" / "broken" / "bundle").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "bundle" / "bundle.json").write_text("[1")
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "b.jsonl").write_text("[1, 2]\n")
    (tmp_path / "c.xlsx").write_bytes(b"PK")
    (tmp_path / "d.csv").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert commands(tmp_path) == ["warmstart quickstart"]
    assert commands(tmp_path / "missing") == ["warmstart quickstart"]


def test_the_suggestions_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the way to all commands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labelled.csv").write_text("text,label\na,b\n")
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "warmstart fit labelled.csv" in said
    assert "warmstart --help" in said
