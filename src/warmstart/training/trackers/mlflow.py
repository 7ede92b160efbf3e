"""MLflow: a run of the experiment ``warmstart``, in the store that ``MLFLOW_TRACKING_URI`` names, or in the run's ``mlruns``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from warmstart.training.trackers.tracked_run import PROJECT, TrackedRun

FOLDER = "warmstart.folder"
"""the tag by which a resumed run finds itself"""
_LONGEST = 500


class MLflowTracker:
    """Logs metrics, and the settings as parameters; a step that the run has already is not logged again."""

    def __init__(self, run: TrackedRun, first_step: int, settings: Mapping[str, Any]) -> None:
        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder needs no database
            address = (run.folder / "mlruns").resolve().as_uri()
        self._client = MlflowClient(tracking_uri=address)
        known = self._client.get_experiment_by_name(PROJECT)
        experiment = known.experiment_id if known else self._client.create_experiment(PROJECT)
        mine = [one for one in self._client.search_runs([experiment]) if one.data.tags.get(FOLDER) == run.path]
        if mine:
            self._run = mine[0].info.run_id
        else:
            self._run = self._client.create_run(experiment, run_name=run.name, tags={FOLDER: run.path}).info.run_id
            given = [Param(name, str(value)[:_LONGEST]) for name, value in settings.items()]
            self._client.log_batch(self._run, params=given, tags=[RunTag("mlflow.source.name", "warmstart")])
        self._client.update_run(self._run, status="RUNNING")
        self._last: dict[str, int] = {}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One batch for a line."""
        now = int(time.time() * 1000)
        new = [Metric(name, value, now, step) for name, value in values.items() if step > self._last_step(name)]
        self._client.log_batch(self._run, metrics=new)
        self._last.update({one.key: step for one in new})

    def _last_step(self, name: str) -> int:
        if name not in self._last:
            self._last[name] = max((one.step for one in self._client.get_metric_history(self._run, name)), default=-1)
        return self._last[name]

    def close(self) -> None:
        """The run has ended, or was stopped."""
        self._client.set_terminated(self._run)
