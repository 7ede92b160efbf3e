"""A bundle written in the Hugging Face format, if its settings belong to a model family.

Whether they do is not a list of rules: the settings are written as those of the family and read again. What differs then cannot be
expressed in this family, and is named in the error. The tensors pass through the table of the import, backwards.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialise

from warmstart.adapters.insertion import inserted_adapters
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ConfigError, ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHead, ClassificationHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.companions import POOLED, pooling_files, template
from warmstart.interop.convert import read_settings, to_tensors
from warmstart.interop.families import ACTIVATIONS, FAMILIES, Family
from warmstart.interop.folder import refuse_windows
from warmstart.model.bundle import Bundle
from warmstart.model.history import imported
from warmstart.model.model import Model, swap_head
from warmstart.seeding import rng
from warmstart.system.outputs import free_folder
from warmstart.system.storage import atomic_folder


def to_huggingface(bundle: Bundle, folder: str | Path) -> str:
    """Write ``config.json``, ``model.safetensors``, ``tokenizer.json`` and its companion; returns the family's ``model_type``.

    Raises ``ModelError`` that names the setting, the head or the inserted modules that no family has.
    """
    refuse_windows(bundle.model.head.config)
    if extra := sorted({str(config.to_dict()["kind"]) for config in inserted_adapters(bundle.model)}):
        raise ModelError(
            f"the Hugging Face format has no inserted modules, but this model has {', '.join(extra)}; merge LoRA with "
            "merge_adapters(model), remove others with remove_adapters(model), or export with --to onnx"
        )
    name = family_for(bundle)
    family, origin = FAMILIES[name], _origin(bundle, name)
    rows = _rows(bundle, origin)
    tensors = to_tensors(family, calibrated_model(bundle), prefixed=bundle.model.head.config.kind != "embedding", rows=rows)
    settings = write_settings(family, name, bundle, origin) | {"vocab_size": rows}
    pooled = isinstance(bundle.model.head.config, EmbeddingHeadConfig)
    typed = bundle.model.backbone.config.token_types > 1
    files = {
        "config.json": json.dumps(settings, indent=2).encode(),
        "model.safetensors": serialise(tensors, {"format": "pt"}),
        **_tokenizer_files(bundle, rows, framed=not family.causal, typed=typed, pooled=pooled, own=not origin),
    }
    if isinstance(head := bundle.model.head.config, EmbeddingHeadConfig):
        files |= pooling_files(head, bundle.model.backbone.config)
    with atomic_folder(free_folder(folder)) as aside:
        for file, data in files.items():
            (aside / file).parent.mkdir(exist_ok=True)
            (aside / file).write_bytes(data)
    return name


def calibrated_model(bundle: Bundle) -> Model:
    """The model whose own outputs are calibrated: its last layer is divided by the temperature, which others do not know."""
    if bundle.calibration is None or not isinstance(bundle.model.head, ClassificationHead):
        return bundle.model
    model = copy.deepcopy(bundle.model)
    with torch.no_grad():
        for tensor in model.head.score.parameters():  # type: ignore[union-attr]
            tensor /= bundle.calibration.temperature
    return model


def embedding_bundle(bundle: Bundle) -> Bundle:
    """The bundle with a head that gives each text one vector, pooled as its own head pools; the mean, if it does not.

    Raises ``ModelError`` if its head reads windows.
    """
    head = bundle.model.head.config
    refuse_windows(head)
    if isinstance(head, EmbeddingHeadConfig):
        return bundle
    wanted = EmbeddingHeadConfig(pooling=getattr(head, "pooling", "mean"))
    return replace(bundle, model=swap_head(bundle.model, wanted, 0), labels=())


@torch.inference_mode()
def output_difference(bundle: Bundle, other: Bundle) -> float:
    """The largest difference of a bundle's calibrated outputs to another's, on a few rows of random tokens that both have."""
    size = min(bundle.tokenizer.vocab_size, other.tokenizer.vocab_size)
    width = min(64, bundle.model.backbone.config.max_length)
    ids = torch.from_numpy(rng(0, "parity").integers(0, size, (4, width)))
    first, second = (model(ids) for model in (calibrated_model(bundle), other.model))
    shared = min(first.shape[-1], second.shape[-1])  # rows that were added at import are not written
    return float((first[..., :shared] - second[..., :shared]).abs().max())


def family_for(bundle: Bundle) -> str:
    """The ``model_type`` of the family that a bundle belongs to: the one it came from, or the first that fits."""
    family = imported(bundle.history).get("family")
    if family and family not in FAMILIES:
        raise ModelError(
            f"the model must be of a family of transformers, but is of type '{family}'; export it with --to onnx, which takes any"
        )
    odd = {name: misfits(bundle, name) for name in ([family] if family else FAMILIES)}
    nearest = min(odd, key=lambda name: (FAMILIES[name].causal != bundle.model.causal, len(odd[name])))
    if odd[nearest]:
        raise ModelError(
            f"the settings must be those of a model family ({', '.join(FAMILIES)}), but compared with the nearest one, "
            f"{FAMILIES[nearest].title}, this model has {'; '.join(odd[nearest])}; export it with --to onnx, which takes any model"
        )
    return nearest


def misfits(bundle: Bundle, name: str) -> list[str]:
    """The parts of a bundle that this family does not have, one phrase each; empty if it fits."""
    family, model = FAMILIES[name], bundle.model
    ours = _meaning(model.backbone.config)
    try:
        theirs = _meaning(read_settings(family, write_settings(family, name, bundle, {})))
    except (ConfigError, ModelError) as error:
        return [str(error)]
    # a setting that only one of them has, such as the base of rotary positions, follows from one in which they differ
    differences = [f"{key} {ours[key]!r} instead of {theirs[key]!r}" for key in ours if key in theirs and ours[key] != theirs[key]]
    if model.causal != family.causal:
        differences.append("causal attention" if model.causal else "bidirectional attention")
    return differences + _head_misfits(bundle, family)


def _head_misfits(bundle: Bundle, family: Family) -> list[str]:
    head = bundle.model.head.config
    if head.kind not in family.architectures:
        return [f"a {head.kind} head"]
    wanted: dict[str, Any] = {}
    if isinstance(head, EmbeddingHeadConfig) and head.pooling not in POOLED:
        return [f"the pooling '{head.pooling}'"]
    if isinstance(head, ClassificationHeadConfig):
        wanted = {"pooling": "first", "hidden": family.hidden, "normalize": False}
    if isinstance(head, LMHeadConfig):
        wanted = {"bias": False, "transform": False, **family.transform}
        if wanted["transform"]:
            wanted["norm_eps"] = bundle.model.backbone.config.norm_eps
            if not family.gelu and (activation := bundle.model.backbone.config.activation) != "gelu":
                return [f"gelu in the transform of its head instead of {activation!r}"]
    values = {key: getattr(head, key) for key in wanted}
    return [f"{key} {values[key]!r} of the head instead of {value!r}" for key, value in wanted.items() if values[key] != value]


def write_settings(family: Family, name: str, bundle: Bundle, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Their ``config.json`` for a bundle; other keys of the imported model (``origin``) are kept."""
    ours, head = bundle.model.backbone.config, bundle.model.head.config
    settings = {setting.key: getattr(ours, key) for key, setting in family.settings.items()}
    if "activation" in family.settings:
        key = family.settings["activation"].key
        words = [word for word, mine in ACTIVATIONS.items() if mine == ours.activation]
        settings[key] = origin.get(key) if origin.get(key) in words else next(iter(words), ours.activation)
    settings |= dict(family.must) | family.rules.write(ours)
    length = family.settings["max_length"].key
    if ours.positions == "rotary":  # a shorter maximum may have been chosen at import
        settings[length] = max(settings[length], origin.get(length, 0))
    if bundle.labels:
        settings |= {"id2label": dict(enumerate(bundle.labels)), "label2id": {label: i for i, label in enumerate(bundle.labels)}}
    if isinstance(head, LMHeadConfig):
        settings["tie_word_embeddings"] = head.tied
    specials = bundle.tokenizer.specials
    ids = {"pad_token_id": specials.pad, "bos_token_id": specials.begin, "eos_token_id": specials.eos}
    ids = {key: value for key, value in ids.items() if value < _rows(bundle, origin)}
    shape = {"model_type": name, "architectures": [family.architectures.get(head.kind, "")], "dtype": "float32"}
    kept = {key: value for key, value in origin.items() if key not in ("rope_scaling", "torch_dtype")}
    return {**({} if origin else ids), **kept, **settings, **shape}


