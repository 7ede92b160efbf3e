"""One command line of ``warmstart`` behind a table: run in a process of its own, its result kept as JSON.

``python -m benchmarks.command FILE COMMAND ...`` is that process: the command's result goes into FILE. A line such as ``python -m
benchmarks.training`` is a module of this package that measures speed and memory, one such as ``python -m pytest tests/…`` runs
simulations.

Everything is written into the folder of the runs: ``--out runs/x`` means ``x`` in that folder. A result that exists is not measured
again, except that races and curves take up their finished trials: that takes seconds and applies the statistics of today.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmstart.runs.record import read_record_of
from warmstart.system.storage import atomic_write

RESUMES = {"race"}
"""commands that take up their finished trials"""
RUNS = "runs/"
"""how command lines name the folder of the runs"""
THREADS = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Measured:
    """What one command found, and what it took."""

    result: dict[str, Any]
    seconds: float
    """of all attempts until it was done; what a race that is taken up again adds does not count"""
    date: str
    machine: str
    clock: str = ""
    """what is to be known of its seconds, if other programs disturbed it"""


def words_of(line: str, runs: Path) -> list[str]:
    """The words after ``warmstart``, with variables filled in and paths in the folder of the runs."""
    words = [os.path.expandvars(word) for word in shlex.split(line)]
    words = [str(runs / word.removeprefix(RUNS)) if word.startswith(RUNS) else word for word in words]
    return words[1:] if words[0] == "warmstart" else words


def measure(line: str, name: str, runs: Path, *, render: bool = False) -> Measured:
    """Run a command line unless its result exists, under ``tables/NAME.json``; ``render`` leaves finished races alone too."""
    file, words = runs / "tables" / f"{name}.json", words_of(line, runs)
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    kept = kept if kept.get("command") == line else {"command": line, "seconds": 0.0}
    if "result" not in kept and (found := _made_before(words)):
        return found
    if "result" not in kept or (words[0] in RESUMES and not render):
        _run(words, file, kept)
    return Measured(**{key: kept[key] for key in ("result", "seconds", "date", "machine")}, clock=kept.get("clock", ""))


def _run(words: list[str], file: Path, kept: dict[str, Any]) -> None:
    """Run the process and update ``kept``, here and in the file; the seconds of a failed attempt count as well."""
    started, answer, first = time.monotonic(), file.with_suffix(".part"), "result" not in kept
    file.parent.mkdir(parents=True, exist_ok=True)
    process = [sys.executable, "-m", "benchmarks.command", str(answer), *_resumed(words, kept)]
    try:
        if subprocess.run(process, env=os.environ | THREADS, stdout=sys.stderr, check=False).returncode:
            raise SystemExit(f"this command failed: {shlex.join(['warmstart', *words])}")
        kept |= json.loads(answer.read_text(encoding="utf-8"))
        answer.unlink()
    finally:
        if first:
            kept |= {"seconds": kept["seconds"] + time.monotonic() - started, "date": datetime.date.today().isoformat()}
        atomic_write(file, json.dumps(kept, indent=1).encode())


def _resumed(words: list[str], kept: dict[str, Any]) -> list[str]:
    """Pretraining that was interrupted is resumed."""
    out = words[words.index("--out") + 1] if words[0] == "pretrain" else None
    return ["pretrain", "--resume", out] if out and kept["seconds"] and (Path(out) / "checkpoints").exists() else words


def _made_before(words: list[str]) -> Measured | None:
    """A model that this command line made by hand in this ``--out``, however that was written: its bundle says what came of it."""
    if words[0] not in ("pretrain", "import"):
        return None
    out = Path(words[words.index("--out") + 1])
    for record in reversed([record for folder in (out, out / "bundle") for record in history(folder)]):
        made = record["provenance"]
        if _without_out(shlex.split(made["command"])[1:]) == _without_out(words):
            return Measured(record, record.get("seconds") or 0.0, made["date"], made["machine"])
    return None


def _without_out(words: list[str]) -> list[str]:
    """The words in an order of their own, without ``--out`` and its folder."""
    place = words.index("--out") if "--out" in words else len(words)
    return sorted([*words[:place], *words[place + 2 :]])


def forget(line: str, name: str, runs: Path) -> None:
    """Delete the result of a command line and its folder under ``runs/tables``, so that it is measured again."""
    (runs / "tables" / f"{name}.json").unlink(missing_ok=True)
    for word in words_of(line, runs):
        if Path(word).is_relative_to(runs / "tables"):
            shutil.rmtree(word, ignore_errors=True)


def history(folder: Path) -> list[dict[str, Any]]:
    """The records of a bundle, oldest first; none where there is no bundle."""
    file = folder / "bundle.json"
    return list(json.loads(file.read_text(encoding="utf-8"))["history"]) if file.exists() else []


def main(file: str, words: list[str]) -> None:
    """Run one command here, and write its result and the machine."""
    from benchmarks.harness import CPU, clock_note

    from warmstart.cli import read_command
    from warmstart.errors import WarmstartError
    from warmstart.system.machine import describe_machine

    if words[:3] == ["python", "-m", "pytest"]:
        result = {"figures": importlib.import_module("benchmarks.simulations").run(words[1:])}
    elif words[0] == "python":
        result = {"table": importlib.import_module(words[-1]).run() or sys.exit("nothing was measured")}
    else:
        try:
            run, settings = read_command(words)
            result = run(settings)
        except WarmstartError as error:
            sys.exit(f"warmstart: {error}")
    kept = {"result": values_of(result), "machine": describe_machine(CPU), "clock": clock_note()}
    atomic_write(Path(file), json.dumps(kept).encode())


def values_of(result: Any) -> dict[str, Any]:
    """A command's result as plain values; ``printed``: the table that it prints in the terminal, if it is a single one."""
    if isinstance(result, Path):
        return {"steps": recipe_steps(result)}
    values = result.to_dict() if hasattr(result, "to_dict") else result if isinstance(result, dict) else {}
    shown = result if hasattr(result, "HEADER") else getattr(result, "comparison", None)  # races; adaptations
    if summary := getattr(result, "summary", None):
        return values | {"printed": {"header": [*summary.header], "rows": [[*row] for row in summary.rows]}}
    if shown is not None:
        return values | {
            "printed": {"header": [*(getattr(shown, "header", None) or shown.HEADER)], "rows": [[*row] for row in shown.table()]}
        }
    return values


def recipe_steps(folder: Path) -> dict[str, Any]:
    """The steps of a recipe: what the bundle of each says of it, its minutes, and the last loss of its training."""
    steps = {}
    for name, step in read_record_of(folder).get("steps", {}).items():
        log, records = folder / name / "metrics.jsonl", history(folder / name / "bundle")
        losses = [json.loads(line).get("loss") for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
        last = [loss for loss in losses if loss is not None][-1:]
        steps[name] = {**(records[-1] if records else {}), "minutes": step["seconds"] / 60, "last_loss": last[0] if last else None}
    return steps


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
