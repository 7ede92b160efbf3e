"""A run's folder: what every workflow writes there, and how a later command finds a model in it.

config.yaml     the settings, whole
metrics.jsonl   the course of training
checkpoints/    to resume from
bundle/         the model
report.html     what came of it, with figures/ beside it
"""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.markup import escape
from rich.table import Table

from warmstart import __version__
from warmstart.config import Config
from warmstart.engine import busy, console, describe_machine, pick_device
from warmstart.errors import BundleError, ConfigError, StorageError
from warmstart.evaluate import Comparison
from warmstart.interop import find_folder, from_huggingface
from warmstart.model import Bundle, load
from warmstart.storage import write_forced


def open_run(folder: str, config: Config, *, resume: bool) -> Path:
    """Make the folder of a new run and keep its settings there, or find that of an old one.

    Raises ``ConfigError`` where a run already lies there and is not to be resumed: nothing is ever overwritten.
    """
    place = Path(folder)
    settings = place / "config.yaml"
    if not resume:
        # settings alone are no results: a run that was stopped before it had any may be started again
        if place.exists() and (not place.is_dir() or any(file != settings for file in place.iterdir())):
            go_on = f", or go on with `warmstart pretrain --resume {place}`" if (place / "checkpoints").exists() else ""
            raise ConfigError(f"{place} exists and is not empty; choose another --out, or remove it{go_on}")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {place}: {error.strerror}") from None
        keep_settings(place, config)
    if warning := busy():
        console.print(f"[yellow]note:[/yellow] {warning}")
    return place


def keep_settings(folder: Path, config: Config) -> None:
    """Write ``config.yaml``: what was asked last."""
    write_forced(folder / "config.yaml", yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True).encode())


def find_bundle(path: str | Path) -> Path:
    """The bundle at ``path``: the folder itself, or the ``bundle`` inside a run's folder."""
    place = Path(path)
    inside = place / "bundle"
    return inside if not (place / "bundle.json").exists() and inside.is_dir() else place


def load_model(path: str | Path) -> Bundle:
    """Load a bundle, or a run's bundle, and say in one line what came; ``hf:FOLDER`` is a model in the Hugging Face form.

    Raises ``BundleError`` where there is none.
    """
    if str(path).startswith("hf:"):
        place, bundle, sound = Path(path), from_huggingface(find_folder(str(path))), "read as it lies there"
    else:
        place, sound = find_bundle(path), "hashes right"
        if not place.is_dir():
            raise BundleError(f"there is no model at {path}: give the folder of a bundle, or of a run that has finished")
        bundle = load(place)
    total = sum(parameter.numel() for parameter in bundle.model.parameters())
    head = bundle.model.head.config.kind
    console.print(
        f"loaded {place}: {len(bundle.model.weights())} tensors, {total:,} parameters, {head} head, {sound}", markup=False
    )
    return bundle


def taught(bundle: Bundle, task: str) -> bool:
    """Whether a model's history says that it has learned labels of a task of this name."""
    own = [entry["task"].get("name") for entry in bundle.history if isinstance(entry.get("task"), Mapping)]
    return task in [*own, *(name for entry in bundle.history for name in entry.get("tasks", ()))]


def provenance() -> dict[str, str]:
    """What a report says of where its figures come from: the command, the machine, the date, the version."""
    return {
        "command": shlex.join(["warmstart", *sys.argv[1:]]),
        "machine": describe_machine(pick_device()),
        "date": datetime.date.today().isoformat(),
        "warmstart": __version__,
    }


def print_comparison(title: str, comparison: Comparison) -> None:
    """A comparison in the terminal: its table, then its sentences."""
    print_table(title, comparison.table(), comparison.HEADER)
    for sentence in comparison.sentences():
        console.print(sentence)


def print_figures(title: str, figures: Mapping[str, float]) -> None:
    """Named figures in the terminal."""
    print_table(title, [(name, f"{value:.5g}") for name, value in figures.items()], ("figure", "value"))


def print_table(title: str, rows: Iterable[Sequence[Any]], header: Sequence[str]) -> None:
    """A table in the terminal; the first column is left-aligned, the others right."""
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console.print(table)
