"""Memory of training and of inference, in bytes, by stated formulas; on a processor, with our explicit attention.

Training keeps the weights, the optimiser's moments, what the forward pass saves for the backward pass (the activations), and for a
moment the logits of one chunk or the gradients, whichever is more: the peak is
``weights + moments + max(gradients, activations + loss) + holes``. Saved per token and block, in numbers of 4 bytes, where
products run in bfloat16 those marked c in 2:

    2 D      what the two norms read (RMS norms keep their own product too: 2 D more)
    6 D c    what the four linear layers read, and Q, K, V as the products read them
    2 F c    the feed-forward layer before and after its gelu (relu 1 F, swiglu 4 F)
    H T c    the attention weights; with dropout 3 H T. Above 512 tokens the fused kernel keeps none, but 2 D of turned Q and K

A test compares this sum with the tensors that autograd really saves. The holes are what the C library's allocator keeps beyond the
tensors: measured, not derived (see ``HOLES``). Frozen blocks below everything that trains save nothing; frozen matrices between
trained ones are taken to save what trained ones do, which is an upper bound.

Inference keeps the weights, the keys and values of B rows (language heads only), the states of all layers, and one block's room.

Letters: B batch, T tokens, D width, H heads, F inner size, L depth, V vocabulary, N scored positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmstart.backbone.attention import EXPLICIT
from warmstart.backbone.block import GATED
from warmstart.backbone.config import BackboneConfig
from warmstart.heads import LanguageHead
from warmstart.model.flops import Load, block_matrices, first_gradient
from warmstart.model.model import Model
from warmstart.objectives.loss import CHUNK

HOLES, HOLES_READING = 0.6, 0.9
"""What glibc's allocator keeps beyond the tensors: freed pieces of other sizes between living ones. As a share of the activations
in training, and of the states and one block's room in inference.

