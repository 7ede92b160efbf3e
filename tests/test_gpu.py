"""What a GPU computes, against the CPU (``make gpu``, where there is one); and that steps never wait for it, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.models import make_language_model
from helpers.training import KilledError, job, killed_at, packed_batch, ragged_batch
from warmstart.training.config import TrainConfig
from warmstart.training.loop import _Run, prefetched, train
from warmstart.types import Batch

GPU, META = torch.device("cuda"), torch.device("meta")


def on_a_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """Skips a test where there is no GPU; shows, instead of raising, what torch says of prototypes and of float32 and TF32."""
    why = "no GPU with CUDA; `make gpu` runs these tests where there is one"
    skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason=why)
    return pytest.mark.gpu(skipped(pytest.mark.filterwarnings("default")(test)))


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """CUDA raises where the program waits for it."""
    try:
        torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_a_gpu
def test_the_losses_are_those_of_the_cpu() -> None:
    """Of twenty steps, up to the rounding of the arithmetic."""
    for precision, tolerance in (("float32", 1e-4), ("bfloat16", 3e-2)):
        config, losses = TrainConfig(precision=precision), []
        for device in ("cpu", "cuda"):
            output = train(make_language_model().to(device), job(batches=lambda step: [packed_batch(step)], steps=20), config)
            losses.append([row["loss"] for row in output.log])
        assert losses[1] == pytest.approx(losses[0], rel=tolerance), precision


@on_a_gpu
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_ends_with_the_same_bits(optimizer: str, tmp_path: Path) -> None:
    """Killed at the eighth of twelve steps, three after a checkpoint; dropout included."""
    config = TrainConfig(optimizer=optimizer, checkpoint_every=5, learning_rate=0.01)
    whole = make_language_model(dropout=0.2).to(GPU)
    train(whole, job(), config)
    with pytest.raises(KilledError):
        train(make_language_model(dropout=0.2).to(GPU), job(batches=killed_at(7)), config, tmp_path)
    resumed = make_language_model(seed=1, dropout=0.2).to(GPU)
    train(resumed, job(), config, tmp_path)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name


@on_a_gpu
def test_a_step_waits_for_nothing() -> None:
    """CUDA itself says whether the program ever waits for it."""
    batches = [packed_batch(step).pinned() for step in range(6)]
    for optimizer in ("adamw", "muon"):
        model = make_language_model(dropout=0.2).to(GPU)
        run = _Run(model, job(batches=lambda step: [batches[step]], steps=6), TrainConfig(optimizer=optimizer), None)
        run._step(0.1)  # the first allocates
        torch.cuda.synchronize()
        with waiting_is_an_error():
            for _ in range(3):
                run._step(0.5)


@on_a_gpu
def test_a_compiled_step_is_that_of_the_modules() -> None:
    """Up to rounding, after ten steps."""
    config, found = TrainConfig(precision="float32"), []
    for compiled in (False, True):
        model = make_language_model().to(GPU)
        blocks = list(model.backbone.blocks) if compiled else []
        train(model, job(batches=lambda step: [packed_batch(2 * step + 1)], steps=10, compile=blocks), config)
        found.append(model.weights())
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], atol=2e-3, rtol=1e-2)


@on_a_gpu
def test_cached_generation_equals_reading_the_whole_text() -> None:
    """The next token's logits, with the cache and without."""
    from warmstart.backbone.attention import KVCache

    model = make_language_model().to(GPU)
    ids = torch.randint(5, 60, (2, 10), device=GPU)
    with torch.inference_mode():
        whole = model.backbone(ids).last_hidden_state
        cache, parts = KVCache.empty(model.backbone.config.depth, 10), []
        for part in ids.split(3, dim=1):
            parts.append(model.backbone(part, kv_cache=cache).last_hidden_state)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-4, rtol=1e-3)


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
