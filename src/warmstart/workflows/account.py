"""The ``account`` command: what a model costs, part by part, predicted and then measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field, model_validator
from tyro.conf import Positional, arg

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.config import Config, read_yaml
from warmstart.engine import console, pick_device
from warmstart.engine.device import native_bfloat16
from warmstart.heads import ClassifyHeadConfig, HeadConfig, LanguageHeadConfig
from warmstart.model import Bundle, Model, fresh_head
from warmstart.model.account import Account, account, flops_per_token, inference_bytes, training_bytes
from warmstart.objectives import OBJECTIVES, ObjectiveConfig
from warmstart.schemes import apply_scheme, make_scheme
from warmstart.schemes.scheme import known_scheme
from warmstart.tokenizer import load_tokenizer
from warmstart.workflows.commands import with_preset
from warmstart.workflows.measure import measure
from warmstart.workflows.pretrain import PretrainConfig
from warmstart.workflows.run import load_model, print_table


class AccountConfig(Config):
    """What a model costs: parameters part by part, operations per token, memory; of a saved model, or of settings."""

    model: Positional[str | None] = None
    """a bundle, a run's folder, or the settings of a pretraining (YAML); without one, the settings below are accounted for"""
    backbone: Annotated[BackboneConfig, arg(name="")] = BackboneConfig()
    vocab_size: int = Field(8192, gt=0)
    """tokens of the vocabulary (V)"""
    classes: int | None = Field(None, gt=1)
    """number of labels, for a classification head instead of a language head"""
    head: LanguageHeadConfig = LanguageHeadConfig()
    scheme: Annotated[str, AfterValidator(lambda names: known_scheme(names) if names else names)] = ""
    """how it is adapted: says what trains and what is frozen"""
    objective: Annotated[ObjectiveConfig, arg(name="")] = ObjectiveConfig()
    batch: int = Field(16, gt=0)
    """rows of a training step"""
    row_tokens: int | None = Field(None, gt=0)
    """tokens of a row; default: as many as the backbone reads"""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW keeps two numbers for each weight that trains, Muon one for the matrices of the blocks"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """arithmetic of matrix products in training"""
    measure: bool = False
    """also run a real training step and real writing, each in a process of its own"""
    as_json: Annotated[bool, arg(name="json")] = False
    """print everything as JSON"""

    @model_validator(mode="after")
    def _known(self) -> AccountConfig:
        OBJECTIVES[self.objective.name]
        return self


def account_for(config: AccountConfig) -> dict[str, Any]:
    """Build the model, count, predict, measure where that is asked for, and print; returns all figures."""
    if config.model and config.model.endswith((".yaml", ".yml")):
        config = _planned(config, config.model)
    bundle = load_model(config.model) if config.model else None
    model = bundle.model if bundle else _build(config)
    if config.scheme:
        apply_scheme(model, make_scheme(config.scheme))
    found = account(model)
    tokens = min(config.row_tokens or found.config.max_tokens, found.config.max_tokens)
    objective = _objective(config, bundle)
    scored = objective.mask_rate if objective.name == "masked" else 1.0
    half = config.precision == "bfloat16" or (config.precision == "auto" and native_bfloat16(pick_device()))
    flops = flops_per_token(found, tokens, scored)
    training = training_bytes(found, config.batch, tokens, half=half, muon=config.optimizer == "muon")
    inference = inference_bytes(found, 1, tokens)
    figures: dict[str, Any] = {
        "parameters": [vars(part) for part in found.parts],
        "total": found.total,
        "trainable": found.trainable,
        "other heads": found.others,
        "flops per token": flops,
        "training bytes": training,
        "inference bytes": inference,
    }
    if config.measure:
        work = _work(found, config, tokens, objective.name)
        figures["measured"] = {kind: measure(work, kind) for kind in ("training", "inference")}
    if config.as_json:
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    else:
        _show(found, figures, f"{config.batch} rows of {tokens} tokens", config.batch * tokens)
    return figures


def _planned(config: AccountConfig, file: str) -> AccountConfig:
    """What the settings of a pretraining would make; its tokenizer is loaded where one is named, to know its size."""
    plan = PretrainConfig.build(with_preset(read_yaml(file)), file)
    size = load_tokenizer(plan.tokenizer_file).vocab_size if plan.tokenizer_file else plan.tokenizer.vocab_size
    taken = {"backbone": plan.backbone, "head": plan.head, "objective": plan.objective, "batch": plan.train.batch}
    return config.model_copy(update=taken | {"model": None, "vocab_size": size, "optimizer": plan.train.optimizer})


def _build(config: AccountConfig) -> Model:
    """A model of these settings with fresh weights."""
    backbone = Backbone(config.backbone, config.vocab_size)
    head: HeadConfig = ClassifyHeadConfig(classes=config.classes) if config.classes else config.head
    return Model(backbone, fresh_head(head, backbone, 0), causal=OBJECTIVES[config.objective.name].causal)


def _objective(config: AccountConfig, bundle: Bundle | None) -> ObjectiveConfig:
    kept = bundle.history[-1].get("objective") if bundle and bundle.history else None
    return ObjectiveConfig.build(kept, "objective") if kept else config.objective


def _work(found: Account, config: AccountConfig, tokens: int, objective: str) -> dict[str, Any]:
    return {
        "backbone": found.config.plain(),
        "vocab_size": found.vocab_size,
        "head": found.head.plain(),
        "scheme": config.scheme,
        "objective": objective,
        "train": {"optimizer": config.optimizer, "precision": config.precision},
        "rows": config.batch,
        "tokens": tokens,
    }


def _show(found: Account, figures: Mapping[str, Any], size: str, batch_tokens: int) -> None:
    """Everything in the terminal."""
    print_table("parameters", found.table(), found.HEADER)
    heads = {"this head": found.total - found.backbone} | found.others
    rows = [(name, f"{new:,}", f"{found.backbone:,}", f"{found.backbone + new:,}") for name, new in heads.items()]
    print_table("heads", rows, ("head", "adds", "to the backbone's", "in all"))
    flops = [(name, f"{value:,.0f}") for name, value in figures["flops per token"].items()]
    print_table("operations per token (2 per multiply-add)", flops, ("of", "operations"))
    measured = figures.get("measured", {})
    for kind, said in (("training", f"training memory, {size}"), ("inference", "inference memory, one row written to its end")):
        parts = figures[f"{kind} bytes"]
        memory = [(name, _megabytes(value)) for name, value in parts.items()] + [("predicted", _megabytes(sum(parts.values())))]
        if kind in measured:
            real = measured[kind]["bytes"]
            memory.append(("measured", f"{_megabytes(real)} ({real / sum(parts.values()):.2f} × predicted)"))
        print_table(said, memory, ("of", "megabytes"))
    if measured:
        seconds = measured["training"]["seconds"]
        speed = batch_tokens / seconds
        rate = speed * figures["flops per token"]["training"] / 1e9
        console.print(
            f"a training step takes {seconds:.3f} s with {torch.get_num_threads()} threads: {speed:,.0f} tokens/s, "
            f"{rate:,.0f} billion operations/s"
        )


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"
