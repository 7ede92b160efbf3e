"""Floating-point operations per token, part by part: forward, and forward with backward.

A multiply-add counts 2 (Kaplan et al. 2020, section 2.1; Hoffmann et al. 2022, appendix F). A matrix of n parameters that is
applied to every token therefore costs ``2 n`` forward; its backward pass costs as much again for the gradient of its input and as
much again for that of its weight, so a matrix that trains, over something that trains, costs ``3 x 2 n = 6 n``. Attention's own two
products depend on the row's length: ``4 T D`` per token and block. All T x T products are counted, as our explicit path really
computes them, also where half of them are masked away.

Left out, as in Kaplan's account: the embedding's look-up (no product), norms, softmax, activations, pooling, the optimiser's step.
It counts what torch's own ``FlopCounterMode`` counts, and a test holds the two equal.

Letters: B batch, T tokens, D width, H heads, L depth, M longest row, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from warmstart.backbone import BELOW
from warmstart.heads import LanguageHead
from warmstart.model.model import Model


@dataclass(frozen=True)
class Load:
    """How a model is used."""

    batch: int = 16
    """rows read at once (B)"""
    tokens: int | None = None
    """tokens of a row (T); None: the longest that the backbone reads"""
    scored: float = 1.0
    """share of the tokens that a language head scores in training: 1 for causal objectives, the mask's share for masked ones"""
    most_scored: float | None = None
    """the same in the batch that scores most, where batches differ; None: as ``scored``"""
    half: bool = False
    """matrix products of training run in bfloat16"""
    moments: int | None = None
    """numbers that the optimiser keeps; None: two for each parameter that trains (AdamW)"""

    def length(self, model: Model) -> int:
        """T."""
        return self.tokens or model.backbone.config.max_tokens


@dataclass(frozen=True)
class FlopRow:
    """One part's operations per token."""

    part: str
    formula: str
    forward: float
    training: float
    """forward and backward"""


@dataclass(frozen=True)
class Flops:
    """Operations per token at rows of ``tokens``."""

    rows: tuple[FlopRow, ...]
    tokens: int

    HEADER = ("part", "forward, per token", "forward", "training")

    @property
    def forward(self) -> float:
        """In all, forward."""
        return sum(row.forward for row in self.rows)

    @property
    def training(self) -> float:
        """In all, forward and backward."""
        return sum(row.training for row in self.rows)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Rows for people, under ``HEADER``."""
        lines = [(row.part, row.formula, f"{row.forward:,.0f}", f"{row.training:,.0f}") for row in self.rows]
        return [*lines, ("total", "", f"{self.forward:,.0f}", f"{self.training:,.0f}")]


def first_gradient(model: Model) -> int:
    """The lowest block through which gradients flow: 0 where embedding or positions train, L where only the head does."""
    depth = model.backbone.config.depth
    levels = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            words = name.split(".")  # what is neither a block nor below one stands above: the last norm, the head, a mix of layers
            levels.append(int(words[2]) if words[1] == "blocks" else 0 if words[1] in BELOW else depth)
    return min(levels, default=depth)


def block_matrices(model: Model) -> Iterator[tuple[int, str, nn.Parameter]]:
    """(block, name, matrix) of every matrix inside the blocks that is applied to each token, inserted ones included."""
    for i, block in enumerate(model.backbone.blocks):
        for name, parameter in block.named_parameters():
            if parameter.ndim == 2 and name != "attention.score":  # the synthesizer's is applied to each head: see below
                yield i, name, parameter


def flops_per_token(model: Model, load: Load) -> Flops:
    """Operations per token; frozen parts cost less to train.

    A part without gradient below it is not walked back through; a frozen matrix has no gradient of its own.
    For the preset ``lab`` at T = 256, all training: blocks ``2 x 4 x 240,000``, attention ``4 L T D = 819,200``.
    """
    config, tokens = model.backbone.config, load.length(model)
    start = first_gradient(model)
    forward = training = 0
    for i, _, matrix in block_matrices(model):
        forward += 2 * matrix.numel()
        training += 2 * matrix.numel() * (1 + (i >= start) + matrix.requires_grad)
    count = forward // 2
    rows = [FlopRow("blocks: matrices", f"2 x {count:,} parameters", forward, training)]
    mixing, walked = 2 * tokens * config.heads * config.per_head, config.depth - min(start, config.depth)
    back = config.depth + 2 * walked  # forward through all blocks, twice as much back through those with gradients
    if config.attention == "synthesizer":
        scores = 2 * config.max_tokens * config.width
        trained = sum(block.get_parameter("attention.score").requires_grad for block in model.backbone.blocks)
        text = f"L D (2 M + 2 T) = {config.depth} x {config.width:,} x (2 x {config.max_tokens:,} + 2 x {tokens:,})"
        whole = scores * (config.depth + walked + trained) + mixing * back
        rows.append(FlopRow(f"blocks: attention, T = {tokens:,}", text, (scores + mixing) * config.depth, whole))
    else:
        text = f"4 L T D = 4 x {config.depth} x {tokens:,} x {config.heads * config.per_head:,}"
        rows.append(FlopRow(f"blocks: attention, T = {tokens:,}", text, 2 * mixing * config.depth, 2 * mixing * back))
    return Flops((*rows, _head(model, load, below=_trains_below_head(model))), tokens)


def _trains_below_head(model: Model) -> bool:
    """A gradient must reach the head's input."""
    return any(parameter.requires_grad for parameter in model.backbone.parameters())


def _head(model: Model, load: Load, *, below: bool) -> FlopRow:
    width, tokens = model.backbone.config.width, load.length(model)
    if isinstance(model.head, LanguageHead):
        weight, share = model.head.weight, load.scored
        text = f"2 V D x {share:.3g} of tokens scored = 2 x {len(weight):,} x {width:,} x {share:.3g}"
        if transform := model.head.transform:
            count = transform.dense.weight.numel()
            text = f"2 (V D + D D) x {share:.3g} of tokens scored = 2 x {weight.numel() + count:,} x {share:.3g}"
            extra = 2 * count * share
            both = 2 * weight.numel() * share * (2 + weight.requires_grad) + extra * (
                1 + below + transform.dense.weight.requires_grad
            )
            return FlopRow("head (language)", text, 2 * weight.numel() * share + extra, both)
        each = 2 * weight.numel() * share
        return FlopRow("head (language)", text, each, each * (1 + below + weight.requires_grad))
    matrices = [parameter for parameter in model.head.parameters() if parameter.ndim == 2]
    each = sum(2 * matrix.numel() / tokens for matrix in matrices)
    training = sum(2 * matrix.numel() / tokens * (1 + below + matrix.requires_grad) for matrix in matrices)
    count = sum(matrix.numel() for matrix in matrices)
    return FlopRow(f"head ({model.head.config.kind})", f"2 x {count:,} / T, once a text", each, training)
