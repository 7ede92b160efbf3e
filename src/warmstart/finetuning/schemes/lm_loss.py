"""A language-model loss beside the task's (Radford et al. 2018, equation 5); ``language_loss`` computes it."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme


class LanguageLossOptions(Config):
    """Options of ``lm-loss``."""

    lm_weight: float = Field(0.5, gt=0)
    """lm-loss: weight of the language-model loss"""


def lm_loss(options: LanguageLossOptions) -> Scheme:
    """Add the language-model loss of the training texts."""
    return Scheme(language_weight=options.lm_weight)
