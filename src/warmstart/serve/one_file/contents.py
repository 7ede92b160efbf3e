"""What a page holds of a model: its weights, its settings as the scripts read them, and what the server would say of it.

The scripts run every backbone with attention from queries and keys, heads for one label, several labels, tags and text, bottleneck
adapters and scalar mixes; LoRA is merged first. Everything else is refused with the reason.
"""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from warmstart import __version__
from warmstart.adapters.bottleneck import BottleneckConfig
from warmstart.adapters.insertion import inserted_adapters, merge_adapters
from warmstart.adapters.lora import LoraConfig
from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ModelError
from warmstart.heads.per_text import ClassificationHead, MultilabelHead
from warmstart.heads.per_token import TaggingHead
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest
from warmstart.model.model import Model
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.runs.verdict import NextStep, read_verdict
from warmstart.serve.evidence import evidence_of
from warmstart.serve.learning_curve import read_curve
from warmstart.serve.one_file.tokenizer_spec import tokenizer_spec
from warmstart.serve.one_file.weights import pack_tensors, unpack_tensors
from warmstart.serve.race import read_race
from warmstart.serve.replies import TARGETS, checks_of
from warmstart.serve.restarts import restarts_of
from warmstart.serve.served import LEVEL, ServedModel
from warmstart.system.storage import FORMAT, sha256
from warmstart.tasks.thresholds import thresholds_of

ABLE = {"predict", "explain", "generate", "card", "race", "curve", "restarts"}
"""what a model can be asked for in a page"""
_INSTEAD = "use `warmstart serve`, or export with --to onnx"


@dataclass(frozen=True)
class PageContents:
    """What the scripts of a page read."""

    facts: dict[str, Any]
    """settings, tokenizer, where each tensor is, and what is known of the model, fit for JSON"""
    weights: bytes
    """deflated"""


def page_contents(bundle: Bundle, path: str, name: str) -> PageContents:
    """Everything of the bundle at ``path``. Raises ``ModelError`` for a model that cannot run in a page."""
    refuse_unable(bundle)
    model = merged_copy(bundle.model)
    served = ServedModel.of(bundle, name, path)
    layout, packed = pack_tensors(model.weights())
    described = served.describe()
    abilities = [one for one in described["abilities"] if one in ABLE and (one != "explain" or bundle.labels)]
    facts = {
        "format": FORMAT,
        "warmstart": __version__,
        "name": name,
        "bundle_digest": model_digest(path),
        "tokenizer_digest": bundle.tokenizer.digest,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "model": described | {"abilities": abilities, "reads_texts": False},
        "settings": _settings(bundle, model),
        "tokenizer": tokenizer_spec(bundle.tokenizer),
        "weights": layout | {"sha256": sha256(packed)},
        "verdict": _shared_verdict(path),
        "replies": _replies(served),
    }
    return PageContents(facts, packed)


def refuse_unable(bundle: Bundle) -> None:
    """Raise ``ModelError`` with the reason if a model cannot run in a page."""
    head, config = bundle.model.head, bundle.model.backbone.config
    why = None
    if bundle.answers_record is not None:
        why = "it answers questions, and abstains by examples that pages do not have"
    elif not isinstance(head, ClassificationHead | MultilabelHead | TaggingHead) and not bundle.generates:
        why = f"pages label texts, tag words or write text, but this model has a head of type '{head.config.kind}'" + (
            " that was not trained to write" if head.config.kind == "language-modeling" else ""
        )
    elif config.attention != "dot-product":
        why = f"its attention is of type '{config.attention}'"
    elif head.config.window_settings.windows != "none":
        why = "it reads long texts in windows, and a page would cut them"
    elif odd := [
        one for one in inserted_adapters(bundle.model) if not isinstance(one, LoraConfig | BottleneckConfig | ScalarMixConfig)
    ]:
        why = f"it has inserted modules of the kind '{odd[0].to_dict()['kind']}'"
    if why:
        raise ModelError(f"this model cannot run in a page: {why}; {_INSTEAD}")


def merged_copy(model: Model) -> Model:
    """The model itself, or a copy with its LoRA folded into the weights."""
    if not any(isinstance(one, LoraConfig) for one in inserted_adapters(model)):
        return model
    copied = copy.deepcopy(model)
    merge_adapters(copied)
    return copied


