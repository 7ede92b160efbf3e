"""The parts of a model in a page: its networks, each once, and the members of a stack, as ``export --to onnx`` describes them.

A baseline is words and numbers. A row of its matrices belongs to a word or a dimension, as in products of few words, and has a
scale of its own; where a softmax follows, the mean of each row is taken off first, which changes no probability.

Letters: V words, D dimensions, C classes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmstart.adapters.insertion import inserted_adapters, merge_adapters
from warmstart.adapters.settings import LoraConfig
from warmstart.model.bundle import Bundle
from warmstart.model.fitted import BaselineSettings, FittedBaseline, packed, unpacked
from warmstart.model.model import Model
from warmstart.model.stack import Stack
from warmstart.model.stack_files import member_entry

KNOWN_TEXTS = ("means", "left_out")
"""arrays that tell texts of no class, which pages do not"""


@dataclass(frozen=True)
class Parts:
    """A model taken apart."""

    networks: tuple[Bundle, ...]
    """networks with LoRA merged, each once, although several members may read it"""
    members: list[dict[str, Any]] | None
    """members of a stack, by their ``config.json`` and ``baseline.json``, with the number of the ``network``; None for a bundle"""
    tensors: dict[str, Tensor]
    """``"networks.0.head.score.weight"``, ``"members.1.idf"``"""


def taken_apart(model: Bundle | Stack) -> Parts:
    """The networks, members and tensors of a model."""
    networks, members, tensors = list[Bundle](), list[dict[str, Any]](), dict[str, Tensor]()
    for number, member in enumerate(model.members if isinstance(model, Stack) else ()):
        own = member_network(member.model)
        entry = member_entry(member)
        if isinstance(member.model, FittedBaseline):
            settings, arrays = packed(member.model)
            entry |= settings.to_dict()
            tensors |= {f"members.{number}.{name}": tensor for name, tensor in _as_stored(settings, arrays).items()}
        members.append(entry | {"network": None if own is None else _place(own, networks)})
    if isinstance(model, Bundle):
        networks.append(merged_copy(model))
    for number, bundle in enumerate(networks):
        tensors |= {f"networks.{number}.{name}": tensor for name, tensor in bundle.model.weights().items()}
    return Parts(tuple(networks), members if isinstance(model, Stack) else None, tensors)


def member_network(model: Bundle | FittedBaseline) -> Bundle | None:
    """The network of a member: itself, or what gives it vectors; None of words."""
    return model if isinstance(model, Bundle) else model.backbone


def merged_copy(bundle: Bundle) -> Bundle:
    """The bundle itself, or a copy with its LoRA folded into the weights."""
    if not any(isinstance(adapter, LoraConfig) for adapter in inserted_adapters(bundle.model)):
        return bundle
    model = copy.deepcopy(bundle.model)
    merge_adapters(model)
    return replace(bundle, model=model)


def with_page_weights(model: Bundle | Stack, tensors: Mapping[str, Tensor]) -> Bundle | Stack:
    """A model with the tensors of a page, as its scripts compute with them."""
    parts = taken_apart(model)
    networks = [
        replace(network, model=_with_weights(network.model, f"networks.{i}.", tensors)) for i, network in enumerate(parts.networks)
    ]
    if isinstance(model, Bundle):
        return networks[0]
    members = []
    for number, (member, entry) in enumerate(zip(model.members, parts.members or (), strict=True)):
        network = None if entry["network"] is None else networks[entry["network"]]
        if isinstance(member.model, Bundle):
            assert network is not None
            members.append(replace(member, model=network))
            continue
        settings, start = packed(member.model)[0], f"members.{number}."
        own = {name.removeprefix(start): tensor.double().numpy() for name, tensor in tensors.items() if name.startswith(start)}
        members.append(replace(member, model=unpacked(settings, _turned(own), network)))
    return replace(model, members=tuple(members))


def _place(own: Bundle, networks: list[Bundle]) -> int:
    """The place of a network among others, behind which it is put if it is new."""
    merged = merged_copy(own)
    for number, other in enumerate(networks):
        if _same(merged, other):
            return number
    networks.append(merged)
    return len(networks) - 1


def _same(bundle: Bundle, other: Bundle) -> bool:
    mine, theirs = bundle.model.weights(), other.model.weights()
    return (
        (bundle.tokenizer.digest, bundle.model.causal, bundle.model.backbone.config, bundle.model.head.config)
        == (other.tokenizer.digest, other.model.causal, other.model.backbone.config, other.model.head.config)
        and mine.keys() == theirs.keys()
        and all(torch.equal(mine[name], theirs[name]) for name in mine)
    )


def _as_stored(settings: BaselineSettings, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    numbers = {name: array for name, array in arrays.items() if name not in KNOWN_TEXTS}
    for number, readout in enumerate(settings.readouts):
        if readout.kind == "linear" and readout.link == "softmax":
            weights = numbers[f"{number}.weights"]
            numbers[f"{number}.weights"] = weights - weights.mean(axis=1, keepdims=True)
    return {name: torch.from_numpy(np.ascontiguousarray(array)).float() for name, array in _turned(numbers).items()}


def _turned(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Directions (D, V) as (V, D), and back."""
    return {name: array.T if name == "directions" else array for name, array in arrays.items()}


def _with_weights(model: Model, start: str, tensors: Mapping[str, Tensor]) -> Model:
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name, tensor in copied.weights().items():
            tensor.copy_(tensors[start + name])
    return copied.eval()
