"""The registry of schemes. A new scheme is one file and one row here; its options, if any, join the bases of ``SchemeOptions``."""

from __future__ import annotations

from warmstart.finetuning.scheme import NamedScheme
from warmstart.finetuning.schemes.bitfit import bitfit
from warmstart.finetuning.schemes.bottleneck import BottleneckOptions, houlsby, pfeiffer
from warmstart.finetuning.schemes.contrast import ContrastOptions, contrast
from warmstart.finetuning.schemes.dapt import DaptOptions, dapt
from warmstart.finetuning.schemes.discriminative import DiscriminativeOptions, discriminative
from warmstart.finetuning.schemes.full import full
from warmstart.finetuning.schemes.gradual import gradual
from warmstart.finetuning.schemes.l2_sp import L2SPOptions, l2_sp
from warmstart.finetuning.schemes.lm_loss import LanguageLossOptions, lm_loss
from warmstart.finetuning.schemes.lora import LoraOptions, lora
from warmstart.finetuning.schemes.lp_ft import LpFtOptions, lp_ft
from warmstart.finetuning.schemes.probe import probe
from warmstart.finetuning.schemes.scalar_mix import scalar_mix
from warmstart.registry import Registry

SCHEMES: Registry[NamedScheme] = Registry(
    "scheme",
    {
        "full": NamedScheme("which parameters train", full, backbone="all"),
        "probe": NamedScheme("which parameters train", probe, backbone="none"),
        "scalar-mix": NamedScheme("which layers the head reads", scalar_mix, alone="probe"),
        "lp-ft": NamedScheme("when parameters are unfrozen", lp_ft, needs="part"),
        "gradual": NamedScheme("when parameters are unfrozen", gradual, needs="part"),
        "discriminative": NamedScheme("learning rates by depth", discriminative, needs="part"),
        "houlsby": NamedScheme("where bottleneck adapters are inserted", houlsby, backbone="part"),
        "pfeiffer": NamedScheme("where bottleneck adapters are inserted", pfeiffer, backbone="part"),
        "lora": NamedScheme("low-rank changes", lora, backbone="part"),
        "bitfit": NamedScheme("the training of biases", bitfit, backbone="part"),
        "dapt": NamedScheme("continued pretraining", dapt),
        "lm-loss": NamedScheme("the language-model loss", lm_loss, needs="part"),
        "contrast": NamedScheme("the contrastive loss", contrast, needs="part"),
        "l2-sp": NamedScheme("the penalty on the weights", l2_sp, needs="all"),
    },
)
"""every name; ``+`` combines them"""


class SchemeOptions(
    BottleneckOptions,
    LoraOptions,
    LanguageLossOptions,
    ContrastOptions,
    DaptOptions,
    LpFtOptions,
    DiscriminativeOptions,
    L2SPOptions,
):
    """Options of single schemes; each help names the schemes that read it. docs/explanation/schemes.md has the defaults."""
