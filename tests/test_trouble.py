"""No foreign traceback: mistakes, hostile files, troubles of the system, limits, and signals each end with one message."""

from __future__ import annotations

import errno
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import torch
import yaml

from helpers.bundles import language_bundle
from helpers.hostile import DEEP, LAUGHS, all_cases
from helpers.models import SENTENCES, make_backbone
from helpers.multitask import write_inputs
from helpers.settings import in_file
from helpers.tasks import race_config, write_race_inputs
from warmstart import cli
from warmstart.cli import main
from warmstart.config import read_yaml
from warmstart.data import files, read
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.export import to_huggingface
from warmstart.interop.load import load_predictor
from warmstart.model.bundle import Bundle
from warmstart.model.bundle_files import bundle_contents
from warmstart.model.files import load_bundle
from warmstart.model.folder import write_files
from warmstart.model.model import Model, fresh_head
from warmstart.system.limits import parse_json
from warmstart.system.stopping import Terminated, asked_to_stop, termination_raises
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
    assert f"saved in {out}, report" in capsys.readouterr().err


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
    assert read_table(source, file, "ndjson").labels(source) == ["1e+300", "3.0"]


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


@pytest.mark.parametrize(("module", "form"), [(gzip, "text"), (lzma, "csv")])
def test_compressed_text_expands_to_a_limit(module: Any, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it reading stops; the message names the variable that raises it, and with it all is read."""
    monkeypatch.setattr(files, "FREE_BYTES", 1 << 20)  # of the sixteen megabytes in a few thousand bytes
    file = tmp_path / f"text.csv.{'gz' if module is gzip else 'xz'}"
    with module.open(file, "wt") as stream:
        stream.write("text,label\n" + ("a" * 999 + ",1\n") * 16_000)
    source = Source.build({"path": str(file), "format": form})
    with pytest.raises(DataError, match=r"must hold at most [\d,]+ bytes when decompressed.*set WARMSTART_MAX_EXPANSION"):
        list(read_documents(source))
    monkeypatch.setenv("WARMSTART_MAX_EXPANSION", "100000")
    assert sum(map(len, read_documents(source))) > 15_000_000
    monkeypatch.setenv("WARMSTART_MAX_EXPANSION", "all")
    with pytest.raises(DataError, match="WARMSTART_MAX_EXPANSION must be a whole number.*but is 'all'"):
        list(read_documents(source))


@pytest.mark.parametrize("rows", [["x" * 100_000_000], ["x" * 1000, "y"] * 100_000], ids=["one text", "a repeated text"])
def test_parquet_expands_to_a_limit(rows: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that would fill the memory is met by a process of its own; texts stored once and named often are counted."""
    monkeypatch.setattr(files, "FREE_BYTES", 4 << 20)
    file = tmp_path / "rows.parquet"
    pl.DataFrame({"text": rows}).write_parquet(file, compression="zstd")
    with pytest.raises(DataError, match=r"rows\.parquet must hold at most [\d,]+ bytes when decompressed"):
        list(read_documents(Source(path=str(file))))


def test_a_pattern_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that takes too long is named, and the file is not read."""
    monkeypatch.setattr(read, "PATTERN_SECONDS", 0.2)
    file = tmp_path / "lines.txt"
    file.write_text("aaa\n" + "a" * 60 + "b\n")
    with pytest.raises(DataError, match=r"must match a line within 0.2 seconds, but line 2 of .*lines.txt takes longer"):
        list(read_documents(Source(path=str(file), pattern="^(?P<text>(a|aa)+)$")))


def test_a_table_has_a_limit_of_columns(tmp_path: Path) -> None:
    """A million of them take gigabytes in a file of two."""
    file = tmp_path / "rows.csv"
    file.write_text("," * 1_000_000 + "\n")
    with pytest.raises(DataError, match="must have at most 10,000 columns, but has 1,000,001"):
        list(read_documents(Source(path=str(file))))


MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 9))
YAML = {
    "aliases of aliases": (LAUGHS, "at most 131,072 values, counted again wherever an alias repeats them"),
    "merged groups": (MERGES, "at most 131,072 values"),
    "an alias within itself": ("a: &a [*a]\n", r"the alias \*a is within itself"),
    "deep lists": (DEEP, "nested too deeply"),
    "a large file": ("a: " + "x" * (1 << 21), "must have at most 1,048,576 bytes of settings"),
    "an object": ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
    "a number too long": ("limit: " + "9" * 5000, "settings.yaml"),
    "UTF-16": ("name: x".encode("utf-16"), "settings.yaml"),
    "latin-1": (b"name: \xe9", "settings.yaml"),
    "a NUL": ("name: a\0", "settings.yaml"),
}


def test_yaml_stands_for_what_it_says(tmp_path: Path) -> None:
    """Aliases repeat only so much, and no value of another type than text, numbers, lists and groups is made."""
    file = tmp_path / "settings.yaml"
    for text, said in YAML.values():
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError, match=said) as error:
            read_yaml(file)
        assert str(file) in str(error.value)
    file.write_text("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\n")
    assert read_yaml(file) == {"a": {"x": 1}, "b": [{"x": 1}] * 2, "c": {"x": 1, "y": 2}}


def test_json_has_limits() -> None:
    """Of depth and of values, before anything is made of it."""
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP.encode(), 10**9)
    with pytest.raises(ValueError, match="at most 3 values, but holds about 5"):
        parse_json(b"[1,[2],3,4]", 3)


ENDS = {
    "pretrain": (["pretrain", "a.txt", "--out", "my run"], "; to go on, run `warmstart pretrain --resume 'my run'`"),
    "resumed": (["pretrain", "--resume", "my run"], "; to go on, run `warmstart pretrain --resume 'my run'`"),
    "race": (["race", "t.yaml", "--backbones", "lm"], "; the same command goes on where it stopped"),
    "recipe": (["recipe", "r.yaml"], "; the same command goes on where it stopped"),
    "adapt": (["adapt", "lm", "t.yaml"], "; the same command goes on where it stopped"),
    "import": (["import", "lm", "--out", "o"], "; the same command starts again"),
    "predict": (["audit", "t.yaml"], ""),
}


def test_a_stopped_command_advises_what_fits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and an exit code of its own for each signal."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my run").mkdir()
    read = cli.read_command
    for number, code, word in ((signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")):
        monkeypatch.setattr(
            cli, "read_command", lambda words, number=number: (lambda _: signal.raise_signal(number), read(words)[1])
        )
        for words, advice in ENDS.values():
            assert main(words) == code
            assert capsys.readouterr().err == f"warmstart: {word}{advice}\n"


def test_a_second_signal_stops_at_once() -> None:
    """The first one lets a step end; what was in force before returns."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with asked_to_stop() as reason:
        assert reason() is None
        signal.raise_signal(signal.SIGTERM)
        assert reason() is Terminated
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_ignored_signal_stays_ignored() -> None:
    """As under ``nohup``."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with termination_raises():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


WORK = """
import os, sys, time
from pathlib import Path
from warmstart.system import backends
def work(folder, i):
    (Path(folder) / f"{i}-{os.getpid()}").touch()
    if folder.endswith("killed"):
        os.kill(os.getpid(), 9)
    time.sleep(600)
folder = sys.argv[1]
list(backends.spread_calls(work, [(folder, 0), (folder, 1)], "processes", jobs=2))
"""


def until(found: Callable[[], Any]) -> Any:
    """What is found within a minute."""
    for _ in range(600):
        if result := found():
            return result
        time.sleep(0.1)
    raise AssertionError("nothing happened within a minute")


@pytest.mark.chaos
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(number: int, tmp_path: Path) -> None:
    """However it ended: nobody works for nobody."""
    parent = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], stderr=subprocess.DEVNULL)
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [int(file.name.split("-")[1]) for file in tmp_path.iterdir()]
    assert all(map(psutil.pid_exists, workers))
    assert os.getpid() not in workers
    parent.send_signal(number)
    parent.wait()
    until(lambda: not any(map(psutil.pid_exists, workers)))


@pytest.mark.chaos
def test_a_killed_worker_is_named(tmp_path: Path) -> None:
    """Not with a traceback of joblib."""
    (place := tmp_path / "killed").mkdir()
    found = subprocess.run([sys.executable, "-c", WORK, str(place)], capture_output=True, text=True, check=False)
    assert f"{ModelError.__name__}: a worker of 2 was killed, perhaps because memory ran out; use fewer --jobs" in found.stderr


HANGS_AFTER = 500
"""seconds, for all cases of a kind: only what never ends takes so long"""


@pytest.fixture(scope="module")
def place(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sound bundle and a sound model of another library, which the cases damage."""
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "sound" / "bundle").mkdir(parents=True)
    write_files(folder / "sound" / "bundle", bundle_contents(language_bundle(tokenizer)))
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, norm_type="rms", activation="swiglu", bias=False)
    model = Model(backbone, fresh_head(LMHeadConfig(bias=False), backbone, 0), causal=True)
    to_huggingface(Bundle(model, tokenizer), folder / "sound" / "import")
    return folder


@pytest.mark.chaos
@pytest.mark.timeout(HANGS_AFTER)
@pytest.mark.parametrize("kind", ["bundles", "tokenizers", "imports"])
def test_hostile_files_are_refused(kind: str, place: Path) -> None:
    """With one of our own errors, in less than 500 MB, without a crash of a library and without hanging; all in one process."""
    command = [sys.executable, "-m", "helpers.hostile", kind, str(place)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    refused = {line["name"] for line in lines if line.get("error") == "WarmstartError" and line["message"].strip()}
    wrong = [line for line in lines if line.get("begins", line.get("name")) not in refused]
    assert {*all_cases(kind)} == refused, f"{wrong} {run.returncode} {run.stderr[-1000:]}"
