"""The ledger of a test split: how often it was scored, when, and with which settings.

A test split is a budget. Whoever looks at its scores and then chooses settings has used it as a validation split, a little more
with each look, and the chosen score is too high (Dwork et al. 2015, "The reusable holdout"). So every scored model is one line of
JSON:

    {"id": "5d41…", "test": "9f86…", "task": "trec", "time": "2026-11-22T08:00:00Z", "command": "race", "run": "8b1a…",
     "settings": "2c26…", "name": "lora, learning rate 0.0005", "seed": 3, "seal": "", "warmstart": "0.1.0", "format": 1,
     "event": "scored", "digest": "b5bb…"}

- The line is on the disk before the score is computed: a kill in between counts one scoring too many, never one too few.
- ``test`` identifies the texts, in any order, so the same test split under another name or with other labels has the same ledger,
  and a changed one has none yet.
- ``id`` identifies the run, the settings and the seed: a trial that is resumed counts once, and lines merged by git count once.
- ``digest`` is a hash of the rest of the line: a damaged line is counted as such, whatever it seems to say.
- A line is appended by one system call to a file opened for appending, so several processes can write at once on a local disk.
- Lines go into ``NAME.ledger.jsonl`` beside the task's manifest, if it can be written, and into the user's state folder, where the
  same test split is found again under another folder.
"""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field, ValidationError

from warmstart import __version__
from warmstart.config import Config, command_name
from warmstart.errors import DataError, StorageError
from warmstart.storage import FORMAT, atomic_write, require_format, sealed, sha256, unsealed, user_folder

SUFFIX = ".ledger.jsonl"
RUN_ID = "run_id"
"""file with the id of a run"""
NOT_SCORED = {"out", "jobs", "threads", "budget", "sealed", "backend", "slurm"}
"""settings of a command that change no score"""


class ScoredTask(Protocol):
    """What the ledger needs to know of a task."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def manifest(self) -> Path | None:
        """The file that it was read from; None if it was made in memory."""

    @property
    def sealed(self) -> bool:
        """Whether its manifest allows one run on the test split."""

    @property
    def test_digest(self) -> str:
        """Identifies the texts of its test split."""


class LedgerEntry(Config):
    """One line."""

    event: Literal["scored", "finished"] = "scored"
    """a model was scored, or a sealed run has come to its end"""
    id: str
    test: str
    task: str
    time: str
    """UTC, as in 2026-11-22T08:00:00Z"""
    command: str
    run: str
    """one run of one command, with its resumed parts"""
    settings: str = ""
    """digest of the settings, without the seed"""
    name: str = ""
    """the settings in short"""
    seed: int | None = None
    seal: str = ""
    """digest of the command's settings if it was sealed"""
    warmstart: str = __version__
    format: int = FORMAT


