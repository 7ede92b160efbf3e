"""Mirrors of a training log in the tools that people watch runs with; ``metrics.jsonl`` stays the source.

A tracker is one file here and one row of ``TRACKERS``. It gets every line of the log as numbers, and never stops a run: one that
fails is left out after a sentence. A resumed run goes on in the same place, and no step is there twice. None uses a network, unless
the user names a server of MLflow.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from warmstart.errors import ConfigError
from warmstart.registry import Registry
from warmstart.system.console import console
from warmstart.training.trackers.tracked_run import TrackedRun


class Tracker(Protocol):
    """Takes the numbers of one run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep numbers of a step."""

    def close(self) -> None:
        """Write what is left."""


TRACKERS: Registry[tuple[str, str]] = Registry(
    "tracker",
    {
        "tensorboard": ("tensorboard", "TensorBoardTracker"),
        "mlflow": ("mlflow", "MLflowTracker"),
        "wandb": ("wandb", "WandbTracker"),
        "trackio": ("trackio", "TrackioTracker"),
    },
)
"""name -> file of this folder, and class. A class is made of the run, the first step that comes, and the settings"""
Settings = Mapping[str, Any]
SILENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
"""read from the environment at import: without them MLflow counts its users on a server, and W&B looks for the one that
takes its crashes, offline too"""


def check_trackers(names: tuple[str, ...]) -> None:
    """Raise ``ConfigError`` if the package of a tracker is not installed."""
    for name in names:
        try:
            _class_of(name)
        except ImportError as error:
            raise ConfigError(f'--tracker {name} needs {error.name}; pip install "warmstart[{name}]"') from None


@dataclass(frozen=True)
class Mirror:
    """The trackers that the training runs of one command go to."""

    names: tuple[str, ...] = ()
    folder: Path = Path()
    """of the command's run"""
    settings: Settings = field(default_factory=dict)

    @contextmanager
    def opened(self, title: str = "") -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
        """What to call with each new line of the log of one training run; None without trackers.

        Of several runs each has a ``title``.
        """
        opened = _Opened(self, TrackedRun(self.folder, title))
        try:
            yield opened.mirror if self.names else None
        finally:
            opened.close()


NO_TRACKERS = Mirror()


class _Opened:
    """The trackers of one training run; one that has failed is None."""

    def __init__(self, mirror: Mirror, run: TrackedRun) -> None:
        self._mirror, self._run = mirror, run
        self._trackers: dict[str, Tracker | None] = {}

    def mirror(self, row: Mapping[str, Any]) -> None:
        """Show a line of the log."""
        for name in self._mirror.names:
            with self._safely(name):
                if name not in self._trackers:
                    self._trackers[name] = _class_of(name)(self._run, row["step"], self._mirror.settings)
                if (tracker := self._trackers[name]) is not None:
                    tracker.log(row["step"], numbers(row))

    def close(self) -> None:
        """Close all."""
        for name, tracker in list(self._trackers.items()):
            with self._safely(name):
                if tracker is not None:
                    tracker.close()

    @contextmanager
    def _safely(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a tool for watching must not end what is watched
            self._trackers[name] = None
            console.print(f"{name} gets no more of this run: {error}", markup=False)


def numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a line but its step, those of groups with a path: ``{"held_out": {"loss": 2.0}}`` -> ``held_out/loss``."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            found[f"{prefix}{name}"] = float(value)
    return found


def _class_of(name: str) -> Any:
    file, one = TRACKERS[name]
    os.environ.update(SILENT)
    return getattr(importlib.import_module(f"{__name__}.{file}"), one)
