"""LoRA's low-rank pairs to and from a folder of the PEFT library: ``adapter_config.json`` and ``adapter_model.safetensors``.

The names are those of the families' tables. The libraries split the matrices differently, and every conversion is exact algebra:

- PEFT has one pair for GPT-2's fused queries, keys and values; we may have one for each. Ours are written as one pair whose rank is
  the sum of theirs: the ``A`` are stacked, the ``B`` are on a block diagonal.
- PEFT has a pair for Llama's gate and one for its value; we have one for both. It is written twice, with the same ``A`` and half of
  ``B`` each; two pairs that do not share their ``A`` cannot be read.

DoRA, ranks that differ between layers, trained biases and other adapters are not read. Each is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialise
from torch import Tensor, nn

from warmstart.adapters import insert_adapter
from warmstart.adapters.insertion import inserted_adapters
from warmstart.adapters.lora import Lora, LoraConfig
from warmstart.errors import ModelError
from warmstart.interop.export import family_for
from warmstart.interop.families import FAMILIES
from warmstart.interop.family import Family
from warmstart.interop.folder import as_float, read_json, read_tensor_file
from warmstart.model.bundle import Bundle
from warmstart.system.limits import refused_if_malformed
from warmstart.system.outputs import free_folder
from warmstart.system.storage import atomic_folder

BEFORE = "base_model.model."
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PARTS = {"attention.qkv": "qkv", "attention.out": "out", "feedforward.inner": "feedforward", "feedforward.out": "feedforward"}
"""linear layers of a block -> their name among LoRA's targets"""
REQUIRED: Mapping[str, Any] = {
    "peft_type": "LORA", "use_dora": False, "use_rslora": False, "bias": "none", "rank_pattern": {}, "alpha_pattern": {},
    "modules_to_save": None, "lora_bias": False, "layer_replication": None,
}  # fmt: skip
"""values that the settings must have; they are the defaults of missing keys"""


def read_lora(bundle: Bundle, folder: str | Path) -> LoraConfig:
    """Insert the low-rank pairs of a PEFT folder into a bundle's backbone, in place.

    ``merge_adapters`` folds them into the weights, ``remove_adapters`` removes them. Raises ``ModelError`` for anything but plain
    LoRA, and for tensors of layers that this model does not have.
    """
    place = Path(folder)
    settings = read_json(place / ADAPTER_CONFIG)
    with refused_if_malformed(ModelError, f"{place / ADAPTER_CONFIG} must hold LoRA's settings"):
        return _read_lora(bundle, place, settings)


def _read_lora(bundle: Bundle, place: Path, settings: Mapping[str, Any]) -> LoraConfig:
    for key, value in REQUIRED.items():
        if (found := settings.get(key, value)) != value and found:
            raise ModelError(
                f"only plain LoRA is read: {key} must be {value!r}, but is {found!r} in {place / ADAPTER_CONFIG}; "
                "merge the adapter in PEFT and import the whole model"
            )
    family, backbone = FAMILIES[family_for(bundle, headless=True)], bundle.model.backbone
    places = {theirs: (host, target) for theirs, host, target in _places(family, backbone.config.depth)}
    pairs_of: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
    for path, pair in _pairs(read_tensor_file(place / ADAPTER_WEIGHTS)).items():
        name = path.removeprefix(family.prefix)
        if name not in places:
            raise ModelError(
                f"every low-rank pair must belong to a block of this {family.title} model, but {path} does not; "
                "give the model it was trained on"
            )
        pairs_of.setdefault(places[name], []).append(pair)
    targets = tuple(dict.fromkeys(target for _, target in pairs_of))
    config = LoraConfig.build(
        {"rank": settings["r"], "alpha": settings["lora_alpha"], "targets": targets, "dropout": settings.get("lora_dropout", 0.0)},
        ADAPTER_CONFIG,
    )
    if odd := {len(down) for pairs in pairs_of.values() for down, _ in pairs} - {config.rank}:
        raise ModelError(
            f"lora_A must have {config.rank:,} rows, as r is in {place / ADAPTER_CONFIG}, but has {odd.pop():,}; copy it again"
        )
    insert_adapter(backbone, config, seed=0)  # pairs start at zero: those that are not in the file add nothing
    for (host, target), pairs in pairs_of.items():
        _fill(backbone.get_submodule(host), target, pairs, host)
    return config


