"""The folder of a run, as every command that trains or measures writes it.

run.json        command, state and headline
config.yaml     all settings
parts/          what is finished of a run that has several parts, until its end
metrics.jsonl   the log of training
checkpoints/    to resume from
bundle/         the model
report.html     the report, with figures/ beside it
"""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from pydantic import Field

from warmstart import __version__
from warmstart.config import Advanced, Config, Effectless, command_name, read_yaml, result_key
from warmstart.errors import ConfigError, StorageError
from warmstart.model.history import Provenance
from warmstart.runs.record import RUN_FILE, begin_record, is_complete
from warmstart.system.console import console
from warmstart.system.device import busy_warning, free_threads, pick_device
from warmstart.system.locks import LOCK, hold
from warmstart.system.machine import describe_machine
from warmstart.system.storage import PARTS_FOLDER, SETTINGS, atomic_write, is_leftover, make_folder, sweep

LONGEST_SETTING = 60
"""characters of a setting in an error message"""


class ThreadsConfig(Config):
    """Settings of a command that chooses its number of threads."""

    threads: Effectless[Advanced[int | None]] = Field(None, gt=0)
    """number of threads; default: one for each core that is free. config.yaml records it: the same number repeats a run exactly"""


def open_run(folder: str, config: Config, *, resume: bool) -> Path:
    """Make the folder of a new run and save its settings there, or open that of a run to resume.

    For ``ThreadsConfig``, also chooses the number of threads of this process; a resumed run takes the recorded one.
    The folder is locked until the command ends, and what a killed process left there is removed. With the same settings a run that
    did not come to its end goes on, or starts again. Raises ``ConfigError`` if the folder holds anything else (nothing is ever
    overwritten), ``StorageError`` if another process writes there.
    """
    path = Path(folder)
    settings = path / SETTINGS
    if not resume:
        _refuse_other_files(path, config)
        make_folder(path)
    hold(path / LOCK, str(path))
    sweep(path)
    begun = resume or _is_unfinished(path, config)
    if not begun:
        _refuse_other_files(path, config)  # another process may have written since the first look
    if isinstance(config, ThreadsConfig):
        config = _with_threads(config, read_yaml(settings).get("threads") if begun else None)
    console.print(f"computing on {describe_machine(pick_device())}")
    if resume:
        begin_record(path, command_name(config))  # a kill may have come before the first one was written
    else:
        save_settings(path, config)
    if warning := busy_warning():
        console.print(f"note: {warning}")
    return path


def opened_run(folder: str) -> Path:
    """The folder of a run that another process of the same run has opened. Raises ``StorageError`` if it is not seen here."""
    path = Path(folder)
    if not (path / SETTINGS).is_file():
        raise StorageError(
            f"{path} must lie on a file system that all machines share, but {platform.node()} does not see what rank 0 wrote "
            "there; choose another --out"
        )
    return path


def _refuse_other_files(path: Path, config: Config) -> None:
    """Raise ``ConfigError`` if a path holds anything but this very run, unfinished."""
    if not path.exists() or (path.is_dir() and _is_unfinished(path, config)):
        return
    # settings alone are no results: a run that stopped before it had any may be started again
    own = (SETTINGS, RUN_FILE, LOCK)
    if not path.is_dir() or any(file.name not in own and not is_leftover(file.name) for file in path.iterdir()):
        raise ConfigError(f"{path} exists and is not empty; choose another --out, or remove it{_advice(path, config)}")


def is_finished(path: Path) -> bool:
    """Whether a folder holds a run that has come to its end; parts that it was killed before it removed are removed."""
    if not is_complete(path):
        return False
    if (path / PARTS_FOLDER).is_dir():
        hold(path / LOCK, str(path))
        shutil.rmtree(path / PARTS_FOLDER, ignore_errors=True)
    return True


def _advice(path: Path, config: Config) -> str:
    """What else can be done about a folder that holds another run, or this one, finished."""
    if is_finished(path):
        return ""
    if "resume" in type(config).model_fields and (path / "checkpoints").exists():
        return f", or resume it with `warmstart pretrain --resume {path}`"
    kept = _kept_settings(path, config)
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


def _is_unfinished(path: Path, config: Config) -> bool:
    """Whether a folder holds a run with these settings that was stopped before its end."""
    return not is_complete(path) and (kept := _kept_settings(path, config)) is not None and result_key(kept) == result_key(config)


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
    """Use as many threads as the settings say, as are recorded for the run that is resumed, or as there are free cores."""
    threads = config.threads or recorded or free_threads()
    torch.set_num_threads(threads)
    console.print(f"computing with {threads} thread{'s' * (threads > 1)}; --threads {threads} repeats this run exactly")
    return config.model_copy(update={"threads": threads})


def save_settings(folder: Path, config: Config) -> None:
    """Write ``config.yaml``, whose first line, a comment, names the command, and ``run.json``."""
    text = yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
    atomic_write(folder / SETTINGS, f"# {command_name(config)}\n{text}".encode())
    begin_record(folder, command_name(config))


def provenance() -> Provenance:
    """Where the figures of a report come from: the command, the machine, the date, the version."""
    return Provenance(
        command=shlex.join(["warmstart", *sys.argv[1:]]),
        machine=describe_machine(pick_device()),
        date=datetime.date.today().isoformat(),
        warmstart=__version__,
    )
