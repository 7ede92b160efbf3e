"""What of a run is kept in a checkpoint, and how it comes back: on the same number of processes or another, sharded or not.

Tensors are named ``model/name`` and ``optimizer/name|key``. Of a run whose processes have all weights, rank 0 writes and reads one
file; of a sharded one each process writes and reads its own part.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from warmstart.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.training.distributed import world
from warmstart.training.early_stopping import Restorable
from warmstart.training.optimizers import Optimizer
from warmstart.training.sharded import is_sharded, load_parts, part_of


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The weights and the optimiser state: all in rank 0; of a sharded model the part of each process. Collective."""
    own = optimizer.state_tensors()
    if is_sharded(model):
        weights = dict[str, Tensor](model.named_parameters())
    else:
        weights, own = cast(Restorable, model).weights(), world().tensors_of_all(own, next(model.parameters()).device)
    return {f"model/{name}": tensor for name, tensor in weights.items()} | {f"optimizer/{name}": one for name, one in own.items()}


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, sharded: bool) -> None:
    """Write a checkpoint; collective."""
    if not sharded:
        world().first_alone(lambda: write_checkpoint(folder, checkpoint))
        return
    from warmstart.training.shards import write_shards  # takes a second

    write_shards(folder, checkpoint)


def last_checkpoint(folder: Path, identity: str, model: nn.Module) -> Checkpoint | None:
    """The newest undamaged checkpoint, as rank 0 finds it, with its tensors as ``model`` needs them; collective."""
    here, device, sharded = world(), next(model.parameters()).device, is_sharded(model)
    found = here.together(lambda: read_checkpoint(folder, identity) if here.leads else None)
    checkpoint = here.from_first(replace(found, tensors={}) if found else None)
    if checkpoint is None:
        return None
    parameters = dict(model.named_parameters())

    def parameter(name: str) -> Tensor | None:
        return parameters.get(name.split("/")[-1].split("|")[0])

    if checkpoint.shards:
        from warmstart.training.shards import read_shards
    if sharded and (place := checkpoint.shards):
        return replace(checkpoint, tensors=here.together(lambda: read_shards(place, parameter)))
    own = dict(found.tensors) if found else {}
    if found and found.shards:
        own = read_shards(found.shards)
    tensors = here.tensors_of_all(own, torch.device("cpu") if sharded else device)
    if sharded:
        tensors = {
            name: part_of(tensor, like) if (like := parameter(name)) is not None else tensor for name, tensor in tensors.items()
        }
    return replace(checkpoint, tensors=tensors)


def restore(model: nn.Module, optimizer: Optimizer, checkpoint: Checkpoint) -> None:
    """Put the weights and the optimiser state of a checkpoint back."""
    weights = below("model/", checkpoint)
    if is_sharded(model):
        load_parts(model, weights)
    else:
        model.load_state_dict(weights, strict=False)
    optimizer.load_state_tensors(below("optimizer/", checkpoint))


def below(prefix: str, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}
