"""Heads taken out of a model for good: the same number in every block, so that a config still says all of its shape.

What is left says what the whole model says when these heads add nothing (Michel et al. 2019). The width of a head stays as it was,
so that ``heads * head_width`` becomes smaller than the width of the states. Positions are told to each head alone, as before.

Letters: D width, H heads, K head width, L depth.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.errors import ModelError
from warmstart.heads import make_head
from warmstart.inserts import inserted
from warmstart.model.model import Model


def check_prunable(model: Model) -> None:
    """Raises ``ModelError`` where heads cannot be taken out: shared keys, synthesizer attention, modules inserted from outside."""
    config = model.backbone.config
    if config.attention == "synthesizer":
        raise ModelError(
            "heads are taken out of dot-product attention, but this is synthesizer attention; ablate them without pruning"
        )
    if config.groups != config.heads:
        raise ModelError(
            f"each head must have its own keys and values, but {config.heads} heads share {config.groups} (kv_heads); "
            "ablate them without pruning"
        )
    if kinds := sorted({type(one).__name__.removesuffix("Config").lower() for one in inserted(model)}):
        raise ModelError(
            f"a plain model is needed, but this one has inserted modules ({', '.join(kinds)}); first fold LoRA in with "
            "merge(model), or take out what cannot be folded with undo(model)"
        )


def prune_heads(model: Model, keep: Sequence[Sequence[int]]) -> Model:
    """A new model of the heads ``keep`` (L rows of places in 0 .. H-1) of each block; the old one stays as it is.

    Of the blocks' ``qkv`` (3 H K, D) the rows of these heads stay, of ``out`` (D, H K) the columns; all else is copied. Raises
    ``ModelError`` where ``check_prunable`` does, for another number of rows than blocks, for unequal rows, for an empty row and
    for places that are no head's or come twice.
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
            name: state[name].index_select(axis, places.to(state[name].device))
            for name, (axis, places) in cut.items()
            if name in state
        }
    smaller = config.plain() | {"heads": len(keep[0]), "head_width": config.per_head, "kv_heads": None}
    backbone = Backbone(BackboneConfig.build(smaller, "backbone"), model.backbone.vocab_size)
    head = make_head(model.head.config, config.width, backbone.embedding.weight)
    pruned = Model(backbone, head, causal=model.causal).to(next(model.parameters()).device)
    pruned.load_state_dict(state)
    return pruned.eval()


def _columns(heads: Sequence[int], width: int) -> Tensor:
    """Where these heads' values stand side by side."""
    return torch.cat([torch.arange(head * width, (head + 1) * width) for head in heads])


def _check(keep: Sequence[Sequence[int]], config: BackboneConfig) -> None:
    if len(keep) != config.depth or not config.depth:
        raise ModelError(f"the heads to keep must be named for each of the {config.depth} blocks, but came for {len(keep)}")
    if len({len(heads) for heads in keep}) > 1:
        counts = ", ".join(str(len(heads)) for heads in keep)
        raise ModelError(f"every block must keep as many heads, as one config tells them all, but they would keep {counts}")
    if not keep[0]:
        raise ModelError(f"at least one of {config.heads} heads must stay in every block, but none would; take out fewer")
    for heads in keep:
        if len(set(heads)) < len(heads) or not set(heads) <= set(range(config.heads)):
            raise ModelError(f"heads to keep must be different numbers from 0 to {config.heads - 1}, but came as {list(heads)}")
