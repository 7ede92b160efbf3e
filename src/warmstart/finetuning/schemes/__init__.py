"""The registry of schemes. A new scheme is one function and one row here; its options join the bases of ``SchemeOptions``."""

from __future__ import annotations

from warmstart.finetuning.scheme import NamedScheme
from warmstart.finetuning.schemes import additions, weights
from warmstart.registry import Registry

SCHEMES: Registry[NamedScheme] = Registry(
    "scheme",
    {
        "full": NamedScheme("which parameters train", weights.full, backbone="all"),
        "probe": NamedScheme("which parameters train", weights.probe, backbone="none"),
        "scalar-mix": NamedScheme("which layers the head reads", additions.scalar_mix, alone="probe"),
        "lp-ft": NamedScheme("when parameters are unfrozen", weights.lp_ft, needs="part"),
        "gradual": NamedScheme("when parameters are unfrozen", weights.gradual, needs="part"),
        "discriminative": NamedScheme("learning rates by depth", weights.discriminative, needs="part"),
        "houlsby": NamedScheme("where bottleneck adapters are inserted", additions.houlsby, backbone="part"),
        "pfeiffer": NamedScheme("where bottleneck adapters are inserted", additions.pfeiffer, backbone="part"),
        "lora": NamedScheme("low-rank changes", additions.lora, backbone="part"),
        "bitfit": NamedScheme("the training of biases", weights.bitfit, backbone="part"),
        "dapt": NamedScheme("continued pretraining", additions.dapt),
        "lm-loss": NamedScheme("the language-model loss", additions.lm_loss, needs="part"),
        "contrast": NamedScheme("the contrastive loss", additions.contrast, needs="part"),
        "l2-sp": NamedScheme("the penalty on the weights", additions.l2_sp, needs="all"),
    },
)
"""every name; ``+`` combines them"""


class SchemeOptions(
    additions.BottleneckOptions,
    additions.LoraOptions,
    additions.LanguageLossOptions,
    additions.ContrastOptions,
    additions.DaptOptions,
    weights.LpFtOptions,
    weights.DiscriminativeOptions,
    additions.L2SPOptions,
):
    """Options of single schemes; each help names the schemes that read it. docs/explanation/schemes.md has the defaults."""
