"""The head of an encoder without a head: a text's pooled hidden state itself, as a vector of length 1 (a sentence embedding).

Encoders that come without a language-modeling head are saved with this one: their vectors can be compared with the original's, and
the self-test has an output to check. It has no parameters and no loss.

Letters: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import AfterValidator
from torch import Tensor

from warmstart.heads.head import Head, HeadConfig
from warmstart.heads.pooling import POOLINGS


class EmbeddingHeadConfig(HeadConfig):
    """A head that gives each text one vector."""

    renamed: ClassVar = {"normalise": "normalize"}

    kind: Literal["embedding"] = "embedding"
    """name of this head in files"""
    pooling: Annotated[str, AfterValidator(POOLINGS.known)] = "mean"
    """which hidden state of a text is read: mean, last, first, or appended (a classification token at the end)"""
    normalize: bool = True
    """divide each vector by its length, so that a dot product is a cosine"""


class EmbeddingHead(Head):
    """Pooling, and length 1."""

    config_class: ClassVar = EmbeddingHeadConfig
    per_token: ClassVar = False
    hub_task: ClassVar = "sentence-similarity"
    onnx_outputs: ClassVar = ("vectors",)

    def __init__(self, config: EmbeddingHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config: EmbeddingHeadConfig = config

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (B, T, D) and ``attention_mask`` (B, T) -> vectors (B, D); padding never counts."""
        pooled = POOLINGS[self.config.pooling](hidden_states, attention_mask)
        return F.normalize(pooled, dim=-1) if self.config.normalize else pooled

    def description(self) -> str:
        """For the model card."""
        return "maps each text to a vector"

    def parameter_formula(self) -> str:
        """No parameters."""
        return "0"
