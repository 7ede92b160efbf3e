"""The language-model head: a score for every word of the vocabulary.

It keeps no opinion on the loss: ``objectives.loss`` reads its ``weight`` and never builds all logits at once.

Letters: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
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

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, V)."""
        return F.linear(states, self.weight, self.bias)
