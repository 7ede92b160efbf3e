"""Training steps never wait for a GPU: shown on the device ``meta``, which has no values that could be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from helpers.models import make_language_model
from helpers.training import job, packed_batch, ragged_batch
from warmstart.training.config import TrainConfig
from warmstart.training.loop import _Run
from warmstart.training.prefetch import prefetched
from warmstart.types import Batch

META, GPU = torch.device("meta"), torch.device("cuda")


@pytest.fixture
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the device."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


@pytest.mark.usefixtures("_no_autocast")
@pytest.mark.parametrize(("batch", "optimizer"), [(packed_batch, "adamw"), (ragged_batch, "muon")])
def test_a_step_asks_the_device_nothing(batch: Any, optimizer: str) -> None:
    """Forward, backward, clipping and the optimiser's step, of full rows and of padded ones; an answer would raise here."""
    model = make_language_model(dropout=0.2).to(META)
    config = TrainConfig(optimizer=optimizer, precision="float32")
    run = _Run(model, job(batches=lambda step: [batch(step)], steps=3), config, None)
    for _ in range(3):
        loss, targets = run._step(0.5)
    assert loss.device == META
    assert targets > 0
    with pytest.raises((RuntimeError, NotImplementedError)):
        float(loss)  # what the log asks for, every tenth step


def test_known_places_change_no_bit() -> None:
    """Neither the loss nor a gradient: the places that a GPU is told are those that a CPU finds."""
    for step in range(4):
        batch = packed_batch(step)
        found = []
        for one in (batch, batch.with_target_places()):
            model = make_language_model()
            loss = model.loss(one)
            loss.backward()
            found.append((loss.detach(), [parameter.grad for parameter in model.parameters()]))
        assert torch.equal(found[0][0], found[1][0])
        for one, other in zip(found[0][1], found[1][1], strict=True):
            assert (one is None and other is None) or torch.equal(one, other)


@pytest.fixture
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory can be pinned only where there is a GPU."""
    monkeypatch.setattr(Batch, "pinned", Batch.with_target_places)


@pytest.mark.usefixtures("_unpinned")
def test_batches_are_made_ahead_and_are_those_of_their_steps() -> None:
    """One step ahead, none behind the end, and in any order that a resumed run begins with."""
    made: list[int] = []

    def batches(step: int) -> Sequence[Batch]:
        made.append(step)
        return [packed_batch(step)]

    with prefetched(batches, GPU, 6) as ahead:
        for step in (3, 4, 5):
            assert torch.equal(ahead(step)[0].ids, packed_batch(step).ids)
    assert made == [3, 4, 5]
    with prefetched(batches, torch.device("cpu"), 6) as same:
        assert same is batches


@pytest.mark.usefixtures("_unpinned")
def test_an_error_is_raised_at_its_own_step() -> None:
    """Not a step too early, and not only when the thread ends."""

    def batches(step: int) -> Sequence[Batch]:
        if step == 1:
            raise ValueError("a shard has changed")
        return [packed_batch(step)]

    with prefetched(batches, GPU, None) as ahead:
        assert len(ahead(0)) == 1
        with pytest.raises(ValueError, match="a shard has changed"):
            ahead(1)
