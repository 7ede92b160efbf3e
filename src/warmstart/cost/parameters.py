"""The parameters of a model, part by part: the number that a formula gives beside the number that the module has.

Every closed form is written once, as text (``4 D D + 4 D``); the printed formula and its value both come from that text. The
counted number is that of the real module. If the two differ, a formula here is wrong, and an assertion fails. A tied head is
counted once, in the embedding. Inserted adapters have a row of their own and no closed form.

Letters in formulas: V vocabulary, D width, F inner size of the feed-forward layer, K head width, A width of all heads together, G
that of keys and values if it differs, T context length, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.block import GATED
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.head import HeadConfig
from warmstart.heads.language_modeling import LMHead
from warmstart.model.model import Model, fresh_head


@dataclass(frozen=True)
class ParameterRow:
    """One part of a model."""

    part: str
    formula: str
    """the closed form, in letters and in numbers"""
    by_formula: int
    """what the formula gives, for one such part"""
    counted: int
    """what the module has, in one such part"""
    times: int = 1
    """how many such parts there are"""
    trainable: int = 0
    """trainable parameters in all such parts together"""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a model; each is in exactly one row."""

    rows: tuple[ParameterRow, ...]
    totals: dict[str, int]
    """``backbone``, ``head``, ``total``, ``trainable``, ``frozen``; with a language head also ``total_tied``, ``total_untied``"""

    HEADER = ("part", "counted", "by formula", "closed form")

    def table(self) -> list[tuple[str, str, str, str]]:
        """Rows for people, under ``HEADER``: the parts of one block, then all blocks in one row, then the totals."""
        lines = []
        for row in self.rows:
            indent = "  " * row.part.startswith("block")
            if row.part.startswith("head"):
                lines.append(("backbone", f"{self.totals['backbone']:,}", "", ""))
            lines.append((indent + row.part, f"{row.counted:,}", f"{row.by_formula:,}", row.formula))
            if row.part == "block: norms":
                lines.append(self._blocks())
        lines.append(("total", f"{self.totals['total']:,}", "", ""))
        for name in ("tied", "untied"):
            if f"total_{name}" in self.totals:
                lines.append((f"  with a head {name}", f"{self.totals[f'total_{name}']:,}", "", ""))
        return lines

    def _blocks(self) -> tuple[str, str, str, str]:
        parts = [row for row in self.rows if row.part.startswith("block")]
        times, one = parts[0].times, sum(row.by_formula for row in parts)
        counted = sum(row.times * row.counted for row in parts)
        return (f"{times} block{'s' * (times > 1)}", f"{counted:,}", f"{times * one:,}", f"L x block = {times} x {one:,}")


def count_parameters(model: Model) -> Parameters:
    """The parameters of ``model``, with or without storage."""
    rows = _rows(model)
    head = next(row for row in rows if row.part.startswith("head"))
    total = sum(parameter.numel() for parameter in model.parameters())
    trainable = sum(row.trainable for row in rows)
    assert sum(row.times * row.counted for row in rows) == total, "every parameter must be in exactly one row"
    totals = {"backbone": total - head.counted, "head": head.counted, "total": total}
    totals |= {"trainable": trainable, "frozen": total - trainable}
    if isinstance(model.head, LMHead):
        saved, tied = model.head.weight.numel(), model.head.config.tied
        totals |= {"total_tied": total - (not tied) * saved, "total_untied": total + tied * saved}
    return Parameters(rows, totals)


def different_parameters(*models: Model | None) -> list[nn.Parameter]:
    """The parameters of several models, each once, though models may share some."""
    return list(dict.fromkeys(parameter for model in models if model is not None for parameter in model.parameters()))


def without_storage(backbone: BackboneConfig, vocab_size: int, head: HeadConfig, *, causal: bool = True) -> Model:
    """A model of any size without storage (on torch's ``meta`` device): it can be counted, but not run."""
    with torch.device("meta"):
        body = Backbone(backbone, vocab_size)
        return Model(body, fresh_head(head, body, 0), causal=causal)


