"""``cost``: parameters, FLOPs and memory of a model, by formula, counted and measured.

The model is a saved one, or described by settings; those of a pretraining run can be given as they are. Counting allocates no
weights, so the model may be far larger than the machine.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field, model_validator
from tyro.conf import Positional, arg

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.commands.pretrain.command import PretrainConfig
from warmstart.config import Advanced, Config, FileInput
from warmstart.cost.cost import Cost, cost_of
from warmstart.cost.measured import measure_cost, measure_here
from warmstart.cost.memory import megabytes
from warmstart.cost.parameters import without_storage
from warmstart.cost.workload import Workload
from warmstart.errors import ConfigError
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes import known_scheme, make_scheme
from warmstart.heads.head import LossHead
from warmstart.heads.language_modeling import LMHead, LMHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.interop.load import load_model
from warmstart.model.history import LanguageRecord
from warmstart.model.model import Model, fresh_head, swap_head
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.system.console import console, print_table
from warmstart.system.device import in_bfloat16
from warmstart.system.machine import describe_machine
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.train import TokenizerConfig
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.optimizers import is_muon_matrix


class CostConfig(Config):
    """Count the parameters, FLOPs and memory of a model, part by part; reads the settings of a pretraining run too."""

    model: Positional[FileInput[str | None]] = None
    """a bundle, or the folder of a run; none: the model that the settings describe"""
    vocab_size: int | None = Field(None, gt=0)
    """size of the vocabulary; default: the tokenizer's"""
    tokenizer_file: FileInput[Advanced[str | None]] = None
    """take the size of the vocabulary from this tokenizer"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer that would be trained"""
    backbone: Annotated[BackboneConfig, arg(name="")] = BackboneConfig()
    head: Advanced[LMHeadConfig] = LMHeadConfig()
    """the language head"""
    classes: int | None = Field(None, gt=1)
    """use a classification head with this many classes instead"""
    scheme: Annotated[str, AfterValidator(known_scheme)] = "full"
    """which parameters train: any scheme of `warmstart adapt`; a+b combines two"""
    length: int | None = Field(None, gt=0)
    """tokens per row; default: the context length of the backbone"""
    objective: Annotated[ObjectiveConfig, arg(name="")] = ObjectiveConfig()
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig()
    measure: bool = False
    """also measure a training step and an inference on this machine's CPU, each in a process of its own"""

    @model_validator(mode="before")
    @classmethod
    def _from_pretraining(cls, values: Any) -> Any:
        """Keys of a pretraining run that do not matter for its cost are ignored; ``init_from`` names the model."""
        if not isinstance(values, dict):
            return values
        ignored = PretrainConfig.model_fields.keys() - cls.model_fields.keys()
        kept = {name: value for name, value in values.items() if name not in ignored}
        if "text" in values:  # missing training settings have the defaults of pretraining
            train = PretrainTrainConfig.build(values.get("train") or {}, "train").to_dict()
            kept["train"] = {name: value for name, value in train.items() if name in TrainConfig.model_fields}
        return {"model": values["init_from"], **kept} if values.get("init_from") else kept

    @model_validator(mode="after")
    def _known(self) -> CostConfig:
        OBJECTIVES[self.objective.name]
        return self


def estimate_cost(config: CostConfig) -> Cost:
    """The cost of a saved model or of settings, printed and returned; the ``cost`` command.

    >>> ws.estimate_cost(ws.CostConfig(backbone=ws.BackboneConfig(), vocab_size=8192)).parameters.totals["total"]
    5255680
    """
    model, objective = make_model(config, real=False)
    longest = model.backbone.config.max_length
    if config.length and config.length > longest:
        raise ConfigError(f"length must be at most max_length={longest}, but got {config.length}; give a smaller --length")
    workload = _workload(config, model, objective)
    cost = cost_of(model, workload)
    if config.measure:
        if not isinstance(model.head, LMHead | LossHead):
            raise ConfigError("an embedding head has no loss, so training cannot be measured; give --classes N for another head")
        code = "from warmstart.commands.cost import measuring_process; measuring_process()"
        cost = replace(cost, measured=measure_cost(code, config.to_dict(), workload, cost))
    _print(cost, config, model, workload)
    return cost


def measuring_process() -> None:
    """The process that measures: reads its task from standard input, and writes what it measured to standard output."""
    task = json.loads(sys.stdin.read())
    os.chdir(task["folder"])  # relative paths in the settings start at the user's folder; nothing is imported from there
    config = CostConfig.build(task["settings"])
    measured = measure_here(task["mode"], lambda: make_model(config, real=True)[0], Workload(**task["workload"]), config.train)
    sys.stdout.write(json.dumps(measured) + "\n")


