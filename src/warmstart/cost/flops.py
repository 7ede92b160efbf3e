"""FLOPs (floating-point operations) per token, part by part: of the forward pass, and of training (forward and backward).

A multiply-add counts as 2 (Kaplan et al. 2020, section 2.1; Hoffmann et al. 2022, appendix F). A matrix of n parameters that is
applied to every token therefore costs ``2 n`` forward. The backward pass costs as much again for the gradient of its input, and as
much again for that of its weight: a trainable matrix above something trainable costs ``3 x 2 n = 6 n``. The two products of
attention depend on the length of the row: ``4 T D`` per token and block. All T x T products are counted because our explicit path
computes them all, including those that are masked.

Left out, as in Kaplan et al.: the embedding look-up (not a product), norms, softmax, activations, pooling, the optimiser step. A
test checks that the sum equals the count of torch's ``FlopCounterMode``.

Letters: B batch, T tokens, D width, H heads, L depth, M context length, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from warmstart.backbone.backbone import EMBEDDING_MODULES
from warmstart.cost.workload import Workload
from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model


@dataclass(frozen=True)
class FlopRow:
    """The FLOPs per token of one part."""

    part: str
    formula: str
    forward: float
    training: float
    """forward and backward"""


@dataclass(frozen=True)
class Flops:
    """FLOPs per token, in rows of ``tokens`` tokens."""

    rows: tuple[FlopRow, ...]
    tokens: int

    HEADER = ("part", "forward", "training", "forward, by formula")

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
        lines = [(row.part, f"{row.forward:,.0f}", f"{row.training:,.0f}", row.formula) for row in self.rows]
        return [*lines, ("total", f"{self.forward:,.0f}", f"{self.training:,.0f}", "")]


def first_trainable_block(model: Model) -> int:
    """The lowest block through which gradients flow: 0 if embedding or positions train, L if only the head does."""
    depth = model.backbone.config.depth
    levels = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            words = name.split(".")  # neither in a block nor below: above them, as the last norm, the head, a scalar mix
            levels.append(int(words[2]) if words[1] == "blocks" else 0 if words[1] in EMBEDDING_MODULES else depth)
    return min(levels, default=depth)


def block_matrices(model: Model) -> Iterator[tuple[int, str, nn.Parameter]]:
    """(block, name, matrix) of every matrix in the blocks that is applied to each token, those of inserted adapters too."""
    for i, block in enumerate(model.backbone.blocks):
        for name, parameter in block.named_parameters():
            if parameter.ndim == 2 and name != "attention.score":  # the synthesizer's is applied to each head: see below
                yield i, name, parameter


def flops_per_token(model: Model, workload: Workload) -> Flops:
    """FLOPs per token; frozen parts cost less to train.

    There is no backward pass through a part without anything trainable below it; a frozen matrix has no gradient of its own.
    For the preset ``lab`` at T = 256, all trainable: blocks ``2 x 4 x 240,000``, attention ``4 L T D = 819,200``.
    """
    config, tokens = model.backbone.config, workload.length(model)
    start = first_trainable_block(model)
    forward = training = 0
    for i, _, matrix in block_matrices(model):
        forward += 2 * matrix.numel()
        training += 2 * matrix.numel() * (1 + (i >= start) + matrix.requires_grad)
    count = forward // 2
    rows = [FlopRow("blocks: matrices", f"2 x {count:,} parameters", forward, training)]
    with_backward = config.depth - min(start, config.depth)
    passes = config.depth + 2 * with_backward  # forward through all blocks, backward twice as much through those with gradients
    product = 2 * tokens * config.heads * config.per_head  # of attention weights and values
    if config.attention == "synthesizer":
        scores = 2 * config.max_length * config.width
        trainable = sum(block.get_parameter("attention.score").requires_grad for block in model.backbone.blocks)
        formula = f"L D (2 M + 2 T) = {config.depth} x {config.width:,} x (2 x {config.max_length:,} + 2 x {tokens:,})"
        in_training = scores * (config.depth + with_backward + trainable) + product * passes
        rows.append(FlopRow(f"blocks: attention, T = {tokens:,}", formula, (scores + product) * config.depth, in_training))
    else:
        formula = f"4 L T D = 4 x {config.depth} x {tokens:,} x {config.heads * config.per_head:,}"
        rows.append(FlopRow(f"blocks: attention, T = {tokens:,}", formula, 2 * product * config.depth, 2 * product * passes))
    below = any(parameter.requires_grad for parameter in model.backbone.parameters())
    head = _language_head if isinstance(model.head, LMHead) else _task_head
    return Flops((*rows, head(model, workload, below=below)), tokens)


def _language_head(model: Model, workload: Workload, *, below: bool) -> FlopRow:
    """Once for every token with a target; ``below``: gradients must reach the head's input."""
    assert isinstance(model.head, LMHead)
    weight, fraction, width = model.head.weight, workload.target_fraction, model.backbone.config.width
    each = 2 * weight.numel() * fraction
    if transform := model.head.transform:
        dense = transform.dense.weight
        extra = 2 * dense.numel() * fraction
        formula = f"2 (V D + D D) x {fraction:.3g} of tokens scored = 2 x {weight.numel() + dense.numel():,} x {fraction:.3g}"
        training = each * (2 + weight.requires_grad) + extra * (1 + below + dense.requires_grad)
        return FlopRow("head (language)", formula, each + extra, training)
    formula = f"2 V D x {fraction:.3g} of tokens scored = 2 x {len(weight):,} x {width:,} x {fraction:.3g}"
    return FlopRow("head (language)", formula, each, each * (1 + below + weight.requires_grad))


def _task_head(model: Model, workload: Workload, *, below: bool) -> FlopRow:
    """Once for every token, or once for every text."""
    tokens = 1 if model.head.per_token else workload.length(model)
    matrices = [parameter for parameter in model.head.parameters() if parameter.ndim == 2]
    forward = sum(2 * matrix.numel() / tokens for matrix in matrices)
    training = sum(2 * matrix.numel() / tokens * (1 + below + matrix.requires_grad) for matrix in matrices)
    count = sum(matrix.numel() for matrix in matrices)
    formula = f"2 x {count:,}" if model.head.per_token else f"2 x {count:,} / T, once a text"
    return FlopRow(f"head ({model.head.config.kind})", formula, forward, training)
