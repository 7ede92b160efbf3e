"""Checkpoints: weights and optimiser state in one safetensors file, the rest in JSON; the newest two are kept.

A new one is whole on disk before an old one goes. What a step draws at random depends on the seed and the step's number alone
(``seeding``), so weights, optimiser state and the step are all that exact resuming needs.
"""

from __future__ import annotations

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
from warmstart.storage import sha256, whole_folder

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
    """what the run trains, on which data, with which settings; a resume must match it"""


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``folder/step-...``, then drop all but the newest two."""
    data = serialise({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()})
    state = {
        "step": checkpoint.step,
        "seconds": checkpoint.seconds,
        "identity": checkpoint.identity,
        "sha256": sha256(data),
    }
    with whole_folder(folder / f"step-{checkpoint.step:08d}") as aside:
        (aside / "tensors.safetensors").write_bytes(data)
        (aside / "state.json").write_text(json.dumps(state), encoding="utf-8")
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old)


def read_checkpoint(folder: Path, identity: str) -> Checkpoint | None:
    """The newest whole checkpoint, None where there is none; a damaged one is passed over.

    Raises ``CheckpointError`` where it belongs to other data or settings.
    """
    for place in reversed(_all(folder)):
        found = _read(place)
        if found is None:
            continue
        if found.identity != identity:
            raise CheckpointError(
                f"{place} was made with other data, tokenizer or settings than this run's; "
                "resume with what it was started with, or start a new run in another folder"
            )
        return found
    return None


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def _read(place: Path) -> Checkpoint | None:
    try:
        state: dict[str, Any] = json.loads((place / "state.json").read_text(encoding="utf-8"))
        data = (place / "tensors.safetensors").read_bytes()
        if sha256(data) != state["sha256"]:
            return None
        return Checkpoint(state["step"], state["seconds"], parse_tensors(data), state["identity"])
    except (OSError, ValueError, KeyError, safetensors.SafetensorError):
        return None
