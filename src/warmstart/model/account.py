"""What a model is made of, part by part: the number that a formula gives beside the number that the module has.

Notable: every closed form is written once, as text (``4 D D + 4 D``), from which both the printed formula and its value come. The
counted number is that of the real module; where the two differ, a formula here is wrong, and that is an assertion. A tied head is
counted once, in the embedding. Parameters that an adaptation has inserted have a row of their own and no closed form.

What it does not do: choose what trains (it reads ``requires_grad``), or measure anything.

Letters in formulas: V vocabulary, D width, F inner size of the feed-forward layer, K head width, A all heads' width, G that of keys
and values where it is another, T longest row, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch

from warmstart.backbone import GATED, Backbone, BackboneConfig
from warmstart.heads import HeadConfig, LanguageHeadConfig
from warmstart.model.flops import Flops, Load, flops_per_token
from warmstart.model.memory import Memory, inference_memory, training_memory
from warmstart.model.model import Model, fresh_head
from warmstart.registry import Registry


class HeadForm(NamedTuple):
    """A head's closed forms."""

    parameters: Callable[[Any], str]
    """parameters that are the head's own, from its settings"""
    untied: str = ""
    """what a tied weight saves; empty where nothing can be tied"""


HEAD_FORMS: Registry[HeadForm] = Registry(
    "closed form of a head",
    {
        "language": HeadForm(lambda config: _language_form(config), "V D"),
        "embed": HeadForm(lambda _config: "0"),
        "classify": HeadForm(lambda config: "D C + C" + " + D D + D" * (config.hidden != "none")),
        "several": HeadForm(lambda _config: "D C + C"),
        "regress": HeadForm(lambda _config: "D + 1"),
        "choose": HeadForm(lambda _config: "D + 1"),
        "tag": HeadForm(lambda _config: "D C + C"),
        "span": HeadForm(lambda _config: "2 D + 2"),
    },
)
"""One row for each head in ``HEADS``."""


@dataclass(frozen=True)
class Row:
    """One part of a model."""

    part: str
    formula: str
    """the closed form, in letters and in numbers"""
    closed: int
    """what the formula gives, for one such part"""
    counted: int
    """what the module has, in one such part"""
    times: int = 1
    """how many such parts there are"""
    trainable: int = 0
    """how many parameters train, in all such parts together"""


@dataclass(frozen=True)
class Account:
    """A model's parameters, compute and memory."""

    rows: tuple[Row, ...]
    """the parts, each parameter in exactly one of them"""
    totals: dict[str, int]
    """``backbone``, ``head``, ``total``, ``trainable``, ``frozen``; with a language head also ``total tied``, ``total untied``"""
    flops: Flops
    training: Memory
    inference: Memory
    measured: dict[str, float] = field(default_factory=dict)
    """``training`` and ``inference`` peaks in bytes, ``seconds`` of a step, ``tokens_per_second``, ``flops_per_second``"""

    HEADER = ("part", "closed form", "by formula", "counted")

    def table(self) -> list[tuple[str, str, str, str]]:
        """Rows for people, under ``HEADER``: one block's parts, then all blocks in one row, then the totals."""
        lines = []
        for row in self.rows:
            indent = "  " * row.part.startswith("block")
            if row.part.startswith("head"):
                lines.append(("backbone", "", "", f"{self.totals['backbone']:,}"))
            lines.append((indent + row.part, row.formula, f"{row.closed:,}", f"{row.counted:,}"))
            if row.part == "block: norms":
                lines.append(self._blocks())
        lines.append(("total", "", "", f"{self.totals['total']:,}"))
        for name in ("total tied", "total untied"):
            if name in self.totals:
                lines.append((f"  with a head {name.removeprefix('total ')}", "", "", f"{self.totals[name]:,}"))
        return lines

    def plain(self) -> dict[str, Any]:
        """The whole account as plain values, fit for JSON."""
        return asdict(self)

    def _blocks(self) -> tuple[str, str, str, str]:
        parts = [row for row in self.rows if row.part.startswith("block")]
        times, one = parts[0].times, sum(row.closed for row in parts)
        counted = sum(row.times * row.counted for row in parts)
        return (f"{times} block{'s' * (times > 1)}", f"L x block = {times} x {one:,}", f"{times * one:,}", f"{counted:,}")


def skeleton(backbone: BackboneConfig, vocab_size: int, head: HeadConfig, *, causal: bool = True) -> Model:
    """The module itself, of any size, without storage (on torch's ``meta`` device): it can be counted, but not run."""
    with torch.device("meta"):
        body = Backbone(backbone, vocab_size)
        return Model(body, fresh_head(head, body, 0), causal=causal)


def account_for(model: Model, load: Load) -> Account:
    """The account of ``model``, real or a skeleton, as it stands: what ``requires_grad`` trains, what was inserted is added.

    >>> model = skeleton(BackboneConfig.build(PRESETS["lab"]), 50_001, ClassifyHeadConfig(classes=2))
    >>> account_for(model, Load()).totals["total"]
    10968602
    """
    rows = _rows(model)
    head = next(row for row in rows if row.part.startswith("head"))
    total = sum(parameter.numel() for parameter in model.parameters())
    trainable = sum(row.trainable for row in rows)
    assert sum(row.times * row.counted for row in rows) == total, "every parameter must stand in exactly one row"
    totals = {"backbone": total - head.counted, "head": head.counted, "total": total}
    totals |= {"trainable": trainable, "frozen": total - trainable}
    config = model.head.config
    if untied := HEAD_FORMS[config.kind].untied:
        saved = form(untied, V=model.backbone.vocab_size, D=model.backbone.config.width)[1]
        tied = bool(getattr(config, "tied", False))
        totals |= {"total tied": total - (not tied) * saved, "total untied": total + tied * saved}
    return Account(rows, totals, flops_per_token(model, load), training_memory(model, load), inference_memory(model, load))


