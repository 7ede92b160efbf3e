"""Inserting modules into a finished model from outside, and removing them again.

An adapter becomes a child of the module that it changes, its host, and one forward hook on the host passes the host's input and
output through all such children. So nothing is replaced, the host's parameters keep their names, the new ones have names of their
own (``blocks.0.attention.qkv.lora_q.lora_A.weight``), and optimiser, checkpoint and bundle treat them like any other. Which
adapters a model has is read off the module tree itself: every adapter carries its settings.

This file does not know what adapters compute: see ``bottleneck``, ``lora`` and ``scalar_mix``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from warmstart.config import Config
from warmstart.errors import ModelError


class Adapter(nn.Module):
    """The interface of an adapter; its ``config`` is all that is needed to make it again."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def forward(self, inputs: Tensor, output: Any) -> Any:
        """The replacement of the ``output`` that the host computed from ``inputs``; both (B, T, ...)."""
        raise NotImplementedError

    def weight_change(self) -> Tensor | None:
        """(out, in): the change of the host's weight in place of the module; None: it is not linear."""
        return None


def attach(host: nn.Module, name: str, module: Adapter) -> None:
    """Insert ``module`` into ``host`` as its child ``name``. Raises ``ModelError`` if there is such a child already."""
    if hasattr(host, name):
        raise ModelError(
            f"this module has '{name}' already; remove it with remove_adapters(model), or fold it into the weights "
            "with merge_adapters(model)"
        )
    host.add_module(name, module.to(next(host.parameters()).device).train(host.training))
    if _pass_through not in host._forward_hooks.values():
        host.register_forward_hook(_pass_through)


def inserted_adapters(model: nn.Module) -> list[Config]:
    """The settings of every adapter in ``model``, each once, in the order of the module tree."""
    return list(dict.fromkeys(part.config for part in model.modules() if isinstance(part, Adapter)))


def remove_adapters(model: nn.Module) -> nn.Module:
    """Remove all adapters, in place; parameters that were not trained are then what they were, to the bit."""
    for host, name, _ in _adapters_with_hosts(model):
        _detach(host, name)
    return model


@torch.no_grad()
def merge_adapters(model: nn.Module) -> nn.Module:
    """Fold linear adapters (LoRA) into their hosts' weights, in place: a plain model with equal outputs.

    Adapters that are not linear (bottlenecks, a scalar mix) stay. Raises ``ModelError`` if there is nothing to fold.
    """
    inserted = _adapters_with_hosts(model)
    changes = [(host, name, change) for host, name, adapter in inserted if (change := adapter.weight_change()) is not None]
    if not changes:
        raise ModelError(
            "there is nothing to merge: only LoRA can be folded into the weights; remove_adapters(model) removes other adapters"
        )
    for host, name, change in changes:
        host.get_parameter("weight").add_(change)
        _detach(host, name)
    return model


def _adapters_with_hosts(model: nn.Module) -> list[tuple[nn.Module, str, Adapter]]:
    return [
        (host, name, module) for host in model.modules() for name, module in host.named_children() if isinstance(module, Adapter)
    ]


def _detach(host: nn.Module, name: str) -> None:
    delattr(host, name)
    if not any(isinstance(child, Adapter) for child in host.children()):
        for key in [key for key, hook in host._forward_hooks.items() if hook is _pass_through]:
            del host._forward_hooks[key]


def _pass_through(host: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
    """The one hook: a plain function that finds its adapters through the host, so that a copied model works on its own."""
    first = inputs[0] if inputs else None  # a backbone may be called with keywords only; a scalar mix reads its output alone
    for child in host.children():
        if isinstance(child, Adapter):
            output = child(first, output)
    return output