def with_page_weights(bundle: Bundle, layout: dict[str, Any], packed: bytes) -> Bundle:
    """The same model with the weights of a page, as its scripts compute with them."""
    model = copy.deepcopy(merged_copy(bundle.model))
    found = unpack_tensors(layout, packed)
    with torch.no_grad():
        for name, tensor in model.weights().items():
            tensor.copy_(found[name][0])
    return replace(bundle, model=model.eval())


@torch.inference_mode()
def rounding_effect(bundle: Bundle, rounded: Bundle) -> float:
    """The largest difference of their outputs for a few texts, as a fraction of the largest output."""
    specials, worst, most = bundle.tokenizer.specials, 0.0, 0.0
    for ids in bundle.tokenizer.encode(SELFTEST_TEXTS):
        row = torch.tensor([[specials.begin, *ids[: bundle.model.backbone.config.max_length - 2], specials.eos]])
        one, other = bundle.model(row), rounded.model(row)
        worst, most = max(worst, float((one - other).abs().max())), max(most, float(one.abs().max()))
    return worst / max(most, 1e-9)


def _shared_verdict(path: str) -> dict[str, Any] | None:
    """The first screen for whoever gets the page: without texts that it learned from, and without paths of this machine."""
    found = read_verdict(Path(path))
    return asdict(replace(found, mistakes=(), steps=(NextStep("try", "A text", ""),))) if found else None


def _settings(bundle: Bundle, model: Model) -> dict[str, Any]:
    head, config = model.head.config, model.backbone.config
    labels = bool(bundle.labels)
    return {
        "task": head.kind if labels else None,
        "labels": list(bundle.labels),
        "head": {key: value for key, value in head.to_dict().items() if not isinstance(value, dict)},
        "temperature": bundle.calibration.temperature if bundle.calibration else 1.0,
        "thresholds": thresholds_of(bundle),
        "causal": model.causal,
        "typed": config.token_types > 1,
        "max_length": config.max_length,
        "never_generated": [] if labels else bundle.never_generated,
        "backbone": _backbone(config) | _adapters(model),
    }


def _backbone(config: BackboneConfig) -> dict[str, Any]:
    own_base = config.window_rotary_base != config.rotary_base
    scaling = list(config.rotary_scaling) if config.rotary_scaling else None
    return {
        "width": config.width, "depth": config.depth, "heads": config.heads, "groups": config.groups, "perHead": config.per_head,
        "feedforward": config.feedforward, "norm": config.norm, "normType": config.norm_type, "eps": config.norm_eps,
        "embeddingNorm": config.embedding_norm, "firstNorm": config.first_norm, "tokenTypes": config.token_types,
        "positions": config.positions, "offset": config.position_offset,
        "window": config.window, "globalEvery": config.global_every,
        "rotary": {"base": config.rotary_base, "scaling": scaling},
        "windowRotary": {"base": config.window_rotary_base, "scaling": None if own_base else scaling},
        "activation": config.activation, "qkNorm": config.qk_norm,
        "scale": math.sqrt(config.width) if config.scale_embeddings else 1.0,
    }  # fmt: skip


def _adapters(model: Model) -> dict[str, Any]:
    inserted = inserted_adapters(model)
    bottleneck = next((one.activation for one in inserted if isinstance(one, BottleneckConfig)), None)
    return {"bottleneck": bottleneck, "mix": any(isinstance(one, ScalarMixConfig) for one in inserted)}


def _replies(served: ServedModel) -> dict[str, Any]:
    """What the server would answer, by the last part of its address."""
    replies: dict[str, Any] = {
        "card": served.card(),
        "checks": {"checks": checks_of(served)},
        "evidence": evidence_of(served.model, served.path),
    }
    if served.describe()["guarantees"]:
        found = [served.threshold(target, LEVEL) for target in TARGETS]
        replies["guarantees"] = {
            "guarantees": [
                {"target_error": one.target, "threshold": one.threshold, "answered": one.answered / one.examples}
                | {"sentence": one.sentence()}
                for one in found
                if math.isfinite(one.threshold)
            ]
        }
    if served.race_file:
        replies["race"] = read_race(served.race_file, served.model)
    if served.curve_file:
        replies["curve"] = read_curve(served.curve_file)
    if restarts := restarts_of(served.model):
        replies["restarts"] = restarts
    return replies
