"""Where trials run changes no result: processes, a Dask cluster, Ray, jobs of SLURM."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
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
from warmstart.experiment.backends import SlurmConfig, SlurmJobs, spread_calls
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
    assert dict(spread_calls(add, calls, "processes", jobs=jobs, threads=1)) == {0: 3, 1: 7, 2: 11}
    with pytest.raises(ModelError, match="must not be negative"):
        list(spread_calls(add, [(1, -1)], "processes", jobs=jobs, threads=1))


def test_an_unknown_backend_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With all that there are."""
    for backend in ("spark", "dask://", "ray://somewhere", "tcp://a:1"):
        assert main(["race", str(place / "task"), "--backbones", str(place / "lm"), "--backend", backend]) == 2
        assert "must be processes, dask://HOST:PORT, ray, ray://HOST:PORT or slurm" in capsys.readouterr().err


def test_a_missing_library_names_the_extra(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read or written."""
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> ModuleType:
        if name in ("distributed", "ray", "submitit"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(backends.importlib, "import_module", missing)
    words = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--out", str(place / "race"), "--backend"]
    for backend, extra in (("dask://here:1", "dask"), ("ray", "ray"), ("slurm", "slurm")):
        assert main([*words, backend]) == 2
        assert f'pip install "warmstart[{extra}]"' in capsys.readouterr().err
    assert not (place / "race").exists()


@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the client's own making
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a minute; here sooner."""
    pytest.importorskip("distributed", reason='pip install "warmstart[dask]" to run this test')
    monkeypatch.setattr(backends, "WAIT_FOR_CLUSTER", 1)
    with pytest.raises(ConfigError, match="must be the address of a Dask scheduler, but it does not answer"):
        list(spread_calls(add, [(1, 2)], "dask://127.0.0.1:1", jobs=1, threads=1))


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
            list(spread_calls(add, [(1, -1)], address, jobs=1, threads=1))
        spread = scores(place, "spread", backend=address)
        with distributed.Client(cluster), joblib.parallel_config(backend="dask"):
            inside = scores(place, "inside", jobs=2)
    assert spread == inside == scores(place, "alone")


@pytest.mark.journeys
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the cluster's own making
def test_ray_changes_no_result(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of this machine, which listens on loopback alone and reports to nobody."""
    ray = pytest.importorskip("ray", reason='pip install "warmstart[ray]" to run this test')
    tests = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    try:
        with pytest.raises(ModelError, match="must not be negative"):
            list(spread_calls(add, [(1, -1)], "ray", jobs=2, threads=1))
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        spread = scores(place, "spread", backend="ray", jobs=2)
    finally:
        ray.shutdown()
    assert spread == scores(place, "alone")


@pytest.mark.journeys
@pytest.mark.filterwarnings("ignore")  # submitit leaves its local processes to the system
def test_slurm_changes_no_result(place: Path) -> None:
    """Each job runs its share; here jobs are processes of this machine, by submitit's own executor."""
    pytest.importorskip("submitit", reason='pip install "warmstart[slurm]" to run this test')
    spread = scores(place, "spread", backend="slurm", jobs=2, slurm={"cluster": "local"})
    assert spread == scores(place, "alone")
    assert [*(place / "spread" / "slurm").glob("*_log.out")]


class Job:
    """A job of SLURM that has ended."""

    cancelled = False

    def done(self) -> bool:
        return True

    def exception(self) -> Exception:
        return RuntimeError("no luck\nslurmstepd: out of memory")


def test_jobs_that_end_too_early_are_named_and_the_same_command_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the last line of what the first one said, and where the logs are; new jobs run what is left, each its share."""
    pytest.importorskip("submitit", reason='pip install "warmstart[slurm]" to run this test')
    whole = False

    def submit(work: Sequence[Callable[[], None]], threads: int, settings: SlurmConfig, folder: Path) -> SlurmJobs:
        for run in work if whole else work[:1]:
            run()
        return SlurmJobs([Job() for _ in work], folder)

    monkeypatch.setattr(SlurmJobs, "submit", submit)
    message = r"all 2 jobs have ended, but \d+ trials are left \(slurmstepd: out of memory\); see their logs in .*/slurm;"
    with pytest.raises(ModelError, match=message):
        scores(place, "spread", backend="slurm", jobs=2)
    done = {file.name for file in (place / "spread" / "trials").glob("*.json")}
    whole = True
    assert done
    assert scores(place, "spread", backend="slurm", jobs=2) == scores(place, "alone")


def test_a_place_without_slurm_is_named(tmp_path: Path) -> None:
    """There, no job can be submitted."""
    pytest.importorskip("submitit", reason='pip install "warmstart[slurm]" to run this test')
    with pytest.raises(ConfigError, match="must be used where jobs can be submitted"):
        SlurmJobs.submit([Job], 1, SlurmConfig(), tmp_path)