@dataclass(frozen=True)
class LedgerSummary:
    """What the ledger says of one test split."""

    entries: tuple[LedgerEntry, ...] = ()
    """every scored model once, oldest first"""
    finished: frozenset[str] = frozenset()
    """seals of the sealed runs that have come to their end"""
    unreadable: int = 0
    """damaged lines"""
    files: tuple[Path, ...] = ()
    """those that hold the entries"""
    only_state: bool = False
    """the task has a manifest, but its folder cannot be written"""

    HEADER: ClassVar = ("settings", "scorings", "seeds", "commands", "first", "last")
    """names the columns of ``table``"""

    @property
    def scorings(self) -> int:
        """How many models were scored."""
        return len(self.entries)

    @property
    def settings(self) -> int:
        """How many settings they had; other seeds are the same settings."""
        return len({entry.settings for entry in self.entries})

    @property
    def sentence(self) -> str:
        """How often the test split was scored."""
        if not self.entries:
            return "The test split has never been scored."
        since, last = self.entries[0].time[:10], self.entries[-1].time[:10]
        settings = f"{self.settings} settings" if self.settings > 1 else "the same settings"
        count = f"{self.scorings} times with {settings}" if self.scorings > 1 else "once"
        if all(entry.seal for entry in self.entries):
            return f"The test split is sealed: one run has scored it, {count}, by {last}; no other run can."
        if self.scorings == 1:
            return f"The test split has been scored once, on {last}."
        return f"The test split has been scored {count} since {since}; scores chosen by looking at it are too high."

    @property
    def findings(self) -> list[str]:
        """The same if it was scored at all; also what is wrong with the ledger."""
        findings = [self.sentence] if self.entries else []
        if self.unreadable:
            lines = "1 line of its ledger is" if self.unreadable == 1 else f"{self.unreadable} lines of its ledger are"
            findings.append(f"{lines} damaged and may stand for more scorings.")
        if self.only_state:
            findings.append("Its ledger is kept in the user's state folder, because the folder of the task cannot be written.")
        return findings

    def table(self) -> list[tuple[str, ...]]:
        """One row per settings, the first scored first, under ``HEADER``."""
        groups: dict[str, list[LedgerEntry]] = {}
        for entry in self.entries:
            groups.setdefault(entry.settings, []).append(entry)
        return [
            (
                found[0].name,
                str(len(found)),
                str(len({entry.seed for entry in found})),
                ", ".join(sorted({entry.command for entry in found})),
                found[0].time[:10],
                found[-1].time[:10],
            )
            for found in groups.values()
        ]

    def to_dict(self) -> dict[str, Any]:
        """The counts and findings as plain values, fit for JSON."""
        return {
            "scorings": self.scorings,
            "settings": self.settings,
            "since": self.entries[0].time[:10] if self.entries else None,
            "sealed": bool(self.entries) and all(entry.seal for entry in self.entries),
            "unreadable": self.unreadable,
            "findings": self.findings,
        }


def findings_by_task(names: Sequence[str], ledgers: Sequence[LedgerSummary]) -> list[tuple[str, str]]:
    """(name of the task, finding) of every ledger; ``ledgers`` may be empty."""
    return [(name, finding) for name, ledger in zip(names, ledgers, strict=False) for finding in ledger.findings]


@dataclass(frozen=True)
class Ledger:
    """The ledger of one test split: the files that its lines are read from and written to."""

    test: str
    beside: Path | None
    """beside the manifest"""
    state: Path | None
    """in the user's state folder; None if there is no such folder"""

    @classmethod
    def of(cls, task: ScoredTask) -> Ledger:
        """The ledger of a task's test split."""
        manifest, folder = task.manifest, state_folder()
        beside = manifest.with_name(f"{manifest.stem}{SUFFIX}") if manifest else None
        state = folder / f"{task.test_digest}{SUFFIX}" if folder else None
        return cls(task.test_digest, beside, state)

    def read(self) -> LedgerSummary:
        """All entries of this test split, also those in the ledgers of other tasks beside the manifest."""
        others = sorted(self.beside.parent.glob(f"*{SUFFIX}")) if self.beside else []
        own = [file for file in (self.beside, self.state) if file]
        entries, finished, unreadable, files = dict[str, LedgerEntry](), frozenset[str](), 0, list[Path]()
        for file in dict.fromkeys([*own, *others]):
            found = _read_lines(file, self.test)
            unreadable += found.damaged if file in own else 0
            files += [file] if found.entries or found.finished else []
            finished |= found.finished
            entries = entries | found.entries | entries  # the first of every id
        ordered = tuple(sorted(entries.values(), key=attrgetter("time")))
        only_state = bool(ordered) and self.beside is not None and self.beside not in files and self.state in files
        return LedgerSummary(ordered, finished, unreadable, tuple(files), only_state and not _writable(self.beside))

    def append(self, entry: LedgerEntry) -> None:
        """Write an entry to the disk, in every place that can be written. Raises ``StorageError`` if there is none."""
        line = (json.dumps(sealed(entry.to_dict())) + "\n").encode()
        written = [_append(file, line) for file in (self.beside, self.state) if file]
        if not any(written):
            places = " or ".join(str(file) for file in (self.beside, self.state) if file)
            raise StorageError(
                f"a scoring of the test split is recorded before it happens, but {places or 'the ledger'} cannot be written; "
                "set XDG_STATE_HOME to a folder that can"
            )


