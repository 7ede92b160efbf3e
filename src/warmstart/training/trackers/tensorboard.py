"""TensorBoard: event files in the folder ``tensorboard`` of a run, or below it, for ``tensorboard --logdir runs``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from warmstart.training.trackers.tracked_run import TrackedRun


class TensorBoardTracker:
    """Writes scalars; those from ``first_step`` on that an earlier process wrote are hidden."""

    def __init__(self, run: TrackedRun, first_step: int, settings: Mapping[str, Any]) -> None:
        self._writer: Any = SummaryWriter(str(run.folder / "tensorboard" / run.file_name), purge_step=first_step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar for each number."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush the file."""
        self._writer.close()