def write_lora(bundle: Bundle, folder: str | Path) -> None:
    """Write a bundle's LoRA as PEFT reads it; its base is what ``to_huggingface`` writes of the bundle without LoRA.

    Raises ``ModelError`` if there is none, or several with different settings, and if no model family fits.
    """
    loras = [config for config in inserted_adapters(bundle.model.backbone) if isinstance(config, LoraConfig)]
    if len(loras) != 1:
        raise ModelError(f"the model must have one LoRA, but this one has {len(loras)}; adapt it with --scheme lora")
    name = family_for(bundle, headless=True)
    family = FAMILIES[name]
    prefix = family.prefix if bundle.model.head.config.kind == "language-modeling" else ""
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    ends = set[str]()
    for i, block in enumerate(bundle.model.backbone.blocks):
        for part in PARTS:
            for theirs, pair in _written(family, block, part).items():
                pairs[BEFORE + prefix + theirs.replace("{i}", str(i))] = pair
                ends.add(theirs.split("{i}.")[1])
    rank = max(len(down) for down, _ in pairs.values())
    tensors: dict[str, Tensor] = {}
    for path, (down, up) in pairs.items():  # PEFT has one rank for all: smaller ones are padded with zeros
        missing = rank - len(down)
        tensors[f"{path}.lora_A.weight"] = nn.functional.pad(down, (0, 0, 0, missing))
        tensors[f"{path}.lora_B.weight"] = nn.functional.pad(up, (0, missing))
    settings = {
        "peft_type": "LORA", "task_type": None, "base_model_name_or_path": None, "r": rank, "bias": "none",
        "target_modules": rf".*\.\d+\.({'|'.join(map(re.escape, sorted(ends)))})",
        "lora_alpha": loras[0].alpha / loras[0].rank * rank,
        "lora_dropout": loras[0].dropout, "fan_in_fan_out": bool(family.flipped), "inference_mode": True,
    }  # fmt: skip
    with atomic_folder(free_folder(folder)) as aside:
        (aside / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2), encoding="utf-8")
        (aside / ADAPTER_WEIGHTS).write_bytes(
            serialise({key: tensor.contiguous() for key, tensor in tensors.items()}, {"format": "pt"})
        )


def _places(family: Family, depth: int) -> Iterator[tuple[str, str, str]]:
    """(their path, our host, our target) of every linear layer of the blocks."""
    for part, target in PARTS.items():
        theirs = family.names[f"blocks.{{i}}.{part}"]
        names = (theirs,) if isinstance(theirs, str) else theirs
        targets = "qkv" if part == "attention.qkv" and len(names) == 3 else [target] * len(names)
        for i in range(depth):
            yield from ((name.replace("{i}", str(i)), f"blocks.{i}.{part}", one) for name, one in zip(names, targets, strict=True))


def _pairs(tensors: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """(A, B) by their path. Raises ``ModelError`` for any other tensor."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        path, _, end = key.removeprefix(BEFORE).partition(".lora_")
        if end not in ("A.weight", "B.weight"):
            raise ModelError(
                f"the tensors of LoRA must be the lora_A and lora_B of linear layers, but {key} is not; only plain LoRA is read"
            )
        found.setdefault(path, {})[end[0]] = as_float(tensor)
    if halves := sorted(path for path, pair in found.items() if len(pair) < 2):
        raise ModelError(
            f"a low-rank pair needs both lora_A and lora_B, but one is missing of {', '.join(halves)}; copy the file again"
        )
    return {path: (pair["A"], pair["B"]) for path, pair in found.items()}


@torch.no_grad()
def _fill(host: nn.Module, target: str, pairs: list[tuple[Tensor, Tensor]], name: str) -> None:
    """Copy the weights that were read into an inserted pair."""
    down = pairs[0][0]
    if any(not torch.equal(other, down) for other, _ in pairs):
        raise ModelError(
            f"gate and value are one matrix here, so their pairs must share lora_A, but those of {name} differ; merge them in peft"
        )
    lora = host.get_submodule(f"lora_{target}" if target in ("q", "k", "v") else "lora")
    up = torch.cat([other for _, other in pairs])
    for linear, tensor in (("lora_A", down), ("lora_B", up)):
        weight = lora.get_parameter(f"{linear}.weight")
        if weight.shape != tensor.shape:
            raise ModelError(
                f"{linear} of {name} must have the shape {tuple(weight.shape)}, but has {tuple(tensor.shape)}; "
                "give the model it was trained on"
            )
        weight.copy_(tensor)


def _written(family: Family, block: nn.Module, part: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Their paths of the pairs in one part of a block, each with (A, B); see the top of this file for what is split or joined."""
    theirs = family.names[f"blocks.{{i}}.{part}"]
    host = block.get_submodule(part)
    pairs = {
        child: (module.lora_A.weight.detach(), module.lora_B.weight.detach(), module.margins)
        for child, module in host.named_children()
        if isinstance(module, Lora)
    }
    if not pairs:
        return {}
    if "lora" in pairs:
        down, up, _ = pairs["lora"]
        if isinstance(theirs, str):
            return {theirs: (down, up)}
        sizes = block.get_submodule("attention").parts if part == "attention.qkv" else [len(up) // 2] * 2
        return {one: (down, rows) for one, rows in zip(theirs, up.split(sizes), strict=True)}
    if isinstance(theirs, str):
        ups = [nn.functional.pad(up, (0, 0, *margins)) for _, up, margins in pairs.values()]
        return {theirs: (torch.cat([down for down, _, _ in pairs.values()]), torch.cat(ups, dim=1))}
    return {theirs["qkv".index(child[-1])]: (down, up) for child, (down, up, _) in pairs.items()}
