"""How far a bundle's confidence can be trusted."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Config


class Calibration(Config):
    """Measured after training, on texts that were not trained on."""

    temperature: float = Field(1.0, gt=0)
    """logits are divided by it (Guo et al. 2017)"""
    held_out: tuple[tuple[float, bool], ...] = ()
    """confidence and correctness of the prediction for texts that chose nothing; thresholds are found on them"""
