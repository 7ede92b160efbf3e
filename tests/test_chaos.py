"""Kills, full disks and read errors at system calls of writing: the same command goes on, and ends as if nothing had been.

``make soak`` does the same with many more of them (``CHAOS``, a factor).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.faults import ERRORS, SIGNALS, FaultyCommands
from helpers.models import SENTENCES
from helpers.settings import in_file
from helpers.tasks import write_race_inputs
from warmstart.runs.record import is_complete
from warmstart.system.locks import LOCK
from warmstart.system.storage import STEPS_FOLDER
from warmstart.tokenizer.tokenizer import Tokenizer

FACTOR = float(os.environ.get("CHAOS", "1"))
"""of the usual number of faults"""
TIMES = (
    "second", "memory", "provenance", "time", "date", "tokens_per", "command", "out", "task", "model", "backbone", "digest",
    "warmstart",
)  # fmt: skip
"""parts of the keys of what no two runs share"""
PRETRAIN = [
    "pretrain", "--preset", "tiny", "--max-length", "16", "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "0",
    "--steps", "12", "--batch", "2", "--held-out", "0.1",
    *in_file(train={"checkpoint_every": 4, "evaluate_every": 6}),
]  # fmt: skip
pytestmark = pytest.mark.chaos


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


def undisturbed(values: Any) -> Any:
    """Values without those that differ from run to run."""
    if isinstance(values, dict):
        return {key: undisturbed(one) for key, one in values.items() if not any(word in key for word in TIMES)}
    return [undisturbed(one) for one in values] if isinstance(values, list) else values


def outcome_of(run: Path) -> dict[str, Any]:
    """Every file of a run, with what must not depend on what happened on the way."""
    found = dict[str, Any]()
    for file in sorted({*run.rglob("*")} - {*run.rglob(LOCK)}):  # killed while it removes it, a finished command leaves its lock
        name = file.relative_to(run).as_posix()
        if file.suffix == ".jsonl":
            found[name] = [undisturbed(json.loads(line)) for line in file.read_text().splitlines()]
        elif file.suffix == ".json" and "trials" in file.parts:
            found[name] = undisturbed(json.loads(file.read_text()))
        elif file.name in ("weights.safetensors", "tokenizer.json", "tokens.bin", "bounds.npy"):
            found[name] = file.read_bytes()
        else:
            found[name] = file.is_dir()
    return found


def scorings(task: Path) -> list[str]:
    """The models that the ledger counts: their settings and seeds, each as often as it counts them."""
    ledgers = task.glob("*.ledger.jsonl")
    lines = list[dict[str, Any]]()
    for line in (line for ledger in ledgers for line in ledger.read_text().splitlines()):
        with suppress(ValueError):  # one that a kill has cut
            lines.append(json.loads(line))
    ids = {line["id"]: f"{line['name']} {line['seed']}" for line in lines}
    return sorted(ids.values())


def forget(run: Path, task: Path | None) -> None:
    """Remove a run, and what the ledger knows."""
    shutil.rmtree(run, ignore_errors=True)
    for ledger in task.glob("*.ledger.jsonl") if task else ():
        ledger.unlink()


FAULTS = [*SIGNALS, *ERRORS]
CODES = {"SIGKILL": {-9}, "SIGTERM": {143}, "SIGINT": {130}, "ENOSPC": {0, 2}, "EIO": {0, 2}}
"""exit codes; an error in what only tidies up ends nothing"""


def survive(commands: FaultyCommands, words: list[str], run: Path, count: int, task: Path | None = None) -> None:
    """One command with faults in turn at ``count`` calls from its first to its last, each in a new run, against itself without."""
    whole, count = run.with_name("whole"), round(count * FACTOR)
    forget(run, task)
    first = commands.run(*words, "--out", str(whole))
    assert first.code == 0, first.printed
    expected, scored = outcome_of(whole), scorings(task) if task else []
    for number in range(count):
        forget(run, task)
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
        found = outcome_of(run)
        if fault in ERRORS and struck.code == 0:  # an older checkpoint, or a lock, that could not be removed stays
            tidied = [name for name in found.keys() - expected.keys() if "checkpoints/" in name or name.endswith(".lock")]
            found = {name: one for name, one in found.items() if name not in tidied}
        assert found.keys() == expected.keys(), f"{where}: {found.keys() ^ expected.keys()}"
        different = [name for name in expected if found[name] != expected[name]]
        assert not different, f"{where}: {different}, {[(found[name], expected[name]) for name in different if '.json' in name]}"
        assert not task or scorings(task) == scored, where


def recipe(folder: Path) -> list[str]:
    """Two small steps: one that is done is not run again, and one that was struck goes on."""
    tokenizer = {"vocab_size": 330, "sentinels": 0}
    step = {"command": "pretrain", "text": [str(write_text(folder))], "tokenizer": tokenizer, "preset": "tiny", "held_out": "0.1"}
    step |= {"backbone": {"max_length": 16}, "train": {"steps": 4, "batch": 2}}
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump({"title": "small", "steps": {"one": step, "two": step | {"seed": 1}}}))
    return ["recipe", str(file)]


ADAPT = "adapt FOLDER/lm FOLDER/task --steps 6 --batch 8 --seeds 2 --no-scratch --no-baselines"
RACE = (
    "race FOLDER/task --backbones FOLDER/lm --schemes full --learning-rates 0.005 --no-scratch --seeds 1 --steps 6 --batch 8 --jobs"
)
COMMANDS: dict[str, tuple[str, int]] = {
    "pretrain": ("", 16), "recipe": ("", 6), "adapt": (ADAPT, 11), "race": (f"{RACE} 1", 8), "race of two jobs": (f"{RACE} 2", 2),
}  # fmt: skip
"""name -> words, if it reads a task, and the number of its faults"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_survives(name: str, commands: FaultyCommands, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Weights to the bit, the log, every trial once, the test split scored no more often; and no file is left over."""
    given, count = COMMANDS[name]
    if given:
        write_race_inputs(tmp_path, tokenizer)
        survive(commands, given.replace("FOLDER", str(tmp_path)).split(), tmp_path / "run", count, tmp_path / "task")
    else:
        words = recipe(tmp_path) if name == "recipe" else [*PRETRAIN, str(write_text(tmp_path))]
        survive(commands, words, tmp_path / "run", count)
