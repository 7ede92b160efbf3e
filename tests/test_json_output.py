"""``--json``: every command prints its result, or its error, as one JSON document and nothing else on standard output."""

from __future__ import annotations

import inspect
import json
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import classifier, language_bundle
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.commands import COMMANDS
from warmstart.json_output import WITHOUT_RESULT, plain
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task, a model that labels its texts, and one that has read text alone; the folder in which commands run."""
    save_task(cats(), tmp_path / "task")
    (tmp_path / "mails.csv").write_text(
        "text,label\n" + "".join(f"A {name} {i}.,{name}\n" for i in range(8) for name in ("cat", "dog"))
    )
    save(language_bundle(tokenizer), tmp_path / "lm")
    save(Bundle(classifier(tokenizer), tokenizer, ("other", "cat")), tmp_path / "topics")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    """What a command prints on standard output, which must be one document."""
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_result_is_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the command, where it wrote, and what it found."""
    adapt = ["adapt", "lm", "task", "--seeds", "1", "--epochs", "1", "--no-scratch", "--no-baselines", "--out", "runs/a"]
    for words, keys in (
        (["init", "mails.csv"], {"name", "type", "labels", "texts"}),
        (["audit", "task"], {"findings", "splits"}),
        (adapt, {"labels"}),
        (["evaluate", "topics", "task"], {"accuracy"}),
        (["study", "lab", "--out", "runs/lab"], {"findings", "figures"}),
    ):
        found = document(words, capsys)
        assert found["command"] == (" ".join(words[:2]) if words[0] == "study" else words[0])
        assert keys <= found["result"].keys(), words
    rows = document(["predict", "topics", "A cat.", "A dog."], capsys)["result"]
    assert [row["text"] for row in rows] == ["A cat.", "A dog."]
    assert all(row["label"] in ("other", "cat") for row in rows)
    assert {row["status"] for row in document(["doctor", "topics"], capsys)["result"]} == {"pass", "not applicable"}
    assert "parameters" in document(["cost", "--preset", "lab"], capsys)["result"]
    assert document(["runs", "."], capsys)["result"]["runs"]


def test_an_error_is_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the sentence that is printed, and the exit code; also if the words cannot be read, or the command has no result."""
    assert "labelled.csv" in document(["audit", "labelled.csv"], capsys, 2)["error"]["message"]
    assert document(["no-such-command"], capsys, 2)["error"]["kind"] == "ConfigError"
    assert "no result" in document(["serve", "topics"], capsys, 2)["error"]["message"]
    for words in (["doctor", "nothing"], ["cost", "nothing"], ["runs", "nothing"], ["runs", "--yes"]):
        assert document(words, capsys, 2)["error"]["kind"] in ("BundleError", "DataError", "ConfigError"), words


def test_what_can_be_done_next_is_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command."""
    assert main(["--json"]) == 0
    assert all(one["command"] and one["purpose"] for one in json.loads(capsys.readouterr().out)["next"])


def test_every_command_has_a_result_that_is_json() -> None:
    """By what its function says that it returns: each type has ``to_dict``, or is a path, a mapping or a list."""
    for name, command in COMMANDS.items():
        if name in WITHOUT_RESULT:
            continue
        _, run = command.load()
        returned = typing.get_type_hints(inspect.unwrap(run))["return"]
        assert returned is not type(None), name
        for one in typing.get_args(returned) if isinstance(returned, types.UnionType) else [returned]:
            plain_kind = issubclass(typing.get_origin(one) or one, list | dict | Path | type(None))
            assert plain_kind or hasattr(one, "to_dict"), (name, one)


def test_any_value_is_plain() -> None:
    """Arrays are lists, paths are names, and what JSON cannot say is null."""
    value = {"a": np.array([1.0, np.nan]), 2: (Path("x") / "y", {"z"}), "c": np.float64("inf"), "d": True}
    assert json.dumps(plain(value), allow_nan=False) == '{"a": [1.0, null], "2": ["x/y", ["z"]], "c": null, "d": true}'
