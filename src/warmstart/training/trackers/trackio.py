"""Trackio: a run of the project ``warmstart`` in its local database, for ``trackio show``.

Its storage is called directly: ``trackio.init`` asks huggingface.co for the name of a user who is logged in there, and sends to a
Space if the environment names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackio.sqlite_storage import SQLiteStorage

from warmstart.training.trackers.tracked_run import PROJECT, LoggedSteps, TrackedRun


class TrackioTracker:
    """Logs metrics, and the settings with the first of them."""

    def __init__(self, run: TrackedRun, first_step: int, settings: Mapping[str, Any]) -> None:
        self._name, self._steps = run.name, LoggedSteps(run.folder / "trackio" / f"{run.file_name or 'run'}.json")
        for row in SQLiteStorage.get_logs(PROJECT, run_id=self._steps.id):
            self._steps.last |= dict.fromkeys(row.keys() - {"step", "timestamp"}, row["step"])  # in the order of steps
        self._config: dict[str, Any] | None = dict(settings) | {"_Group": run.folder.name if run.title else None}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One row for a line."""
        if new := self._steps.new(step, values):
            SQLiteStorage.bulk_log(PROJECT, self._name, [new], steps=[step], config=self._config, run_id=self._steps.id)
            self._config = None

    def close(self) -> None:
        """Each row is written at once."""
