"""How a module is put into a finished model from outside, and taken out again.

A module is *inserted* by becoming a child of the part that it changes, its host, and by one forward hook on the host that hands the
host's input and output through all such children. So nothing is replaced, no name of the host's own parameters changes, the new
ones have names of their own (``blocks.0.attention.qkv.lora_q.lora_A.weight``), and optimiser, checkpoint and bundle see them as
any other. What was inserted is read off the tree itself: every inserted module carries its settings.

It does not know what the modules compute: that is ``adapter``, ``lora`` and ``mix``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from warmstart.config import Config
from warmstart.errors import ModelError


class Inserted(nn.Module):
    """The interface of what can be inserted; ``config`` is the plain data from which it is made again."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def forward(self, given: Tensor, output: Any) -> Any:
        """What goes on instead of the host's ``output``, which the host made of ``given``."""
        raise NotImplementedError

    def folded(self) -> Tensor | None:
        """What to add to the host's weight so that the module is no longer needed; None where it is not linear."""
        return None


def attach(host: nn.Module, name: str, module: Inserted) -> None:
    """Insert ``module`` into ``host`` as its child ``name``. Raises ``ModelError`` where such a child stands already."""
    if hasattr(host, name):
        raise ModelError(f"this part has '{name}' already; take it out with undo(model), or fold it in with merge(model), first")
    host.add_module(name, module.to(next(host.parameters()).device).train(host.training))
    if _pass_on not in host._forward_hooks.values():
        host.register_forward_hook(_pass_on)


def inserted(model: nn.Module) -> list[Config]:
    """The settings of everything inserted in ``model``, each once, in the order of insertion."""
    return list(dict.fromkeys(part.config for part in model.modules() if isinstance(part, Inserted)))


def undo(model: nn.Module) -> nn.Module:
    """Take out everything inserted, in place; parameters that did not train are then what they were, to the bit."""
    for host, name, _ in _places(model):
        _detach(host, name)
    return model


@torch.no_grad()
def merge(model: nn.Module) -> nn.Module:
    """Fold what is linear (LoRA) into its hosts' weights, in place: a plain model with equal outputs.

    What is not linear (adapters, a layer mix) stays. Raises ``ModelError`` where there is nothing to fold.
    """
    places = [(host, name, change) for host, name, module in _places(model) if (change := module.folded()) is not None]
    if not places:
        raise ModelError("there is nothing to merge: only LoRA can be folded into the weights; undo(model) takes the rest out")
    for host, name, change in places:
        host.get_parameter("weight").add_(change)
        _detach(host, name)
    return model


def _places(model: nn.Module) -> list[tuple[nn.Module, str, Inserted]]:
    return [
        (host, name, module) for host in model.modules() for name, module in host.named_children() if isinstance(module, Inserted)
    ]


def _detach(host: nn.Module, name: str) -> None:
    delattr(host, name)
    if not any(isinstance(child, Inserted) for child in host.children()):
        for key in [key for key, hook in host._forward_hooks.items() if hook is _pass_on]:
            del host._forward_hooks[key]


def _pass_on(host: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
    """The one hook: a plain function that finds its modules by the host, so that copies of a model are whole copies."""
    given = inputs[0] if inputs else None  # a backbone may be called by keywords alone; a mix needs its output only
    for child in host.children():
        if isinstance(child, Inserted):
            output = child(given, output)
    return output
