"""LoRA: a trained matrix of low rank beside a frozen one (Hu et al. 2021, equation 3): ``W x + (alpha / rank) B A x``.

B starts at zero, so that training begins at the pretrained model; ``A`` and ``alpha / rank`` are as in the peft library, and so
are the names ``lora_A`` and ``lora_B``. Our attention makes queries, keys and values in one matrix; ``q``, ``k`` and ``v`` are its
three parts, each with a low-rank pair of its own, ``qkv`` is the whole of it with one pair.

Letters: B batch, T tokens, D width, R rank.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch.nn.functional as F
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from warmstart.backbone import Attention, Backbone
from warmstart.config import Config
from warmstart.errors import ConfigError
from warmstart.inserts.host import Inserted

Target = Literal["q", "k", "v", "qkv", "out", "feedforward"]
PARTS = ("q", "k", "v")


def each_once(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """The targets themselves, if there are any and none stands twice."""
    if len(set(targets)) != len(targets) or not targets:
        raise ValueError(f"must name each matrix once, and at least one, but names {', '.join(targets) or 'none'}")
    return targets


Targets = Annotated[tuple[Target, ...], AfterValidator(each_once)]


class LoraConfig(Config):
    """Low-rank changes of the linear layers of every block."""

    kind: Literal["lora"] = "lora"
    """names this insert in files"""
    rank: int = Field(8, gt=0)
    """rank of each change (R)"""
    alpha: float = Field(16.0, gt=0)
    """strength: each change is scaled by alpha / rank"""
    targets: Targets = ("q", "v")
    """which matrices: q, k, v, qkv (all three as one), out (of attention), feedforward (both of its layers)"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """share of the change's input dropped in training"""


class Lora(Inserted):
    """One low-rank pair for the rows ``start`` to ``start + rows`` of its host's weight."""

    def __init__(self, config: LoraConfig, host: nn.Linear, start: int, rows: int) -> None:
        super().__init__(config)
        self.scale = config.alpha / config.rank
        self.margins = (start, host.out_features - start - rows)  # outputs of the host on either side that are left alone
        self.dropout = nn.Dropout(config.dropout)
        self.lora_A = nn.Linear(host.in_features, config.rank, bias=False)
        self.lora_B = nn.Linear(config.rank, rows, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, given: Tensor, output: Any) -> Any:
        """(B, T, in) and (B, T, out) -> (B, T, out)."""
        change = self.lora_B(self.lora_A(self.dropout(given))) * self.scale  # (B, T, rows)
        return output + F.pad(change, self.margins)

    def folded(self) -> Tensor:
        """(out, in): what the pair adds to its host's weight."""
        return F.pad(self.lora_B.weight @ self.lora_A.weight * self.scale, (0, 0, *self.margins))


def place_loras(config: LoraConfig, backbone: Backbone) -> list[tuple[str, str, Inserted]]:
    """(host, name, module) of every pair. Raises ``ConfigError`` where the backbone's attention has no such matrix."""
    placed: list[tuple[str, str, Inserted]] = []
    for i, block in enumerate(backbone.blocks):
        for target in config.targets:
            for path, part in _hosts(target, block):
                host = block.get_submodule(path)
                assert isinstance(host, nn.Linear)
                start, rows = _rows(block, host, part)
                name = "lora" if part is None else f"lora_{target}"
                placed.append((f"blocks.{i}.{path}", name, Lora(config, host, start, rows)))
    return placed


def _rows(block: nn.Module, host: nn.Linear, part: int | None) -> tuple[int, int]:
    """First row and number of rows of a part of ``host``: 0, 1, 2 for queries, keys, values (of fewer heads); None: all."""
    if part is None:
        return 0, host.out_features
    attention = block.get_submodule("attention")
    assert isinstance(attention, Attention)
    return sum(attention.parts[:part]), attention.parts[part]


def _hosts(target: Target, block: nn.Module) -> list[tuple[str, int | None]]:
    """The linear layers of a block that a target means, each with the part of it that is meant, or None for the whole."""
    if target == "out":
        return [("attention.out", None)]
    if target == "feedforward":
        return [("feedforward.inner", None), ("feedforward.out", None)]
    names = dict(block.named_modules())
    if "attention.qkv" in names:
        return [("attention.qkv", PARTS.index(target) if target in PARTS else None)]
    if target == "v":
        return [("attention.value", None)]
    raise ConfigError(
        f"synthesizer attention has no queries and keys, so LoRA's targets must not hold {target}; use v, out, feedforward"
    )
