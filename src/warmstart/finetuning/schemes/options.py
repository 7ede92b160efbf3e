"""The options of schemes, as settings: what each scheme reads, and all together."""

from __future__ import annotations

from pydantic import Field

from warmstart.adapters.settings import Targets
from warmstart.config import Config, InFile


class BottleneckOptions(Config):
    """Options of ``houlsby``."""

    adapter_width: int = Field(64, gt=0)
    """houlsby: width of the bottleneck"""
    adapter_norms: InFile[bool] = True
    """houlsby: whether the backbone's norms train too"""


class LoraOptions(Config):
    """Options of ``lora``."""

    lora_rank: int = Field(8, gt=0)
    """lora: rank of each change"""
    lora_alpha: InFile[float] = Field(16.0, gt=0)
    """lora: each change is scaled by alpha / rank"""
    lora_targets: Targets = ("q", "v")
    """lora: which matrices to change: q, k, v, qkv (all three as one), out (of attention), feedforward"""
    lora_dropout: InFile[float] = Field(0.0, ge=0, lt=1)
    """lora: dropout probability of each change's input"""


class LanguageLossOptions(Config):
    """Options of ``lm-loss``."""

    lm_weight: InFile[float] = Field(0.5, gt=0)
    """lm-loss: weight of the language-model loss"""


class ContrastOptions(Config):
    """Options of ``contrast``."""

    contrast_weight: InFile[float] = Field(1.0, gt=0)
    """contrast: weight of the contrastive loss beside the head's own"""
    contrast_temperature: InFile[float] = Field(0.1, gt=0)
    """contrast: temperature of the contrastive loss; a low one looks at the most similar texts of other labels"""


class DaptOptions(Config):
    """Options of ``dapt``."""

    dapt_epochs: InFile[float] = Field(3.0, gt=0)
    """dapt: passes over the task's own text"""
    dapt_learning_rate: InFile[float] = Field(5e-4, gt=0)
    """dapt: learning rate of these passes"""
    dapt_pilot: InFile[float] = Field(0.2, ge=0, lt=1)
    """dapt: fraction of these passes after which a pilot decides whether to continue; 0: only the check at the end decides"""


class LpFtOptions(Config):
    """Options of ``lp-ft``."""

    probe_fraction: InFile[float] = Field(0.2, gt=0, lt=1)
    """lp-ft: fraction of the run in which only the head trains"""


class DiscriminativeOptions(Config):
    """Options of ``discriminative``."""

    layer_decay: float = Field(0.8, gt=0, le=1)
    """discriminative: learning rate of each level, as a fraction of that of the level above it; ULMFiT's is 0.385"""


class SchemeOptions(
    BottleneckOptions,
    LoraOptions,
    LanguageLossOptions,
    ContrastOptions,
    DaptOptions,
    LpFtOptions,
    DiscriminativeOptions,
):
    """Options of single schemes; each help names the schemes that read it. docs/explanation/schemes.md has the defaults."""
