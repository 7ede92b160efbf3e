"""The states of texts below the blocks that train, computed once: then a step of training runs only those blocks.

Where nothing trains in the embedding and the lowest blocks, and they have no dropout, the states of a text above them stay the same
through a run, all folds, and the last fit on the same backbone. They are kept in memory, up to a limit; texts for which there is no
room are read from their ids at every step, with the same result up to rounding.

Letters: T tokens, D width.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from warmstart.adapters.insertion import inserted_adapters
from warmstart.adapters.scalar_mix import ScalarMix
from warmstart.backbone.backbone import EMBEDDING_MODULES
from warmstart.data.encode import Encoded
from warmstart.finetuning.features import row_keys, steady, tensors_digest
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.types import Batch

KEPT_BYTES = 2**28
"""of states, at most: 4,000 texts of 40 tokens at width 384"""


def frozen_blocks(model: Model) -> int:
    """How many of the lowest blocks give each text the same states throughout; 0 too where a scalar mix reads all of them."""
    backbone = model.backbone
    below = [getattr(backbone, name) for name in EMBEDDING_MODULES]
    if model.drops or any(isinstance(child, ScalarMix) for child in backbone.children()) or any(map(_trains, below)):
        return 0
    return next((number for number, block in enumerate(backbone.blocks) if _trains(block)), 0)


def _trains(module: nn.Module | None) -> bool:
    return module is not None and any(parameter.requires_grad for parameter in module.parameters())


class LowerStates:
    """States of texts by one backbone, the latest that was asked for. They are float32, whatever the precision of training."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self.texts_computed = 0
        self._digest = ""
        self._known: dict[bytes, Tensor] = {}
        """(T, D) by a hash of a text's tokens"""

    def added(self, model: Model, splits: Sequence[Encoded], pad_id: int) -> list[Encoded]:
        """The splits, each with its states if some blocks are frozen, and if they fit beside those of the splits before it."""
        blocks, room, sizes = frozen_blocks(model), self.limit, dict[int, int]()
        for number, encoded in enumerate(splits):
            size = 4 * model.backbone.config.width * sum(map(len, encoded.rows))
            if blocks and 0 < size <= room:
                sizes[number], room = size, room - size
        if not sizes:
            return list(splits)
        keys = {number: row_keys(splits[number]) for number in sizes}
        self._make_room(_digest(model, blocks), {key for each in keys.values() for key in each}, room)
        found = list(splits)
        for number, each in keys.items():
            self._compute(model, blocks, splits[number], each, pad_id)
            found[number] = replace(splits[number], states=tuple(self._known[key] for key in each), from_block=blocks)
        return found

    def _make_room(self, digest: str, asked: set[bytes], room: int) -> None:
        """Drop the states of another backbone, and those that are not asked for if there is no room beside those that are."""
        others = [4 * one.numel() for key, one in self._known.items() if key not in asked]
        if digest != self._digest:
            self._digest, self._known = digest, {}
        elif sum(others) > room:
            self._known = {key: one for key, one in self._known.items() if key in asked}

    def _compute(self, model: Model, blocks: int, encoded: Encoded, each: Sequence[bytes], pad_id: int) -> None:
        """The states of the rows that are not known yet."""
        places = {key: row for row, key in enumerate(each) if key not in self._known}
        missing, keys, training = encoded.by_row.take(np.array([*places.values()], dtype=np.int64)), list(places), model.training

        def lower(batch: Batch, _: np.ndarray) -> Tensor:
            return model.backbone.forward_part(steady(batch, model, pad_id), range(blocks), causal=model.causal).hidden_states[-1]

        for indices, states in run_in_batches(model, missing, pad_id, forward=lower):
            for index, row in zip(indices.tolist(), states, strict=True):
                self._known[keys[index]] = row[: len(missing.rows[index])].clone()
        model.train(training)
        self.texts_computed += len(places)


def _digest(model: Model, blocks: int) -> str:
    """Of all that the states depend on."""
    backbone = model.backbone
    above = ("norm.", *(f"blocks.{number}." for number in range(blocks, backbone.config.depth)))
    adapters = [config.to_dict() for config in inserted_adapters(backbone)]
    tensors = {name: one for name, one in backbone.state_dict().items() if not name.startswith(above)}
    return tensors_digest(json.dumps([backbone.config.to_dict(), model.causal, blocks, adapters], sort_keys=True), tensors)
