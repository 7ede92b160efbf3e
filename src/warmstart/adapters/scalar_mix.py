"""Scalar mix: a learned weighted sum of all layers, which heads read instead of the last layer alone.

``gamma * sum_j softmax(s)_j h_j`` over the embedding and every block (Peters et al. 2018, equation 1). The last ``h`` is what heads
would read without the mix. The others are layer-normalized first, without parameters, which the paper allows (section 3.2) and
a pre-norm backbone needs: its residual sum grows from block to block, so that the upper layers would drown out the lower ones.

Letters: B batch, T tokens, D width, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.adapters.insertion import Adapter
from warmstart.adapters.settings import ScalarMixConfig
from warmstart.backbone.backbone import Backbone, BackboneOutput


class ScalarMix(Adapter):
    """A child of the backbone itself that replaces its ``last_hidden_state``; starts as the plain mean of all layers."""

    def __init__(self, config: ScalarMixConfig, depth: int) -> None:
        super().__init__(config)
        self.scores = nn.Parameter(torch.zeros(depth + 1))
        self.gamma = nn.Parameter(torch.ones(1))

    def weights(self) -> Tensor:
        """(L + 1,): the weight of each layer, times gamma."""
        return self.gamma * self.scores.softmax(dim=0)

    def forward(self, inputs: Tensor, output: Any) -> Any:
        """A ``BackboneOutput`` whose ``last_hidden_state`` (B, T, D) is the mix; ``inputs``, the ids (B, T), is not read."""
        assert isinstance(output, BackboneOutput)
        parts = zip(self.weights(), normalized_layers(output), strict=True)
        return replace(output, last_hidden_state=torch.stack([weight * layer for weight, layer in parts]).sum(dim=0))


def normalized_layers(output: BackboneOutput) -> list[Tensor]:
    """L + 1 tensors (B, T, D): each layer with mean 0 and variance 1 over D, except the last: what the backbone ends in."""
    return [*(F.layer_norm(layer, layer.shape[-1:]) for layer in output.hidden_states[:-1]), output.last_hidden_state]


def last_hidden_state_without_mix(backbone: Backbone, output: BackboneOutput) -> Tensor:
    """(B, T, D): the ``last_hidden_state`` that there would be without a scalar mix."""
    return backbone.norm(output.hidden_states[-1])


def make_scalar_mix(config: ScalarMixConfig, backbone: Backbone) -> list[tuple[str, str, Adapter]]:
    """(host, name, module) of the one mix; its host is the backbone itself."""
    return [("", "scalar_mix", ScalarMix(config, backbone.config.depth))]
