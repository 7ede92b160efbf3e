"""The classification head: pool a text's hidden states, then one linear layer, or two.

Letters: B batch, T tokens, D width, C classes, R rows: texts, or windows of texts.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.heads.pooled import PooledHead, PooledHeadConfig
from warmstart.system.products import Linear

HeadActivation = Literal["none", "tanh", "relu", "gelu"]
_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "gelu": F.gelu}


class ClassificationHeadConfig(PooledHeadConfig):
    """A head that assigns each text one of ``classes`` labels."""

    kind: Literal["classification"] = "classification"
    """name of this head in files"""
    classes: int = Field(gt=1)
    """number of labels (C)"""
    hidden: HeadActivation = "none"
    """activation of one more layer before the logits: tanh as in BERT's pooler, relu as in DistilBERT, gelu as in ELECTRA; none: no
    such layer"""


class ClassificationHead(PooledHead):
    """Pooling, a hidden layer if there is one, dropout, one linear layer."""

    config_class: ClassVar = ClassificationHeadConfig
    hub_task: ClassVar = "text-classification"
    onnx_outputs: ClassVar = ("logits", "probabilities")

    def __init__(self, config: ClassificationHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, config.classes)
        self.config: ClassificationHeadConfig = config
        if config.hidden != "none":
            self.hidden = Linear(width, width)
            nn.init.normal_(self.hidden.weight, std=0.02)
            nn.init.zeros_(self.hidden.bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, windows: Tensor | None = None) -> Tensor:
        """``hidden_states`` (R, T, D), ``attention_mask`` (R, T) and ``windows`` (B,), as of ``PooledHead`` -> (B, C) logits."""
        return self.score(self.dropout(self.read(hidden_states, attention_mask, windows), texts=windows is not None))

    def read(self, hidden_states: Tensor, attention_mask: Tensor | None = None, windows: Tensor | None = None) -> Tensor:
        """What the last layer reads, before dropout: from (R, T, D), (R, T) and (B,), as ``forward`` takes them, (B, D)."""
        pooled = self.pooled(hidden_states, attention_mask, windows)
        return pooled if self.config.hidden == "none" else _ACTIVATIONS[self.config.hidden](self.hidden(pooled))

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy in nats, a scalar: logits (B, C) against class numbers (B,); the mask (B, T) is not read."""
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B,) class numbers."""
        return torch.from_numpy(generator.integers(self.config.classes, size=rows))

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, C) probabilities from (B, C) logits."""
        return logits.softmax(dim=-1)

    def description(self) -> str:
        """For the model card."""
        return f"assigns each text one of {self.config.classes} labels"

    def parameter_formula(self) -> str:
        """One linear layer, after another of the backbone's width if there is a hidden one."""
        return "D C + C" + " + D D + D" * (self.config.hidden != "none") + self.window_formula()
