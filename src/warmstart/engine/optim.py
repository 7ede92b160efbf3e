"""Optimisers: torch's AdamW, and torch's Muon for the matrices inside the blocks with AdamW for everything else.

They are built from groups of named parameters, so that a scheme decides what trains, and at which rate. Their state is named by
parameter, so that a checkpoint needs no pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from warmstart.engine.config import TrainConfig
from warmstart.engine.schedule import constant


@dataclass(frozen=True)
class Group:
    """Parameters that train alike."""

    parameters: Mapping[str, nn.Parameter]
    rate: float = 1.0
    """times the learning rate of the run"""
    course: Callable[[float], float] = constant
    """a further factor of the rate at a point of the run (0 to 1); where it is 0 the group sleeps, and no gradient is computed"""
    muon: bool = True
    """its matrices inside the blocks may go to Muon"""


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Muon is for the matrices inside the blocks: not embeddings, heads, norms or biases (Jordan et al. 2024)."""
    return parameter.ndim == 2 and ".blocks." in name


class Optimizer:
    """One or two of torch's optimisers that step together."""

    def __init__(self, groups: Sequence[Group], config: TrainConfig) -> None:
        self.groups = groups
        self.names = {parameter: name for group in groups for name, parameter in group.parameters.items()}
        adam: list[dict[str, Any]] = []
        muon: list[dict[str, Any]] = []
        for group in groups:
            chosen = {n: p for n, p in group.parameters.items() if config.optimizer == "muon" and group.muon and is_matrix(n, p)}
            rest = [p for n, p in group.parameters.items() if n not in chosen]
            for part in _adam_groups(rest, config.learning_rate * group.rate, config.weight_decay):
                adam.append(part | {"course": group.course})
            if chosen:
                muon.append({"params": list(chosen.values()), "full_rate": config.muon_rate * group.rate, "course": group.course})
        self.parts: list[torch.optim.Optimizer] = []
        if adam:
            fused = next(iter(self.names)).device.type in ("cpu", "cuda")
            self.parts.append(torch.optim.AdamW(adam, betas=(0.9, config.beta_2), fused=fused))
        if muon:
            self.parts.append(torch.optim.Muon(muon, weight_decay=config.weight_decay, momentum=0.95))
        self.clip = config.clip

    def wake(self, progress: float) -> None:
        """Let the groups that train at ``progress`` have gradients, and no others."""
        for group in self.groups:
            for parameter in group.parameters.values():
                parameter.requires_grad_(group.course(progress) > 0)

    def step(self, share: float, progress: float = 0.0) -> None:
        """Clip, set every rate to ``share`` of its full rate at ``progress``, step, clear."""
        if self.clip:
            torch.nn.utils.clip_grad_norm_(list(self.names), self.clip)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = group["full_rate"] * share * group["course"](progress)
            part.step()
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """All state, as tensors named ``parameter|key``."""
        return {
            f"{name}|{key}": value
            for part in self.parts
            for parameter, name in self.names.items()
            for key, value in part.state.get(parameter, {}).items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the state that ``tensors`` gave."""
        owners = {self.names[p]: (part, p) for part in self.parts for g in part.param_groups for p in g["params"]}
        for full, value in tensors.items():
            name, key = full.split("|")
            part, parameter = owners[name]
            part.state[parameter][key] = value.to(parameter.device)


def _adam_groups(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> list[dict[str, Any]]:
    """Matrices decay; vectors (biases, norms) do not."""
    wide = [p for p in parameters if p.ndim >= 2]
    thin = [p for p in parameters if p.ndim < 2]
    pairs = [(wide, decay), (thin, 0.0)]
    return [{"params": part, "weight_decay": decay_, "full_rate": rate} for part, decay_ in pairs if part]
