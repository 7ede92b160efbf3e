"""Schemes that add weights to the model (scalar mix, adapters), a loss to the head's, or pretraining before fine-tuning."""

from __future__ import annotations

from torch import nn

from warmstart.adapters.settings import BottleneckConfig, LoraConfig, ScalarMixConfig
from warmstart.config import Config
from warmstart.finetuning.losses import Contrast
from warmstart.finetuning.scheme import Scheme
from warmstart.finetuning.schemes.registry import BottleneckOptions, LoraOptions
from warmstart.model.model import Model

# Scalar mix: the head reads a learned weighted sum of all layers (Peters et al. 2018, equation 1).


def scalar_mix(options: Config) -> Scheme:
    """Insert the mix, and train its weights at a probe's learning rate."""
    return Scheme(adapters=(ScalarMixConfig(),), rate_factors={"scalar-mix": 20.0})


# Bottleneck adapters in a frozen backbone: Houlsby et al. 2019.


def norms(model: Model) -> set[str]:
    """The names of the parameters of the backbone's norms."""
    modules = {path for path, module in model.backbone.named_modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)}
    return {f"backbone.{name}" for name, _ in model.backbone.named_parameters() if name.rpartition(".")[0] in modules}


def houlsby(options: BottleneckOptions) -> Scheme:
    """Bottlenecks after attention and after the feed-forward layer (section 2.1); the norms train too."""
    return Scheme(
        trains=(norms,),
        adapters=(BottleneckConfig(width=options.adapter_width),),
        rate_factors={"bottleneck": 10.0, "head": 10.0, "backbone": 10.0},
    )


# LoRA: low-rank changes of a frozen backbone's matrices (Hu et al. 2021).


def lora(options: LoraOptions) -> Scheme:
    """Train the low-rank changes and the head, at ten times the learning rate that suits a whole network."""
    config = LoraConfig(rank=options.lora_rank, targets=options.lora_targets)
    return Scheme(adapters=(config,), rate_factors={"lora": 10.0, "head": 10.0})


# A supervised contrastive loss beside the head's (Gunel et al. 2021, equation 1); ``finetuning/losses.py`` computes it. The head
# reads vectors of length 1, and its own are the class means at first, and again at the end (prototypes: Snell et al. 2017).


def contrast(_: Config) -> Scheme:
    """Draw texts of one label together, and push others away, from where the class means already are: at a low rate."""
    return Scheme(contrast=Contrast(), rate_factors={"backbone": 0.25, "head": 50.0})


# A language-model loss beside the task's (Radford et al. 2018, equation 5); ``finetuning/losses.py`` computes it.

LANGUAGE_WEIGHT = 0.5
"""weight of the language-model loss beside the task's, as in that paper"""


def lm_loss(_: Config) -> Scheme:
    """Add the language-model loss of the training texts."""
    return Scheme(language_weight=LANGUAGE_WEIGHT)
