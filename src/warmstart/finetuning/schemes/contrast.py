"""A supervised contrastive loss beside or in place of the head's for the backbone; ``finetuning/contrast.py`` computes it.

Gunel et al. 2021, equation 1, has it beside the head's loss. On the sets of development that proved worse than in its place.
"""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config
from warmstart.finetuning.contrast import Contrast
from warmstart.finetuning.scheme import Scheme


class ContrastOptions(Config):
    """Options of ``contrast``."""

    contrast_weight: float = Field(1.0, gt=0, le=1)
    """contrast: how much of what the backbone learns from is the contrastive loss; the rest is the head's own loss. At 1 the head
    reads what the contrastive loss alone makes, as SetFit's does"""
    contrast_temperature: float = Field(0.1, gt=0)
    """contrast: temperature of the contrastive loss; a low one looks at the most similar texts of other labels"""


def contrast(options: ContrastOptions) -> Scheme:
    """Draw texts of one label together, and push others away; the head learns fast, because it must follow."""
    loss = Contrast(options.contrast_weight, options.contrast_temperature)
    return Scheme(contrast=loss, rate_factors={"head": 10.0})
