"""Freed memory is kept while a model trains; training is the same where the C library cannot do that."""

from __future__ import annotations

import ctypes

import psutil
import pytest
import torch

from helpers.models import make_language_model
from helpers.training import job
from warmstart.training.allocator import keep_freed_memory
from warmstart.training.config import TrainConfig
from warmstart.training.loop import train

CPU = torch.device("cpu")


def no_library(name: str) -> ctypes.CDLL:
    raise OSError(f"{name}: cannot open shared object file")


class BareLibrary:
    """A C library without ``mallopt``."""


@pytest.mark.parametrize("load", [no_library, lambda name: BareLibrary()], ids=["no glibc", "no mallopt"])
def test_training_is_the_same_without_mallopt(load: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without glibc, or without ``mallopt`` and ``heap_trim``, a run ends with the same weights."""
    usual, bare = make_language_model(), make_language_model()
    train(usual, job(), TrainConfig())
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.delattr(psutil, "heap_trim", raising=False)
    train(bare, job(), TrainConfig())
    for name, tensor in usual.weights().items():
        assert torch.equal(tensor, bare.weights()[name]), name


def test_the_defaults_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that was changed is set back, and free memory is returned to the system."""
    calls: list[tuple[int, ...]] = []

    class Library:
        def mallopt(self, setting: int, value: int) -> None:
            calls.append((setting, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(psutil, "heap_trim", lambda: calls.append(()), raising=False)
    with pytest.raises(KeyError), keep_freed_memory(CPU):
        raise KeyError
    assert calls == [(-4, 0), (-1, -1), (-4, 65_536), (-1, 131_072), ()]


def test_a_gpu_leaves_the_c_library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a model on the CPU takes its memory there."""
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with keep_freed_memory(torch.device("cuda")):
        pass
