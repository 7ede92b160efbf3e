"""The span head: where an answer begins and ends in a passage.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.heads.per_token import PerTokenHead, PerTokenHeadConfig


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
