"""The interface of heads: settings, a module from hidden states to outputs, and the facts that other parts need to know of it.

The model card, the cost table and the ONNX export read these facts, so that a new head needs no change there.

Letters: B batch, T tokens, D width, V vocabulary, C classes, N targets.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from warmstart.heads.settings import HeadConfig, TaskHeadConfig


class Head(nn.Module):
    """The interface of a head, made as ``Head(config, width, embedding)``; ``embedding`` (V, D) is for heads that share it."""

    config_class: ClassVar[type[HeadConfig]]
    """its settings"""
    per_token: ClassVar[bool]
    """True for a head with an output for each token, not one for each text"""
    hub_task: ClassVar[str]
    """name of its task on the Hugging Face hub (``pipeline_tag``)"""
    onnx_outputs: ClassVar[tuple[str, ...]]
    """outputs of an exported graph: what ``forward`` returns, then its predictions if they are exported too"""

    config: HeadConfig

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``hidden_states`` (B, T, D) and ``attention_mask`` (B, T) -> logits or vectors (B, ...); padding changes nothing."""
        raise NotImplementedError

    def description(self) -> str:
        """The rest of the sentence "A Transformer that ..." for the card of a model with this head."""
        raise NotImplementedError


class LossHead(Head):
    """The interface of a head that computes its own loss: of every head but language modeling and embedding."""

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed loss, a scalar: ``logits`` (B, ...) against ``targets`` (B, ...); ``attention_mask`` (B, T) if per token."""
        raise NotImplementedError


class TaskHead(LossHead):
    """The interface of a head for a labelled task."""

    config: TaskHeadConfig

    def example(self) -> Any:
        """An input as ``predict`` takes it, for the model card."""
        return "a text"

    def predictions(self, logits: Tensor) -> Tensor:
        """The meaning of ``logits`` (B, ...) to a user: probabilities, or numbers in the units of the targets (B, ...)."""
        raise NotImplementedError
