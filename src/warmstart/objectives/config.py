"""The settings of pretraining objectives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from tyro.conf import arg

from warmstart.config import Advanced, Config, InFile


class ObjectiveConfig(Config):
    """The objective of pretraining."""

    name: Annotated[str, arg(name="objective")] = "causal"
    """causal, masked, span, hybrid (each batch causal or masked, with the same weights), or contrastive (masked, and two crops of a
    document are alike)"""
    mask_rate: Advanced[float | None] = Field(None, gt=0, lt=1)
    """fraction of tokens that all objectives but causal mask; none: 0.3 for masked, 0.15 for the others"""
    form: Advanced[Literal["sentinel", "prefix-suffix"]] = "sentinel"
    """span: T5's many spans marked by sentinels, or CS224N's one span of a document, moved to its end"""
    causal_fraction: InFile[float] = Field(0.5, ge=0, le=1)
    """hybrid: fraction of batches that are causal"""
    rows: Advanced[Literal["packed", "documents"]] = "packed"
    """content of a row: a stretch of the whole text, so that nothing is padded, or one document, truncated if it is too long"""

    @property
    def effective_mask_rate(self) -> float:
        """``mask_rate``, or the objective's own default (results/performance.md; Wettig et al. 2023)."""
        if self.mask_rate is not None:
            return self.mask_rate
        return 0.3 if self.name == "masked" else 0.15