Measured with ``warmstart account --measure`` (docs/account.md), not derived; without it peaks come out up to a third too low. With
``MALLOC_MMAP_THRESHOLD_=1048576`` in the environment there are no holes, and training is slower."""
NUMBER = 4
"""bytes of a weight, a gradient, a moment"""


@dataclass(frozen=True)
class MemoryRow:
    """One part of the memory."""

    part: str
    formula: str
    bytes: float


@dataclass(frozen=True)
class Memory:
    """What is kept, and the peak."""

    rows: tuple[MemoryRow, ...]
    peak: float
    """bytes; of training less than the sum of the rows, because gradients and activations do not stand together"""

    HEADER = ("part", "formula", "MB")

    def table(self) -> list[tuple[str, str, str]]:
        """Rows for people, under ``HEADER``; MB are millions of bytes."""
        lines = [(row.part, row.formula, megabytes(row.bytes)) for row in self.rows]
        return [*lines, ("peak", "", megabytes(self.peak))]


def megabytes(count: float) -> str:
    """Millions of bytes, for people: ``megabytes(43_874_408)`` -> ``"43.9"``."""
    return f"{count / 1e6:,.1f}"


def training_memory(model: Model, load: Load) -> Memory:
    """The peak of a training step after the first one (the first has no moments yet), and its parts."""
    config, tokens = model.backbone.config, load.batch * load.length(model)
    count = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    moments = 2 * trained if load.moments is None else load.moments
    walked = config.depth - min(first_gradient(model), config.depth)
    each = activation_bytes(config, load.length(model), half=load.half)
    copies = 2 * sum(matrix.numel() for _, _, matrix in block_matrices(model)) if load.half else 0
    activations = walked * tokens * each + copies
    loss, how = _loss_room(model, load)
    rows = (
        MemoryRow("weights", f"4 x {count:,}", NUMBER * count),
        MemoryRow("optimiser's moments", f"4 x {moments:,}", NUMBER * moments),
        MemoryRow("gradients", f"4 x {trained:,}", NUMBER * trained),
        MemoryRow(
            "activations", f"{walked} blocks x {tokens:,} tokens x {each:,.0f}" + " + bfloat16 weights" * load.half, activations
        ),
        MemoryRow("loss and head", how, loss),
        MemoryRow("allocator's holes", f"{HOLES:g} x activations (measured)", HOLES * activations),
    )
    sizes = {row.part: row.bytes for row in rows}
    ends = max(sizes["gradients"], activations + loss)
    return Memory(rows, sizes["weights"] + sizes["optimiser's moments"] + ends + sizes["allocator's holes"])


def inference_memory(model: Model, load: Load) -> Memory:
    """The peak of reading B rows of T tokens (in float32): a language head then writes one token of each row, others answer."""
    config, length = model.backbone.config, load.length(model)
    count = sum(parameter.numel() for parameter in model.parameters())
    tokens, depth = load.batch * length, config.depth
    language = isinstance(model.head, LanguageHead)
    cache = 2 * depth * load.batch * config.max_tokens * config.groups * config.per_head * NUMBER if language else 0
    kept = (depth + 1) * tokens * config.width * NUMBER
    room = tokens * _room(config, length) * NUMBER
    written = load.batch * model.backbone.vocab_size * NUMBER if language else 0
    text = f"4 x 2 L B {config.max_tokens:,} D" if language else "none: this head reads whole rows"
    rows = (
        MemoryRow("weights", f"4 x {count:,}", NUMBER * count),
        MemoryRow("keys and values", text, cache),
        MemoryRow("states of all layers", f"4 x (L + 1) B T D = 4 x {depth + 1} x {tokens:,} x {config.width:,}", kept),
        MemoryRow("one block's room", f"4 x {tokens:,} tokens x {_room(config, length):,}", room + written),
        MemoryRow("allocator's holes", f"{HOLES_READING:g} x states and room (measured)", HOLES_READING * (kept + room)),
    )
    return Memory(rows, sum(row.bytes for row in rows))


def activation_bytes(config: BackboneConfig, length: int, *, half: bool) -> float:
    """What autograd saves for one token in one block, in bytes.

    The preset ``lab`` at 256 tokens: ``4 x (2 D + 6 D + F + 2 x 256) + 16 = 9,264``.
    """
    low = 2 if half else NUMBER
    width, inner, row = config.width, config.feedforward, config.heads * length
    norms = 2 * (NUMBER * width + NUMBER * width + 4) if config.norm_kind == "rms" else 2 * (NUMBER * width + 8)
    forward = {"relu": 1, "swiglu": 4, "geglu": 4}.get(config.activation, 2) * inner * low
    drops = bool(config.dropout)
    total = norms + 6 * width * low + forward + drops * 2 * width * low
    if config.attention == "synthesizer":  # in bfloat16 its weights are kept in float32 and once more for the product
        return total + (row * (NUMBER + 2 + drops * NUMBER) + width * 2 if half else row * NUMBER * (1 + 2 * drops))
    if length <= EXPLICIT:
        return total + row * low * (1 + 2 * drops)
    turned = 2 * width * low if config.positions == "rotary" else 0
    return total + turned + config.heads * NUMBER + drops * row * NUMBER * 3  # with dropout torch's kernel falls back to products


def _loss_room(model: Model, load: Load) -> tuple[float, str]:
    """Bytes that stand beside the activations when the loss is made, and how they come about."""
    config, tokens = model.backbone.config, load.batch * load.length(model)
    low = 2 if load.half else NUMBER
    if not isinstance(model.head, LanguageHead):
        room = max(config.heads * load.length(model), config.feedforward) * low
        return tokens * room, f"one block's gradients: {tokens:,} tokens x {room:,}"
    size, width = len(model.head.weight), config.width
    scored = round(tokens * (load.most_scored or load.scored))
    chunk = min(scored, CHUNK)
    copies = NUMBER + load.half * 2  # as floats; and as the product makes them, where that is in bfloat16
    weight = model.head.weight.requires_grad * size * width * NUMBER + load.half * size * width * 2
    states = tokens * width * NUMBER * 2 + scored * width * low * 2
    return chunk * size * copies + weight + states, f"logits of {chunk:,} x {size:,} x {copies}, gradient of the head, its states"


def _room(config: BackboneConfig, length: int) -> int:
    """Numbers per token that one block needs for the moment, when nothing is saved."""
    scores = 2 * config.heads * length if length <= EXPLICIT or config.attention == "synthesizer" else 0
    inner = (4 if config.activation in GATED else 2) * config.feedforward
    return max(scores + 3 * config.width, inner + config.width)
