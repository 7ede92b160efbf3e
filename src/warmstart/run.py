"""The folder of a run, as every command that trains or measures writes it.

config.yaml     all settings
metrics.jsonl   the log of training
checkpoints/    to resume from
bundle/         the model
report.html     the report, with figures/ beside it
"""

from __future__ import annotations

import datetime
import shlex
import sys
from pathlib import Path

import torch
import yaml
from pydantic import Field

from warmstart import __version__
from warmstart.config import Advanced, Config, read_yaml
from warmstart.console import console
from warmstart.device import busy_warning, free_threads, pick_device
from warmstart.errors import ConfigError, StorageError
from warmstart.machine import describe_machine
from warmstart.model.history import Provenance
from warmstart.storage import atomic_write


class ThreadsConfig(Config):
    """Settings of a command that chooses its number of threads."""

    threads: Advanced[int | None] = Field(None, gt=0)
    """number of threads; default: one for each core that is free. config.yaml records it: the same number repeats a run exactly"""


def open_run(folder: str, config: Config, *, resume: bool) -> Path:
    """Make the folder of a new run and save its settings there, or open that of a run to resume.

    For ``ThreadsConfig``, also chooses the number of threads of this process; a resumed run takes the recorded one.
    Raises ``ConfigError`` if the folder holds another run that is not to be resumed: nothing is ever overwritten.
    """
    path = Path(folder)
    settings = path / "config.yaml"
    if not resume:
        # settings alone are no results: a run that stopped before it had any may be started again
        if path.exists() and (not path.is_dir() or any(file != settings for file in path.iterdir())):
            advice = f", or resume it with `warmstart pretrain --resume {path}`" if (path / "checkpoints").exists() else ""
            raise ConfigError(f"{path} exists and is not empty; choose another --out, or remove it{advice}")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {path}: {error.strerror}") from None
    if isinstance(config, ThreadsConfig):
        config = _with_threads(config, read_yaml(settings).get("threads") if resume else None)
    console.print(f"computing on {describe_machine(pick_device())}")
    if not resume:
        save_settings(path, config)
    if warning := busy_warning():
        console.print(f"[yellow]note:[/yellow] {warning}")
    return path


def _with_threads(config: ThreadsConfig, recorded: int | None) -> ThreadsConfig:
    """Use as many threads as the settings say, as are recorded for the run that is resumed, or as there are free cores."""
    threads = config.threads or recorded or free_threads()
    torch.set_num_threads(threads)
    console.print(f"computing with {threads} thread{'s' * (threads > 1)}; --threads {threads} repeats this run exactly")
    return config.model_copy(update={"threads": threads})


def save_settings(folder: Path, config: Config) -> None:
    """Write ``config.yaml``."""
    atomic_write(folder / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True).encode())


def provenance() -> Provenance:
    """Where the figures of a report come from: the command, the machine, the date, the version."""
    return Provenance(
        command=shlex.join(["warmstart", *sys.argv[1:]]),
        machine=describe_machine(pick_device()),
        date=datetime.date.today().isoformat(),
        warmstart=__version__,
    )
