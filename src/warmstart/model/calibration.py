"""What a bundle knows of its own confidence."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config


class Calibration(Config):
    """Fitted after training, on texts that were not trained on."""

    temperature: float = Field(1.0, gt=0)
    """logits are divided by it"""
    held_out: tuple[tuple[float, bool], ...] = ()
    """confidence, and whether it was right, of texts that chose nothing: bars are found on them"""
