"""Schemes that add weights to the model (scalar mix, adapters), a loss to the head's, or pretraining before fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from warmstart.adapters.bottleneck import BottleneckConfig
from warmstart.adapters.insertion import Adapter
from warmstart.adapters.lora import LoraConfig, Targets
from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.config import Config, InFile
from warmstart.finetuning.losses import Contrast
from warmstart.finetuning.scheme import Penalty, Scheme
from warmstart.model.model import Model

# Scalar mix: the head reads a learned weighted sum of all layers (Peters et al. 2018, equation 1).


def scalar_mix(options: Config) -> Scheme:
    """Insert the mix, and train its weights at a probe's learning rate."""
    return Scheme(adapters=(ScalarMixConfig(),), rate_factors={"scalar-mix": 20.0})


# Bottleneck adapters in a frozen backbone: Houlsby et al. 2019 and Pfeiffer et al. 2021.


class BottleneckOptions(Config):
    """Options of ``houlsby`` and ``pfeiffer``."""

    adapter_width: int = Field(64, gt=0)
    """houlsby, pfeiffer: width of the bottleneck"""
    adapter_norms: InFile[Literal["as-published", "yes", "no"]] = "as-published"
    """houlsby, pfeiffer: whether the backbone's norms train too; as-published: yes with houlsby, no with pfeiffer"""


def norms(model: Model) -> set[str]:
    """The names of the parameters of the backbone's norms."""
    modules = {path for path, module in model.backbone.named_modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)}
    return {f"backbone.{name}" for name, _ in model.backbone.named_parameters() if name.rpartition(".")[0] in modules}


def houlsby(options: BottleneckOptions) -> Scheme:
    """Bottlenecks after attention and after the feed-forward layer (section 2.1); the norms train too."""
    return _scheme(options, published_norms=True)


def pfeiffer(options: BottleneckOptions) -> Scheme:
    """Bottlenecks after the feed-forward layer only."""
    return _scheme(options, published_norms=False, after=("feedforward",), activation="relu")


def _scheme(options: BottleneckOptions, *, published_norms: bool, **settings: Any) -> Scheme:
    train_norms = published_norms if options.adapter_norms == "as-published" else options.adapter_norms == "yes"
    return Scheme(
        trains=(norms,) if train_norms else (),
        adapters=(BottleneckConfig(width=options.adapter_width, **settings),),
        rate_factors={"bottleneck": 10.0, "head": 10.0, "backbone": 10.0},
    )


# LoRA: low-rank changes of a frozen backbone's matrices (Hu et al. 2021).


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


def lora(options: LoraOptions) -> Scheme:
    """Train the low-rank changes and the head, at ten times the learning rate that suits a whole network."""
    config = LoraConfig(
        rank=options.lora_rank, alpha=options.lora_alpha, targets=options.lora_targets, dropout=options.lora_dropout
    )
    return Scheme(adapters=(config,), rate_factors={"lora": 10.0, "head": 10.0})


# A supervised contrastive loss beside the head's (Gunel et al. 2021, equation 1); ``finetuning/losses.py`` computes it. The head
# reads vectors of length 1, and its own are the class means at first, and again at the end (prototypes: Snell et al. 2017).


class ContrastOptions(Config):
    """Options of ``contrast``."""

    contrast_weight: InFile[float] = Field(1.0, gt=0)
    """contrast: weight of the contrastive loss beside the head's own"""
    contrast_temperature: InFile[float] = Field(0.1, gt=0)
    """contrast: temperature of the contrastive loss; a low one looks at the most similar texts of other labels"""


def contrast(options: ContrastOptions) -> Scheme:
    """Draw texts of one label together, and push others away, from where the class means already are: at a low rate."""
    loss = Contrast(options.contrast_weight, options.contrast_temperature)
    return Scheme(contrast=loss, rate_factors={"backbone": 0.25, "head": 50.0})


# A language-model loss beside the task's (Radford et al. 2018, equation 5); ``finetuning/losses.py`` computes it.


class LanguageLossOptions(Config):
    """Options of ``lm-loss``."""

    lm_weight: InFile[float] = Field(0.5, gt=0)
    """lm-loss: weight of the language-model loss"""


def lm_loss(options: LanguageLossOptions) -> Scheme:
    """Add the language-model loss of the training texts."""
    return Scheme(language_weight=options.lm_weight)


# L2-SP: weight decay towards the pretrained weights instead of towards zero (Li et al. 2018, equation 2).


class L2SPOptions(Config):
    """Options of ``l2-sp``."""

    l2_sp_strength: InFile[float] = Field(0.01, ge=0)
    """l2-sp: strength of the penalty on the backbone's distance from its pretrained weights (alpha)"""
    l2_sp_head_strength: InFile[float] = Field(0.01, ge=0)
    """l2-sp: strength of the penalty on the head's weights (beta)"""


@dataclass(frozen=True)
class L2SPPenalty:
    """``alpha / 2 ||w - w0||^2 + beta / 2 ||v||^2``: w the backbone's own weights, v the head's; adapters have no penalty."""

    alpha: float
    beta: float

    def __call__(self, model: Model) -> Penalty:
        """The penalty as a function; w0 are the backbone's weights as they are now."""
        new = {id(p) for module in model.modules() if isinstance(module, Adapter) for p in module.parameters()}
        pairs = [(p, p.detach().clone()) for p in model.backbone.parameters() if id(p) not in new]
        backbone = {id(p) for p, _ in pairs}
        head = [p for p in model.head.parameters() if id(p) not in backbone]  # a tied head has none of its own

        def penalty() -> Tensor:
            distance = torch.stack([(p - start).square().sum() for p, start in pairs]).sum()
            return self.alpha / 2 * distance + self.beta / 2 * torch.stack([p.square().sum() for p in head]).sum()

        return penalty


def l2_sp(options: L2SPOptions) -> Scheme:
    """Replace weight decay, which penalises the distance from zero, by the penalty."""
    return Scheme(penalty=L2SPPenalty(options.l2_sp_strength, options.l2_sp_head_strength), weight_decay=0.0)


# Continued pretraining on the task's own text before adaptation (Gururangan et al. 2020); ``continued`` does it.


class DaptOptions(Config):
    """Options of ``dapt``."""

    dapt_epochs: InFile[float] = Field(3.0, gt=0)
    """dapt: passes over the task's own text"""
    dapt_learning_rate: InFile[float] = Field(5e-4, gt=0)
    """dapt: learning rate of these passes"""
    dapt_pilot: InFile[float] = Field(0.2, ge=0, lt=1)
    """dapt: fraction of these passes after which a pilot decides whether to continue; 0: only the check at the end decides"""


def dapt(options: DaptOptions) -> Scheme:
    """Continue pretraining first."""
    return Scheme(continued_pretraining=True)
