"""Discriminative fine-tuning: lower layers learn more slowly (Howard and Ruder 2018, section 3.1)."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme


class DiscriminativeOptions(Config):
    """Options of ``discriminative``."""

    layer_decay: float = Field(0.8, gt=0, le=1)
    """discriminative: learning rate of each level, as a fraction of that of the level above it; ULMFiT's is 0.385"""


def discriminative(options: DiscriminativeOptions) -> Scheme:
    """Twice the learning rate at the top, so that the middle of the network has the one that suits a whole network."""
    return Scheme(layer_decay=options.layer_decay, rate_factors={"backbone": 2.0, "head": 2.0})
