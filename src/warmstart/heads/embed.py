"""The head of a model without one: a text's pooled state itself, as a vector of length 1 (a sentence embedding).

An encoder that comes without a language head stands in a bundle like this: its output can be compared with the original's, and its
self-test has something to hold. It has no parameters and no loss.

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import AfterValidator
from torch import Tensor, nn

from warmstart.config import Config
from warmstart.heads.pooling import POOLINGS


class EmbedHeadConfig(Config):
    """A head that gives each text one vector."""

    kind: Literal["embed"] = "embed"
    """names this head in files"""
    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which state of a text is read: mean, last, first, or appended (a classification token at the end)"""
    normalise: bool = True
    """divide by the length, so that a dot product is a cosine"""


class EmbedHead(nn.Module):
    """Pooling, and length 1."""

    per_token: ClassVar = False

    def __init__(self, config: EmbedHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config = config

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, D); padding never counts."""
        pooled = POOLINGS[self.config.pooling](states, mask)
        return F.normalize(pooled, dim=-1) if self.config.normalise else pooled
