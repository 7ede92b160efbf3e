"""Memory of training and of inference in bytes, by stated formulas; on a CPU, with our explicit attention.

Training stores the weights, the optimiser state, what the forward pass saves for the backward pass (the activations), and for a
moment the logits of one chunk or the gradients, whichever is more. The peak is ``weights + optimiser state + max(gradients,
activations + loss) + fragmentation``. Saved per token and block, in numbers of 4 bytes, those marked c of 2 bytes if products are
bfloat16:

    2 D      the inputs of the two norms (RMS norms save their own product too: 2 D more)
    6 D c    the inputs of the four linear layers, and Q, K, V as the products read them
    2 F c    the feed-forward layer before and after its gelu (relu 1 F, swiglu 4 F)
    H T c    the attention weights; with dropout 3 H T. Above 512 tokens the fused kernel saves none, but 2 D of rotated Q and K

A test compares this sum with the tensors that autograd saves. Fragmentation is memory that the allocator of the C library keeps
beyond the tensors: measured, not derived (see ``FRAGMENTATION``). Frozen blocks below everything trainable save nothing; frozen
matrices between trainable ones are counted like these, which is an upper bound.

Inference stores the weights, the keys and values of B rows (language heads only), the hidden states of all layers, and the working
memory of one block.

Letters: B batch, T tokens, D width, H heads, F inner size, L depth, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmstart.backbone.attention import MAX_EXPLICIT_KEYS
from warmstart.backbone.block import GATED
from warmstart.backbone.config import BackboneConfig
from warmstart.cost.flops import block_matrices, first_trainable_block
from warmstart.cost.workload import Workload
from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model
from warmstart.objectives.loss import CHUNK

FRAGMENTATION, INFERENCE_FRAGMENTATION = 0.6, 0.9
"""What glibc's allocator keeps beyond the tensors: freed pieces of other sizes between those in use. As a fraction of the
activations in training, and of the hidden states and the working memory in inference.