def _meaning(config: BackboneConfig) -> dict[str, Any]:
    """A backbone's settings with defaults spelled out, without those that have no effect given the others."""
    settings = config.to_dict() | {"kv_heads": config.groups, "head_width": config.per_head}
    settings["qkv_bias"] = config.bias if config.qkv_bias is None else config.qkv_bias
    unused = {"init_std"} | ({"rotary_base", "rotary_scaling"} if config.positions != "rotary" else set())
    unused |= {"window_rotary_base", "global_every"} if config.window is None else set()
    return {key: value for key, value in settings.items() if key not in unused}


def _origin(bundle: Bundle, name: str) -> Mapping[str, Any]:
    """The ``config.json`` that a bundle was imported with."""
    origin = imported(bundle.history)
    return origin.get("config", {}) if origin.get("family") == name else {}


def _rows(bundle: Bundle, origin: Mapping[str, Any]) -> int:
    """Rows of the embedding to write: without those that were added at import and are still equal, hence never trained."""
    table = bundle.model.backbone.embedding.weight
    before = int(origin.get("vocab_size", len(table)))
    added = table[before:]
    return before if len(added) > 1 and bool((added == added[0]).all()) else len(table)


def _tokenizer_files(bundle: Bundle, rows: int, *, framed: bool, typed: bool, pooled: bool, own: bool) -> dict[str, bytes]:
    """``tokenizer.json`` and ``tokenizer_config.json``; with ``framed`` it frames texts as our pipeline does.

    With ``pooled`` it always does, since a state of each text is read, and has a token to pad with. Otherwise texts begin, for our
    ``own`` model, with the token that every prompt of it does; an imported one keeps what its library does.
    """
    tokenizer = bundle.tokenizer
    spec = json.loads(tokenizer.to_json())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["id"] < rows]
    specials = tokenizer.specials
    if (framed and specials.bos is None) or (pooled and not framed) or tokenizer.prefix:
        spec["post_processor"] = template(tokenizer, specials.eos, typed=typed)
    elif own and specials.bos is None:
        spec["post_processor"] = template(tokenizer, None, typed=typed)
    roles = {"pad": specials.pad, "unk": specials.unk, "eos": specials.eos, "sep": specials.eos, "mask": specials.mask}
    roles |= {"bos": specials.begin, "cls": specials.begin}
    names = {f"{role}_token": tokenizer.token(i) for role, i in roles.items() if i < rows}
    if pooled:
        names.setdefault("pad_token", names["eos_token"])  # masked, so any token does
    length = bundle.model.backbone.config.max_length  # without it nothing is cut, and a long text fails in the other program
    described = names | {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length}
    return {
        "tokenizer.json": json.dumps(spec, ensure_ascii=False).encode(),
        "tokenizer_config.json": json.dumps(described, indent=2).encode(),
    }
