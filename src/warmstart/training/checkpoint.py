"""Checkpoints: weights and optimiser state in one safetensors file, the rest in JSON; the newest two are kept.

Those of a sharded model have a file for each process instead (``shards.py``); both kinds are found, checked and removed here.

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
    """how the run multiplies matrices, which does not change when it is resumed; None: as this process does"""
    log_digest: str = ""
    """a hash of the lines of the log so far"""
    shards: Path | None = None
    """the folder of a sharded checkpoint, whose ``tensors`` are not read yet"""


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``folder/step-...``, then remove all but the newest two."""
    data = serialise({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()})
    with atomic_folder(checkpoint_place(folder, checkpoint)) as new:
        (new / "tensors.safetensors").write_bytes(data)
        write_state(new, checkpoint, {"sha256": sha256(data)})
    remove_others(folder, checkpoint)


def checkpoint_place(folder: Path, checkpoint: Checkpoint) -> Path:
    """Where it is kept."""
    return folder / f"step-{checkpoint.step:08d}"


def write_state(place: Path, checkpoint: Checkpoint, hashes: Mapping[str, Any]) -> None:
    """Write all but the tensors, with the ``hashes`` of their files."""
    state = {
        "step": checkpoint.step,
        "seconds": checkpoint.seconds,
        "identity": checkpoint.identity,
        "arithmetic": dataclasses.asdict(checkpoint.arithmetic) if checkpoint.arithmetic else None,
        "log_digest": checkpoint.log_digest,
        **hashes,
    }
    (place / "state.json").write_text(json.dumps(sealed(state)), encoding="utf-8")


def remove_others(folder: Path, written: Checkpoint) -> None:
    """Remove the checkpoints that follow the one that was written, and all but the newest two."""
    for later in (place for place in _all(folder) if place.name > checkpoint_place(folder, written).name):
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


def wrong_shard(place: Path, hashes: Mapping[str, str]) -> str | None:
    """What is wrong with the files of a sharded checkpoint: one is missing or has changed; None: nothing."""
    for name, digest in hashes.items():
        file = place / name
        if not file.is_file():
            return f"{file} is missing"
        if sha256(file.read_bytes()) != digest:
            return f"{file} has changed"
    return None


def _keep_newest(folder: Path) -> None:
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def _read(path: Path) -> Checkpoint | None:
    """One checkpoint; None if it is damaged."""
    try:
        state: dict[str, Any] = unsealed((path / "state.json").read_bytes())
        if path.name != f"step-{state['step']:08d}":
            return None
        arithmetic = Arithmetic(**state["arithmetic"]) if state["arithmetic"] else None
        rest = state["identity"], arithmetic, state["log_digest"]
        if "shards" in state:
            if wrong := wrong_shard(path, state["shards"]):
                console.print(wrong)
                return None
            return Checkpoint(state["step"], state["seconds"], {}, *rest, shards=path)
        data = (path / "tensors.safetensors").read_bytes()
        if sha256(data) != state["sha256"]:
            return None
        return Checkpoint(state["step"], state["seconds"], parse_tensors(data), *rest)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        return None
