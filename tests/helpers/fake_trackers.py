"""Modules in the place of ``wandb`` and ``trackio``, which are heavy: they keep what they are told, by run."""

from __future__ import annotations

import sys
from collections import defaultdict
from types import ModuleType
from typing import Any

import pytest

Points = dict[str, list[tuple[int, float]]]
"""name -> steps and values"""


class FakeWandb(ModuleType):
    """What the tracker uses of Weights & Biases."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.opened: list[dict[str, Any]] = []
        self.points: dict[str, Points] = defaultdict(dict)
        self.Settings = dict

    def init(self, **given: Any) -> FakeWandbRun:
        assert given["mode"] == "offline"
        self.opened.append(given)
        return FakeWandbRun(self.points[f"{given['dir']}/{given['id']}"])


class FakeWandbRun:
    """A run that is open until it is finished."""

    def __init__(self, points: Points) -> None:
        self.points, self.open = points, True

    def log(self, values: dict[str, float], step: int) -> None:
        assert self.open
        for name, value in values.items():
            self.points.setdefault(name, []).append((step, value))

    def finish(self) -> None:
        self.open = False


class FakeTrackio(ModuleType):
    """What the tracker uses of Trackio's storage."""

    def __init__(self) -> None:
        super().__init__("trackio.sqlite_storage")
        self.SQLiteStorage = self
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.names: dict[str, tuple[str, dict[str, Any]]] = {}

    def bulk_log(
        self, project: str, run: str, metrics: list[dict[str, float]], *, steps: list[int], config: Any, run_id: str
    ) -> None:
        assert project == "warmstart"
        if config:
            self.names.setdefault(run_id, (run, config))
        self.rows[run_id] += [{**one, "step": step, "timestamp": ""} for one, step in zip(metrics, steps, strict=True)]

    def get_logs(self, project: str, *, run_id: str) -> list[dict[str, Any]]:
        return list(self.rows[run_id])

    def points(self, run_id: str) -> Points:
        found: Points = {}
        for row in self.rows[run_id]:
            for name in row.keys() - {"step", "timestamp"}:
                found.setdefault(name, []).append((row["step"], row[name]))
        return found


def install(patch: pytest.MonkeyPatch) -> tuple[FakeWandb, FakeTrackio]:
    """Put them in the place of the packages, whether these are installed or not."""
    wandb, trackio = FakeWandb(), FakeTrackio()
    for name, module in {"wandb": wandb, "trackio": ModuleType("trackio"), "trackio.sqlite_storage": trackio}.items():
        patch.setitem(sys.modules, name, module)
    for name in ("wandb", "trackio"):
        patch.delitem(sys.modules, f"warmstart.training.trackers.{name}", raising=False)
    return wandb, trackio
