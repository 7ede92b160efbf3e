"""Checks of what a model consists of: its tensors, tables of positions, precision, mode and objective.

Letters: T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from warmstart.backbone.backbone import make_positions, make_window_positions
from warmstart.backbone.taps import tapped
from warmstart.heads.language_modeling import LMHead
from warmstart.model.checks.check import NotApplicable, Subject, largest, relative_gap
from warmstart.model.history import AnswersRecord
from warmstart.model.selftest import outputs_of
from warmstart.objectives import OBJECTIVES
from warmstart.system.device import autocast


def finite(subject: Subject) -> float:
    """How many numbers of all tensors are nan or infinite."""
    return float(sum(int((~tensor.isfinite()).sum()) for tensor in subject.model.weights().values()))


def one_dtype(subject: Subject) -> float:
    """How many tensors are not float32."""
    return float(sum(tensor.dtype is not torch.float32 for tensor in subject.model.weights().values()))


def bfloat16(subject: Subject) -> float:
    """How far the last states are off with bfloat16 products, as a fraction of their length."""
    exact = subject.read(subject.ids).last_hidden_state
    with autocast("bfloat16", exact.device):
        rough = subject.read(subject.ids).last_hidden_state.float()
    return float((rough - exact).norm() / exact.norm().clamp(min=1e-6))


def evaluation_mode(subject: Subject) -> float:
    """Modules that are in training mode; without any, how much two readings of the same rows differ."""
    if training := sum(module.training for module in subject.model.modules()):
        return float(training)
    one, other = (outputs_of(subject.model, subject.ids) for _ in "ab")
    return relative_gap(one, other)


def tied(subject: Subject) -> float:
    """The weight of a tied language head against the embedding; a copy with the same values is as good."""
    head = subject.model.head
    if not isinstance(head, LMHead) or not head.config.tied:
        raise NotApplicable("no head shares the embedding")
    return relative_gap(head.weight, subject.backbone.embedding.weight)


def position_table(subject: Subject) -> float:
    """Tables of positions that are computed, against those that the settings give."""
    backbone, config = subject.backbone, subject.backbone.config
    if config.positions == "learned":
        raise NotApplicable("its positions are learned")
    pairs = [(backbone.positions, make_positions(config)), (backbone.window_positions, make_window_positions(config))]
    if any((one is None) != (wanted is None) for one, wanted in pairs):
        return math.inf
    tables = [
        (buffer, wanted.get_buffer(name))
        for one, wanted in pairs
        if one is not None and wanted is not None
        for name, buffer in one.named_buffers()
    ]
    return largest(relative_gap(found, same) if found.shape == same.shape else math.inf for found, same in tables)


def dead(subject: Subject) -> float:
    """The largest fraction of dimensions in which a branch of a block, or the head, gives every token the same."""
    found: dict[str, Tensor] = {}

    def keep(name: str, states: Tensor) -> Tensor:
        found[name] = states.flatten(0, -2)
        return states

    blocks = range(subject.backbone.config.depth)
    edits: dict[str, Callable[[Tensor], Tensor]] = {
        name: partial(keep, name) for i in blocks for name in (f"blocks.{i}.attention", f"blocks.{i}.feedforward")
    }
    with tapped(subject.backbone, edits):
        found["head"] = outputs_of(subject.model, subject.ids)
    return largest(float((states == states[:1]).all(dim=0).float().mean()) for states in found.values())


def objective(subject: Subject) -> float:
    """1 if the direction or the ability to generate is not that of the objective in its history."""
    bundle = subject.bundle
    if not isinstance(subject.model.head, LMHead) or bundle.language_record is None or bundle.language_record.objective is None:
        raise NotApplicable("its history names no objective of its head")
    config = bundle.language_record.objective
    row = OBJECTIVES[config.name]
    can = row.generates(config) or isinstance(bundle.language_record, AnswersRecord)
    return float(row.causal != subject.model.causal or (bundle.generates and not can))
