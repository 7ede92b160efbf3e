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
from warmstart.system.console import console
from warmstart.system.storage import atomic_folder, sealed, sha256, unsealed
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
    """the run's arithmetic, which does not change when it is resumed; None: that of this process"""
    log_digest: str = ""
    """a hash of the lines of the log so far"""


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``folder/step-...``, then remove all but the newest two."""
    data = serialise({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()})
    place = folder / f"step-{checkpoint.step:08d}"
    state = {
        "step": checkpoint.step,
        "seconds": checkpoint.seconds,
        "identity": checkpoint.identity,
        "arithmetic": dataclasses.asdict(checkpoint.arithmetic) if checkpoint.arithmetic else None,
        "log_digest": checkpoint.log_digest,
        "sha256": sha256(data),
    }
    with atomic_folder(place) as new:
        (new / "tensors.safetensors").write_bytes(data)
        (new / "state.json").write_text(json.dumps(sealed(state)), encoding="utf-8")
    for later in (other for other in _all(folder) if other.name > place.name):
        shutil.rmtree(later, ignore_errors=True)  # it was damaged and passed over
    _keep_newest(folder)


def read_checkpoint(folder: Path, identity: str) -> Checkpoint | None:
    """The newest checkpoint that is undamaged; damaged ones are named. None if there is no checkpoint at all.

    Raises ``CheckpointError`` if all are damaged, or if it belongs to a run with other data or settings.
    """
    for path in reversed(_all(folder)):
        checkpoint = _read(path)
        if checkpoint is None:
            console.print(f"{path} is damaged and is passed over")
            continue
        if checkpoint.identity != identity:
            raise CheckpointError(
                f"{path} belongs to a run with other data, another tokenizer or other settings; "
                "resume that run with its own settings, or start a new run in another folder"
            )
        _keep_newest(folder)  # a run that was killed while it removed an older one may have nothing more to write
        return checkpoint
    if _all(folder):
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged; restore one from a copy, or start a new run in another folder"
        )
    return None


def _keep_newest(folder: Path) -> None:
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def _read(path: Path) -> Checkpoint | None:
    """A checkpoint; None if it is damaged."""
    try:
        state: dict[str, Any] = unsealed((path / "state.json").read_bytes())
        if path.name != f"step-{state['step']:08d}":
            return None
        arithmetic = Arithmetic(**state["arithmetic"]) if state["arithmetic"] else None
        data = (path / "tensors.safetensors").read_bytes()
        if sha256(data) != state["sha256"]:
            return None
        tensors = parse_tensors(data)
        return Checkpoint(state["step"], state["seconds"], tensors, state["identity"], arithmetic, state["log_digest"])
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        return None