class ScoringRun(Config):
    """One run of one command, which scores test splits."""

    command: str
    id: str = Field(default_factory=lambda: uuid.uuid4().hex[:16])
    """the same after a resume"""
    seal: str = ""
    """digest of the command's settings if no other run may score the test split; else empty"""

    @classmethod
    def begin(cls, tasks: Sequence[ScoredTask], config: Config, run: str = "") -> ScoringRun:
        """The run of a command with these settings on these tasks; ``run`` is the id of the run that it resumes.

        Without it, that which the run's folder keeps, if the run was stopped before its end.

        It is sealed if the settings or a manifest say so. To be called before anything is trained: raises ``DataError`` if it may
        not score a test split.
        """
        sealed = getattr(config, "sealed", False) or any(task.sealed for task in tasks)
        settings = {name: value for name, value in config.to_dict().items() if name not in NOT_SCORED}
        out = getattr(config, "out", None)
        run = run or (read_run_id(Path(out)) if out else "")
        command = command_name(config)
        begun = cls(command=command, seal=digest_of([command, settings]) if sealed else "", **({"id": run} if run else {}))
        for task in tasks:
            begun.check(task)
        return begun

    def method(self, name: str, settings: Mapping[str, Any] | Sequence[Any]) -> ScoredMethod:
        """What this run scores: ``name`` for people; ``settings`` without the seed, as plain values."""
        return ScoredMethod(self, name, digest_of(settings))

    def keep(self, folder: Path) -> None:
        """Keep the id in the folder of a run, so that what goes on after an interruption counts once."""
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / RUN_ID, self.id.encode())

    def check(self, task: ScoredTask) -> None:
        """Raise ``DataError`` if another run has sealed the test split, or has scored it and this run is sealed."""
        ledger = Ledger.of(task).read()
        relevant = (entry for entry in ledger.entries if self.seal or entry.seal)
        others = [entry for entry in relevant if not self._owns(entry, ledger)]
        sealed = [entry for entry in others if entry.seal]
        advice = "choose on the validation split, or report on a new test split"
        if sealed:
            raise DataError(
                f"the test split of '{task.name}' is sealed: one run of `{sealed[0].command}` scored it on {sealed[0].time[:10]}, "
                f"and no other run can; {advice}"
            )
        if self.seal and others:
            times = "once" if len(others) == 1 else f"{len(others)} times since {others[0].time[:10]}"
            raise DataError(
                f"a sealed run must be the only one that scores the test split of '{task.name}', but it has been scored {times}; "
                f"{advice}, or leave the run unsealed"
            )

    def _owns(self, entry: LedgerEntry, ledger: LedgerSummary) -> bool:
        """Whether an entry is of this run, or of the sealed command that it continues.

        An interrupted command is continued with the same settings, a finished one only by a run that took part in it.
        """
        if not self.seal or entry.seal != self.seal:
            return entry.seal == self.seal and entry.run == self.id
        return self.seal not in ledger.finished or self.id in {one.run for one in ledger.entries if one.seal == self.seal}

    def finish(self, tasks: Iterable[ScoredTask]) -> None:
        """Note that the run is complete: if it is sealed, it cannot be started again; a sweep can still be continued."""
        for task in tasks if self.seal else ():
            Ledger.of(task).append(self._entry(task, event="finished", id=digest_of([self.id, "finished"])))

    def _entry(self, task: ScoredTask, **values: Any) -> LedgerEntry:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        shared = {"test": task.test_digest, "task": task.name, "time": now}
        return LedgerEntry(**shared, command=self.command, run=self.id, seal=self.seal, **values)


class ScoredMethod(NamedTuple):
    """A model or a baseline with its settings, scored by one run."""

    run: ScoringRun
    name: str
    settings: str
    """digest"""

    def record(self, task: ScoredTask, seed: int | None) -> None:
        """Write that the test split is about to be scored.

        Raises ``DataError`` if the run may not do that, ``StorageError`` if no ledger can be written. The check is repeated after
        writing: of two sealed runs that score at the same moment, both are refused and neither sees a score.
        """
        self.run.check(task)
        own = {"id": digest_of([self.run.id, self.settings, seed]), "settings": self.settings, "name": self.name, "seed": seed}
        Ledger.of(task).append(self.run._entry(task, **own))
        self.run.check(task)