def make_model(config: CostConfig, *, real: bool) -> tuple[Model, ObjectiveConfig]:
    """The model with its scheme applied, and its pretraining objective; without storage unless it is saved, or ``real``."""
    if config.model:
        model, objective = _saved(config)
    else:
        objective = config.objective
        row = OBJECTIVES[objective.name]
        head = ClassificationHeadConfig(classes=config.classes) if config.classes else config.head
        size = _vocab_size(config)
        if real:
            backbone = Backbone(config.backbone, size)
            model = Model(backbone, fresh_head(head, backbone, 0), causal=row.causal)
        else:
            model = without_storage(config.backbone, size, head, causal=row.causal)
    with torch.device(next(model.parameters()).device):
        apply_scheme(model, make_scheme(config.scheme))
    return model, objective


def _saved(config: CostConfig) -> tuple[Model, ObjectiveConfig]:
    """The model of a bundle, under a new head if ``classes`` are given. Raises ``ConfigError`` for settings that contradict it."""
    given = config.model_fields_set & {"backbone", "head", "vocab_size", "tokenizer_file", "tokenizer"}
    defaults = CostConfig()
    if wrong := sorted(name for name in given if getattr(config, name) != getattr(defaults, name)):
        raise ConfigError(f"a saved model has its own {', '.join(wrong)}; remove these settings, or the model {config.model}")
    assert config.model is not None
    bundle = load_model(config.model)
    known = [record.objective for record in bundle.history if isinstance(record, LanguageRecord) and record.objective]
    objective = known[-1] if known else config.objective
    model = swap_head(bundle.model, ClassificationHeadConfig(classes=config.classes), 0) if config.classes else bundle.model
    return model, objective


def _vocab_size(config: CostConfig) -> int:
    if config.vocab_size:
        return config.vocab_size
    return load_tokenizer(config.tokenizer_file).vocab_size if config.tokenizer_file else config.tokenizer.vocab_size


def _workload(config: CostConfig, model: Model, objective: ObjectiveConfig) -> Workload:
    muon = config.train.optimizer == "muon"
    trainable = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    average, most = OBJECTIVES[objective.name].target_fractions(objective)
    return Workload(
        batch=config.train.batch,
        tokens=config.length or model.backbone.config.max_length,
        target_fraction=average,
        max_target_fraction=most,
        bfloat16=in_bfloat16(config.train.precision, torch.device("cpu")),
        optimizer_numbers=sum((1 if muon and is_muon_matrix(name, one) else 2) * one.numel() for one, name in trainable.items()),
    )


def _print(cost: Cost, config: CostConfig, model: Model, workload: Workload) -> None:
    """The tables, each followed by its sentences."""
    parameters, totals = cost.parameters, cost.parameters.totals
    print_table("parameters", parameters.table(), parameters.HEADER)
    console.print(
        f"scheme {config.scheme}: {totals['trainable']:,} of {totals['total']:,} parameters train, {totals['frozen']:,} are frozen"
    )
    if isinstance(model.head, LMHead) and model.head.config.tied:
        console.print("the weight of the head is the embedding (tied): it is counted once")
    title = f"FLOPs per token (a multiply-add counts as 2), in rows of {cost.flops.tokens:,} tokens"
    print_table(title, cost.flops.table(), cost.flops.HEADER)
    rows, dtype = f"{workload.batch} x {workload.length(model):,} tokens", "bfloat16" if workload.bfloat16 else "float32"
    memory = cost.training_memory
    print_table(f"memory of training: {rows}, {dtype} products, {config.train.optimizer}", memory.table(), memory.HEADER)
    console.print("peak = weights + optimiser state + the larger of gradients and (activations + loss) + fragmentation")
    print_table(f"memory of inference: {rows}, float32", cost.inference_memory.table(), memory.HEADER)
    if measured := cost.measured:
        peaks = {"training": cost.training_memory.peak, "inference": cost.inference_memory.peak}
        lines = [(name, megabytes(peak), megabytes(measured[name]), f"{peak / measured[name]:.2f}") for name, peak in peaks.items()]
        print_table("memory, predicted and measured", lines, ("peak", "predicted MB", "measured MB", "ratio"))
        console.print(
            f"a training step took {measured['seconds']:.3g} s: {measured['tokens_per_second']:,.0f} tokens/s, "
            f"{measured['flops_per_second'] / 1e9:,.1f} GFLOP/s, on {describe_machine(torch.device('cpu'))}"
        )
