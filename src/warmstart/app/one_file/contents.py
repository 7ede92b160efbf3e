"""The contents of a page: a model's weights, its settings as the scripts read them, and the answers that a server would give on it.

The scripts run every backbone with attention from queries and keys, heads for one label, several labels, tags and text, bottleneck
adapters and scalar mixes; LoRA is merged first. They also run stacks and baselines of such networks and of words. Everything else
is refused with the reason.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warmstart.adapters.insertion import inserted_adapters
from warmstart.adapters.settings import BottleneckConfig, LoraConfig, ScalarMixConfig
from warmstart.app.models import LEVEL, ServedModel, checks_of, evidence_of, guarantees_of, with_columns_left_out
from warmstart.app.one_file.characters import word_characters
from warmstart.app.one_file.parts import Parts, member_network, taken_apart
from warmstart.app.one_file.tokenizer_spec import tokenizer_spec
from warmstart.app.one_file.weights import pack_tensors
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.per_text import ClassificationHead, MultilabelHead
from warmstart.heads.per_token import TaggingHead
from warmstart.model.bundle import Bundle
from warmstart.model.fitted import FittedBaseline
from warmstart.model.folder import model_digest
from warmstart.model.model import Model
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.model.stack import Stack
from warmstart.runs.steps import NextStep
from warmstart.runs.verdict import read_verdict
from warmstart.system.storage import FORMAT, sha256
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.thresholds import thresholds_of
from warmstart.version import __version__

ABLE = {"predict", "explain", "generate", "card"}
"""abilities of a model in a page"""
_INSTEAD = "use `warmstart serve`, or export with --to onnx"


@dataclass(frozen=True)
class PageContents:
    """The values that the scripts of a page read."""

    facts: dict[str, Any]
    """settings, tokenizer, where each tensor is, and what is known of the model, fit for JSON"""
    weights: bytes
    """deflated"""


def page_contents(model: Bundle | Stack, path: str, name: str) -> PageContents:
    """Everything of the model at ``path``. Raises ``ModelError`` for one that cannot run in a page."""
    refuse_unable(model)
    parts, served = taken_apart(model), ServedModel.of(model, name, path)
    layout, packed = pack_tensors(parts.tensors)
    described = served.describe()
    abilities = [ability for ability in described["abilities"] if ability in ABLE and (ability != "explain" or model.labels)]
    facts = {
        "format": FORMAT,
        "warmstart": __version__,
        "name": name,
        "bundle_digest": model_digest(path),
        "parameters": sum(tensor.numel() for tensor in parts.tensors.values()),
        "model": described | {"abilities": abilities, "reads_texts": False},
        **model_facts(model, parts),
        "weights": layout | {"sha256": sha256(packed)},
        "verdict": _shared_verdict(path, model),
        "replies": _replies(served),
    }
    return PageContents(facts, packed)


def model_facts(model: Bundle | Stack, parts: Parts) -> dict[str, Any]:
    """The values that the scripts compute with, beside the weights."""
    tokenizers = {network.tokenizer.digest: network.tokenizer for network in parts.networks}
    networks = [_network(network) | {"tokenizer": network.tokenizer.digest} for network in parts.networks]
    whole = {"task": model.type, "labels": list(model.labels)} if isinstance(model, Stack) else networks[0]
    return {
        "settings": whole | {"temperature": _temperature(model), "thresholds": thresholds_of(model)},
        "members": parts.members,
        "networks": networks,
        "tokenizers": {digest: tokenizer_spec(tokenizer) for digest, tokenizer in tokenizers.items()},
        "words": word_characters() if isinstance(model, Stack) else None,
    }


def refuse_unable(model: Bundle | Stack) -> None:
    """Raise ``ModelError`` with the reason if a model cannot run in a page."""
    if isinstance(model, Bundle):
        why = _why_not(model, (ClassificationHead, MultilabelHead, TaggingHead))
    elif model.type not in ("classification", "multilabel"):
        why = f"pages label texts, but this model is for {model.type}"
    else:
        networks = filter(None, (member_network(member.model) for member in model.members))
        why = next(
            filter(None, (_why_not(network, (ClassificationHead, MultilabelHead, EmbeddingHead)) for network in networks)), None
        )
    if why:
        raise ModelError(f"this model cannot run in a page: {why}; {_INSTEAD}")


def _why_not(bundle: Bundle, able: tuple[type, ...]) -> str | None:
    head, config = bundle.model.head, bundle.model.backbone.config
    if bundle.max_answer_tokens:
        return "it answers questions, and abstains by examples that pages do not have"
    if not isinstance(head, able) and not bundle.generates:
        untrained = " that was not trained to write" if head.config.kind == "language-modeling" else ""
        return f"pages label texts, tag words or write text, but this model has a head of type '{head.config.kind}'{untrained}"
    if config.attention != "dot-product":
        return f"its attention is of type '{config.attention}'"
    if config.ngrams:
        return "it reads neighbouring tokens by convolutions"
    if config.distance_buckets:
        return "its attention adds a bias for each distance between tokens"
    if head.config.window_settings.windows != "none":
        return "it reads long texts in windows, and a page would cut them"
    known = LoraConfig | BottleneckConfig | ScalarMixConfig
    odd = next((adapter for adapter in inserted_adapters(bundle.model) if not isinstance(adapter, known)), None)
    return f"it has inserted modules of the kind '{odd.to_dict()['kind']}'" if odd else None


def tells_unknown(model: Bundle | Stack) -> bool:
    """True if predictions of a model mark texts of none of its labels, which pages do not."""
    members = [member.model for member in model.members] if isinstance(model, Stack) else []
    known = any(isinstance(member, FittedBaseline) and member.known for member in members)
    return known or bool(model.calibration and model.calibration.held_out)


@torch.inference_mode()
def rounding_effect(model: Bundle | Stack, rounded: Bundle | Stack) -> float:
    """The largest difference of their outputs for a few texts, as a fraction of the largest output."""
    pairs = zip(_outputs(model), _outputs(rounded), strict=True)
    gaps = [(float((output - other).abs().max()), float(output.abs().max())) for output, other in pairs]
    return max(gap for gap, _ in gaps) / max(1e-9, *(most for _, most in gaps))


def _outputs(model: Bundle | Stack) -> list[Tensor]:
    """The outputs of a network for each text, or the probabilities of a stack."""
    if isinstance(model, Stack):
        return [torch.from_numpy(raw_predictions(model, SELFTEST_TEXTS))]
    specials, most = model.tokenizer.specials, model.model.backbone.config.max_length
    rows = ([specials.begin, *ids[: most - 2], specials.eos] for ids in model.tokenizer.encode(SELFTEST_TEXTS))
    return [model.model(torch.tensor([row])) for row in rows]


def _shared_verdict(path: str, model: Bundle | Stack) -> dict[str, Any] | None:
    """The first screen for whoever gets the page: without texts that it learned from, and without paths of this machine."""
    verdict = read_verdict(Path(path))
    if verdict is None:
        return None
    return asdict(with_columns_left_out(replace(verdict, mistakes=(), steps=(NextStep("try", "A text", ""),)), model))


def _temperature(model: Bundle | Stack) -> float:
    return model.calibration.temperature if model.calibration else 1.0


def _network(bundle: Bundle) -> dict[str, Any]:
    """A network by itself, without its temperature."""
    model, labels = bundle.model, bool(bundle.labels)
    head, config = model.head.config, model.backbone.config
    return {
        "task": head.kind if labels else None,
        "labels": list(bundle.labels),
        "head": {key: value for key, value in head.to_dict().items() if not isinstance(value, dict)},
        "temperature": 1.0,
        "causal": model.causal,
        "typed": config.token_types > 1,
        "max_length": config.max_length,
        "never_generated": bundle.never_generated if bundle.generates and not labels else [],
        "backbone": config.to_dict() | {"per_head": config.per_head, "groups": config.groups} | _adapters(model),
    }


def _adapters(model: Model) -> dict[str, Any]:
    inserted = inserted_adapters(model)
    bottleneck = next((adapter.activation for adapter in inserted if isinstance(adapter, BottleneckConfig)), None)
    return {"bottleneck": bottleneck, "mix": any(isinstance(adapter, ScalarMixConfig) for adapter in inserted)}


def _replies(served: ServedModel) -> dict[str, Any]:
    """The answers of a server, by the last part of their address."""
    replies: dict[str, Any] = {
        "card": served.card(),
        "checks": {"checks": checks_of(served)},
        "evidence": evidence_of(served.model, served.path),
    }
    if served.describe()["guarantees"]:
        rows = guarantees_of(served)
        guarantees = [row | {"sentence": served.threshold(row["target_error"], LEVEL).sentence()} for row in rows]
        replies["guarantees"] = {"guarantees": guarantees}
    return replies
