"""The account of a model before it is trained, or after: parameters, compute and memory by formula, counted, and measured.

A saved model, or the settings of one: those of a pretraining run are read as they are. Nothing is built for the account itself (it
counts a module without storage), so that a model far bigger than the machine can be asked about.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field, model_validator
from tyro.conf import Positional, arg

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.config import Config
from warmstart.engine import TrainConfig, console, describe_machine
from warmstart.engine.device import in_bfloat16
from warmstart.engine.optim import is_matrix
from warmstart.errors import ConfigError
from warmstart.heads import ClassifyHeadConfig, HeadConfig, LanguageHead, LanguageHeadConfig
from warmstart.model import Account, Load, Model, account_for, fresh_head, skeleton, swap_head
from warmstart.model.memory import megabytes
from warmstart.objectives import OBJECTIVES, ObjectiveConfig
from warmstart.schemes import apply_scheme, known_scheme, make_scheme
from warmstart.tokenizer import TokenizerConfig, load_tokenizer
from warmstart.workflows.measure import measure, take
from warmstart.workflows.pretrain import PretrainConfig, PretrainTrainConfig
from warmstart.workflows.run import load_model, print_table


class AccountConfig(Config):
    """What a model costs, part by part: parameters, operations, memory. The settings of a pretraining run are read as they are."""

    model: Positional[str | None] = None
    """a bundle, or a run's folder; none: the model that the settings describe"""
    vocab_size: int | None = Field(None, gt=0)
    """size of the vocabulary (V); default: the tokenizer's"""
    tokenizer_file: str | None = None
    """a tokenizer whose vocabulary the model has"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer that would be trained"""
    backbone: Annotated[BackboneConfig, arg(name="")] = BackboneConfig()
    head: LanguageHeadConfig = LanguageHeadConfig()
    """the language head"""
    classes: int | None = Field(None, gt=1)
    """a classification head of so many classes instead"""
    scheme: Annotated[str, AfterValidator(known_scheme)] = "full"
    """what trains: any scheme that `warmstart adapt` knows; a+b does both"""
    length: int | None = Field(None, gt=0)
    """tokens of a row (T); default: the longest that the backbone reads"""
    objective: Annotated[ObjectiveConfig, arg(name="")] = ObjectiveConfig()
    train: Annotated[TrainConfig, arg(name="")] = TrainConfig()
    measure: bool = False
    """also run a training step and an inference on this machine's processor, in processes of their own, and measure them"""
    as_json: Annotated[bool, arg(name="json")] = False
    """write the account as JSON to standard output"""

    @model_validator(mode="before")
    @classmethod
    def _from_pretraining(cls, values: Any) -> Any:
        """The keys of a pretraining run that say nothing of what it costs are passed over; ``start`` names the model."""
        if not isinstance(values, dict):
            return values
        idle = PretrainConfig.model_fields.keys() - cls.model_fields.keys()
        kept = {name: value for name, value in values.items() if name not in idle}
        if "text" in values:  # what a pretraining run leaves unsaid is as that command has it
            train = PretrainTrainConfig.build(values.get("train") or {}, "train").plain()
            kept["train"] = {name: value for name, value in train.items() if name in TrainConfig.model_fields}
        return {"model": values["start"], **kept} if values.get("start") else kept

    @model_validator(mode="after")
    def _known(self) -> AccountConfig:
        OBJECTIVES[self.objective.name]
        return self


def account(config: AccountConfig) -> Account:
    """The account of a saved model or of settings, printed and returned; the ``account`` command.

    >>> ws.account(ws.AccountConfig(backbone=ws.BackboneConfig(), vocab_size=8192)).totals["total"]
    5255680
    """
    model, objective = make_model(config, real=False)
    if config.length and config.length > model.backbone.config.max_tokens:
        most = model.backbone.config.max_tokens
        raise ConfigError(f"length must be at most max_tokens={most}, but is {config.length}; give a smaller --length")
    load = _load(config, model, objective)
    made = account_for(model, load)
    if config.measure:
        made = replace(made, measured=measure(config.plain(), load, made))
    if config.as_json:
        sys.stdout.write(json.dumps(made.plain(), indent=1) + "\n")
    else:
        _show(made, config, model, load)
    return made


def measured() -> None:
    """The measuring process: reads what to do from standard input, and writes what it took to standard output."""
    task = json.loads(sys.stdin.read())
    config = AccountConfig.build(task["settings"])
    took = take(task["mode"], lambda: make_model(config, real=True)[0], Load(**task["load"]), config.train)
    sys.stdout.write(json.dumps(took) + "\n")


