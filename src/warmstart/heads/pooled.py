"""Heads that read one state of each text: several labels at once, a number, one of several alternatives.

Letters: B batch, R rows, T tokens, D width, C classes, A alternatives.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from warmstart.config import Config
from warmstart.heads.pooling import POOLINGS


class PooledConfig(Config):
    """What all of them have."""

    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which state of a text is read: mean, last, first, or appended (a classification token at the end)"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """share of the pooled state dropped in training"""


class Pooled(nn.Module):
    """Pooling, dropout, one linear layer of ``size`` numbers."""

    per_token: ClassVar = False

    def __init__(self, config: PooledConfig, width: int, size: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.pooling = config.pooling
        self.score = nn.Linear(width, size)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, size); padding never counts."""
        return self.score(self.dropout(POOLINGS[self.pooling](states, mask)))


class SeveralHeadConfig(PooledConfig):
    """A head that says of each of ``classes`` labels whether a text has it."""

    kind: Literal["several"] = "several"
    """names this head in files"""
    classes: int = Field(gt=0)
    """number of labels (C)"""


class SeveralHead(Pooled):
    """Each label by itself: a logistic regression a label."""

    def __init__(self, config: SeveralHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, config.classes)
        self.config = config

    def loss(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy of all labels: scores (B, C) against targets (B, C) of 0 and 1."""
        return F.binary_cross_entropy_with_logits(scores.float(), targets.float(), reduction="sum")

    def said(self, scores: Tensor) -> Tensor:
        """(B, C) probabilities, each by itself."""
        return scores.sigmoid()


class RegressHeadConfig(PooledConfig):
    """A head that gives each text a number."""

    kind: Literal["regress"] = "regress"
    """names this head in files"""
    mean: float = 0.0
    """of the training targets"""
    spread: float = Field(1.0, gt=0)
    """their standard deviation: the network learns numbers around 0, and says them in the user's units"""


class RegressHead(Pooled):
    """One number a text."""

    def __init__(self, config: RegressHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 1)
        self.config = config

    def loss(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Summed squared error of standardised numbers: scores (B, 1) against targets (B,)."""
        wanted = ((targets - self.config.mean) / self.config.spread).float()  # in the targets' own precision: dates are large
        return (scores[:, 0].float() - wanted).square().sum()

    def said(self, scores: Tensor) -> Tensor:
        """(B, 1) numbers in the units of the targets."""
        return scores * self.config.spread + self.config.mean


class ChooseHeadConfig(PooledConfig):
    """A head that chooses among alternatives, each of which is a row of its own."""

    kind: Literal["choose"] = "choose"
    """names this head in files"""
    alternatives: int = Field(gt=1)
    """how many a question has (A)"""


class ChooseHead(Pooled):
    """A score for each row; the rows of one question stand together, and their scores compete."""

    def __init__(self, config: ChooseHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 1)
        self.config = config

    def loss(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy: scores (B A, 1) against the places of the right ones (B,)."""
        return F.cross_entropy(scores.float().view(-1, self.config.alternatives), targets, reduction="sum")

    def said(self, scores: Tensor) -> Tensor:
        """(B A, 1) -> (B, A) probabilities."""
        return scores.view(-1, self.config.alternatives).softmax(dim=-1)
