"""The classification head: pool a text's states, then one linear layer, or two.

Letters: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from warmstart.config import Config
from warmstart.heads.pooling import POOLINGS


class ClassifyHeadConfig(Config):
    """A head that gives each text one of ``classes`` labels."""

    kind: Literal["classify"] = "classify"
    """names this head in files"""
    classes: int = Field(gt=1)
    """number of labels (C)"""
    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which state of a text is read: mean, last, first, or appended (a classification token at the end)"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """share of the pooled state dropped in training"""
    hidden: Literal["none", "tanh", "relu"] = "none"
    """one more layer before the scores: with tanh as BERT's pooler, with relu as DistilBERT's"""


class ClassifyHead(nn.Module):
    """Pooling, a hidden layer where there is one, dropout, one linear layer."""

    per_token: ClassVar = False

    def __init__(self, config: ClassifyHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(width, config.classes)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)
        if config.hidden != "none":
            self.hidden = nn.Linear(width, width)
            nn.init.normal_(self.hidden.weight, std=0.02)
            nn.init.zeros_(self.hidden.bias)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, C) logits; padding never counts."""
        pooled = POOLINGS[self.config.pooling](states, mask)  # (B, D)
        if self.config.hidden != "none":
            pooled = self.hidden(pooled).tanh() if self.config.hidden == "tanh" else self.hidden(pooled).relu()
        return self.score(self.dropout(pooled))

    def loss(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy in nats: scores (B, C) against class numbers (B,)."""
        return F.cross_entropy(scores.float(), targets, reduction="sum")

    def said(self, scores: Tensor) -> Tensor:
        """(B, C) probabilities."""
        return scores.softmax(dim=-1)
