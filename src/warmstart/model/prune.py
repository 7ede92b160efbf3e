"""Pruning: attention heads are removed, the same number in every block, so that a config still describes the shape.

The pruned model has the outputs of the full model when these heads contribute nothing (Michel et al. 2019). The width of a head
does not change, so ``heads * head_width`` becomes smaller than the width of the hidden states.

Letters: D width, H heads, K head width, L depth.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warmstart.adapters.insertion import inserted_adapters
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ModelError
from warmstart.heads import make_head
from warmstart.model.model import Model


def check_prunable(model: Model) -> None:
    """Raises ``ModelError`` if heads cannot be removed: shared keys, synthesizer attention, inserted adapters."""
    config = model.backbone.config
    if config.attention == "synthesizer":
        raise ModelError(
            "only heads of dot-product attention can be pruned, but this is synthesizer attention; ablate without pruning"
        )
    if config.groups != config.heads:
        raise ModelError(
            f"every head must have its own keys and values, but {config.heads} heads share {config.groups} (kv_heads); "
            "ablate without pruning"
        )
    if kinds := sorted({type(one).__name__.removesuffix("Config").lower() for one in inserted_adapters(model)}):
        raise ModelError(
            f"a model without inserted adapters is needed, but this one has {', '.join(kinds)}; "
            "merge LoRA with merge_adapters(model), or remove the adapters with remove_adapters(model)"
        )


def prune_heads(model: Model, keep: Sequence[Sequence[int]]) -> Model:
    """A new model with only the heads ``keep`` (L lists of indices in 0 .. H-1) of each block; the given one does not change.

    It has the rows of these heads of ``qkv`` (3 H K, D) and their columns of ``out`` (D, H K); everything else is copied. Raises
    ``ModelError`` if ``check_prunable`` does, if there is not one list per block, and if the lists differ in length, are empty or
    contain an index twice or out of range.
    """
    check_prunable(model)
    config = model.backbone.config
    _check(keep, config)
    state = model.state_dict()
    for block, heads in enumerate(keep):
        columns = _columns(heads, config.per_head)
        rows = torch.cat([columns + part * config.heads * config.per_head for part in range(3)])
        at = f"backbone.blocks.{block}.attention"
        cut = {f"{at}.qkv.weight": (0, rows), f"{at}.qkv.bias": (0, rows), f"{at}.out.weight": (1, columns)}
        state |= {
            name: state[name].index_select(axis, indices.to(state[name].device))
            for name, (axis, indices) in cut.items()
            if name in state
        }
    smaller = config.to_dict() | {"heads": len(keep[0]), "head_width": config.per_head, "kv_heads": None}
    backbone = Backbone(BackboneConfig.build(smaller, "backbone"), model.backbone.vocab_size)
    head = make_head(model.head.config, config.width, backbone.embedding.weight)
    pruned = Model(backbone, head, causal=model.causal).to(next(model.parameters()).device)
    pruned.load_state_dict(state)
    return pruned.eval()


def _columns(heads: Sequence[int], width: int) -> Tensor:
    """The columns of these heads in the concatenated values."""
    return torch.cat([torch.arange(head * width, (head + 1) * width) for head in heads])


def _check(keep: Sequence[Sequence[int]], config: BackboneConfig) -> None:
    if len(keep) != config.depth or not config.depth:
        raise ModelError(f"there must be one list of heads to keep for each of {config.depth} blocks, but got {len(keep)}")
    if len({len(heads) for heads in keep}) > 1:
        counts = ", ".join(str(len(heads)) for heads in keep)
        raise ModelError(f"every block must keep the same number of heads, but they would keep {counts}")
    if not keep[0]:
        raise ModelError(f"at least one of {config.heads} heads must be left in every block; remove fewer")
    for heads in keep:
        if len(set(heads)) < len(heads) or not set(heads) <= set(range(config.heads)):
            raise ModelError(f"heads to keep must be different numbers from 0 to {config.heads - 1}, but got {list(heads)}")
