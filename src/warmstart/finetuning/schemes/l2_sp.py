"""L2-SP: weight decay towards the pretrained weights instead of towards zero (Li et al. 2018, equation 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from warmstart.adapters.insertion import Adapter
from warmstart.config import Config
from warmstart.finetuning.scheme import Penalty, Scheme
from warmstart.model.model import Model


class L2SPOptions(Config):
    """Options of ``l2-sp``."""

    l2_sp_strength: float = Field(0.01, ge=0)
    """l2-sp: strength of the penalty on the backbone's distance from its pretrained weights (alpha)"""
    l2_sp_head_strength: float = Field(0.01, ge=0)
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
