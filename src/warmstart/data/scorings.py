"""The ledger of a test split: which models were scored on it, with which settings, and when.

A test split is a budget. Whoever looks at its scores and then chooses settings has used it as a validation split, a little more
with each look, and the chosen score is too high (Dwork et al. 2015, "The reusable holdout"). So each model that is scored, which
is its settings, its seed and the texts of its task, is one line of JSON in ``NAME.ledger.jsonl`` beside the task's ``NAME.yaml``:

    {"id": "5d41…", "test": "9f86…", "settings": "2c26…", "seed": 3, "name": "lora at learning rate 0.0005", "command": "race",
     "time": "2026-11-22T08:00:00Z", "format": 1, "digest": "b5bb…"}

The same model scored again tells nothing new and adds no line. A line is on the disk before its score is computed: a kill in
between counts one model too many, never one too few. ``test`` identifies the texts, in any order; ``digest`` is a hash of the rest
of the line. Nothing is written anywhere else: tasks in memory are not counted, and findings name a folder that cannot be written.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from warmstart.config import Config, command_name
from warmstart.errors import ConfigError, DataError
from warmstart.system.storage import (
    FORMAT,
    STANDARD_OUTPUT,
    atomic_folder,
    digest_of,
    file_sha256,
    json_or_none,
    require_format,
    sealed,
    unsealed,
)

SUFFIX = ".ledger.jsonl"
MARK = ".written.json"
"""file in the folder of a task: name -> hash of the file as it was written"""
_NAMED = 5
"""files that a message names"""


class ScoredTask(Protocol):
    """The identity of a task in the ledger: ``digest`` identifies all of it, ``test_digest`` the texts of its test split."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def manifest(self) -> Path | None: ...  # noqa: D102
    @property
    def digest(self) -> str: ...  # noqa: D102
    @property
    def test_digest(self) -> str: ...  # noqa: D102


class LedgerEntry(Config):
    """One line: a model that was scored."""

    id: str
    test: str
    settings: str
    """digest of the settings, without the seed"""
    seed: int | None
    name: str
    """the settings for people"""
    command: str
    time: str
    format: int = FORMAT


@dataclass(frozen=True)
class LedgerSummary:
    """The scorings of one test split."""

    entries: tuple[LedgerEntry, ...] = ()
    """every scored model once, oldest first"""
    unreadable: int = 0
    """damaged lines"""
    unwritable: Path | None = None
    """the ledger, if no line can be added to it"""

    @property
    def scorings(self) -> int:
        """Number of scored models."""
        return len(self.entries)

    @property
    def settings(self) -> int:
        """Number of different settings of the models; other seeds are the same settings."""
        return len({entry.settings for entry in self.entries})

    @property
    def sentence(self) -> str:
        """The number of scored models, as a sentence."""
        if not self.entries:
            return "No model has been scored on the test split."
        models = "1 model" if self.scorings == 1 else f"{self.scorings} models"
        models += f" with {self.settings} settings" if self.settings > 1 else " with the same settings" * (self.scorings > 1)
        since = self.entries[0].time[:10]
        if self.scorings == 1:
            return f"{models} has been scored on the test split, on {since}."
        return f"{models} have been scored on the test split since {since}; scores chosen by looking at it are too high."

    @property
    def findings(self) -> list[str]:
        """The sentence if the split was scored, and faults of the ledger."""
        damaged = f"Damaged lines of its ledger, {self.unreadable}, may stand for more."
        uncounted = f"What is scored now is not counted: {self.unwritable} cannot be written."
        return [self.sentence] * bool(self.entries) + [damaged] * bool(self.unreadable) + [uncounted] * bool(self.unwritable)

    def to_dict(self) -> dict[str, Any]:
        """The counts and findings as plain values, fit for JSON."""
        since = self.entries[0].time[:10] if self.entries else None
        return {"scorings": self.scorings, "settings": self.settings, "since": since, "findings": self.findings}


def findings_by_task(names: Sequence[str], ledgers: Sequence[LedgerSummary]) -> list[tuple[str, str]]:
    """(name of the task, finding) of every ledger; ``ledgers`` may be empty."""
    return [(name, finding) for name, ledger in zip(names, ledgers, strict=False) for finding in ledger.findings]


def ledger_file(task: ScoredTask) -> Path | None:
    """The file of a task's ledger; None: the task was made in memory."""
    return task.manifest.with_name(f"{task.manifest.stem}{SUFFIX}") if task.manifest else None


def copy_ledgers(folder: Path, aside: Path) -> None:
    """Copy the ledgers in the folder of a task, which may not exist, to where a later one is written that replaces it."""
    for ledger in folder.glob(f"*{SUFFIX}"):
        shutil.copy(ledger, aside)


