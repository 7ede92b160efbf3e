"""Where trials run changes no result: processes, a Dask cluster."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import pytest

from helpers.tasks import race_config, write_race_inputs
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.errors import ConfigError, ModelError
from warmstart.experiment import backends
from warmstart.experiment.backends import spread_calls
from warmstart.experiment.comparison import Comparison
from warmstart.system.locks import releasing_locks
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_pages", "few_baselines")
SMALL = {"schemes": [], "seeds": 1, "learning_rates": [5e-3], "threads": 1, "scratch": False}


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    return write_race_inputs(tmp_path, tokenizer)


def scores(place: Path, name: str, **changes: Any) -> dict[str, Any]:
    """The scores and learning rates of a small race."""
    with releasing_locks():
        found = race(race_config(place, **SMALL, out=str(place / name), **changes))
    assert isinstance(found, Comparison)
    return {method.name: (method.test_scores.scores, method.learning_rates) for method in found.ranking.methods}


def add(one: int, other: int) -> int:
    """A call, for any backend."""
    if other < 0:
        raise ModelError("the second must not be negative")
    return one + other


@pytest.mark.parametrize("jobs", [1, 2])
def test_calls_come_back_with_their_numbers(jobs: int) -> None:
    """In this process or in others, in any order; what one raises is raised here."""
    calls = [(1, 2), (3, 4), (5, 6)]
    assert dict(spread_calls(add, calls, "processes", jobs=jobs)) == {0: 3, 1: 7, 2: 11}
    with pytest.raises(ModelError, match="must not be negative"):
        list(spread_calls(add, [(1, -1)], "processes", jobs=jobs))


def test_an_unknown_backend_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    for backend in ("spark", "dask://", "slurm", "tcp://a:1"):
        assert main(["race", str(place / "task"), "--backbones", str(place / "lm"), "--backend", backend]) == 2
        assert "must be processes or dask://HOST:PORT" in capsys.readouterr().err


def test_a_missing_library_names_the_extra(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read or written."""
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> ModuleType:
        if name == "distributed":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(backends.importlib, "import_module", missing)
    words = [
        "race",
        str(place / "task"),
        "--backbones",
        str(place / "lm"),
        "--out",
        str(place / "race"),
        "--backend",
        "dask://here:1",
    ]
    assert main(words) == 2
    assert 'pip install "warmstart[dask]"' in capsys.readouterr().err
    assert not (place / "race").exists()


@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the client's own making
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a minute; here sooner."""
    pytest.importorskip("distributed", reason='pip install "warmstart[dask]" to run this test')
    monkeypatch.setattr(backends, "WAIT_FOR_CLUSTER", 1)
    with pytest.raises(ConfigError, match="must be the address of a Dask scheduler, but it does not answer"):
        list(spread_calls(add, [(1, 2)], "dask://127.0.0.1:1", jobs=1))


@pytest.mark.journeys
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the cluster's own making
def test_dask_changes_no_result(place: Path) -> None:
    """A scheduler is named by its address, or by joblib's backend around the call; its workers run the trials."""
    distributed = pytest.importorskip("distributed", reason='pip install "warmstart[dask]" to run this test')
    local = {"host": "127.0.0.1", "protocol": "tcp", "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, **local) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        with pytest.raises(ModelError, match="must not be negative"):
            list(spread_calls(add, [(1, -1)], address, jobs=1))
        spread = scores(place, "spread", backend=address)
        with distributed.Client(cluster), joblib.parallel_config(backend="dask"):
            inside = scores(place, "inside", jobs=2)
    assert spread == inside == scores(place, "alone")
