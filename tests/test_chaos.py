"""Runs of several steps, which are killed, stopped or meet a full disk: the same command goes on, and ends as if nothing had been.

``make soak`` strikes system calls of writing many times more often (``CHAOS``, a factor).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from helpers.bundles import language_bundle
from helpers.faults import ERRORS, SIGNALS, FaultyCommands
from helpers.models import SENTENCES
from helpers.multitask import write_inputs
from helpers.settings import in_file
from helpers.tasks import write_race_inputs
from warmstart.cli import main
from warmstart.config import Config, FileInput
from warmstart.model.files import save
from warmstart.runs.record import end_record, is_complete, read_record_of
from warmstart.runs.run import UNKEPT, Run
from warmstart.system.locks import LOCK, releasing_locks
from warmstart.system.storage import STEPS_FOLDER
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training import loop
from warmstart.training.loop import _Run

VALUES: dict[str, Any] = {
    "numbers": (1, 2.5, float("inf"), None, True, "words"),
    "table": [[1, 2], [3, 4]],
    "by number": {0.5: "half", "x": {"y": ()}},
    "arrays": [np.arange(6.0).reshape(2, 3), np.zeros((0, 2), dtype=np.float32), np.array([True, False])],
    "tags": np.array([np.arange(2), np.arange(3), None], dtype=object),
    "weights": {"w": torch.arange(4, dtype=torch.bfloat16)},
    "score": np.float64(0.25),
}

# ---------------------------------------------------------------------------------------------------- the store


def same(one: Any, other: Any) -> bool:
    """Whether nested values are equal, of the same types."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray | torch.Tensor):
        if one.dtype == object:
            return len(one) == len(other) and all(map(same, one, other))
        return bool(one.dtype == other.dtype and one.shape == other.shape and (one == other).all())
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class SomeConfig(Config):
    """Settings of some command."""

    seeds: int = 2
    text: FileInput[str] = "nowhere"


def opened(folder: Path, **settings: Any) -> Run:
    """The run of some command in a folder."""
    return Run.open(str(folder), SomeConfig(**settings))


def test_a_step_is_read_back_exactly(tmp_path: Path) -> None:
    """Nested values, arrays, objects and tensors; where it worked is gone, with its own steps."""
    run, places = opened(tmp_path), list[Path]()

    def make(step: Run) -> Any:
        places.append(step.folder)
        return step.step("inner", lambda _: VALUES)

    assert run.step("one", make) is VALUES
    assert not places[0].exists()
    assert read_record_of(tmp_path)["done"] == 1
    again = opened(tmp_path)
    assert same(again.step("one", lambda _: pytest.fail("made again")), VALUES)
    assert again.within("deep").step("one", lambda _: "another") == "another"
    assert UNKEPT.step("one", lambda step: step.place) is None
    end_record(tmp_path, "It is done.")
    assert not (tmp_path / STEPS_FOLDER).exists()


