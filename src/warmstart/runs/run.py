"""A run: its folder, as every command that trains or measures writes it, and its finished steps, which are never repeated.

run.json            command, state, headline, what it is made of
config.yaml         all settings
steps/KEY/NAME.step what a finished step gave, until the run ends: killed at any moment, the same command goes on
steps/KEY/NAME/     a step that is not finished: its log, its checkpoints, its own steps
metrics.jsonl       the log of training
checkpoints/        to resume from
bundle/             the model
report.html         the report, with figures/ beside it

KEY is that of all that the run depends on: where anything of it has changed, there is no such step. One that cannot be read is made
again. Of several processes that share a run (``training/distributed.py``) rank 0 writes.
"""

from __future__ import annotations

import datetime
import json
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from warmstart.config import Config, ThreadsConfig, command_name, read_yaml, result_key
from warmstart.errors import ConfigError, DataError, StorageError
from warmstart.model.history import Provenance
from warmstart.runs.made_of import made_of
from warmstart.runs.record import is_complete, read_record_of, write_record
from warmstart.runs.values import read_values, write_values
from warmstart.system.console import console
from warmstart.system.device import busy_warning, free_threads, pick_device
from warmstart.system.locks import LOCK, hold
from warmstart.system.machine import describe_machine
from warmstart.system.storage import RUN_FILE, SETTINGS, STEPS_FOLDER, atomic_write, is_leftover, make_folder, sweep
from warmstart.training.distributed import world
from warmstart.version import __version__

LONGEST_SETTING = 60
"""characters of a setting in an error message"""
_SUFFIX = ".step"
_NO_RESULTS = (SETTINGS, RUN_FILE, LOCK)
"""files of a folder that may be that of another run: with these alone one stopped before it had any result"""


@dataclass(frozen=True)
class Run:
    """A run that is open, or one of its steps."""

    place: Path | None = None
    """None: nothing is kept"""
    made_of: Mapping[str, str] = field(default_factory=dict)
    """all that it depends on: names and hashes"""
    prefix: str = ""
    """before the name of every step"""
    found: frozenset[str] = frozenset()
    """names in the folder before it was opened"""

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        assert self.place is not None, "nothing of this run is kept"
        return self.place

    @classmethod
    def open(cls, out: str, config: Config, *, extend: bool = False) -> Run:
        """Make the folder of a new run, or go on with this very run if it did not come to its end.

        With ``extend`` the folder may hold results of the same command with other settings. For ``ThreadsConfig``, also chooses the
        number of threads of this process; a run that goes on takes the recorded one. The folder is locked until the command ends,
        and what a killed process left there is removed. Raises ``ConfigError`` if the folder holds anything else (nothing is ever
        overwritten), ``StorageError`` if another process writes there, or if this is not the first process of the run and does not
        see the folder.
        """
        path, made = Path(out), made_of(config)
        found = frozenset(file.name for file in path.iterdir()) if path.is_dir() else frozenset()
        if world().leads:
            _open(path, config, made, extend=extend)
        elif not (path / SETTINGS).is_file():
            raise StorageError(
                f"{path} must lie on a file system that all machines share, but {platform.node()} does not see what rank 0 wrote "
                "there; choose another --out"
            )
        return cls(path, made, found=found)

    @contextmanager
    def emptied_if_refused(self) -> Iterator[None]:
        """If a text or a setting is refused before there is a checkpoint, remove what was made since the run was opened.

        So --out may be used again; whatever lay there stays.
        """
        try:
            yield
        except (ConfigError, DataError):
            if world().leads and not any((self.folder / name).exists() for name in ("checkpoints", "bundle")):
                for made in [one for one in self.folder.iterdir() if one.name not in (*_NO_RESULTS, *self.found)]:
                    shutil.rmtree(made) if made.is_dir() else made.unlink()
            raise

    def within(self, name: str) -> Run:
        """A run whose steps all have names that begin with ``name``."""
        return replace(self, prefix=f"{self.prefix}{name}, ")

    def step(self, name: str, make: Callable[[Run], Any]) -> Any:
        """The value of a step: plain values, arrays and tensors in mappings, lists and tuples; made now, if it is not kept.

        ``make`` is given a run of its own, whose folder is there until the step is finished.
        """
        if self.place is None:
            return make(self)
        plain = re.sub(r"[^\w+-]+", "-", f"{self.prefix}{name}")
        place = _steps(self.folder, self.made_of) / plain
        found = read_values(place.with_suffix(_SUFFIX))
        if found is None:
            make_folder(place)
            found = make(Run(place, self.made_of))
            self._keep(place, found)
        return found

    def _keep(self, place: Path, values: Any) -> None:
        """Keep what a step gave, and remove where it worked."""
        write_values(place.with_suffix(_SUFFIX), values)
        shutil.rmtree(place, ignore_errors=True)
        if read_record_of(self.folder):  # that of a step has none
            write_record(self.folder, done=len([*place.parent.glob(f"*{_SUFFIX}")]))


UNKEPT = Run()
"""keeps no step"""


def _steps(folder: Path, made: Mapping[str, str]) -> Path:
    """Where the steps of a run lie that is made of this."""
    return folder / STEPS_FOLDER / result_key(dict(made))[:12]


def _finished(steps: Path) -> list[Path]:
    """The files of finished steps."""
    return [*steps.rglob(f"*{_SUFFIX}")]


