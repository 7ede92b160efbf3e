"""``warmstart`` alone suggests the next command from what lies in the folder."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest

from helpers.bundles import classifier, language_bundle
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
    assert commands(tmp_path)[0].startswith("warmstart pretrain 'my mails' ")
    (tmp_path / "labelled.csv").write_text("text,label\na,b\n")
    assert commands(tmp_path) == ["warmstart fit labelled.csv --unlabelled 'my mails'"]
    (tmp_path / "task.yaml").write_text("name: mails\ntrain: labelled.csv\ntest: 0.2\n")
    pretrain, race = commands(tmp_path)
    assert pretrain.startswith("warmstart pretrain 'my mails' --for task.yaml")
    assert race.startswith("warmstart race task.yaml --backbones pool")
    save(language_bundle(tokenizer), tmp_path / "runs" / "lm" / "bundle")
    assert [one.split()[:4] for one in commands(tmp_path)] == [["warmstart", "race", "task.yaml", "--backbones"]]
    assert "--backbones runs/lm" in commands(tmp_path)[0]
    save(Bundle(classifier(tokenizer), tokenizer, ("no", "yes")), tmp_path / "runs" / "topics" / "bundle")
    assert commands(tmp_path)[0].startswith("warmstart predict runs/topics")


def test_minimal_pairs_are_for_a_model_that_has_read_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """BLiMP's folder is recognised, also compressed, but leads nowhere without a language model."""
    (tmp_path / "blimp").mkdir()
    pair = json.dumps({"sentence_good": "He sleeps.", "sentence_bad": "He sleep."})
    (tmp_path / "blimp" / "agreement.jsonl.gz").write_bytes(gzip.compress(pair.encode()))
    assert commands(tmp_path) == ["warmstart quickstart"]
    save(language_bundle(tokenizer), tmp_path / "runs" / "lm" / "bundle")
    assert commands(tmp_path)[0] == "warmstart evaluate runs/lm --pairs blimp"


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
    """A damaged model, a file that is no Unicode, a link that leads nowhere, other YAML."""
    (tmp_path / "runs" / "broken" / "bundle").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "bundle" / "bundle.json").write_text("[1")
    (tmp_path / "other.yaml").write_bytes(b"train: \xff\n")
    (tmp_path / "settings.yaml").write_text("model: lm\n")
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "a.jsonl.gz").write_bytes(b"no gzip")
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