def test_steps_of_something_else_are_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that depends on anything else makes its own, and says so; the others stay until one of both ends."""
    text = tmp_path / "text.txt"
    text.write_text("ab")
    opened(tmp_path / "run", text=str(text)).step("one", lambda _: "before")
    text.write_text("cd")
    now = opened(tmp_path / "run", text=str(text))
    assert "has changed since it was stopped" in capsys.readouterr().err
    assert now.step("one", lambda _: "now") == "now"
    text.write_text("ab")
    assert opened(tmp_path / "run", text=str(text)).step("one", lambda _: pytest.fail("made again")) == "before"


# ---------------------------------------------------------------------------------------------------- what a run leaves

VARYING = ("second", "provenance", "time", "memory", "date", "tokens_per", "warmstart", "digest", "sha256")
"""parts of the keys of what no two runs share"""
EXACT = ("weights.safetensors", "tokenizer.json", "train-0000.bin", "held-out-0000.bin")


def constant(values: Any) -> Any:
    """Values without those that differ from run to run; tables without the columns of seconds."""
    if isinstance(values, dict):
        if "header" in values:
            kept = [place for place, name in enumerate(values["header"]) if "second" not in name]
            header, *rows = ([row[place] for place in kept] for row in [values["header"], *values["rows"]])
            values = values | {"header": header, "rows": rows}
        return {key: constant(one) for key, one in values.items() if not any(word in key for word in VARYING)}
    if isinstance(values, list):
        return [constant(one) for one in values if not (isinstance(one, str) and "second" in one)]
    return values


def outcome(run: Path) -> dict[str, Any]:
    """Every file of a run, with weights, results, logs and histories; killed while it removes it, a command leaves its lock."""
    found = dict[str, Any]()
    for file in sorted({*run.rglob("*")} - {*run.rglob(LOCK)}):
        name = file.relative_to(run).as_posix()
        if file.name in EXACT:
            found[name] = file.read_bytes()
        elif file.suffix in (".json", ".jsonl"):
            text = re.sub(r"[\d.]+ minutes", "", file.read_text().replace(str(run), "RUN"))
            parts = [json.loads(one) for one in (text.splitlines() if file.suffix == ".jsonl" else [text])]
            found[name] = [constant({key: one for key, one in part.items() if key != "files"}) for part in parts]
        else:
            found[name] = file.is_dir()
    return found


def same_outcome(run: Path, expected: dict[str, Any], where: str = "", tidied: bool = False) -> None:
    """Fails unless a run left the same files with the same content; ``tidied``: but for checkpoints and locks."""
    found = outcome(run)
    if tidied:
        found = {
            name: one for name, one in found.items() if name in expected or not ("checkpoints/" in name or name.endswith(".lock"))
        }
    assert found.keys() == expected.keys(), f"{where}: {found.keys() ^ expected.keys()}"
    different = [name for name in expected if found[name] != expected[name]]
    assert not different, f"{where}: {different}, {[(found[name], expected[name]) for name in different if '.json' in name]}"


def scorings(place: Path) -> list[str]:
    """The models that the ledgers count: their settings and seeds, each as often as they count them."""
    lines = list[dict[str, Any]]()
    for line in (line for ledger in place.rglob("*.ledger.jsonl") for line in ledger.read_text().splitlines()):
        with suppress(ValueError):  # one that a kill has cut
            lines.append(json.loads(line))
    return sorted({line["id"]: f"{line['name']} {line['seed']}" for line in lines}.values())


def forget(place: Path, run: Path) -> None:
    """Remove a run, and what the ledgers know."""
    shutil.rmtree(run, ignore_errors=True)
    for ledger in place.rglob("*.ledger.jsonl"):
        ledger.unlink()


# ---------------------------------------------------------------------------------------------------- at a training step


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """Tasks, a text and models."""
    write_inputs(tmp_path, tokenizer)
    people = [(f"{name} {i}", city) for i in range(8) for name, city in (("Ada", "London"), ("Emil", "Riga"))]
    rows = "".join(f"Where was {name} born?\t{city}\n" for name, city in people)
    (tmp_path / "all.txt").write_text(rows)
    pattern = "source: {pattern: '^(?P<text>[^\\t]+)\\t(?P<label>.+)$'}"
    (tmp_path / "places.yaml").write_text(f"name: places\ntype: answers\n{pattern}\ntrain: all.txt\nvalidation: 4\ntest: all.txt\n")
    manifest = tmp_path / "cats" / "task.yaml"
    manifest.write_text(f"{manifest.read_text()}unlabelled: ../pool.txt\n")
    (tmp_path / "pool.txt").write_text("\n\n".join(f"{sentence} {i * i}" for i in range(30) for sentence in SENTENCES))
    letters = train_tokenizer([rows], TokenizerConfig(type="character", sentinels=0))
    save(language_bundle(letters, "causal"), tmp_path / "writer")
    return tmp_path


def words_of(name: str, place: Path) -> list[str]:
    """A short run of a command."""
    lm, cats, who = (str(place / one) for one in ("lm", "cats", "who"))
    short = ["--seeds", "2", "--batch", "8"]

    def every(steps: int) -> list[str]:
        return in_file(tune={"train": {"evaluate_every": steps}})

    return {
        "adapt": ["adapt", lm, cats, *short, "--steps", "6", *every(2), "--labels", "20", "--no-baselines"],
        "holdout": ["adapt", lm, cats, *short, "--steps", "9", *every(3), "--scheme", "lora", "--no-baselines"],
        "ensemble": ["adapt", lm, cats, *short, "--steps", "3", "--labels", "20", "--no-scratch", "--ensemble"],
        "answers": ["adapt", str(place / "writer"), str(place / "places.yaml"), *short, "--epochs", "2", "--scratch-epochs", "2"],
        "continual": ["continual", lm, cats, who, *short, "--epochs", "1", "--text", str(place / "text.txt")],
    }[name]


COMMANDS = ("adapt", "holdout", "ensemble", "answers", "continual")
ASKED = ("holdout", "answers", "continual")
"""those that are also asked to stop"""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts training steps in its first number; at that of the second, the process is killed, or gets a signal (the third).

    Those that only estimate how long a run takes are not counted.
    """
    counts, step = [0, 0, 0], _Run._step

    def counted(run: _Run, progress: float) -> Any:
        if run.folder is None:
            return step(run, progress)
        if counts[0] + 1 == counts[1]:
            if not counts[2]:
                raise Killed
            signal.raise_signal(counts[2])
        counts[0] += 1
        return step(run, progress)

    monkeypatch.setattr(_Run, "_step", counted)
    monkeypatch.setattr(loop, "FIRST_CHECKPOINT", 0.0)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 1e9)
    return counts


