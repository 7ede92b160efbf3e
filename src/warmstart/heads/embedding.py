"""The head of an encoder without a head: a text's pooled hidden state itself, as a vector of length 1 (a sentence embedding).

Encoders that come without a language-modeling head are saved with this one: their vectors can be compared with the original's, and
the self-test has an output to check. It has no parameters and no loss.

Letters: B batch, T tokens, D width, V vocabulary, R rows: texts, or windows of N texts.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor

from warmstart.heads.head import Head
from warmstart.heads.pooled import POOLINGS, Pooling, join_windows
from warmstart.heads.settings import HeadConfig, PoolingName, WindowSettings


class EmbeddingHeadConfig(WindowSettings, HeadConfig):
    """A head that gives each text one vector."""

    kind: Literal["embedding"] = "embedding"
    """name of this head in files"""
    pooling: PoolingName = "mean"
    """hidden state of a text that is read: mean, last, first, or appended (a classification token at the end)"""
    normalize: bool = True
    """divide each vector by its length, so that a dot product is a cosine"""

    @model_validator(mode="after")
    def _no_weights(self) -> Self:
        if self.windows == "attention":
            raise ValueError("windows of an embedding must be none, mean or max: attention would have to be learned")
        return self


class EmbeddingHead(Head):
    """Pooling, then division by the length."""

    config_class: ClassVar = EmbeddingHeadConfig
    per_token: ClassVar = False
    hub_task: ClassVar = "sentence-similarity"
    onnx_outputs: ClassVar = ("vectors",)

    def __init__(self, config: EmbeddingHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__()
        self.config: EmbeddingHeadConfig = config
        self.pooling: Pooling = POOLINGS[config.pooling]

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, windows: Tensor | None = None) -> Tensor:
        """``hidden_states`` (R, T, D) and ``attention_mask`` (R, T) -> vectors (R, D); padding never counts.

        With ``windows`` (N,), the number of adjacent rows that are windows of each text: (N, D).
        """
        pooled = self.pooling(hidden_states, attention_mask)
        if windows is not None:
            pooled = join_windows(pooled, windows, self.config.windows)
        return F.normalize(pooled, dim=-1) if self.config.normalize else pooled

    def description(self) -> str:
        """The head's description for the model card."""
        return "maps each text to a vector"
