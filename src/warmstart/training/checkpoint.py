"""Checkpoints: weights and optimiser state in one safetensors file, the rest in JSON; the newest two are kept.

A new checkpoint is complete on disk before an old one is removed. What a step draws at random depends on the seed and the step's
number alone (``seeding``), so weights, optimiser state and the step are all that exact resuming needs.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.errors import CheckpointError
from warmstart.storage import atomic_folder, sha256
from warmstart.training.arithmetic import Arithmetic

KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after ``step`` steps."""

    step: int
    seconds: float
    """seconds of training so far"""
    tensors: Mapping[str, Tensor]
    """``model/name`` and ``optimizer/name``"""
    identity: str
    """a hash of the run's data, tokenizer and settings; a resumed run must have the same"""
    arithmetic: Arithmetic | None
    """how the run multiplies matrices, which does not change when it is resumed; None: written before it was recorded"""


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``folder/step-...``, then remove all but the newest two."""
    data = serialise({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()})
    state = {
        "step": checkpoint.step,
        "seconds": checkpoint.seconds,
        "identity": checkpoint.identity,
        "arithmetic": dataclasses.asdict(checkpoint.arithmetic) if checkpoint.arithmetic else None,
        "sha256": sha256(data),
    }
    with atomic_folder(folder / f"step-{checkpoint.step:08d}") as new:
        (new / "tensors.safetensors").write_bytes(data)
        (new / "state.json").write_text(json.dumps(state), encoding="utf-8")
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old)


def read_checkpoint(folder: Path, identity: str) -> Checkpoint | None:
    """The newest checkpoint that is undamaged; None if there is none.

    Raises ``CheckpointError`` if it belongs to a run with other data or settings.
    """
    for path in reversed(_all(folder)):
        checkpoint = _read(path)
        if checkpoint is None:
            continue
        if checkpoint.identity != identity:
            raise CheckpointError(
                f"{path} belongs to a run with other data, another tokenizer or other settings; "
                "resume that run with its own settings, or start a new run in another folder"
            )
        return checkpoint
    return None


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def _read(path: Path) -> Checkpoint | None:
    """One checkpoint; None if it is damaged."""
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        data = (path / "tensors.safetensors").read_bytes()
        if sha256(data) != state["sha256"]:
            return None
        arithmetic = Arithmetic(**state["arithmetic"]) if state.get("arithmetic") else None
        return Checkpoint(state["step"], state["seconds"], parse_tensors(data), state["identity"], arithmetic)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        return None