def read_run_id(folder: Path) -> str:
    """The id that ``ScoringRun.keep`` wrote; empty if there is none."""
    file = folder / RUN_ID
    return file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""


def described_settings(name: str, learning_rate: float = 0.0, labels: int | None = None, selection: str = "") -> str:
    """A method for people, with the ``--selection`` that chose its settings.

    ``described_settings("lora", 5e-4, 100, "holdout")`` -> ``"lora at learning rate 0.0005, 100 labels, selection holdout"``
    """
    rate = f" at learning rate {learning_rate:g}" if learning_rate else ""
    return f"{name}{rate}{f', {labels} labels' if labels else ''}{f', selection {selection}' if selection else ''}"


def digest_of(values: Any) -> str:
    """A short digest of plain values."""
    return sha256(json.dumps(values, sort_keys=True).encode())[:16]


def state_folder() -> Path | None:
    """Where ledgers are kept for the user: ``$XDG_STATE_HOME/warmstart/ledgers``, by default in ``~/.local/state``."""
    folder = user_folder("XDG_STATE_HOME", ".local/state")
    return folder / "ledgers" if folder else None


class _Lines(NamedTuple):
    """What the lines of a file say of a test split."""

    text: bytes
    """the complete lines"""
    entries: dict[str, LedgerEntry]
    """the first of every id; never changed"""
    finished: frozenset[str]
    """seals of finished runs"""
    damaged: int

    def followed_by(self, text: bytes, test: str, file: Path) -> _Lines:
        """With more lines, which alone are parsed. Raises ``DataError`` for a line of another format."""
        entries, finished, damaged = dict(self.entries), set(self.finished), self.damaged
        for line in filter(None, map(bytes.strip, text.splitlines())):
            try:
                values = unsealed(line)
                require_format(values, file, DataError)
                if values["test"] == test:
                    entry = LedgerEntry.model_validate(values)
                    if entry.event == "finished":
                        finished.add(entry.seal)
                    else:
                        entries.setdefault(entry.id, entry)
            except (ValueError, TypeError, KeyError, ValidationError):
                damaged += 1
        return _Lines(self.text + text, entries, frozenset(finished), damaged)


_NOTHING = _Lines(b"", {}, frozenset(), 0)
_READ: dict[tuple[Path, str], _Lines] = {}
"""what was read last time, by file and test split"""


def _read_lines(file: Path, test: str) -> _Lines:
    """What a file says of a test split.

    Every scoring reads the ledger, which only grows: if it starts with the bytes that were read last time, only what follows them
    is parsed. A file that was changed in another way is parsed whole.
    """
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return _NOTHING
    except OSError:
        return _NOTHING._replace(damaged=1)
    known = _READ.get((file, test), _NOTHING)
    if not text.startswith(known.text):
        known = _NOTHING
    if text == known.text:
        return known
    complete = text.rfind(b"\n") + 1  # a torn last line may still be completed
    _READ[file, test] = lines = known.followed_by(text[len(known.text) : complete], test, file)
    return lines.followed_by(text[complete:], test, file) if text[complete:] else lines


def _append(file: Path, line: bytes) -> bool:
    """Append a line and flush it to the disk; False if the file cannot be written. A torn last line stays on its own."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+b", buffering=0) as handle:
            if handle.seek(0, os.SEEK_END):
                handle.seek(-1, os.SEEK_END)
                line = line if handle.read(1) == b"\n" else b"\n" + line
            complete = handle.write(line) == len(line)
            os.fsync(handle)
    except OSError:
        return False
    return complete


def _writable(file: Path | None) -> bool:
    """Whether a ledger could be written there."""
    return file is not None and os.access(file if file.exists() else file.parent, os.W_OK) and not file.is_dir()
