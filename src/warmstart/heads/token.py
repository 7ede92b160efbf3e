"""Heads that read every state: a tag for each word, the two ends of an answer.

Letters: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.config import Config


class TagHeadConfig(Config):
    """A head that gives each word one of ``classes`` tags."""

    kind: Literal["tag"] = "tag"
    """names this head in files"""
    classes: int = Field(gt=1)
    """number of tags (C)"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """share of each state dropped in training"""


class TagHead(nn.Module):
    """Dropout and one linear layer on every state; which states stand for words is the targets' to say."""

    per_token: ClassVar = True

    def __init__(self, config: TagHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(width, config.classes)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, C)."""
        return self.score(self.dropout(states))

    def loss(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy over words: scores (B, T, C) against targets (B, T), ``IGNORE`` where no word begins."""
        return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten(), reduction="sum")

    def said(self, scores: Tensor) -> Tensor:
        """(B, T, C) probabilities."""
        return scores.softmax(dim=-1)


class SpanHeadConfig(Config):
    """A head that finds where an answer begins and ends."""

    kind: Literal["span"] = "span"
    """names this head in files"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """share of each state dropped in training"""


class SpanHead(nn.Module):
    """Two scores for every state (Devlin et al. 2019, section 4.2)."""

    per_token: ClassVar = True

    def __init__(self, config: SpanHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(width, 2)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, 2)."""
        return self.score(self.dropout(states))

    def loss(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy of both ends over the real tokens: scores (B, T, 2) against places (B, 2)."""
        scores = scores.float()
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None], torch.finfo(scores.dtype).min)
        return F.cross_entropy(scores[..., 0], targets[:, 0], reduction="sum") + F.cross_entropy(
            scores[..., 1], targets[:, 1], reduction="sum"
        )

    def said(self, scores: Tensor) -> Tensor:
        """(B, T, 2), as they are: which two ends go together is decided over the whole row."""
        return scores
