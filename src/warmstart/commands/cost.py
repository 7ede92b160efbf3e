"""``cost``: the parameters of a model part by part, its FLOPs, and the memory that training keeps.

The model is a saved one, or described by settings; those of a pretraining run can be given as they are. All is counted on torch's
``meta`` device, which allocates nothing and computes nothing, so the model may be far larger than the machine.

Letters: B rows, T tokens of a row, D width.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.commands.settings import CostConfig
from warmstart.errors import ConfigError
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import HeadConfig, LMHeadConfig
from warmstart.interop.load import load_model
from warmstart.model.model import Model, fresh_head, swap_head
from warmstart.notebook import Shown
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.report.parts import Report, Section, Table, headline
from warmstart.stats.formatting import file_size
from warmstart.system.console import console, print_table
from warmstart.tokenizer.load import load_tokenizer
from warmstart.training.optimizers import is_muon_matrix

FLOAT32 = 4
"""bytes of a weight, a gradient and a number of the optimiser"""
_INSERTED = "inserted adapters"


@dataclass(frozen=True)
class Cost(Shown, view="commands.cost:cost_view"):
    """The cost of a model."""

    parameters: dict[str, int]
    """parameters of each part; a weight that two parts share counts in the first"""
    totals: dict[str, int]
    """``backbone``, ``head``, ``total``, ``trainable``, ``frozen``"""
    tokens: int
    """tokens in a row"""
    flops: dict[str, float]
    """per token: ``forward``, and ``training``, which is forward and backward; a multiply-add counts as 2"""
    memory: dict[str, int]
    """bytes that a step in float32 keeps: ``weights``, ``gradients``, ``optimiser state``, ``activations``; ``together``"""

    PARAMETERS: ClassVar = ("part", "parameters")
    FLOPS: ClassVar = ("", "FLOPs per token")
    MEMORY: ClassVar = ("what training keeps", "memory")

    def parameter_rows(self) -> list[tuple[str, str]]:
        """The parts, then the totals."""
        return [(name, f"{count:,}") for name, count in (self.parameters | self.totals).items()]

    def flop_rows(self) -> list[tuple[str, str]]:
        """For people."""
        return [(name, f"{count:,.0f}") for name, count in self.flops.items()]

    def memory_rows(self) -> list[tuple[str, str]]:
        """For people."""
        return [(name, file_size(size)) for name, size in self.memory.items()]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return asdict(self)


def estimate_cost(config: CostConfig) -> Cost:
    """The cost of a saved model or of settings, printed and returned; the ``cost`` command.

    >>> ws.estimate_cost(ws.CostConfig(backbone=ws.BackboneConfig(), vocab_size=8192)).totals["total"]
    5255680
    """
    model, objective = make_model(config)
    longest = model.backbone.config.max_length
    if config.length and config.length > longest:
        raise ConfigError(f"length must be at most max_length={longest}, but got {config.length}; give a smaller --length")
    rows, tokens = config.batch, config.length or longest
    flops, activations = count_step(model, rows, tokens, OBJECTIVES[objective.name].target_fractions(objective)[0])
    parameters, totals = count_parameters(model)
    cost = Cost(parameters, totals, tokens, flops, _memory(model, activations, muon=config.optimizer == "muon"))
    print_table("parameters", cost.parameter_rows(), cost.PARAMETERS)
    console.print(
        f"scheme {config.scheme}: {totals['trainable']:,} of {totals['total']:,} parameters train, {totals['frozen']:,} are frozen"
    )
    if isinstance(model.head, LMHead) and model.head.config.tied:
        console.print("the weight of the head is the embedding (tied): it is counted once")
    print_table(f"FLOPs (a multiply-add counts as 2), in rows of {tokens:,} tokens", cost.flop_rows(), cost.FLOPS)
    print_table(f"memory of training: {rows} x {tokens:,} tokens, float32, {config.optimizer}", cost.memory_rows(), cost.MEMORY)
    return cost


def make_model(config: CostConfig) -> tuple[Model, ObjectiveConfig]:
    """The model without storage, its scheme applied, and its pretraining objective."""
    if config.model:
        model, objective = _saved(config)
    else:
        objective = config.objective
        head = ClassificationHeadConfig(classes=config.classes) if config.classes else LMHeadConfig(**dict(config.head))
        model = without_storage(
            BackboneConfig(**dict(config.backbone)), _vocab_size(config), head, causal=OBJECTIVES[objective.name].causal
        )
    with torch.device("meta"):
        apply_scheme(model, make_scheme(config.scheme))
    return model, objective


def without_storage(backbone: BackboneConfig, vocab_size: int, head: HeadConfig, *, causal: bool = True) -> Model:
    """A model of any size on torch's ``meta`` device: it can be counted, but computes nothing."""
    with torch.device("meta"):
        body = Backbone(backbone, vocab_size)
        return Model(body, fresh_head(head, body, 0), causal=causal)


