"""Optimisers: torch's AdamW, and Muon for the matrices inside the blocks with AdamW for everything else.

They are built from groups of named parameters, so that a scheme decides what trains and at which learning rate. Their state is
named by parameter, so that a checkpoint needs no pickle.

Of several processes each takes AdamW's steps for all parameters; but each matrix of Muon, whose step costs many products, belongs
to one process, which sends the result to the others (ZeRO, stage 1: Rajbhandari et al. 2020).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from warmstart.training.config import Schedule, TrainConfig, constant
from warmstart.training.distributed import world
from warmstart.training.muon import Muon


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that train alike."""

    parameters: Mapping[str, nn.Parameter]
    rate_factor: float = 1.0
    """factor of the learning rate of the run"""
    schedule: Schedule = constant
    """a further factor of the learning rate; while it is 0 the group is frozen, and no gradient is computed for it"""
    muon: bool = True
    """the matrices inside the blocks may be trained by Muon"""


def is_muon_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Muon trains the matrices inside the blocks: no embeddings, heads, norms or biases (Jordan et al. 2024)."""
    return parameter.ndim == 2 and ".blocks." in name


class Optimizer:
    """One or two of torch's optimisers that step together."""

    def __init__(self, groups: Sequence[ParameterGroup], config: TrainConfig) -> None:
        self.groups = groups
        self.names = {parameter: name for group in groups for name, parameter in group.parameters.items()}
        adam: list[dict[str, Any]] = []
        muon: list[dict[str, Any]] = []
        for group in groups:
            matrices = {
                n: p for n, p in group.parameters.items() if config.optimizer == "muon" and group.muon and is_muon_matrix(n, p)
            }
            others = [p for n, p in group.parameters.items() if n not in matrices]
            for part in _adam_groups(others, config.learning_rate * group.rate_factor, config.weight_decay):
                adam.append(part | {"schedule": group.schedule})
            if matrices:
                peak = config.muon_learning_rate * group.rate_factor
                muon.append({"params": list(matrices.values()), "peak": peak, "schedule": group.schedule})
        self.optimizers: list[torch.optim.Optimizer] = []
        if adam:
            fused = next(iter(self.names)).device.type in ("cpu", "cuda")
            self.optimizers.append(torch.optim.AdamW(adam, betas=(0.9, config.beta_2), fused=fused))
        if muon:
            make = _divided_muon if world().several else Muon
            self.optimizers.append(make(muon, weight_decay=config.weight_decay, momentum=0.95))
        self.clip = config.clip
        self.trains: list[bool] = []
        """for each group, whether it trains at present; empty before the first step"""

    def unfreeze(self, progress: float) -> bool:
        """Let the groups that train at ``progress`` have gradients, and freeze the others; True if this changed anything."""
        trains = [group.schedule(progress) > 0 for group in self.groups]
        if trains == self.trains:
            return False
        for group, has_gradients in zip(self.groups, trains, strict=True):
            for parameter in group.parameters.values():
                parameter.requires_grad_(has_gradients)
        self.trains = trains
        return True

    def step(self, factor: float, progress: float = 0.0) -> None:
        """Clip, set every learning rate to ``factor`` of its peak at ``progress``, step, clear the gradients."""
        if self.clip:
            torch.nn.utils.clip_grad_norm_(list(self.names), self.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor * group["schedule"](progress)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """The state, as tensors named ``parameter|key``; of Muon in several processes the part of this one."""
        return {
            f"{name}|{key}": value
            for optimizer in self._own_optimizers()
            for parameter, name in self.names.items()
            for key, value in optimizer.state.get(parameter, {}).items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state that ``state_tensors`` gave, or this process's part of it."""
        owners = {
            self.names[p]: (optimizer, p)
            for optimizer in self._own_optimizers()
            for g in optimizer.param_groups
            for p in g["params"]
        }
        known = set(self.names.values())
        for full_name, value in tensors.items():
            name, key = full_name.split("|")
            assert name in known, f"the checkpoint has a state of {name}, which does not train"
            if name in owners:
                optimizer, parameter = owners[name]
                optimizer.state[parameter][key] = value.to(parameter.device)

    def _own_optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimisers that hold the state of this process."""
        return [getattr(optimizer, "optim", optimizer) for optimizer in self.optimizers]


def _divided_muon(groups: list[dict[str, Any]], **settings: Any) -> torch.optim.Optimizer:
    """Muon, of which each process steps for a part of the matrices."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other optimisers that torch defines in the same place
        from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer(groups, Muon, **settings)


def _adam_groups(parameters: Iterable[nn.Parameter], peak: float, decay: float) -> list[dict[str, Any]]:
    """Matrices decay; vectors (biases, norms) do not."""
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    pairs = [(matrices, decay), (vectors, 0.0)]
    return [{"params": part, "weight_decay": part_decay, "peak": peak} for part, part_decay in pairs if part]