Measured with ``warmstart cost --measure`` (docs/how-to/cost.md), not derived; without it peaks come out up to a third too low. With
``MALLOC_MMAP_THRESHOLD_=1048576`` in the environment there is no fragmentation, and training is slower."""
FLOAT32 = 4
"""bytes of a weight, a gradient, a number of the optimiser state"""


@dataclass(frozen=True)
class MemoryRow:
    """One part of the memory."""

    part: str
    formula: str
    bytes: float


@dataclass(frozen=True)
class Memory:
    """The parts, and the peak."""

    rows: tuple[MemoryRow, ...]
    peak: float
    """bytes; in training less than the sum of the rows, because gradients and activations are not stored at the same time"""

    HEADER = ("part", "MB", "formula")

    def table(self) -> list[tuple[str, str, str]]:
        """Rows for people, under ``HEADER``; MB are millions of bytes."""
        lines = [(row.part, megabytes(row.bytes), row.formula) for row in self.rows]
        return [*lines, ("peak", megabytes(self.peak), "")]


def megabytes(count: float) -> str:
    """Millions of bytes, for people: ``megabytes(43_874_408)`` -> ``"43.9"``."""
    return f"{count / 1e6:,.1f}"


def training_memory(model: Model, workload: Workload) -> Memory:
    """The peak of a training step after the first one (before it there is no optimiser state), and its parts."""
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    trainable = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    optimizer_numbers = 2 * trainable if workload.optimizer_numbers is None else workload.optimizer_numbers
    (activations, formula), (loss, loss_formula) = _saved_bytes(model, workload), _loss_bytes(model, workload)
    rows = (
        MemoryRow("weights", f"4 x {count:,}", FLOAT32 * count),
        MemoryRow("optimiser state", f"4 x {optimizer_numbers:,}", FLOAT32 * optimizer_numbers),
        MemoryRow("gradients", f"4 x {trainable:,}", FLOAT32 * trainable),
        MemoryRow("activations", formula, activations),
        MemoryRow("loss and head", loss_formula, loss),
        MemoryRow("fragmentation", f"{FRAGMENTATION:g} x activations (measured)", FRAGMENTATION * activations),
    )
    sizes = {row.part: row.bytes for row in rows}
    larger = max(sizes["gradients"], activations + loss)
    return Memory(rows, sizes["weights"] + sizes["optimiser state"] + larger + sizes["fragmentation"])


def _saved_bytes(model: Model, workload: Workload) -> tuple[float, str]:
    """Bytes that the blocks of one model save for the backward pass, and their formula."""
    config, tokens = model.backbone.config, workload.batch * workload.length(model)
    with_backward = config.depth - min(first_trainable_block(model), config.depth)
    each = activation_bytes(config, workload.length(model), bfloat16=workload.bfloat16)
    copies = 2 * sum(matrix.numel() for _, _, matrix in block_matrices(model)) if workload.bfloat16 else 0
    formula = f"{with_backward} blocks x {tokens:,} tokens x {each:,.0f}" + " + bfloat16 weights" * workload.bfloat16
    return with_backward * tokens * each + copies, formula


def inference_memory(model: Model, workload: Workload) -> Memory:
    """The peak of reading B rows of T tokens in float32; with a language head one token of each row is generated then."""
    config, length = model.backbone.config, workload.length(model)
    count = sum(parameter.numel() for parameter in model.parameters())
    tokens, depth = workload.batch * length, config.depth
    language = isinstance(model.head, LMHead)
    cache = 2 * depth * workload.batch * config.max_length * config.groups * config.per_head * FLOAT32 if language else 0
    states = (depth + 1) * tokens * config.width * FLOAT32
    working = tokens * _working_numbers(config, length) * FLOAT32
    logits = workload.batch * model.backbone.vocab_size * FLOAT32 if language else 0
    cache_formula = f"4 x 2 L B {config.max_length:,} D" if language else "none: this head reads whole rows"
    rows = (
        MemoryRow("weights", f"4 x {count:,}", FLOAT32 * count),
        MemoryRow("keys and values", cache_formula, cache),
        MemoryRow("hidden states of all layers", f"4 x (L + 1) B T D = 4 x {depth + 1} x {tokens:,} x {config.width:,}", states),
        MemoryRow("working memory of one block", f"4 x {tokens:,} tokens x {_working_numbers(config, length):,}", working + logits),
        MemoryRow(
            "fragmentation",
            f"{INFERENCE_FRAGMENTATION:g} x hidden states and working memory (measured)",
            INFERENCE_FRAGMENTATION * (states + working),
        ),
    )
    return Memory(rows, sum(row.bytes for row in rows))


def activation_bytes(config: BackboneConfig, length: int, *, bfloat16: bool) -> float:
    """What autograd saves for one token in one block, in bytes.

    The preset ``lab`` at 256 tokens: ``4 x (2 D + 6 D + F + 2 x 256) + 16 = 9,264``.
    """
    product = 2 if bfloat16 else FLOAT32
    width, inner, row = config.width, config.feedforward, config.heads * length
    norms = 2 * (FLOAT32 * width + FLOAT32 * width + 4) if config.norm_type == "rms" else 2 * (FLOAT32 * width + 8)
    forward = {"relu": 1, "swiglu": 4, "geglu": 4}.get(config.activation, 2) * inner * product
    drops = bool(config.dropout)
    total = norms + 6 * width * product + forward + drops * 2 * width * product
    if config.attention == "synthesizer":  # in bfloat16 its weights are stored in float32 and once more for the product
        return total + (row * (FLOAT32 + 2 + drops * FLOAT32) + width * 2 if bfloat16 else row * FLOAT32 * (1 + 2 * drops))
    if length <= MAX_EXPLICIT_KEYS:
        return total + row * product * (1 + 2 * drops)
    rotated = 2 * width * product if config.positions == "rotary" else 0
    return total + rotated + config.heads * FLOAT32 + drops * row * FLOAT32 * 3  # with dropout torch's kernel uses plain products


def _loss_bytes(model: Model, workload: Workload) -> tuple[float, str]:
    """Bytes in use beside the activations when the loss is computed, and their formula."""
    config, tokens = model.backbone.config, workload.batch * workload.length(model)
    product = 2 if workload.bfloat16 else FLOAT32
    if not isinstance(model.head, LMHead):
        each = max(config.heads * workload.length(model), config.feedforward) * product
        return tokens * each, f"one block's gradients: {tokens:,} tokens x {each:,}"
    size, width = len(model.head.weight), config.width
    targets = round(tokens * (workload.max_target_fraction or workload.target_fraction))
    chunk = min(targets, CHUNK)
    copies = FLOAT32 + workload.bfloat16 * 2  # as float32, and as the product makes them if that is bfloat16
    weight = model.head.weight.requires_grad * size * width * FLOAT32 + workload.bfloat16 * size * width * 2
    states = tokens * width * FLOAT32 * 2 + targets * width * product * 2
    return chunk * size * copies + weight + states, f"logits of {chunk:,} x {size:,} x {copies}, gradient of the head, its states"


def _working_numbers(config: BackboneConfig, length: int) -> int:
    """Numbers per token that one block needs at a time when nothing is saved for a backward pass."""
    scores = 2 * config.heads * length if length <= MAX_EXPLICIT_KEYS or config.attention == "synthesizer" else 0
    inner = (4 if config.activation in GATED else 2) * config.feedforward
    return max(scores + 3 * config.width, inner + config.width)
