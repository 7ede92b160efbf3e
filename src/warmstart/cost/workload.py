"""How a model is used: what its FLOPs and its memory depend on beside its size."""

from __future__ import annotations

from dataclasses import dataclass

from warmstart.model.model import Model


@dataclass(frozen=True)
class Workload:
    """The rows that a model reads at once, and how it is trained."""

    batch: int = 16
    """rows read at once (B)"""
    tokens: int | None = None
    """tokens per row (T); None: the context length of the backbone"""
    target_fraction: float = 1.0
    """fraction of the tokens for which a language head computes logits in training: 1 if causal, the mask rate if masked"""
    max_target_fraction: float | None = None
    """the same for the batch with the most targets, if batches differ; None: as ``target_fraction``"""
    bfloat16: bool = False
    """matrix products of training are bfloat16"""
    optimizer_numbers: int | None = None
    """how many numbers the optimiser stores; None: two for each trainable parameter (AdamW)"""

    def length(self, model: Model) -> int:
        """T."""
        return self.tokens or model.backbone.config.max_length
