"""Sharded models train as whole ones do, and their checkpoints are read by any number of processes; recomputed activations too."""

from __future__ import annotations

import resource
import signal
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.models import SENTENCES, make_language_model
from helpers.processes import run_processes
from helpers.training import job, ragged_batch
from warmstart.backbone.block import Block
from warmstart.backbone.config import BackboneConfig
from warmstart.commands.pretrain.command import PretrainConfig, pretrain_on
from warmstart.data.source import Source
from warmstart.data.token_store import TokenStore, prepare_store
from warmstart.errors import CheckpointError, ConfigError, StorageError
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.stopping import Terminated
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.distributed import world
from warmstart.training.loop import train
from warmstart.training.sharded import is_sharded, whole_weights
from warmstart.types import Batch

Run = tuple[list[float], dict[str, Tensor]]
STEPS = 21


def blocks_of(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if isinstance(part, Block)]


def trained(folder: Path, stop: int | None = None, *, shard: bool = True, changes: Mapping[str, Any] | None = None) -> Run | None:
    """A run in a folder, sharded if there are several processes; None if the last of them is asked to end, at step ``stop``."""

    def batches(step: int) -> list[Batch]:
        if step == stop and world().rank == world().size - 1:
            signal.raise_signal(signal.SIGTERM)
        return [ragged_batch(step, 0, 5), ragged_batch(step, 1, 3)]

    model = make_language_model(dropout=0.2)
    parts = blocks_of(model) if shard else []
    config = TrainConfig.build({"precision": "float32", "checkpoint_every": 100, **(changes or {})})
    with suppress(Terminated):
        output = train(model, job(STEPS, batches=batches, shard=parts), config, folder)
        assert is_sharded(model) == (shard and world().several)
        return [row["loss"] for row in output.log if "loss" in row], whole_weights(model)
    return None


