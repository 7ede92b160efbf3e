"""Continued pretraining on the task's own text before adaptation (Gururangan et al. 2020); ``continued`` does it."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme


class DaptOptions(Config):
    """Options of ``dapt``."""

    dapt_epochs: float = Field(3.0, gt=0)
    """dapt: passes over the task's own text"""
    dapt_learning_rate: float = Field(5e-4, gt=0)
    """dapt: learning rate of these passes"""
    dapt_pilot: float = Field(0.2, ge=0, lt=1)
    """dapt: fraction of these passes after which a pilot decides whether to continue; 0: only the check at the end decides"""


def dapt(options: DaptOptions) -> Scheme:
    """Continue pretraining first."""
    return Scheme(continued_pretraining=True)
