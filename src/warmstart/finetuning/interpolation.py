"""A model between the pretrained and the adapted weights (WiSE-FT, Wortsman et al. 2022)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from warmstart.errors import ConfigError, ModelError
from warmstart.model.model import Model


@torch.no_grad()
def interpolate(before: nn.Module, after: Model, fraction: float) -> Model:
    """A new model whose backbone lies ``fraction`` of the way from ``before``'s weights to ``after``'s; the head is ``after``'s.

    Equation 1 of the paper: in between, a model can keep what it learned in pretraining and in adaptation. ``before`` is the
    pretrained model. Raises ``ModelError`` if the backbones do not have the same weights.
    """
    if not 0 <= fraction <= 1:
        raise ConfigError(f"fraction must lie between 0 (the weights before) and 1 (the weights after), but is {fraction}")
    between = copy.deepcopy(after)
    start = before.get_submodule("backbone").state_dict()
    end = between.backbone.state_dict()
    if different := sorted(name for name in start.keys() | end.keys() if not _same_shape(start.get(name), end.get(name))):
        raise ModelError(
            f"both models must have the same backbone weights, but these differ: {', '.join(different)}; "
            "remove the adapters first, with merge_adapters(model) or remove_adapters(model)"
        )
    for name, tensor in end.items():
        tensor.lerp_(start[name].to(tensor.device), 1 - fraction)
    return between


def _same_shape(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape
