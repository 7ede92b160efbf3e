"""Checkpoints: the newest two are kept, and a damaged one is skipped."""

from __future__ import annotations

import json
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


def test_a_flipped_bit_never_changes_what_is_resumed(tmp_path: Path) -> None:
    """Of the step, the seconds or anything else in ``state.json``: the checkpoint is passed over, or the very same."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    file = tmp_path / "step-00000002" / "state.json"
    data = file.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        found = read_checkpoint(tmp_path, "a")
        assert found is not None
        assert (found.step, found.seconds, found.identity) in ((1, 1.5, "a"), (2, 3.0, "a"))


def test_damaged_checkpoints_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is passed over; where all are damaged, nothing starts over in silence. The next one written replaces them."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    (tmp_path / "step-00000002" / "state.json").write_text("{}")
    assert read_checkpoint(tmp_path, "a") is not None
    assert "step-00000002 is damaged and is passed over" in "".join(capsys.readouterr().err.split("\n"))
    (tmp_path / "step-00000001").rename(tmp_path / "step-00000009")  # a step that its state does not have
    with pytest.raises(CheckpointError, match="every checkpoint in .* is damaged; restore one from a copy, or start a new run"):
        read_checkpoint(tmp_path, "a")
    write_checkpoint(tmp_path, checkpoint(3))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_a_checkpoint_of_an_older_version_is_read(tmp_path: Path) -> None:
    """Its state has no seal, and no hash of the log."""
    write_checkpoint(tmp_path, checkpoint(1))
    file = tmp_path / "step-00000001" / "state.json"
    state = json.loads(file.read_text())
    del state["digest"], state["log_digest"]
    file.write_text(json.dumps(state))
    found = read_checkpoint(tmp_path, "a")
    assert found is not None
    assert (found.step, found.log_digest) == (1, "")


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """Other data or settings never go on from it."""
    write_checkpoint(tmp_path, checkpoint(1))
    with pytest.raises(CheckpointError, match="a run with other data, another tokenizer or other settings"):
        read_checkpoint(tmp_path, "b")
