"""What of a run is kept in a checkpoint, and how it comes back: on the same number of processes or another.

Tensors are named ``model/name`` and ``optimizer/name|key``; rank 0 writes and reads them all.
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


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The weights and the optimiser state, in rank 0; collective."""
    own = world().tensors_of_all(optimizer.state_tensors(), next(model.parameters()).device)
    weights = cast(Restorable, model).weights()
    return {f"model/{name}": tensor for name, tensor in weights.items()} | {f"optimizer/{name}": one for name, one in own.items()}


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; collective."""
    world().first_alone(lambda: write_checkpoint(folder, checkpoint))


def last_checkpoint(folder: Path, identity: str, device: torch.device) -> Checkpoint | None:
    """The newest undamaged checkpoint, as rank 0 finds it; of several processes its tensors are on ``device``. Collective."""
    here = world()
    found = here.together(lambda: read_checkpoint(folder, identity) if here.leads else None)
    checkpoint = here.from_first(replace(found, tensors={}) if found else None)
    if checkpoint is None:
        return None
    return replace(checkpoint, tensors=here.tensors_of_all(found.tensors if found else {}, device))


def restore(model: nn.Module, optimizer: Optimizer, checkpoint: Checkpoint) -> None:
    """Put the weights and the optimiser state of a checkpoint back."""
    model.load_state_dict(below("model/", checkpoint), strict=False)
    optimizer.load_state_tensors(below("optimizer/", checkpoint))


def below(prefix: str, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}