def make_model(config: AccountConfig, *, real: bool) -> tuple[Model, ObjectiveConfig]:
    """The model with its scheme applied, and its pretraining objective; without storage unless ``real``, or saved."""
    if config.model:
        model, objective = _saved(config)
    else:
        head: HeadConfig = ClassifyHeadConfig(classes=config.classes) if config.classes else config.head
        causal, objective = OBJECTIVES[config.objective.name].causal, config.objective
        size = _vocab_size(config)
        if real:
            backbone = Backbone(config.backbone, size)
            model = Model(backbone, fresh_head(head, backbone, 0), causal=causal)
        else:
            model = skeleton(config.backbone, size, head, causal=causal)
    with torch.device(next(model.parameters()).device):
        apply_scheme(model, make_scheme(config.scheme))
    return model, objective


def _saved(config: AccountConfig) -> tuple[Model, ObjectiveConfig]:
    """A bundle's model, under a new head where classes are asked for; settings that would contradict it are refused."""
    told = config.model_fields_set & {"backbone", "head", "vocab_size", "tokenizer_file", "tokenizer"}
    fresh = AccountConfig()
    if odd := sorted(name for name in told if getattr(config, name) != getattr(fresh, name)):
        raise ConfigError(f"a saved model has its own {', '.join(odd)}; drop these settings, or the model {config.model}")
    assert config.model is not None
    bundle = load_model(config.model)
    stored = next((entry["objective"] for entry in reversed(bundle.history) if entry.get("objective")), None)
    objective = ObjectiveConfig.build(stored, "objective") if stored else config.objective
    model = swap_head(bundle.model, ClassifyHeadConfig(classes=config.classes), 0) if config.classes else bundle.model
    return model, objective


def _vocab_size(config: AccountConfig) -> int:
    if config.vocab_size:
        return config.vocab_size
    return load_tokenizer(config.tokenizer_file).vocab_size if config.tokenizer_file else config.tokenizer.vocab_size


def scored_share(config: ObjectiveConfig) -> tuple[float, float]:
    """The share of a row's tokens that a language head scores in training: on average, and in the batch that scores most.

    Span corruption with sentinels: of n tokens ``r n`` are hidden in ``r n / s`` spans; the row holds a sentinel for each span
    twice and scores the hidden tokens and one sentinel for each of their spans, so the share is ``(r + r/s) / (1 + 2 r/s)``.
    """
    rate = config.hidden
    if config.name == "masked":
        return rate, rate
    if config.name == "hybrid":
        return config.causal_share + (1 - config.causal_share) * rate, 1.0 if config.causal_share else rate
    if config.name == "span" and config.form == "sentinel":
        spans = rate / config.mean_span
        share = (rate + spans) / (1 + 2 * spans)
        return share, share
    return 1.0, 1.0


def _load(config: AccountConfig, model: Model, objective: ObjectiveConfig) -> Load:
    half = in_bfloat16(config.train.precision, torch.device("cpu"))
    muon = config.train.optimizer == "muon"
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    moments = sum((1 if muon and is_matrix(name, parameter) else 2) * parameter.numel() for name, parameter in trained)
    scored, most = scored_share(objective)
    length = config.length or model.backbone.config.max_tokens
    return Load(config.train.batch, length, scored, most, half, moments)


def _show(made: Account, config: AccountConfig, model: Model, load: Load) -> None:
    """The tables, each followed by its sentence."""
    print_table("parameters", made.table(), made.HEADER)
    totals = made.totals
    console.print(
        f"scheme {config.scheme}: {totals['trainable']:,} of {totals['total']:,} parameters train, {totals['frozen']:,} frozen"
    )
    if isinstance(model.head, LanguageHead) and model.head.config.tied:
        console.print("the head's weight is the embedding's (tied): it is counted once")
    print_table(
        f"operations per token (a multiply-add is 2), rows of {made.flops.tokens:,} tokens", made.flops.table(), made.flops.HEADER
    )
    kind = "bfloat16" if load.half else "float32"
    title = f"memory of training: {load.batch} x {load.length(model):,} tokens, {kind} products, {config.train.optimizer}"
    print_table(title, made.training.table(), made.training.HEADER)
    console.print("peak = weights + moments + the larger of gradients and (activations + loss) + holes")
    print_table(
        f"memory of inference: {load.batch} x {load.length(model):,} tokens, float32", made.inference.table(), made.inference.HEADER
    )
    if measured := made.measured:
        rows = [
            (name, megabytes(part.peak), megabytes(measured[name]), f"{part.peak / measured[name]:.2f}")
            for name, part in (("training", made.training), ("inference", made.inference))
        ]
        print_table("memory, predicted and measured", rows, ("peak", "predicted MB", "measured MB", "ratio"))
        console.print(
            f"a training step took {measured['seconds']:.3g} s: {measured['tokens_per_second']:,.0f} tokens/s, "
            f"{measured['flops_per_second'] / 1e9:,.1f} GFLOP/s achieved, on {describe_machine(torch.device('cpu'))}"
        )