def assert_same(one: Run | None, other: Run | None) -> None:
    assert one is not None
    assert other is not None
    assert one[0][-1] == pytest.approx(other[0][-1], rel=1e-4)
    for name, tensor in one[1].items():
        torch.testing.assert_close(tensor, other[1][name], atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    """What one process trains."""
    (tmp_path / "whole").mkdir()
    found = trained(tmp_path / "whole")
    assert found is not None
    return found


@pytest.mark.journeys
def test_sharded_checkpoints_are_resumed_on_another_number_of_processes(tmp_path: Path, whole: Run) -> None:
    """Four sharded, one, two sharded, two that are not: the end is that of one process. A step is kept by a file per process."""
    (folder := tmp_path / "run").mkdir()
    assert run_processes(4, tmp_path, partial(trained, folder, 3)) == [None] * 4
    (kept,) = (folder / "checkpoints").iterdir()
    assert sorted(file.suffix for file in kept.iterdir()) == [".json", *[".safetensors"] * 4]
    assert trained(folder, 7) is None
    assert sorted(file.name for file in (folder / "checkpoints" / "step-00000008").iterdir()) == [
        "state.json",
        "tensors.safetensors",
    ]
    assert run_processes(2, tmp_path, partial(trained, folder, 11)) == [None] * 2
    assert run_processes(2, tmp_path, partial(trained, folder, 15, shard=False)) == [None] * 2
    for found in run_processes(2, tmp_path, partial(trained, folder)):
        assert_same(found, whole)


@pytest.mark.journeys
def test_a_shard_that_vanished_or_changed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its checkpoint is passed over, and if there is no other, nothing starts over in silence."""
    (folder := tmp_path / "run").mkdir()
    run_processes(2, tmp_path, partial(trained, folder, changes={"checkpoint_every": 10}))
    older, newer = sorted((folder / "checkpoints").iterdir())
    (gone := newer / "shard-00002-model-00001-of-00001.safetensors").unlink()
    assert trained(folder, 20) is None
    assert f"{gone} is missing\n{newer} is damaged and is passed over" in capsys.readouterr().err
    for place in (older, newer):
        changed = next(place.glob("*.safetensors"))
        changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="every checkpoint in .* is damaged; restore one from a copy, or start a new run"):
        trained(folder)


def with_a_full_disk(folder: Path) -> str:
    """What the processes say if one cannot write its part."""
    if world().rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    try:
        with pytest.raises(StorageError) as raised:
            trained(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return str(raised.value)


@pytest.mark.journeys
def test_a_full_disk_in_one_process_ends_all(tmp_path: Path) -> None:
    """With one message that names it, and without half a checkpoint."""
    (folder := tmp_path / "run").mkdir()
    for said in run_processes(2, tmp_path, partial(with_a_full_disk, folder)):
        assert said == "cannot write the checkpoint's part of rank 1: File too large; free some space"
    assert list((folder / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("recompute", [False, True])
def test_recomputed_activations_change_no_bit(recompute: bool) -> None:
    """Dropout included; each block computes its forward pass twice in a step, and once in an evaluation."""
    model, calls = make_language_model(dropout=0.2), list[str]()
    blocks = blocks_of(model)
    blocks[0].register_forward_pre_hook(lambda *_: calls.append("block"))
    blocks[0].get_submodule("norm_1").register_forward_pre_hook(lambda *_: calls.append("inside"))
    train(model, job(3, recompute=blocks if recompute else []), TrainConfig())
    plain = make_language_model(dropout=0.2)
    train(plain, job(3), TrainConfig())
    assert (calls.count("block"), calls.count("inside")) == (3, 6 if recompute else 3)
    assert all(torch.equal(tensor, plain.weights()[name]) for name, tensor in model.weights().items())
    model.loss(ragged_batch(0))
    assert calls[-2:] == ["block", "inside"]


@pytest.fixture
def store(tokenizer: Tokenizer, tmp_path: Path) -> TokenStore:
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES * 20))
    return prepare_store([Source(path=str(tmp_path / "text.txt"))], tokenizer, tmp_path / "store")


def pretrained(
    tokenizer: Tokenizer, store: TokenStore, objective: str, **changes: Any
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The held-out metrics and the weights of the model that ``pretrain`` saves."""
    settings = {"steps": 8, "batch": 5, "optimizer": "adamw", "learning_rate": 1e-3, "precision": "float32"} | changes
    config = PretrainConfig(
        objective=ObjectiveConfig(name=objective),
        backbone=BackboneConfig(width=16, heads=2, feedforward=24, depth=2, max_length=24, dropout=0.1),
        train=PretrainTrainConfig.build(settings),
    )
    result = pretrain_on((store, store), tokenizer, config, None)
    return dict(result.metrics), {name: tensor.detach() for name, tensor in result.bundle.model.weights().items()}


@pytest.mark.journeys
@pytest.mark.parametrize("objective", [name for name, row in OBJECTIVES.items() if not row.compares])
def test_a_sharded_model_is_saved_whole(objective: str, tokenizer: Tokenizer, store: TokenStore, tmp_path: Path) -> None:
    """By every objective, with activations that are recomputed; its weights and metrics are those of one process."""
    alone = pretrained(tokenizer, store, objective)
    for metrics, weights in run_processes(
        2, tmp_path, partial(pretrained, tokenizer, store, objective, shard=True, activation_checkpointing=True)
    ):
        assert metrics == pytest.approx(alone[0], rel=1e-4)
        assert weights.keys() == alone[1].keys()
        for name, tensor in weights.items():
            torch.testing.assert_close(tensor, alone[1][name], atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_what_cannot_be_sharded_is_refused() -> None:
    """With the reason."""
    with pytest.raises(
        ConfigError, match="Muon orthogonalises whole matrices; use --optimizer adamw with a --learning-rate of 1e-3"
    ):
        PretrainTrainConfig.build({"shard": True})
    with pytest.raises(ConfigError, match="with shard, blocks are not compiled; leave one of both out"):
        PretrainTrainConfig.build({"shard": True, "optimizer": "adamw", "compile": True})
    with pytest.raises(ConfigError, match="contrastive reads every crop twice, which a sharded model cannot; leave --shard out"):
        PretrainConfig.build(
            {"text": ["a"], "out": "b", "objective": {"name": "contrastive"}, "train": {"shard": True, "optimizer": "adamw"}}
        )
