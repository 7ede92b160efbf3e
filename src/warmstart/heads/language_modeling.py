"""The language-modeling head: a logit for every token of the vocabulary.

Its loss is not here: ``objectives.loss`` reads its ``weight`` and ``transform`` and never holds all logits at once.

Letters: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.errors import ModelError
from warmstart.heads.head import Head
from warmstart.heads.settings import LMHeadConfig
from warmstart.system.products import Linear, linear_product


class Transform(nn.Module):
    """One more layer before the logits, as in BERT: linear, gelu, layer norm."""

    def __init__(self, config: LMHeadConfig, width: int, out: int) -> None:
        super().__init__()
        self.dense = Linear(width, out, bias=config.transform_bias)
        self.norm = nn.LayerNorm(out, eps=config.norm_eps, bias=config.transform_bias)
        nn.init.normal_(self.dense.weight, std=0.02)
        if self.dense.bias is not None:
            nn.init.zeros_(self.dense.bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """``hidden_states`` (..., D) -> the width of the embedding (..., E), which is D but in a generator."""
        return self.norm(F.gelu(self.dense(hidden_states)))


class LMHead(Head):
    """Linear logits over the vocabulary, with a weight of its own or the token embedding's."""

    config_class: ClassVar = LMHeadConfig
    per_token: ClassVar = True
    hub_task: ClassVar = "text-generation"
    onnx_outputs: ClassVar = ("logits",)

    def __init__(self, config: LMHeadConfig, width: int, embedding: Tensor) -> None:
        super().__init__()
        if embedding.shape[1] != width and not config.transform:
            raise ModelError(f"the embedding must have width {width}, but has shape {tuple(embedding.shape)}")
        self.config: LMHeadConfig = config
        self.weight = embedding if config.tied else nn.Parameter(torch.empty_like(embedding).normal_(std=0.02))  # (V, D)
        self.bias = nn.Parameter(torch.zeros(len(embedding))) if config.bias else None
        self.transform = Transform(config, width, embedding.shape[1]) if config.transform else None

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (B, T, D) -> logits (B, T, V); ``attention_mask`` (B, T) is not read, because tokens do not mix."""
        return linear_product(self.transform(hidden_states) if self.transform else hidden_states, self.weight, self.bias)

    def description(self) -> str:
        """The head's description; the model card says more if it knows what the model was trained for."""
        return "predicts tokens"