def form(text: str, **sizes: int) -> tuple[str, int]:
    """A closed form in letters and numbers, and its value.

    ``form("V D + V", V=50, D=8)`` -> ``("V D + V = 50 x 8 + 50", 450)``.
    """
    terms = [[sizes[word] if word in sizes else int(word) for word in term.split()] for term in text.split(" + ")]
    value = sum(math.prod(term) for term in terms)
    if text == "0":
        return "none", 0
    return f"{text} = " + " + ".join(" x ".join(f"{factor:,}" for factor in term) for term in terms), value


def _language_form(config: LanguageHeadConfig) -> str:
    transform = ["D D + 3 D" if config.transform_bias else "D D + D"] * config.transform
    return " + ".join(["0" if config.tied else "V D", *["V"] * config.bias, *transform])


def closed_forms(config: BackboneConfig) -> dict[str, str]:
    """The closed form of every part of a backbone, in letters; those of the blocks are one block's."""
    bias = config.bias
    norm = "2 D" if bias and config.norm_kind == "layer" else "D"
    attention = _attention_form(config)
    if config.attention == "synthesizer":  # its hidden layer always has a bias
        attention = f"3 D D + {3 if bias else 1} D + K T + T"
    inner = 2 if config.activation in GATED else 1
    feedforward = f"{inner + 1} D F" + f" + {'2 ' * (inner - 1)}F + D" * bias
    below = {"types": f"{config.types} D"} if config.types else {}
    below |= {"embedding norm": norm} if config.embedding_norm and config.first_norm else {}
    table = "T D" + f" + {config.position_offset} D" * bool(config.position_offset)
    return {
        "embedding": "V D",
        f"positions ({config.positions})": table if config.positions == "learned" else "0",
        **below,
        "block: attention": attention,
        "block: feed-forward": feedforward,
        "block: norms": "4 D" if norm == "2 D" else "2 D",
        "final norm": norm if config.norm == "pre" else "0",
    }


def _attention_form(config: BackboneConfig) -> str:
    biases = config.bias if config.qkv_bias is None else config.qkv_bias
    if config.groups == config.heads and config.per_head * config.heads == config.width:
        matrices, qkv = "4 D D", "3 D"
    else:
        matrices, qkv = "2 A D + 2 G D", "A + 2 G"
    found = [matrices, *[qkv] * biases, *["D"] * config.bias, *["2 K"] * config.qk_norm]
    return " + ".join(found).replace("3 D + D", "4 D")


def _rows(model: Model) -> tuple[Row, ...]:
    config, head = model.backbone.config, model.head.config
    plain = skeleton(config, model.backbone.vocab_size, head)
    own = {name for name, _ in plain.named_parameters()}
    counts = _count(model, own)
    sizes = {"V": model.backbone.vocab_size, "D": config.width, "F": config.feedforward, "T": config.max_tokens}
    sizes |= {"K": config.per_head, "A": config.heads * config.per_head, "G": config.groups * config.per_head}
    sizes |= {"C": getattr(head, "classes", 0)}
    label = "head (tied: see embedding)" if getattr(head, "tied", False) else f"head ({head.kind})"
    texts = closed_forms(config) | {label: HEAD_FORMS[head.kind].parameters(head)}
    rows = []
    for part, text in texts.items():
        times = config.depth if part.startswith("block") else 1
        if not times:
            continue
        found = [counts.get(_key(part, i), (0, 0)) for i in range(times)]
        written, value = form(text, **sizes)
        assert {count for count, _ in found} == {value}, f"{part}: the formula {written} gives {value}, the module has {found}"
        rows.append(Row(part, written, value, found[0][0], times, sum(trained for _, trained in found)))
    if inserted := counts.get("inserted"):
        rows.insert(-1, Row("inserted by an adaptation", "counted alone", inserted[0], inserted[0], 1, inserted[1]))
    return tuple(rows)


def _key(part: str, block: int) -> str:
    """The name under which ``_count`` keeps a part."""
    return f"{part} {block}" if part.startswith("block") else part.split(" (")[0]


def _count(model: Model, own: set[str]) -> dict[str, tuple[int, int]]:
    """(parameters, those that train) by part; a tied weight comes under its first name, the embedding's."""
    found: dict[str, tuple[int, int]] = {}
    for name, parameter in model.named_parameters():
        key = _part(name, first_norm=model.backbone.config.first_norm) if name in own else "inserted"
        count, trained = found.get(key, (0, 0))
        found[key] = count + parameter.numel(), trained + parameter.requires_grad * parameter.numel()
    return found


def _part(name: str, *, first_norm: bool) -> str:
    """``backbone.blocks.3.norm_1.bias`` -> ``block: norms 3``; an embedding norm that stands for a block's counts as that."""
    words = name.split(".")
    if words[0] == "head":
        return "head"
    if words[1] == "embedding_norm" and not first_norm:
        return "block: norms 0"
    if words[1] != "blocks":
        return {"norm": "final norm"}.get(words[1], words[1].replace("_", " "))
    kind = {"attention": "attention", "feedforward": "feed-forward"}.get(words[3], "norms")
    return f"block: {kind} {words[2]}"
