"""``adapt`` in several processes: the result, the scorings and the saved model are those of one."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from helpers.bundles import language_bundle
from helpers.models import SENTENCES
from helpers.processes import run_processes
from helpers.tasks import cats, tune
from warmstart.commands.adapt.command import AdaptConfig, adapt
from warmstart.errors import WarmstartError
from warmstart.model.files import save
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training import loop
from warmstart.training.distributed import world

CASES: dict[str, dict[str, Any]] = {
    "holdout": {"calibration_fraction": 0.5},
    "soup": {"labels": 20, "ensemble": "soup", "scratch": False},
    "mean, probe": {"ensemble": "mean", "baselines": False, "scratch": False, "tune": tune("probe", epochs=1)},
    "teacher": {"distil": {"teacher": "holdout-1", "pool": "pool.txt"}, "scratch": False, "baselines": False},
    "dapt": {"scratch": False, "baselines": False, "tune": tune("dapt+full", epochs=1)},
}
"""settings of an adaptation"""


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, no_second_process: None) -> Path:
    """A model, a task and a pool."""
    monkeypatch.chdir(tmp_path)
    save(language_bundle(tokenizer), tmp_path / "lm")
    manifest = save_task(cats(), tmp_path / "task")
    manifest.write_text(f"{manifest.read_text()}unlabelled: ../pool.txt\n")
    (tmp_path / "pool.txt").write_text("\n\n".join(f"{sentence} {i * i}" for i in range(30) for sentence in SENTENCES))
    return tmp_path


def settings(out: str, **changes: Any) -> AdaptConfig:
    """A short run of two seeds."""
    short = {"model": "lm", "task": "task", "out": out, "seeds": 2, "tune": tune(epochs=1)}
    return AdaptConfig.build(short | changes)


def outcomes(place: Path) -> dict[str, Any]:
    """What each case gives, with a checkpoint after every step; each in a folder named by the number of processes."""
    os.chdir(place)
    loop.FIRST_CHECKPOINT, loop.CHECKPOINT_SHARE = 0.0, 1e9
    found = dict[str, Any]()
    for name, changes in CASES.items():
        result = adapt(settings(f"{name}-{world().size}", **changes))
        scores = {row.name: row.scores for row in result.comparison.rows}
        found[name] = scores, result.saved, result.ledger.scorings
    return found


@pytest.mark.journeys
def test_several_processes_adapt_as_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, the choice of what is saved and its weights; each model is scored once, and the same files are left."""
    for name in ("FIRST_CHECKPOINT", "CHECKPOINT_SHARE"):
        monkeypatch.setattr(loop, name, getattr(loop, name))
    alone = outcomes(place)
    first, second = run_processes(2, place, outcomes, place, start="spawn")
    assert first == second
    scored = alone["dapt"][2]
    for name, (scores, saved, scorings) in alone.items():
        assert first[name][1] == saved, name
        assert first[name][2] == scored + scorings, name
        for method, found in scores.items():
            np.testing.assert_allclose(first[name][0][method], found, atol=0.04, err_msg=f"{name}: {method}")  # one of 30 texts
        one, two = (place / f"{name}-{count}" for count in (1, 2))
        for file in (one / "bundle").rglob("weights.safetensors"):
            weights = load_file(two / file.relative_to(one))
            for key, tensor in load_file(file).items():
                assert_close(weights[key], tensor, atol=5e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
        left = [{file.name for file in run.iterdir() if not file.name.startswith(".")} for run in (one, two)]
        assert left[0] == left[1]


def refusals(place: Path) -> list[str]:
    """What is said if one process has other settings, another task, or does not see the run's folder."""
    rank, said = world().rank, list[str]()
    os.chdir(place / str(rank))
    for config in (
        settings("run", seeds=2 + rank),
        settings(str(place / "run"), tune=tune(epochs=1 + rank)),
        settings(str(place / "run"), model="../lm"),
        settings("own", model="../lm"),
    ):
        with pytest.raises(WarmstartError) as raised:
            adapt(config)
        said.append(str(raised.value))
    return said


def test_processes_that_adapt_differently_are_refused(place: Path) -> None:
    """All say the same: which setting or which file differs, and in which rank."""
    for rank in range(2):
        save_task(cats(rank), place / str(rank) / "task")
    name = platform.node()
    for said in run_processes(2, place, refusals, place, start="spawn"):
        assert said[0].startswith("all processes must begin alike, but the setting seeds differs: 3 in rank 1, 2 in rank 0; ")
        assert "the setting tune.train.epochs differs: 2.0 in rank 1, 1.0 in rank 0" in said[1]
        assert "but task/test.ndjson differs: " in said[2] or "but task/train.ndjson differs: " in said[2]
        assert said[3].endswith(f"{name} does not see what rank 0 wrote there; choose another --out")
    assert json.loads((place / "run" / "run_id").read_text())
    assert not (place / "run" / "parts").exists()