def _open(path: Path, config: Config, made: Mapping[str, str], *, extend: bool) -> None:
    if extend:
        _check_command(path, config)
    else:
        _goes_on(path, config)
    make_folder(path)
    hold(path / LOCK, str(path))
    sweep(path)
    begun = extend or _goes_on(path, config)  # another process may have written since the first look
    if isinstance(config, ThreadsConfig):
        config = _with_threads(config, read_yaml(path / SETTINGS).get("threads") if begun else None)
    console.print(f"computing on {describe_machine(pick_device())}")
    text = yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
    about = {"command": command_name(config), "settings": SETTINGS, "state": "running", "headline": "", "made_of": dict(made)}
    write_record(path, **about, made_in=str(Path.cwd()), provenance=provenance().to_dict())
    atomic_write(path / SETTINGS, f"# {command_name(config)}\n{text}".encode())  # its first line names the command
    kept, own = _finished(path / STEPS_FOLDER), _finished(_steps(path, made))
    if own:
        steps = "1 finished step of this run is" if len(own) == 1 else f"{len(own)} finished steps of this run are"
        console.print(f"{steps} kept in {path / STEPS_FOLDER}, and not repeated.")
    if len(kept) > len(own):
        console.print("A file of this run, or warmstart, has changed since it was stopped: what was done is made again.")
    if warning := busy_warning():
        console.print(f"note: {warning}")


def _goes_on(path: Path, config: Config) -> bool:
    """Whether a path holds this very run, unfinished. Raises ``ConfigError`` if it holds anything else."""
    complete, kept, opened = is_complete(path), _kept_settings(path, config), _opened_by(path, config)
    if opened and not complete and kept is not None and result_key(kept) == result_key(config):
        return True
    if not _holds_only(path, _NO_RESULTS if opened else (LOCK,)):
        advice = "" if complete else _advice(path, config, kept)
        raise ConfigError(f"{path} exists and is not empty; choose another --out, or remove it{advice}")
    return False


def _check_command(path: Path, config: Config) -> None:
    """Raise ``ConfigError`` if a path that may be extended holds anything but a run of the same command."""
    if _opened_by(path, config) != command_name(config) and not _holds_only(path, (LOCK,)):
        raise ConfigError(f"{path} exists and is not empty; choose another --out, or remove it")


def _holds_only(path: Path, names: Sequence[str]) -> bool:
    """Whether nothing is at a path but, at most, a folder with these files and what killed processes left."""
    return not path.exists() or (path.is_dir() and all(file.name in names or is_leftover(file.name) for file in path.iterdir()))


def _opened_by(path: Path, config: Config) -> str | None:
    """The command of the run that was opened in a folder; None: there is none, and files of its names are somebody else's.

    Where damage has taken the record, the first line of the settings names the command.
    """
    record, name = read_record_of(path), command_name(config)
    if record.get("settings") == SETTINGS:
        return str(record.get("command"))
    with suppress(OSError, UnicodeDecodeError):
        if (path / SETTINGS).read_text(encoding="utf-8").startswith(f"# {name}\n"):
            return name
    return None


def _advice(path: Path, config: Config, kept: Config | None) -> str:
    """Other ways out if a folder holds something, maybe this run with other settings."""
    if "resume" in type(config).model_fields and (path / "checkpoints").exists():
        return f", or resume it with `warmstart pretrain --resume {path}`"
    if kept is None:
        return ""
    mine, others = config.effective(), kept.effective()
    changed = [
        f"'{name}' is {_short(mine[name])} here and {_short(others[name])} there" for name in mine if mine[name] != others[name]
    ]
    return f". It holds a run that was stopped, which goes on with its own settings: {'; '.join(changed[:3])}"


def _short(value: Any) -> str:
    """A setting in an error message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SETTING else f"{text[:LONGEST_SETTING]}…"


def _kept_settings(path: Path, config: Config) -> Config | None:
    """The settings of the run in a folder, if they are of the same command; None: they are not, or there are none.

    Raises ``ConfigError`` if they are damaged.
    """
    if not (path / SETTINGS).is_file():
        return None
    values = read_yaml(path / SETTINGS)
    try:
        return type(config).build(values)
    except ConfigError:
        return None


def _with_threads(config: ThreadsConfig, recorded: int | None) -> ThreadsConfig:
    """Use as many threads as the settings say, as are recorded for the run that goes on, or as there are free cores."""
    threads = config.threads or recorded or free_threads()
    torch.set_num_threads(threads)
    console.print(f"computing with {threads} thread{'s' * (threads > 1)}; --threads {threads} repeats this run exactly")
    return config.model_copy(update={"threads": threads})


def _typed_command() -> str:
    """The command as it was typed, or a comment if a program or a notebook called warmstart, whose own arguments say nothing."""
    program = Path(sys.argv[0])
    typed = program.stem == "warmstart" or (program.parent.name, program.name) == ("warmstart", "__main__.py")
    return shlex.join(["warmstart", *sys.argv[1:]]) if typed else "# called in Python"


def provenance() -> Provenance:
    """Where the figures of a report come from: the command, the machine, the date, the version."""
    return Provenance(
        command=_typed_command(),
        machine=describe_machine(pick_device()),
        date=datetime.date.today().isoformat(),
        warmstart=__version__,
    )
