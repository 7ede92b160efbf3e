"""Scalar mix: the head reads a learned weighted sum of all layers (Peters et al. 2018, equation 1)."""

from __future__ import annotations

from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme


def scalar_mix(options: Config) -> Scheme:
    """Insert the mix, and train its weights at a probe's learning rate."""
    return Scheme(adapters=(ScalarMixConfig(),), rate_factors={"scalar-mix": 20.0})
