"""Checkpoints of sharded models: each process writes its part, by torch.distributed.checkpoint in the format of safetensors.

A checkpoint is read back by any number of processes, sharded or not. There are no pickles: the header of each file says what is in
it. ``state.json`` has a hash of every file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from warmstart.errors import StorageError
from warmstart.system.storage import atomic_folder, file_sha256
from warmstart.training.checkpoint import Checkpoint, checkpoint_place, remove_others, write_state
from warmstart.training.distributed import world


def write_shards(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``folder/step-...`` with the part of every process, then remove all but the newest two; collective."""
    here, target = world(), checkpoint_place(folder, checkpoint)
    with ExitStack() as stack:
        opened: list[Path] = []
        here.first_alone(lambda: opened.append(stack.enter_context(atomic_folder(target))))
        place = here.from_first(opened[0] if opened else target)
        own = here.together(lambda: _write(place, checkpoint.tensors, here.rank))
        hashes = {name: digest for files in here.gather(own) for name, digest in files.items()}
        here.first_alone(lambda: write_state(place, checkpoint, {"shards": hashes}))
        here.first_alone(stack.close)  # puts the folder in place
    here.first_alone(lambda: remove_others(folder, checkpoint))


def _write(place: Path, tensors: Mapping[str, Tensor], rank: int) -> dict[str, str]:
    """Write the part of one process; the hash of each of its files."""
    try:
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(place), save_distributed=True))
    except CheckpointException as error:
        failed, (cause, _) = next(iter(error.failures.items()))
        reason = getattr(cause, "strerror", None) or str(cause).strip()
        raise StorageError(f"cannot write the checkpoint's part of rank {failed}: {reason}; free some space") from None
    return {file.name: file_sha256(file) for file in place.glob(f"shard-{rank + 1:05d}-*")}


def read_shards(place: Path, like: Callable[[str], Tensor | None] | None = None) -> dict[str, Tensor]:
    """The tensors of a checkpoint: whole, or, collective, parted as ``like`` says by name."""
    reader = HuggingFaceStorageReader(str(place))
    entries: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    tensors = dict[str, Tensor]()
    for name, entry in entries.items():
        model = like(name) if like else None
        fits = model is not None and model.shape == entry.size
        tensors[name] = torch.zeros_like(model) if fits else torch.empty(entry.size, dtype=entry.properties.dtype)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(tensors, storage_reader=HuggingFaceStorageReader(str(place)), no_dist=like is None)
    return tensors
