"""What can be set of the schemes. Each field is read by the schemes that its help names, and by no others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warmstart.config import Config
from warmstart.inserts.lora import Targets


class SchemeOptions(Config):
    """Settings of single schemes; the defaults are what was tried (docs/schemes.md)."""

    adapter_width: int = Field(64, gt=0)
    """houlsby, pfeiffer: size of the bottleneck"""
    adapter_norms: Literal["as published", "yes", "no"] = "as published"
    """houlsby, pfeiffer: the backbone's norms train too; as published: with houlsby they do, with pfeiffer not"""
    lora_rank: int = Field(8, gt=0)
    """lora: rank of each change"""
    lora_alpha: float = Field(16.0, gt=0)
    """lora: each change is scaled by alpha / rank"""
    lora_targets: Targets = ("q", "v")
    """lora: which matrices: q, k, v, qkv (all three as one), out (of attention), feedforward"""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """lora: share of each change's input dropped in training"""
    lm_weight: float = Field(0.5, gt=0)
    """lm-loss: weight of the language-model loss"""
    dapt_epochs: float = Field(3.0, gt=0)
    """dapt: passes over the task's own text"""
    dapt_rate: float = Field(5e-4, gt=0)
    """dapt: learning rate of these passes"""
    pilot: float = Field(0.2, ge=0, lt=1)
    """dapt: share of these passes after which it is decided whether to go on; 0: no pilot, only the check at the end"""
    probe_share: float = Field(0.2, gt=0, lt=1)
    """lp-ft: share of the run in which only the head trains"""
    depth_decay: float = Field(0.8, gt=0, le=1)
    """discriminative: each level's rate is so much of the one above it; ULMFiT's is 0.385"""
    pull: float = Field(0.01, ge=0)
    """l2-sp: strength of the pull of the backbone towards its pretrained weights (alpha)"""
    pull_head: float = Field(0.01, ge=0)
    """l2-sp: strength of the pull of the head towards zero (beta)"""
