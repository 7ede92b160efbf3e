"""What a model costs, part by part: parameters in closed form beside those counted, compute per token, memory.

Nothing here is estimated that can be counted: every closed form is checked against the real module, and a difference is a fault of
ours. Compute counts matrix products alone, two operations per multiply-add (Kaplan et al. 2020, section 2.1); memory in training is
what torch keeps for the backward pass, written out in ``activations``.

Letters: B batch, T tokens, D width, H heads, K head width, L depth, F feed-forward size, V vocabulary, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from warmstart.backbone import BackboneConfig
from warmstart.heads import ClassifyHeadConfig, HeadConfig, LanguageHeadConfig
from warmstart.inserts import Inserted
from warmstart.model.model import Model
from warmstart.objectives.loss import CHUNK

FLOAT, HALF = 4, 2
"""bytes of a number"""


@dataclass(frozen=True)
class Part:
    """One row of the account."""

    name: str
    formula: str
    """the closed form, with the numbers in it"""
    closed: int
    counted: int
    trainable: int

    @property
    def frozen(self) -> int:
        """Parameters that do not train."""
        return self.counted - self.trainable


@dataclass(frozen=True)
class Account:
    """Parameters, part by part, and what follows from them."""

    parts: tuple[Part, ...]
    config: BackboneConfig
    head: HeadConfig
    vocab_size: int
    others: dict[str, int]
    """the total under the other heads that one asks about: tied or not, biased or not"""

    @property
    def total(self) -> int:
        """All parameters; a tied weight is counted once."""
        return sum(part.counted for part in self.parts)

    @property
    def trainable(self) -> int:
        """Those that train."""
        return sum(part.trainable for part in self.parts)

    @property
    def backbone(self) -> int:
        """Those of the backbone."""
        return sum(part.counted for part in self.parts if part.name != "head")

    HEADER = ("part", "closed form", "parameters", "counted", "trainable", "frozen")

    def table(self) -> list[tuple[str, str, str, str, str, str]]:
        """A row a part, then the backbone and all of it."""
        rows = [(p.name, p.formula, f"{p.closed:,}", f"{p.counted:,}", f"{p.trainable:,}", f"{p.frozen:,}") for p in self.parts]
        for name, parts in (("backbone", [p for p in self.parts if p.name != "head"]), ("all", self.parts)):
            sums = (sum(getattr(p, key) for p in parts) for key in ("closed", "counted", "trainable", "frozen"))
            rows.append((name, "", *(f"{value:,}" for value in sums)))  # type: ignore[arg-type]
        return rows


def account(model: Model) -> Account:
    """The account of a real model, frozen and inserted parts as they are now."""
    backbone, config = model.backbone, model.backbone.config
    parts = [
        _part(
            "token embedding",
            f"V D = {backbone.vocab_size:,} × {config.width:,}",
            backbone.vocab_size * config.width,
            backbone.embedding,
        ),
        _part("positions", *_positions(config), backbone.positions),
    ]
    blocks = list(backbone.blocks)
    for name, of, form in (
        ("attention", "attention", _attention(config)),
        ("feed-forward", "feedforward", _feedforward(config)),
        ("norms", "norm", _norm(config, 2)),
    ):
        modules = [child for block in blocks for key, child in block.named_children() if key.startswith(of)]
        formula = f"{config.depth} × ({form[0]})" if blocks else "0"
        parts.append(_part(f"blocks: {name}", formula, config.depth * form[1], *modules))
    if config.norm == "pre":
        parts.append(_part("last norm", *_norm(config, 1), backbone.norm))
    inserted = [module for module in backbone.modules() if isinstance(module, Inserted)]
    if inserted:
        extra = sum(parameter.numel() for module in inserted for parameter in module.parameters())
        parts.append(Part("inserted", "as inserted", extra, extra, _trainable(*inserted)))
    parts.append(_head_part(model))
    wrong = [part.name for part in parts if part.closed != part.counted]
    assert not wrong, f"the closed form differs from the count: {wrong}"
    assert sum(part.counted for part in parts) == sum(p.numel() for p in model.parameters()), "a part is missing"
    return Account(tuple(parts), config, model.head.config, backbone.vocab_size, _others(config, backbone.vocab_size))


def flops_per_token(account: Account, tokens: int, scored: float = 1.0) -> dict[str, float]:
    """Operations per token in a row of ``tokens`` (T): of the blocks' matrices, of attention, of the head; forward, and training.

    A matrix of n weights takes 2 n forward (biases are left out); scores and their use take 4 T D a block, for a token that may see
    the whole row (Kaplan et al. 2020, table 1); plain products do not skip what a causal mask hides. ``scored`` is the share of
    tokens that a language head scores: a masked objective scores few. Training takes three times as much: gradients go to inputs
    and to weights.
    """
    config = account.config
    gates = 2 if config.activation == "swiglu" else 1
    square = 4 if config.attention == "dot-product" else 3  # a synthesizer's scores cost what the others' products of q and k cost
    matrices = 2.0 * config.depth * (square * config.width**2 + (gates + 1) * config.width * config.feedforward)
    attention = 4.0 * tokens * config.width * config.depth
    head = 2.0 * config.width * account.vocab_size * scored if isinstance(account.head, LanguageHeadConfig) else 0.0
    forward = matrices + attention + head
    return {"matrices": matrices, "attention": attention, "head": head, "forward": forward, "training": 3 * forward}


def training_bytes(account: Account, rows: int, tokens: int, *, half: bool, muon: bool = False) -> dict[str, int]:
    """Memory of a training step on ``rows`` (B) of ``tokens`` (T): weights, gradients, optimiser, activations, logits.

    AdamW keeps two numbers a weight, Muon one for the matrices of the blocks. With ``half`` products are made in bfloat16.
    """
    matrices = sum(part.trainable for part in account.parts if part.name in ("blocks: attention", "blocks: feed-forward"))
    logits = min(CHUNK, rows * tokens) * account.vocab_size * (3 * FLOAT + HALF * half)  # scores, their float copy, the error
    return {
        "weights": FLOAT * account.total,
        "gradients": FLOAT * account.trainable,
        "optimiser": FLOAT * (2 * account.trainable - (matrices if muon else 0)),
        "activations": rows * tokens * activations(account.config, tokens, half=half),
        "logits": logits if isinstance(account.head, LanguageHeadConfig) else 0,
    }


def activations(config: BackboneConfig, tokens: int, *, half: bool) -> int:
    """Bytes that a token leaves for the backward pass, in a row of ``tokens`` (T).

    A block keeps the inputs of both norms (float), the inputs of its four matrices, queries, keys, values and the scaled queries,
    the feed-forward layer before and after its non-linearity, and the attention weights twice: as softmax made them (float) and as
    they are multiplied.
    """
    number = HALF if half else FLOAT
    wide = 2 * FLOAT + 7 * number  # norms' inputs; qkv's input, q, k, v, scaled q, out's input, inner's input
    inner = (3 if config.activation == "swiglu" else 2) * number
    attention = config.heads * tokens * (FLOAT + number)
    return config.depth * (wide * config.width + inner * config.feedforward + attention) + FLOAT * config.width


def inference_bytes(account: Account, rows: int, tokens: int) -> dict[str, int]:
    """Memory of writing: weights, and the keys and values of ``rows`` times ``tokens`` tokens."""
    config = account.config
    return {"weights": FLOAT * account.total, "keys and values": 2 * FLOAT * rows * tokens * config.width * config.depth}


def _part(name: str, formula: str, closed: int, *modules: nn.Module) -> Part:
    inside = {id(p) for module in modules for inner in module.modules() if isinstance(inner, Inserted) for p in inner.parameters()}
    own = [p for module in modules for p in module.parameters() if id(p) not in inside]
    return Part(name, formula, closed, sum(p.numel() for p in own), sum(p.numel() for p in own if p.requires_grad))


def _trainable(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)


def _positions(config: BackboneConfig) -> tuple[str, int]:
    if config.positions == "learned":
        return f"T D = {config.max_tokens:,} × {config.width:,}", config.max_tokens * config.width
    return f"0 ({config.positions}: a fixed table)", 0


def _attention(config: BackboneConfig) -> tuple[str, int]:
    d, bias = config.width, config.width if config.bias else 0
    if config.attention == "synthesizer":
        k = d // config.heads
        plus = " + 2 D" if config.bias else ""
        return f"3 D² + D + K T + T{plus}", 3 * d * d + d + k * config.max_tokens + config.max_tokens + 2 * bias
    return "4 D² + 4 D" if config.bias else "4 D²", 4 * d * d + 4 * bias


def _feedforward(config: BackboneConfig) -> tuple[str, int]:
    gates = 2 if config.activation == "swiglu" else 1
    matrices = (gates + 1) * config.width * config.feedforward
    if not config.bias:
        return f"{gates + 1} D F", matrices
    return f"{gates + 1} D F + {'2 ' if gates == 2 else ''}F + D", matrices + gates * config.feedforward + config.width


def _norm(config: BackboneConfig, count: int) -> tuple[str, int]:
    vectors = 2 if config.norm_kind == "layer" and config.bias else 1
    return f"{count * vectors if count * vectors > 1 else ''} D".strip(), count * vectors * config.width


def _head_part(model: Model) -> Part:
    config, d, v = model.head.config, model.backbone.config.width, model.backbone.vocab_size
    if isinstance(config, ClassifyHeadConfig):
        return _part(
            "head", f"D C + C = {d:,} × {config.classes} + {config.classes}", d * config.classes + config.classes, model.head
        )
    closed = language_head(config, d, v)
    new = [p for p in model.head.parameters() if p is not model.backbone.embedding.weight]
    formula = " + ".join(
        (["0 (tied to the embedding)"] if config.tied else [f"V D = {v:,} × {d:,}"]) + ([f"V = {v:,}"] if config.bias else [])
    )
    return Part("head", formula, closed, sum(p.numel() for p in new), sum(p.numel() for p in new if p.requires_grad))


def language_head(config: LanguageHeadConfig, width: int, vocab_size: int) -> int:
    """Parameters that a language head adds to its backbone."""
    return (0 if config.tied else vocab_size * width) + (vocab_size if config.bias else 0)


def _others(config: BackboneConfig, vocab_size: int) -> dict[str, int]:
    """What other language heads would add."""
    heads = {
        f"language head, {'tied' if tied else 'own weight'}{', bias' if bias else ''}": LanguageHeadConfig(tied=tied, bias=bias)
        for tied in (True, False)
        for bias in (False, True)
    }
    return {name: language_head(head, config.width, vocab_size) for name, head in heads.items()}
