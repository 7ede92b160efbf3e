"""Two ways back to the pretrained weights: a pull towards them in training, a point between them and the adapted ones after it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from warmstart.errors import ConfigError, ModelError
from warmstart.inserts import Inserted
from warmstart.model import Model


def l2_sp(model: Model, alpha: float, beta: float) -> Callable[[], Tensor]:
    """The penalty ``alpha / 2 ||w - w0||^2 + beta / 2 ||v||^2`` (Li et al. 2018, equation 2), w0 being the backbone as it is now.

    ``w`` are the backbone's own weights, ``v`` those of the head; inserted modules start near nothing and are left alone.
    """
    new = {id(p) for module in model.modules() if isinstance(module, Inserted) for p in module.parameters()}
    pairs = [(p, p.detach().clone()) for p in model.backbone.parameters() if id(p) not in new]
    backbone = {id(p) for p, _ in pairs}
    head = [p for p in model.head.parameters() if id(p) not in backbone]  # a tied head has none of its own

    def penalty() -> Tensor:
        moved = torch.stack([(p - start).square().sum() for p, start in pairs]).sum()
        return alpha / 2 * moved + beta / 2 * torch.stack([p.square().sum() for p in head]).sum()

    return penalty


@torch.no_grad()
def interpolate(before: nn.Module, after: Model, share: float) -> Model:
    """A new model whose backbone lies ``share`` of the way from ``before``'s weights to ``after``'s; the head is ``after``'s.

    Wortsman et al. 2022 (WiSE-FT), equation 1: between 0 and 1 a model can keep what pretraining knew and what adaptation learned.
    ``before`` is the pretrained model. Raises ``ModelError`` where the backbones do not have the same weights.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must lie between 0 (the weights before) and 1 (those after), but is {share}")
    made = copy.deepcopy(after)
    start = before.get_submodule("backbone").state_dict()
    end = made.backbone.state_dict()
    if odd := sorted(name for name in start.keys() | end.keys() if not _alike(start.get(name), end.get(name))):
        raise ModelError(
            f"both models must have the same backbone weights, but these differ: {', '.join(odd)}; "
            "take inserted modules out first, with merge(model) or undo(model)"
        )
    for name, tensor in end.items():
        tensor.lerp_(start[name].to(tensor.device), 1 - share)
    return made


def _alike(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape
