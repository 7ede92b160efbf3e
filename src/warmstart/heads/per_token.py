"""Heads that read the hidden state of every token: tagging and span.

Letters: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.dropout import Dropout
from warmstart.heads.head import TaskHead, TaskHeadConfig
from warmstart.system.products import Linear


class PerTokenHeadConfig(TaskHeadConfig):
    """The settings that they share."""

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

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B, T) tags, as if every token began a word."""
        return torch.from_numpy(generator.integers(self.config.classes, size=(rows, tokens)))

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, T, C) probabilities from (B, T, C) logits."""
        return logits.softmax(dim=-1)

    def description(self) -> str:
        """For the model card."""
        return f"assigns each word one of {self.config.classes} tags"

    def parameter_formula(self) -> str:
        """One linear layer."""
        return "D C + C"


# The span head: where an answer begins and ends in a passage.


class SpanHeadConfig(PerTokenHeadConfig):
    """A head that finds where an answer begins and ends."""

    kind: Literal["span"] = "span"
    """name of this head in files"""


class SpanHead(PerTokenHead):
    """Two logits per token: the answer begins here, the answer ends here (Devlin et al. 2019, section 4.2)."""

    config_class: ClassVar = SpanHeadConfig
    hub_task: ClassVar = "question-answering"
    onnx_outputs: ClassVar = ("logits",)

    def __init__(self, config: SpanHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 2)
        self.config: SpanHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy in nats of both ends, a scalar: logits (B, T, 2) against positions (B, 2).

        Padding, where ``attention_mask`` (B, T) is False, is no candidate.
        """
        logits = logits.float()
        if attention_mask is not None:
            logits = logits.masked_fill(~attention_mask[..., None], torch.finfo(logits.dtype).min)
        first, last = (F.cross_entropy(logits[..., end], targets[:, end], reduction="sum") for end in (0, 1))
        return first + last

    def random_targets(self, rows: int, tokens: int, generator: np.random.Generator) -> Tensor:
        """(B, 2) positions, the first not after the last."""
        return torch.from_numpy(np.sort(generator.integers(tokens, size=(rows, 2)), axis=1))

    def example(self) -> tuple[str, str]:
        """For the model card."""
        return "a question", "the passage with its answer"

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, T, 2) from (B, T, 2): the logits themselves, because the best pair of ends depends on the whole row."""
        return logits

    def description(self) -> str:
        """For the model card."""
        return "finds the answer to a question in a passage"

    def parameter_formula(self) -> str:
        """One linear layer with two outputs."""
        return "2 D + 2"
