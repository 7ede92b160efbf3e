"""LoRA: low-rank changes of a frozen backbone's matrices (Hu et al. 2021)."""

from __future__ import annotations

from pydantic import Field

from warmstart.adapters.lora import LoraConfig, Targets
from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme


class LoraOptions(Config):
    """Options of ``lora``."""

    lora_rank: int = Field(8, gt=0)
    """lora: rank of each change"""
    lora_alpha: float = Field(16.0, gt=0)
    """lora: each change is scaled by alpha / rank"""
    lora_targets: Targets = ("q", "v")
    """lora: which matrices to change: q, k, v, qkv (all three as one), out (of attention), feedforward"""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """lora: dropout probability of each change's input"""


def lora(options: LoraOptions) -> Scheme:
    """Train the low-rank changes and the head, at ten times the learning rate that suits a whole network."""
    config = LoraConfig(
        rank=options.lora_rank, alpha=options.lora_alpha, targets=options.lora_targets, dropout=options.lora_dropout
    )
    return Scheme(adapters=(config,), rate_factors={"lora": 10.0, "head": 10.0})
