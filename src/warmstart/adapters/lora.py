"""LoRA: a trained matrix of low rank beside a frozen one (Hu et al. 2021, equation 3): ``W x + (alpha / rank) B A x``.

B starts at zero, so that training starts from the pretrained model. ``A``, ``alpha / rank`` and the names ``lora_A`` and ``lora_B``
are those of the peft library. Our attention computes queries, keys and values with one matrix: ``q``, ``k`` and ``v`` are its three
parts, each with its own low-rank pair; ``qkv`` is the whole matrix with one pair.

Letters: B batch, T tokens, D width, R rank.
"""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.adapters.insertion import Adapter
from warmstart.adapters.settings import LoraConfig, Target
from warmstart.backbone.attention import Attention
from warmstart.backbone.backbone import Backbone
from warmstart.dropout import Dropout
from warmstart.errors import ConfigError
from warmstart.system.products import Linear

_PARTS = ("q", "k", "v")


class Lora(Adapter):
    """One low-rank pair, for the rows ``start`` to ``start + rows`` of its host's weight."""

    def __init__(self, config: LoraConfig, host: nn.Linear, start: int, rows: int) -> None:
        super().__init__(config)
        self.scale = config.alpha / config.rank
        self.margins = (start, host.out_features - start - rows)  # outputs of the host on either side that stay the same
        self.dropout = Dropout(config.dropout)
        self.lora_A = Linear(host.in_features, config.rank, bias=False)
        self.lora_B = Linear(config.rank, rows, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, inputs: Tensor, output: Any) -> Any:
        """Input ``inputs`` (B, T, in) and ``output`` (B, T, out) of the host -> (B, T, out)."""
        change = self.lora_B(self.lora_A(self.dropout(inputs))) * self.scale  # (B, T, rows)
        return output + F.pad(change, self.margins)

    def weight_change(self) -> Tensor:
        """(out, in): what the pair adds to its host's weight."""
        return F.pad(self.lora_B.weight @ self.lora_A.weight * self.scale, (0, 0, *self.margins))


def make_loras(config: LoraConfig, backbone: Backbone) -> list[tuple[str, str, Adapter]]:
    """(host, name, module) of every pair. Raises ``ConfigError`` if the backbone's attention has no such matrix."""
    modules: list[tuple[str, str, Adapter]] = []
    for i, block in enumerate(backbone.blocks):
        for target in config.targets:
            for path, part in _hosts(target, block):
                host = block.get_submodule(path)
                assert isinstance(host, nn.Linear)
                start, rows = _rows(block, host, part)
                name = "lora" if part is None else f"lora_{target}"
                modules.append((f"blocks.{i}.{path}", name, Lora(config, host, start, rows)))
    return modules


def _rows(block: nn.Module, host: nn.Linear, part: int | None) -> tuple[int, int]:
    """The first row and the number of rows of a part of ``host``: 0 queries, 1 keys, 2 values; None: all rows."""
    if part is None:
        return 0, host.out_features
    attention = block.get_submodule("attention")
    assert isinstance(attention, Attention)
    return sum(attention.parts[:part]), attention.parts[part]


def _hosts(target: Target, block: nn.Module) -> list[tuple[str, int | None]]:
    """The linear layers of a block that a target names, each with the part of it that is meant; None: the whole."""
    if target == "out":
        return [("attention.out", None)]
    if target == "feedforward":
        return [("feedforward.inner", None), ("feedforward.out", None)]
    names = dict(block.named_modules())
    if "attention.qkv" in names:
        return [("attention.qkv", _PARTS.index(target) if target in _PARTS else None)]
    if target == "v":
        return [("attention.value", None)]
    raise ConfigError(f"synthesizer attention has no queries and keys, so LoRA cannot target {target}; use v, out or feedforward")
