"""Weights & Biases, offline: a run in the folder ``wandb`` of a run, for ``wandb sync``. Nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import wandb

from warmstart.training.trackers.tracked_run import PROJECT, LoggedSteps, TrackedRun

_SILENT = {"silent": True, "console": "off", "disable_git": True, "save_code": False}
"""neither the output nor the code of the user is kept"""
_NO_MACHINE = {"x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True}


class WandbTracker:
    """Logs metrics, and the settings as the configuration; a resumed run adds a folder with the same id, and no step again."""

    def __init__(self, run: TrackedRun, first_step: int, settings: Mapping[str, Any]) -> None:
        self._steps = LoggedSteps(run.folder / "wandb" / f"{run.file_name or 'run'}.json")
        self._run: Any = wandb.init(
            mode="offline", project=os.environ.get("WANDB_PROJECT") or PROJECT, id=self._steps.id, name=run.name,
            group=run.folder.name if run.title else None, dir=str(run.folder), config=dict(settings),
            reinit="create_new", settings=wandb.Settings(**_SILENT, **_NO_MACHINE),
        )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One call for a line."""
        if new := self._steps.new(step, values):
            self._run.log(new, step=step)
            self._steps.save()  # an offline run cannot be asked what it has

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()
