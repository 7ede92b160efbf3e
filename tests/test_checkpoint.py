"""Checkpoints: the newest two are kept, and a damaged one is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from warmstart.errors import CheckpointError
from warmstart.training.arithmetic import Arithmetic
from warmstart.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint


def checkpoint(step: int, identity: str = "a") -> Checkpoint:
    return Checkpoint(step, 1.5 * step, {"w": torch.full((3,), float(step))}, identity, Arithmetic("bfloat16", "onednn"))


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    """Older ones go only after a newer one is whole."""
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, checkpoint(step))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = read_checkpoint(tmp_path, "a")
    assert found is not None
    assert (found.step, found.seconds, found.tensors["w"].tolist()) == (3, 4.5, [3.0] * 3)
    assert found.arithmetic == Arithmetic("bfloat16", "onednn")


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "delete"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, name: str, damage: str) -> None:
    """Where the newest is hurt, the one before it is taken."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    file = tmp_path / "step-00000002" / name
    data = bytearray(file.read_bytes())
    if damage == "delete":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[:-3])
    else:
        data[-2] ^= 0xFF
        file.write_bytes(data)
    found = read_checkpoint(tmp_path, "a")
    assert found is not None
    assert found.step == 1


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """Other data or settings never go on from it."""
    write_checkpoint(tmp_path, checkpoint(1))
    with pytest.raises(CheckpointError, match="a run with other data, another tokenizer or other settings"):
        read_checkpoint(tmp_path, "b")
