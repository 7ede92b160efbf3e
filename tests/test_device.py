"""The machine: whether other programs use its cores, and what its accelerator cannot do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.models import make_language_model
from helpers.training import job
from warmstart import cores, device
from warmstart.machine import describe_machine
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.seeding import rng
from warmstart.training.config import TrainConfig
from warmstart.training.loop import train
from warmstart.types import SpecialTokens, Vocabulary


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


def test_busy_cores_are_counted() -> None:
    """Never fewer than none, nor more than there are."""
    assert 0 <= cores.cores_used_by_others(0.05) <= len(cores.allowed_cores())


def test_a_report_names_the_machine() -> None:
    """With its cores and torch's version."""
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


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("objective", [*OBJECTIVES])
def test_training_needs_no_float64(objective: str, optimizer: str) -> None:
    """Apple's MPS has none: an operation that gives it fails there."""
    vocabulary = Vocabulary(60, SpecialTokens(pad=0, unk=1, eos=2, mask=3, cls=4, sentinels=tuple(range(5, 21))), np.ones(60, bool))
    config = ObjectiveConfig(name=objective)
    rows = rng(0, "rows").integers(21, 60, (4, OBJECTIVES[objective].stride(24, config) + 1))
    batch = OBJECTIVES[objective].make(rows, np.full(4, rows.shape[1]), rng(0, "test"), vocabulary, config)
    model = make_language_model(causal=OBJECTIVES[objective].causal, dropout=0.1)
    with NoFloat64():  # type: ignore[no-untyped-call]
        train(model, job(batches=lambda _: [batch], steps=3), TrainConfig(optimizer=optimizer))