def evaluate_form(text: str, **sizes: int) -> tuple[str, int]:
    """A closed form in letters and numbers, and its value.

    ``evaluate_form("V D + V", V=50, D=8)`` -> ``("V D + V = 50 x 8 + 50", 450)``.
    """
    terms = [[sizes[word] if word in sizes else int(word) for word in term.split()] for term in text.split(" + ")]
    value = sum(math.prod(term) for term in terms)
    if text == "0":
        return "none", 0
    return f"{text} = " + " + ".join(" x ".join(f"{factor:,}" for factor in term) for term in terms), value


def closed_forms(config: BackboneConfig) -> dict[str, str]:
    """The closed form of every part of a backbone, in letters; those of the blocks are for one block."""
    bias = config.bias
    norm = "2 D" if bias and config.norm_type == "layer" else "D"
    attention = _attention_form(config)
    if config.attention == "synthesizer":  # its hidden layer always has a bias
        attention = f"3 D D + {3 if bias else 1} D + K T + T"
    inner = 2 if config.activation in GATED else 1
    feedforward = f"{inner + 1} D F" + f" + {'2 ' * (inner - 1)}F + D" * bias
    below = {"token types": f"{config.token_types} D"} if config.token_types else {}
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
    terms = [matrices, *[qkv] * biases, *["D"] * config.bias, *["2 K"] * config.qk_norm]
    return " + ".join(terms).replace("3 D + D", "4 D")


def _rows(model: Model) -> tuple[ParameterRow, ...]:
    config, head = model.backbone.config, model.head.config
    plain = without_storage(config, model.backbone.vocab_size, head)
    own = {name for name, _ in plain.named_parameters()}
    counts = _count(model, own)
    sizes = {"V": model.backbone.vocab_size, "D": config.width, "F": config.feedforward, "T": config.max_length}
    sizes |= {"K": config.per_head, "A": config.heads * config.per_head, "G": config.groups * config.per_head}
    sizes |= {"C": getattr(head, "classes", 0)}
    label = "head (tied: see embedding)" if getattr(head, "tied", False) else f"head ({head.kind})"
    forms = closed_forms(config) | {label: model.head.parameter_formula()}
    rows = []
    for part, text in forms.items():
        times = config.depth if part.startswith("block") else 1
        if not times:
            continue
        found = [counts.get(_key(part, i), (0, 0)) for i in range(times)]
        formula, value = evaluate_form(text, **sizes)
        assert {count for count, _ in found} == {value}, f"{part}: the formula {formula} gives {value}, the module has {found}"
        rows.append(ParameterRow(part, formula, value, found[0][0], times, sum(trainable for _, trainable in found)))
    if "inserted" in counts:
        count, trainable = counts["inserted"]
        rows.insert(-1, ParameterRow("inserted adapters", "counted only", count, count, 1, trainable))
    return tuple(rows)


def _key(part: str, block: int) -> str:
    """The name under which ``_count`` keeps a part."""
    return f"{part} {block}" if part.startswith("block") else part.split(" (")[0]


def _count(model: Model, own: set[str]) -> dict[str, tuple[int, int]]:
    """Part -> (parameters, trainable ones); a tied weight comes under its first name, the embedding's."""
    counts: dict[str, tuple[int, int]] = {}
    for name, parameter in model.named_parameters():
        key = _part(name, first_norm=model.backbone.config.first_norm) if name in own else "inserted"
        count, trainable = counts.get(key, (0, 0))
        counts[key] = count + parameter.numel(), trainable + parameter.requires_grad * parameter.numel()
    return counts


def _part(name: str, *, first_norm: bool) -> str:
    """``backbone.blocks.3.norm_1.bias`` -> ``block: norms 3``; an embedding norm in place of a block's counts as that."""
    words = name.split(".")
    if words[0] == "head":
        return "head"
    if words[1] == "embedding_norm" and not first_norm:
        return "block: norms 0"
    if words[1] != "blocks":
        return {"norm": "final norm"}.get(words[1], words[1].replace("_", " "))
    kind = {"attention": "attention", "feedforward": "feed-forward"}.get(words[3], "norms")
    return f"block: {kind} {words[2]}"