def read_ledger(task: ScoredTask) -> LedgerSummary:
    """All models scored on the test split of a task, also under another manifest in its folder.

    Raises ``DataError`` for a line of another format.
    """
    if (own := ledger_file(task)) is None:
        return LedgerSummary()
    entries, damaged = dict[str, LedgerEntry](), 0
    for file in filter(Path.is_file, own.parent.glob(f"*{SUFFIX}")):
        for line in filter(None, map(bytes.strip, file.read_bytes().splitlines())):
            try:
                values = unsealed(line)
                require_format(values, file, DataError)
                entry = LedgerEntry.build(values)
                entries |= {entry.id: entries.get(entry.id, entry)} if entry.test == task.test_digest else {}
            except (ValueError, ConfigError):
                damaged += 1
    writable = os.access(own if own.exists() else own.parent, os.W_OK) and not own.is_dir()
    return LedgerSummary(tuple(sorted(entries.values(), key=lambda entry: entry.time)), damaged, None if writable else own)


class ScoringRun(Config):
    """One run of one command, which scores test splits."""

    command: str

    @classmethod
    def of(cls, config: Config) -> ScoringRun:
        """The run of the command with these settings."""
        return cls(command=command_name(config))

    def method(self, name: str, settings: Mapping[str, Any] | Sequence[Any]) -> ScoredMethod:
        """The subject of this run's scorings: ``name`` for people; ``settings`` without the seed, as plain values."""
        return ScoredMethod(self.command, name, digest_of(settings))


class ScoredMethod(NamedTuple):
    """A model or a baseline with its settings, scored by a run of a command."""

    command: str
    name: str
    settings: str
    """digest"""

    def record(self, task: ScoredTask, seed: int | None) -> None:
        """Write that the test split is about to be scored, unless this very model was scored before."""
        id = digest_of([self.settings, seed, task.digest])
        if all(entry.id != id for entry in read_ledger(task).entries):
            time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            own = {"settings": self.settings, "seed": seed, "name": self.name, "command": self.command}
            _append(ledger_file(task), LedgerEntry.build({"id": id, "test": task.test_digest, "time": time, **own}))


def _append(file: Path | None, entry: LedgerEntry) -> None:
    """Add a line by one system call and flush it to the disk, at the second try if the first fails, if that is possible.

    A torn last line stays on its own.
    """
    for _ in range(2):
        with suppress(OSError):
            if file is not None:
                with file.open("a+b", buffering=0) as handle:
                    torn = handle.seek(0, os.SEEK_END) and handle.seek(-1, os.SEEK_END) >= 0 and handle.read(1) != b"\n"
                    handle.write(b"\n" * bool(torn) + json.dumps(sealed(entry.to_dict())).encode() + b"\n")
                    os.fsync(handle)
            return


# ------------------------------------------------------------------------------------------------ the folder of a task


@contextmanager
def task_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that replaces ``target`` as that of ``atomic_folder`` does, with the ledgers of an earlier task in it.

    Raises ``ConfigError`` if ``target`` is a file, or holds anything but ledgers and what was written there before, unchanged.
    """
    require_task_folder(target)
    with atomic_folder(target) as aside:
        copy_ledgers(target, aside)
        yield aside
        written = {file.name: file_sha256(file) for file in aside.iterdir() if not file.name.endswith(SUFFIX)}
        (aside / MARK).write_text(json.dumps(written, indent=1), encoding="utf-8")


def require_task_folder(target: Path) -> None:
    """Raise ``ConfigError`` unless a task can be written to a folder and nothing of the user's is lost."""
    if str(target) == STANDARD_OUTPUT:
        raise ConfigError(f"a task is written into a folder, but {target} stands for standard output; name a folder")
    if target.exists() and not target.is_dir():
        raise ConfigError(f"a task is written into a folder, but {target} is a file; name another")
    if target.is_dir() and (foreign := [*islice(_foreign(target), _NAMED + 1)]):
        more = " and more" if len(foreign) > _NAMED else ""
        raise ConfigError(
            f"a task is written into a new folder, or over an earlier one that nobody has changed, but {target} holds "
            f"{', '.join(foreign[:_NAMED])}{more}; name another folder"
        )


def _foreign(folder: Path) -> Iterator[str]:
    """The names of files and folders that are not as they were written, and of those that were not written at all."""
    written = json_or_none(folder / MARK) or {}
    for file in sorted(folder.iterdir()):
        if file.name == MARK or file.name.endswith(SUFFIX):
            continue
        if file.is_symlink() or not file.is_file() or written.get(file.name) != file_sha256(file):
            yield file.name
