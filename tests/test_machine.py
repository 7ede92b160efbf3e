"""The machine: its cores, what its accelerator cannot do, and its memory: while a model trains, at the peak, and in a server."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from benchmarks.harness import track_peak_memory
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.models import make_language_model
from helpers.training import job
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.serve.kernel_caches import CACHE_VARIABLES, KERNELS, bound_kernel_caches
from warmstart.system import cores, device
from warmstart.system.machine import describe_machine
from warmstart.system.processes import run_python
from warmstart.training.allocator import keep_freed_memory
from warmstart.training.config import TrainConfig
from warmstart.training.loop import train
from warmstart.types import Vocabulary


def test_a_busy_machine_gets_a_warning_with_the_right_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads beside a busy core wait for each other; one thread has a core of its own and gets no warning."""
    monkeypatch.setattr(cores, "allowed_cores", lambda: [0, 1])
    monkeypatch.setattr(psutil, "cpu_percent", lambda seconds, percpu: [80.0, 20.0, 100.0])  # the third core is not ours
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    warning = str(device.busy_warning())
    assert "other programs use 1.0 of 2 cores, and this one runs 2 threads" in warning
    assert warning.endswith("set OMP_NUM_THREADS=1 to wait less")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert device.busy_warning() is None


def test_this_machine_is_described() -> None:
    """Its cores, of which others use no more than there are, and torch's version."""
    assert 0 <= cores.cores_used_by_others(0.05) <= len(cores.allowed_cores())
    assert f"{psutil.cpu_count()} cores" in describe_machine(torch.device("cpu"))
    assert torch.__version__ in describe_machine(torch.device("cpu"))


def test_as_many_threads_as_cores_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than torch would use, never none."""
    monkeypatch.setattr(cores, "allowed_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for used, threads in ((0.1, 4), (1.2, 3), (2.6, 1), (4.0, 1)):
        monkeypatch.setattr(cores, "cores_used_by_others", lambda used=used: used)
        assert device.free_threads() == threads
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(cores, "cores_used_by_others", lambda: 0.0)
    assert device.free_threads() == 2


class NoFloat64(TorchDispatchMode):
    """Raises wherever an operation gives float64."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        assert not any(isinstance(one, Tensor) and one.dtype is torch.float64 for one in tree_leaves(found)), func
        return found


def test_training_needs_no_float64(vocabulary: Vocabulary) -> None:
    """By any objective and optimiser: Apple's MPS has none, and an operation that gives it fails there."""
    for number, (name, objective) in enumerate(OBJECTIVES.items()):
        config = ObjectiveConfig(name=name)
        rows = rng(0, "rows").integers(21, 60, (4, objective.stride(24, config) + 1))
        batch = objective.make(rows, np.full(4, rows.shape[1]), rng(0, "test"), vocabulary, config)
        model = make_language_model(causal=objective.causal, dropout=0.1)
        with NoFloat64():
            train(model, job(batches=lambda _, batch=batch: [batch], steps=3), TrainConfig(optimizer=("adamw", "muon")[number % 2]))


def no_library(name: str) -> ctypes.CDLL:
    raise OSError(f"{name}: cannot open shared object file")


def test_training_is_the_same_without_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without glibc, or without ``mallopt`` and ``heap_trim``, a run ends with the same weights; a GPU never asks for it."""
    usual = make_language_model()
    train(usual, job(), TrainConfig())
    monkeypatch.delattr(psutil, "heap_trim", raising=False)
    for load in (lambda name: object(), no_library):
        monkeypatch.setattr(ctypes, "CDLL", load)
        bare = make_language_model()
        train(bare, job(), TrainConfig())
        assert all(torch.equal(tensor, bare.weights()[name]) for name, tensor in usual.weights().items())
    with keep_freed_memory(torch.device("cuda")):
        pass


def test_the_defaults_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that was changed is set back, and free memory is returned to the system."""
    calls: list[tuple[int, ...]] = []

    class Library:
        def mallopt(self, setting: int, value: int) -> None:
            calls.append((setting, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(psutil, "heap_trim", lambda: calls.append(()), raising=False)
    with pytest.raises(KeyError), keep_freed_memory(torch.device("cpu")):
        raise KeyError
    assert calls == [(-4, 0), (-1, -1), (-4, 65_536), (-1, 131_072), ()]


MEGABYTE = 1 << 20


PEAK = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
from benchmarks.harness import track_peak_memory
before = torch.ones({64 * MEGABYTE}, dtype=torch.uint8)
with track_peak_memory(torch.device("cpu")) as peak:
    for _ in range(20):
        work = torch.ones({32 * MEGABYTE}, dtype=torch.uint8)
        del work
assert before.numel() == {64 * MEGABYTE}
print(peak.bytes)
"""


@pytest.mark.journeys
def test_the_peak_is_that_of_the_work_alone() -> None:
    """Memory that is free again at the end counts; what was in use before does not. Measured where nothing else runs."""
    run = run_python(PEAK)
    assert run.returncode == 0, run.stderr
    assert 24 * MEGABYTE < int(run.stdout) < 48 * MEGABYTE


def test_work_that_fails_is_no_longer_tracked() -> None:
    """The error passes, and the reading of the memory stops."""
    with pytest.raises(KeyError), track_peak_memory(torch.device("cpu")) as peak:
        raise KeyError
    assert peak.bytes >= 0


def test_the_environment_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has much memory may let a server keep more kernels; the other cache gets its bound."""
    for name in CACHE_VARIABLES:
        monkeypatch.setenv(name, "1024")
    monkeypatch.delenv(CACHE_VARIABLES[1])
    bound_kernel_caches()
    assert [os.environ[name] for name in CACHE_VARIABLES] == ["1024", str(KERNELS)]
