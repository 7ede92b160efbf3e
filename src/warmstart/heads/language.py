"""The language-model head: a score for every word of the vocabulary.

It keeps no opinion on the loss: ``objectives.loss`` reads its ``weight`` and ``transform`` and never builds all logits at once.

Letters: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.config import Config
from warmstart.errors import ModelError


class LanguageHeadConfig(Config):
    """A head that scores the next (or the masked) token."""

    kind: Literal["language"] = "language"
    """names this head in files"""
    tied: bool = True
    """share the weight with the token embedding (Press and Wolf 2017)"""
    bias: bool = False
    """one more number per word of the vocabulary"""
    transform: bool = False
    """one more layer before the scores: linear, gelu, norm (BERT)"""
    transform_bias: bool = True
    """that layer and its norm have a bias"""
    norm_eps: float = Field(1e-5, gt=0)
    """what its norm adds to a variance"""


class Transform(nn.Module):
    """One more layer before the scores, as in BERT: linear, gelu, layer norm."""

    def __init__(self, config: LanguageHeadConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width, bias=config.transform_bias)
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, bias=config.transform_bias)
        nn.init.normal_(self.dense.weight, std=0.02)
        if self.dense.bias is not None:
            nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.norm(F.gelu(self.dense(states)))


class LanguageHead(nn.Module):
    """Linear scores over the vocabulary, with a weight of its own or the embedding's."""

    per_token: ClassVar = True

    def __init__(self, config: LanguageHeadConfig, width: int, embedding: Tensor) -> None:
        super().__init__()
        if embedding.shape[1] != width:
            raise ModelError(f"an embedding of width {width} was expected, but one of {tuple(embedding.shape)} came")
        self.config = config
        self.weight = embedding if config.tied else nn.Parameter(torch.empty_like(embedding).normal_(std=0.02))  # (V, D)
        self.bias = nn.Parameter(torch.zeros(len(embedding))) if config.bias else None
        self.transform = Transform(config, width) if config.transform else None

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, V)."""
        return F.linear(self.transform(states) if self.transform else states, self.weight, self.bias)
