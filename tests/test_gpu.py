"""What a GPU computes, against the CPU; every test is skipped where there is none (``make gpu`` runs them where there is one)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from helpers.models import make_language_model
from helpers.training import KilledError, job, killed_at, packed_batch
from warmstart.training.config import TrainConfig
from warmstart.training.loop import _Run, train

GPU = torch.device("cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU with CUDA; `make gpu` runs these tests where there is one"),
    # shown, not errors: that the debugging of synchronisation is a prototype, that float32 is not TF32, and what else torch says
    pytest.mark.filterwarnings("default"),
]


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """CUDA raises where the program waits for it."""
    try:
        torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_losses_are_those_of_the_cpu() -> None:
    """Of twenty steps, up to the rounding of the arithmetic."""
    for precision, tolerance in (("float32", 1e-4), ("bfloat16", 3e-2)):
        config, losses = TrainConfig(precision=precision), []
        for device in ("cpu", "cuda"):
            output = train(make_language_model().to(device), job(batches=lambda step: [packed_batch(step)], steps=20), config)
            losses.append([row["loss"] for row in output.log])
        assert losses[1] == pytest.approx(losses[0], rel=tolerance), precision


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
