"""Bottleneck adapters in a frozen backbone: Houlsby et al. 2019 and Pfeiffer et al. 2021."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from warmstart.adapters.bottleneck import BottleneckConfig
from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme
from warmstart.model.model import Model


class BottleneckOptions(Config):
    """Options of ``houlsby`` and ``pfeiffer``."""

    adapter_width: int = Field(64, gt=0)
    """houlsby, pfeiffer: width of the bottleneck"""
    adapter_norms: Literal["as-published", "yes", "no"] = "as-published"
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