def run_once(words: list[str]) -> int:
    """The exit code of a command; what it locks is free afterwards, however it ends."""
    with releasing_locks():
        return main(words)


ENDS = {
    "killed-early": (0.35, 0, 0),
    "killed-late": (0.9, 0, 0),
    "terminated": (0.5, signal.SIGTERM, 143),
    "interrupted": (0.5, signal.SIGINT, 130),
}
"""how a run ends too early -> after which share of its training steps, by which signal, and its exit code"""


@pytest.mark.chaos
@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_that_ends_too_early_goes_on(
    name: str, place: Path, steps: list[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No training step is taken twice, and model, results, files and scorings are those of an undisturbed run.

    One that is asked to stop, by SIGTERM or Ctrl-C, finishes its step, writes a checkpoint, and says what to do.
    """
    words, whole = words_of(name, place), place / "whole"
    assert run_once([*words, "--out", str(whole)]) == 0
    total, expected, scored = steps[0], outcome(whole), scorings(place)
    for end, (share, number, code) in ENDS.items():
        if number and name not in ASKED:
            continue
        run = place / end
        forget(place, run)
        steps[:] = [0, max(2, round(share * total)), number]
        capsys.readouterr()
        monkeypatch.setattr(loop, "FIRST_CHECKPOINT", 1e9 if number else 0.0)
        if number:
            assert run_once([*words, "--out", str(run)]) == code
            assert f"warmstart: {end}; the same command goes on where it stopped\n" in capsys.readouterr().err
        else:
            with pytest.raises(Killed):
                run_once([*words, "--out", str(run)])
            assert steps[0] == steps[1] - 1
        steps[1] = -1
        assert run_once([*words, "--out", str(run)]) == 0
        assert steps[0] == total
        assert not number or "finished step" in capsys.readouterr().err
        same_outcome(run, expected, end)
        assert scorings(place) == scored, end


@pytest.fixture
def stopped(place: Path, steps: list[int]) -> list[str]:
    """A run that was killed in its second seed."""
    words = [*words_of("holdout", place), "--no-scratch", "--out", str(place / "run")]
    steps[1] = 13
    with pytest.raises(Killed):
        run_once(words)
    steps[1] = -1
    return words


def test_a_run_with_other_inputs_starts_anew(
    place: Path, stopped: list[str], steps: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of another text is used; other settings are refused, and the difference is named."""
    kept = sorted((place / "run" / STEPS_FOLDER).rglob("*"))
    assert run_once([*stopped, "--seeds", "3", "--learning-rate", "0.01"]) == 2
    said = capsys.readouterr().err
    assert "run exists and is not empty; choose another --out, or remove it. It holds a run that was stopped, which goes on" in said
    assert "'seeds' is 3 here and 2 there" in said
    assert "'tune' is" in said
    assert sorted((place / "run" / STEPS_FOLDER).rglob("*")) == kept
    text = next((place / "cats").glob("train*"))
    text.write_text(text.read_text().replace("cat", "cow", 1))
    steps[0] = 0
    assert run_once(stopped) == 0
    assert steps[0] == 2 * 9
    assert not (place / "run" / STEPS_FOLDER).exists()


def test_a_step_that_cannot_be_read_is_made_again(place: Path, stopped: list[str], steps: list[int]) -> None:
    """The run ends well."""
    (step,) = (place / "run" / STEPS_FOLDER).rglob("*.step")
    step.write_bytes(step.read_bytes()[:-3])
    assert run_once(stopped) == 0
    assert not (place / "run" / STEPS_FOLDER).exists()


def test_a_finished_run_leaves_no_steps(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed when only they were to be removed, they go when its folder is next opened; the run is not repeated."""
    words = [*words_of("holdout", place), "--no-scratch", "--seeds", "1", "--out", str(place / "run")]
    with monkeypatch.context() as patch:
        patch.setattr("warmstart.runs.record.is_complete", lambda _: None)
        assert run_once(words) == 0
    assert (place / "run" / STEPS_FOLDER).exists()
    assert run_once(words) == 2
    assert "exists and is not empty; choose another --out, or remove it\n" in capsys.readouterr().err
    left = {"bundle", "config.yaml", "figures", "report.html", "run.json", "verdict.json"}
    assert {one.name for one in (place / "run").iterdir()} == left


# ---------------------------------------------------------------------------------------------------- at a system call

FACTOR = float(os.environ.get("CHAOS", "1"))
"""of the usual number of faults"""
PRETRAIN = [
    "pretrain", "--preset", "tiny", "--max-length", "16", "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "0",
    "--steps", "12", "--batch", "2", "--held-out", "0.1",
    *in_file(train={"checkpoint_every": 4, "evaluate_every": 6}),
]  # fmt: skip


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyCommands]:
    """Commands with faults; only what they write below the test's own folder counts."""
    monkeypatch.setenv("FAULTS_BELOW", str(tmp_path))
    runner = FaultyCommands(tmp_path)
    runner.warm_up(*PRETRAIN, str(write_text(tmp_path)), "--out", str(tmp_path / "warm"))
    yield runner
    runner.close()


def write_text(folder: Path) -> Path:
    """A text of few lines."""
    text = folder / "text.txt"
    text.write_text("\n\n".join(SENTENCES * 5))
    return text


FAULTS = [*SIGNALS, *ERRORS]
CODES = {"SIGKILL": {-9}, "SIGTERM": {143}, "SIGINT": {130}, "ENOSPC": {0, 2}, "EIO": {0, 2}}
"""exit codes; an error in what only tidies up ends nothing"""


def survive(commands: FaultyCommands, words: list[str], place: Path, count: int) -> None:
    """One command with faults in turn at ``count`` calls from its first to its last, each in a new run, against itself without."""
    run, whole, count = place / "run", place / "whole", round(count * FACTOR)
    first = commands.run(*words, "--out", str(whole))
    assert first.code == 0, first.printed
    expected, scored = outcome(whole), scorings(place)
    for number in range(count):
        forget(place, run)
        fault, at = FAULTS[number % len(FAULTS)], 1 + (first.calls - 1) * number // max(1, count - 1)
        where = f"{number}: {fault} at call {at} of {first.calls} of {words[0]}"
        struck = commands.run(*words, "--out", str(run), fault=fault, at=at)
        reached = struck.calls == 0 or struck.calls >= at  # what is cached for all commands is written once
        in_time = struck.code in CODES[fault] or (struck.code == 0 and not reached)
        assert in_time, f"{where}: exit code {struck.code}\n{struck.printed}"
        assert "Traceback" not in struck.printed, f"{where}\n{struck.printed}"
        finished = struck.code == 0 or (words[0] != "recipe" and is_complete(run))
        if finished and (run / STEPS_FOLDER).exists():  # killed while it removed them
            assert commands.run(*words, "--out", str(run)).code == 2
        if not finished:
            resume = words[0] == "pretrain" and (run / "config.yaml").exists() and number % 2
            again = commands.run(*(["pretrain", "--resume", str(run)] if resume else [*words, "--out", str(run)]))
            assert again.code == 0, f"{where}\n{struck.printed}\n{again.printed}"
        same_outcome(run, expected, where, tidied=fault in ERRORS and struck.code == 0)
        assert scorings(place) == scored, where


def recipe(folder: Path) -> list[str]:
    """Two small steps: one that is done is not run again, and one that was struck goes on."""
    tokenizer = {"vocab_size": 330, "sentinels": 0}
    step = {"command": "pretrain", "text": [str(write_text(folder))], "tokenizer": tokenizer, "preset": "tiny", "held_out": "0.1"}
    step |= {"backbone": {"max_length": 16}, "train": {"steps": 4, "batch": 2}}
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump({"title": "small", "steps": {"one": step, "two": step | {"seed": 1}}}))
    return ["recipe", str(file)]


ADAPT = "adapt FOLDER/lm FOLDER/task --steps 6 --batch 8 --seeds 1 --no-scratch --no-baselines"
RACE = (
    "race FOLDER/task --backbones FOLDER/lm --schemes full --learning-rates 0.005 --no-scratch --seeds 1 --steps 6 --batch 8 --jobs"
)
STRUCK: dict[str, tuple[str, int]] = {
    "pretrain": ("", 16), "recipe": ("", 6), "adapt": (ADAPT, 11), "race": (f"{RACE} 1", 8), "race of two jobs": (f"{RACE} 2", 2),
}  # fmt: skip
"""name -> words, if it reads a task, and the number of its faults"""


@pytest.mark.chaos
@pytest.mark.parametrize("name", STRUCK)
def test_a_command_survives(name: str, commands: FaultyCommands, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Weights to the bit, the log, every trial once, the test split scored no more often; and no file is left over."""
    given, count = STRUCK[name]
    if given:
        write_race_inputs(tmp_path, tokenizer)
        words = given.replace("FOLDER", str(tmp_path)).split()
    else:
        words = recipe(tmp_path) if name == "recipe" else [*PRETRAIN, str(write_text(tmp_path))]
    survive(commands, words, tmp_path, count)
