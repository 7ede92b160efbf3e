"""Checks of what a token attends to: always to some other one, and to later ones only if the objective reads both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from warmstart.backbone.taps import tapped
from warmstart.heads.language_modeling import LMHead
from warmstart.model.checks.check import NotApplicable, Subject
from warmstart.model.history import AnswersRecord
from warmstart.objectives import OBJECTIVES


def reach(subject: Subject) -> float:
    """How many blocks do not pass on what the first token of their input is."""
    config = subject.backbone.config
    blocks = [i for i in range(config.depth) if not (config.is_local(i) and config.window == 0)]
    if not blocks:
        raise NotApplicable("there is no block")
    return float(sum(not _passes_on(subject, i, source) for i in blocks for source in (0, 1)[: 2 - subject.model.causal]))


def objective(subject: Subject) -> float:
    """1 if the direction or the ability to generate is not that of the objective in its history."""
    bundle = subject.bundle
    if not isinstance(subject.model.head, LMHead) or bundle.language_record is None or bundle.language_record.objective is None:
        raise NotApplicable("its history names no objective of its head")
    config = bundle.language_record.objective
    row = OBJECTIVES[config.name]
    can = row.generates(config) or isinstance(bundle.language_record, AnswersRecord)
    return float(row.causal != subject.model.causal or (bundle.generates and not can))


def _passes_on(subject: Subject, block: int, source: int) -> bool:
    """Whether the token beside it changes, if in a row of two the ``source``, 0 or 1, changes at the input of a block."""
    place = f"blocks.{block - 1}" if block else "dropout"

    def change(states: Tensor) -> Tensor:
        states = states.clone()
        states[:, source] = states[:, source].roll(1, dims=-1) + states[:, source].abs().mean()
        return states

    row = subject.ids[:1, :2]
    base = subject.read(row).hidden_states[block + 1]
    with tapped(subject.backbone, {place: change}):
        other = subject.read(row).hidden_states[block + 1]
    return not torch.equal(base[:, 1 - source], other[:, 1 - source])
