"""The head that reads the hidden state of every token: tagging.

Letters: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.dropout import Dropout
from warmstart.heads.head import TaskHead
from warmstart.heads.settings import TaskHeadConfig
from warmstart.system.products import Linear


class PerTokenHeadConfig(TaskHeadConfig):
    """The settings of heads that read the state of every token."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout probability of each hidden state"""


class PerTokenHead(TaskHead):
    """Dropout and one linear layer with ``size`` outputs, for every token alone."""

    per_token: ClassVar = True

    def __init__(self, config: PerTokenHeadConfig, width: int, size: int) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.score = Linear(width, size)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (B, T, D) -> (B, T, size); ``attention_mask`` (B, T) is not read, because tokens do not mix."""
        return self.score(self.dropout(hidden_states))


# The tagging head: a label for each word.


class TaggingHeadConfig(PerTokenHeadConfig):
    """A head that gives each word one of ``classes`` tags."""

    kind: Literal["tagging"] = "tagging"
    """name of this head in files"""
    classes: int = Field(gt=1)
    """number of tags (C)"""


class TaggingHead(PerTokenHead):
    """Logits for every token; the targets decide which token stands for which word."""

    config_class: ClassVar = TaggingHeadConfig
    hub_task: ClassVar = "token-classification"
    onnx_outputs: ClassVar = ("logits", "probabilities")

    def __init__(self, config: TaggingHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, config.classes)
        self.config: TaggingHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy in nats over words, a scalar: logits (B, T, C) against tags (B, T), ``IGNORE`` where no word begins.

        The mask (B, T) is not read.
        """
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, T, C) probabilities from (B, T, C) logits."""
        return logits.softmax(dim=-1)

    def description(self) -> str:
        """The head's description for the model card."""
        return f"assigns each word one of {self.config.classes} tags"