def _saved(config: CostConfig) -> tuple[Model, ObjectiveConfig]:
    """The model of a bundle, under a new head if ``classes`` are given. Raises ``ConfigError`` for settings that contradict it."""
    described = config.model_fields_set & {"backbone", "head", "vocab_size", "tokenizer_file"}
    defaults = CostConfig()
    if wrong := sorted(name for name in described if getattr(config, name) != getattr(defaults, name)):
        raise ConfigError(f"a saved model has its own {', '.join(wrong)}; remove these settings, or the model {config.model}")
    assert config.model is not None
    bundle = load_model(config.model)
    objective = bundle.language.objective or config.objective
    model = swap_head(bundle.model, ClassificationHeadConfig(classes=config.classes), 0) if config.classes else bundle.model
    empty = [(tensor, torch.empty_like(tensor, device="meta")) for tensor in model.buffers()]
    empty += [
        (tensor, nn.Parameter(torch.empty_like(tensor, device="meta"), tensor.requires_grad)) for tensor in model.parameters()
    ]
    return copy.deepcopy(model, {id(tensor): other for tensor, other in empty}), objective  # tied weights stay tied


def _vocab_size(config: CostConfig) -> int:
    return load_tokenizer(config.tokenizer_file).vocab_size if config.tokenizer_file else config.vocab_size


def count_parameters(model: Model) -> tuple[dict[str, int], dict[str, int]]:
    """The parameters of each part of a model, and the totals (``Cost``)."""
    plain = without_storage(model.backbone.config, model.backbone.vocab_size, model.head.config)
    own, head = {name for name, _ in plain.named_parameters()}, f"head ({model.head.config.kind})"
    parts = Counter[str]()
    for name, parameter in model.named_parameters():
        parts[_part(name, head) if name in own else _INSERTED] += parameter.numel()
    parts[head] += 0  # a tied weight alone is the embedding's
    total, trainable = parts.total(), sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    totals = {"backbone": total - parts[head], "head": parts[head], "total": total}
    return dict(parts), totals | {"trainable": trainable, "frozen": total - trainable}


def _part(name: str, head: str) -> str:
    """``backbone.blocks.3.norm_1.bias`` -> ``blocks: norms``."""
    words = name.split(".")
    if words[0] == "head":
        return head
    if words[1] == "blocks":
        return {"attention": "blocks: attention", "feedforward": "blocks: feed-forward"}.get(words[3], "blocks: norms")
    return {"norm": "final norm"}.get(words[1], words[1].replace("_", " "))


def count_step(model: Model, rows: int, tokens: int, target_fraction: float) -> tuple[dict[str, float], int]:
    """FLOPs per token of a step on B x T tokens (``Cost.flops``), and the bytes that it keeps for its backward pass.

    A language head reads the fraction of the tokens that have a target. Look-ups, norms, softmax and the optimiser have no FLOPs.
    """
    kept = dict[int, Tensor]()
    known = {stored.untyped_storage()._cdata for stored in (*model.parameters(), *model.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        if (storage := tensor.untyped_storage()._cdata) not in known:
            kept[storage] = tensor
        return tensor

    ids = torch.zeros((rows, tokens), dtype=torch.int64, device="meta")
    model.train()
    with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        states = model.backbone(ids, causal=model.causal).last_hidden_state  # (B, T, D)
        read = states[:, : max(1, round(target_fraction * tokens))] if isinstance(model.head, LMHead) else states
        outputs: Tensor = model.head(read)
    with FlopCounterMode(display=False) as backward:
        if outputs.requires_grad:
            outputs.sum().backward()
    activations = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    there, back = (counter.get_total_flops() / (rows * tokens) for counter in (forward, backward))
    return {"forward": there, "training": there + back}, activations


def _memory(model: Model, activations: int, *, muon: bool) -> dict[str, int]:
    """``Cost.memory``: AdamW keeps two numbers for each parameter that trains, Muon one for the matrices of the blocks."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    numbers = sum((1 if muon and is_muon_matrix(name, parameter) else 2) * parameter.numel() for name, parameter in trained.items())
    kept = {
        "weights": FLOAT32 * sum(parameter.numel() for parameter in model.parameters()),
        "gradients": FLOAT32 * sum(parameter.numel() for parameter in trained.values()),
        "optimiser state": FLOAT32 * numbers,
        "activations": activations,
    }
    return kept | {"together": sum(kept.values())}


def cost_view(cost: Cost) -> Report:
    """The parameters part by part, then FLOPs and memory."""
    sections = (
        Section("Parameters", (), (Table(cost.PARAMETERS, cost.parameter_rows()),)),
        Section("FLOPs per token", (), (Table(cost.FLOPS, cost.flop_rows()),)),
        Section("Memory of training", (), (Table(cost.MEMORY, cost.memory_rows()),)),
    )
    sentence = f"{cost.totals['total']:,} parameters, of which {cost.totals['trainable']:,} train."
    return Report("Cost", headline(sentence), (), sections)
