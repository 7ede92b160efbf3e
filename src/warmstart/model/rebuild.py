"""A model as settings and tensors, and back: what a bundle stores of it.

Nothing else of a model is stored: whatever a module was given beside them is lost, and saving ends with a reload that notices it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from warmstart.adapters import adapter_config, insert_adapter
from warmstart.adapters.insertion import inserted_adapters
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import BundleError
from warmstart.heads import head_config, make_head
from warmstart.model.model import Model
from warmstart.system.limits import check_depth


def model_settings(model: Model) -> dict[str, Any]:
    """The settings of a model, as plain values."""
    return {
        "backbone": model.backbone.config.to_dict(),
        "vocab_size": model.backbone.vocab_size,
        "head": model.head.config.to_dict(),
        "causal": model.causal,
        "adapters": [config.to_dict() for config in inserted_adapters(model.backbone)],
    }


def rebuilt(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """The model with these settings and tensors, in evaluation mode. Raises ``BundleError`` if they do not fit each other."""
    config = BackboneConfig.build(settings["backbone"], "backbone")
    check_depth(config.depth, len(tensors))
    with torch.device("meta"):  # shapes without memory: settings may ask for more than the tensors hold
        wanted = {name: list(tensor.shape) for name, tensor in _made(settings, config).weights().items()}
    found = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if wanted != found:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise BundleError(f"the settings and the weights disagree about these tensors: {', '.join(wrong)}")
    model = _made(settings, config)
    model.load_state_dict(tensors, strict=False)  # a tied head's weight is the embedding's; the names were compared above
    return model.eval()


def _made(settings: Mapping[str, Any], config: BackboneConfig) -> Model:
    """A model of these settings, with any weights."""
    if not isinstance(settings["causal"], bool):
        raise TypeError(f"causal must be true or false, but is {settings['causal']!r}")
    backbone = Backbone(config, settings["vocab_size"])
    for values in settings["adapters"]:
        insert_adapter(backbone, adapter_config(values), seed=0)
    head = make_head(head_config(settings["head"]), backbone.config.width, backbone.embedding.weight)
    return Model(backbone, head, causal=settings["causal"])
