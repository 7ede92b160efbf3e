"""Heads for labelled texts that read one pooled state of each: classification, multilabel and regression.

Letters: B batch, T tokens, D width, C classes, R rows: texts, or windows of texts.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from warmstart.heads.pooled import PooledHead, PooledHeadConfig
from warmstart.heads.settings import HeadActivation
from warmstart.system.products import Linear

# The classification head: pool a text's hidden states, then one linear layer, or two.

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
    normalize: bool = False
    """divide the last layer's input by its length: a logit is a cosine with the vector of a class, times its length, plus a bias"""


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
        """The last layer's input (B, D) before dropout, from (R, T, D), (R, T) and (B,) as ``forward`` takes them."""
        pooled = self.pooled(hidden_states, attention_mask, windows)
        read = pooled if self.config.hidden == "none" else _ACTIVATIONS[self.config.hidden](self.hidden(pooled))
        return F.normalize(read.float(), dim=-1) if self.config.normalize else read

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed cross-entropy in nats, a scalar: logits (B, C) against class numbers (B,); the mask (B, T) is not read."""
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, C) probabilities from (B, C) logits."""
        return logits.softmax(dim=-1)

    def description(self) -> str:
        """The head's description for the model card."""
        return f"assigns each text one of {self.config.classes} labels"


# The multilabel head: one logistic regression per label.


class MultilabelHeadConfig(PooledHeadConfig):
    """A head that decides for each of ``classes`` labels whether a text has it."""

    kind: Literal["multilabel"] = "multilabel"
    """name of this head in files"""
    classes: int = Field(gt=0)
    """number of labels (C)"""


class MultilabelHead(PooledHead):
    """A logistic regression per label, each independent of the others."""

    config_class: ClassVar = MultilabelHeadConfig
    hub_task: ClassVar = "text-classification"
    onnx_outputs: ClassVar = ("logits", "probabilities")

    def __init__(self, config: MultilabelHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, config.classes)
        self.config: MultilabelHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed binary cross-entropy in nats, a scalar: logits (B, C) against targets (B, C) of 0 and 1.

        The mask (B, T) is not read.
        """
        return F.binary_cross_entropy_with_logits(logits.float(), targets.float(), reduction="sum")

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, C) probabilities from (B, C) logits; they need not sum to 1."""
        return logits.sigmoid()

    def description(self) -> str:
        """The head's description for the model card."""
        return f"decides for each of {self.config.classes} labels whether a text has it"


# The regression head: a number per text.


class RegressionHeadConfig(PooledHeadConfig):
    """A head that gives each text a number."""

    kind: Literal["regression"] = "regression"
    """name of this head in files"""
    mean: float = 0.0
    """mean of the training targets"""
    std: float = Field(1.0, gt=0)
    """their standard deviation: the network learns standardised numbers, predictions are in the user's units"""


class RegressionHead(PooledHead):
    """One number per text."""

    config_class: ClassVar = RegressionHeadConfig
    hub_task: ClassVar = "text-classification"
    onnx_outputs: ClassVar = ("logits", "number")

    def __init__(self, config: RegressionHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 1)
        self.config: RegressionHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed squared error of standardised numbers, a scalar: logits (B, 1) against targets (B,) in the user's units.

        The mask (B, T) is not read.
        """
        # standardised in the targets' own precision: dates are large numbers
        standardised = ((targets - self.config.mean) / self.config.std).float()
        return (logits[:, 0].float() - standardised).square().sum()

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, 1) numbers in the units of the targets, from (B, 1) logits."""
        return logits * self.config.std + self.config.mean

    def description(self) -> str:
        """The head's description for the model card."""
        return "predicts a number for each text"
