"""Models of which each process keeps a part: torch's FSDP2 (``fully_shard``; Rajbhandari et al. 2020, ZeRO, stage 3).

The weights of a block are put together when it computes, and parted again after it. Parameters are then torch's ``DTensor``, and so
are gradients and optimiser state. Weights stay float32; products are in the precision of the run, as in one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def shard_model(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Part the weights of ``blocks``, each for itself, and all others of ``model`` together; gradients are summed, not averaged."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method  # takes a second

    for module in (*blocks, model):
        sharded = fully_shard(module)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
    for method in ("loss", "replace"):  # what training and evaluation call instead of ``forward``
        if hasattr(model, method):
            register_fsdp_forward_method(model, method)


def is_sharded(model: nn.Module) -> bool:
    """Whether each process keeps a part of a model only."""
    return hasattr(model, "set_requires_gradient_sync")  # FSDP adds it


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights of a sharded model, on the CPU; collective."""
    return {name: _whole(parameter).detach().cpu() for name, parameter in model.named_parameters()}


def part_of(whole: Tensor, like: Any) -> Tensor:
    """The part of a tensor that is this process's own, if it has the shape of the parted tensor ``like``; else itself."""
    if type(whole) is not Tensor or not hasattr(like, "device_mesh") or whole.shape != like.shape:
        return whole
    from torch.distributed.tensor import distribute_tensor

    part: Tensor = distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return part


@torch.no_grad()
def load_parts(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors, whole or parted, into the parameters of a sharded model."""
    for name, parameter in model.named_parameters():
        parameter.copy_(part_of(tensors[name], parameter))


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
