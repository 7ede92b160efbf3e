"""No foreign traceback: what a user, the system or another library gets wrong ends with one message and exit code 2."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from helpers.models import SENTENCES
from helpers.multitask import write_inputs
from helpers.settings import in_file
from helpers.tasks import race_config, write_race_inputs
from warmstart.cli import main
from warmstart.config import read_yaml
from warmstart.data.source import Source
from warmstart.data.splits import held_out_count
from warmstart.data.tables import label_column, read_table
from warmstart.errors import ConfigError, DataError
from warmstart.interop.load import load_predictor
from warmstart.model.files import load_bundle
from warmstart.system.trouble import explain_trouble
from warmstart.tokenizer.tokenizer import Tokenizer

TINY = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32", "--steps", "2"]
QUICK = [*TINY, "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "0", "--batch", "4"]
TRAIN = ["--epochs", "0.2", "--batch", "8", "--seeds", "1"]


class PanicException(BaseException):
    """As a library in Rust raises it: no Exception, and of no module that can be imported."""


TROUBLES = {
    "panic": (PanicException("index out of bounds"), "the last one read first: cut it in halves to find the row"),
    "memory": (MemoryError(), "a smaller --batch with a larger --accumulate"),
    "torch": (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 TB"), "not enough memory (DefaultCPUAllocator"),
    "gpu": (torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"), "not enough memory (CUDA out of memory."),
    "handles": (OSError(errno.EMFILE, "Too many open files", "x.txt"), "x.txt: Too many open files; raise the limit of this shell"),
    "disk": (OSError(errno.ENOSPC, "No space left on device"), "or set TMPDIR to a folder on another disk; the same command then"),
    "loop": (RuntimeError("Symlink loop from '/a'"), "there is a symlink loop from '/a'; remove the symbolic link"),
    "nul": (ValueError("embedded null byte"), "a path must not hold a NUL character"),
    "depth": (RecursionError("maximum recursion depth exceeded"), "a file that was read is nested too deeply"),
}


def test_troubles_of_others_are_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever raises them: one sentence that says what to do, and exit code 2; faults of ours show their traceback."""
    for error, message in TROUBLES.values():

        def fail(words: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("warmstart.cli.read_command", fail)
        assert main(["doctor", "x"]) == 2
        assert message in capsys.readouterr().err
    for ours in (AssertionError("x"), RuntimeError("x"), ValueError("x"), KeyError("x")):
        assert explain_trouble(ours) is None


def test_names_that_look_like_markup_are_printed_as_they_are(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder may be called ``o[/b]:cat:``."""
    out = tmp_path / "o[" / "b]:cat:"
    assert main(["pretrain", str(text), "--out", str(out), *QUICK]) == 0
    assert f"bundle: {out / 'bundle'}" in capsys.readouterr().err


@pytest.mark.chaos
def test_a_file_whose_name_is_no_unicode_trains_a_whole_model(tmp_path: Path) -> None:
    """Its name is in the history, in the report and on the terminal."""
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/t\xff.txt"))
    file.write_text("\n\n".join(SENTENCES * 30))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "warmstart", "pretrain", str(file), "--out", str(out), *QUICK]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    provenance = load_bundle(out / "bundle").history[-1].provenance
    assert provenance is not None
    assert "t\udcff.txt" in provenance.command


FLAGS = {
    "nul": (["--out", "a\0b"], "must not hold a NUL character"),
    "a loop": (["--out", "{loop}"], "there is a symlink loop"),
    "too wide": (["--width", "40000000000", *in_file(backbone={"positions": "learned"})], "there is not enough memory"),
    "too large a vocabulary": (["--tokenizer.vocab-size", "9" * 25], "must be at most"),
    "too large a batch": (["--batch", "1000000000000"], "must be at most"),
}


def test_flags_that_no_machine_can_follow(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused with what is wrong with them."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for flags, message in FLAGS.values():
        given = [flag.format(loop=loop) for flag in flags]
        assert main(["pretrain", str(text), "--out", str(tmp_path / "run"), *QUICK, *given]) == 2, flags
        assert message in " ".join(capsys.readouterr().err.split())


YAML = {
    "a number too long": "limit: " + "9" * 5000,
    "too deep": "a: " + "[" * 1500 + "]" * 1500,
    "an object": "a: !!python/object:os.system {}",
    "UTF-16": "name: x".encode("utf-16"),
    "latin-1": b"name: \xe9",
    "a NUL": "name: a\0",
}


def test_yaml_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """With the name of the file, whatever the library raises."""
    file = tmp_path / "task.yaml"
    for content in YAML.values():
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ConfigError, match=str(file)):
            read_yaml(file)


def test_a_held_out_part_must_be_a_number_of_texts() -> None:
    """What is none is refused with what came."""
    for part in (float("nan"), float("inf"), -1, 0, 10**400):
        with pytest.raises(DataError, match="a held-out part must be a fraction between 0 and 1"):
            held_out_count(40, part)


def test_encodings_that_encode_no_such_text_are_refused(tmp_path: Path) -> None:
    """Python knows more encodings than a text can have."""
    file = tmp_path / "a.ndjson"
    file.write_bytes(b'{"text": "\xe9", "label": "x"}\n')
    for encoding in ("hex", "rot13", "undefined", "a\0b", "punycode"):
        with pytest.raises(DataError, match=r"unknown encoding|must be text in punycode"):
            read_table(Source(path=str(file), encoding=encoding), file, "ndjson")


def test_numbers_too_large_to_be_whole_stay_numbers(tmp_path: Path) -> None:
    """A float above 2**53 is one of many whole numbers; it was a foreign error."""
    file = tmp_path / "a.ndjson"
    file.write_text('{"text": "a", "label": 1e300}\n{"text": "b", "label": 3.0}\n')
    source = Source(path=str(file))
    assert label_column(read_table(source, file, "ndjson"), source, file) == ["1e+300", "3.0"]


# ------------------------------------------------------------------------------------------------ save first


def _command(name: str, place: Path, tokenizer: Tokenizer) -> list[str]:
    """A tiny run of a command that trains."""
    write_inputs(place, tokenizer)
    both = [str(place / "lm"), str(place / "cats"), str(place / "who")]
    if name == "race":
        (place / "race.yaml").write_text(yaml.safe_dump(race_config(write_race_inputs(place, tokenizer), seeds=1).to_dict()))
        return ["race", "--config", str(place / "race.yaml"), "--save", "probe"]
    if name == "recipe":
        step = {"command": "adapt", "model": both[0], "task": both[1], "seeds": 1, "scratch": False}
        step |= {"tune": {"train": {"steps": 2, "batch": 8}}}
        (place / "recipe.yaml").write_text(yaml.safe_dump({"title": "x", "steps": {"tuned": step}}))
        return ["recipe", str(place / "recipe.yaml")]
    return {
        "pretrain": ["pretrain", str(place / "text.txt"), *QUICK],
        "adapt": ["adapt", *both[:2], *TRAIN, "--no-scratch"],
        "continual": ["continual", *both, *TRAIN, "--strategies", "none"],
    }[name]


MODELS = {"continual": "bundles/none/cats"}


@pytest.mark.parametrize("name", ["pretrain", "adapt", "continual", "race", "recipe"])
def test_a_finished_model_is_not_lost_to_its_report(
    name: str, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is saved first; if its report cannot be written, the message says where the model is, and it is whole."""

    def fail(*_: object) -> None:
        raise ValueError("the chart\nlibrary failed")

    words = _command(name, tmp_path, tokenizer)
    out = {"race": tmp_path / "race", "recipe": tmp_path / "run" / "tuned"}.get(name, tmp_path / "run")
    page = "adapt" if name == "recipe" else name
    module = page if page == "continual" else f"{page}.command"
    monkeypatch.setattr(f"warmstart.commands.{module}.write_{page}_page", fail)
    assert main([*words, *([] if name == "race" else ["--out", str(tmp_path / "run")])]) == 2
    said = capsys.readouterr().err
    assert f"the model is complete in {out}" in said
    assert "but its report cannot be written: the chart library failed; once that is mended, the same command writes" in said
    load_predictor(str(out / MODELS.get(name, "bundle")))
    assert "Traceback" not in said


def test_a_model_is_not_lost_to_its_card(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its README then says why there is none; the command ends with exit code 1."""

    def fail(bundle: object) -> str:
        raise KeyError("a new record")

    words = _command("pretrain", tmp_path, tokenizer)
    monkeypatch.setattr("warmstart.model.card.card", fail)
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    assert "the model card cannot be written: KeyError('a new record')" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "bundle" / "bundle.json").read_text())["history"]
    assert "could not be written" in (tmp_path / "run" / "bundle" / "README.md").read_text()
    load_bundle(tmp_path / "run" / "bundle")
