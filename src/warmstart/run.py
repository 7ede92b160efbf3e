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

import yaml

from warmstart import __version__
from warmstart.config import Config
from warmstart.console import console
from warmstart.device import busy_warning, describe_machine, pick_device
from warmstart.errors import ConfigError, StorageError
from warmstart.model.history import Provenance
from warmstart.storage import atomic_write


def open_run(folder: str, config: Config, *, resume: bool) -> Path:
    """Make the folder of a new run and save its settings there, or open that of a run to resume.

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
        save_settings(path, config)
    if warning := busy_warning():
        console.print(f"[yellow]note:[/yellow] {warning}")
    return path


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
