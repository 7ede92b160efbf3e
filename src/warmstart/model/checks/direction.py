"""Checks of what a token may attend to: never to a later one if the model reads from left to right, and always to some other.

Letters: B batch, T tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.backbone.attention import KVCache
from warmstart.backbone.taps import tapped
from warmstart.heads.language_modeling import LMHead
from warmstart.model.checks.check import NotApplicable, Subject, largest, relative_gap
from warmstart.model.history import AnswersRecord
from warmstart.objectives import OBJECTIVES


def causal_leak(subject: Subject) -> float:
    """Each token of a row is changed in turn; no earlier state of any layer may change."""
    _needs_causal(subject)
    row = subject.ids[0]
    changed = row.repeat(len(row), 1)
    changed.diagonal().copy_((row + 1) % subject.backbone.vocab_size)
    earlier = torch.ones(len(row), len(row), dtype=torch.bool).tril(-1)  # (changed token, token that reads)
    base, other = subject.read(row[None], causal=True), subject.read(changed, causal=True)
    layers = zip((*other.hidden_states, other.last_hidden_state), (*base.hidden_states, base.last_hidden_state), strict=True)
    return largest(relative_gap(found[earlier], wanted.expand_as(found)[earlier]) for found, wanted in layers)


def prefix(subject: Subject) -> float:
    """Every beginning of a row by itself has the states that it has in the whole row."""
    _needs_causal(subject)
    row = subject.ids[:1]
    whole = subject.read(row, causal=True).last_hidden_state
    starts = (subject.read(row[:, :end], causal=True).last_hidden_state for end in range(1, row.shape[1]))
    return largest(relative_gap(states, whole[:, : states.shape[1]]) for states in starts)


def kv_cache(subject: Subject) -> float:
    """Rows read token by token with a KV cache, also beside padding on the left, against rows read at once."""
    _needs_causal(subject)
    ids, tokens = subject.ids, subject.ids.shape[1]
    whole = subject.read(ids, causal=True).last_hidden_state
    found = [relative_gap(_step_by_step(subject, ids, None, 1), whole)]
    if subject.backbone.config.attention == "dot-product":
        padded = F.pad(ids, (2, 0))
        mask = torch.arange(tokens + 2).expand(len(ids), -1) >= 2
        found.append(relative_gap(_step_by_step(subject, padded, mask, 3)[:, 2:], whole))
    return largest(found)


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


def _needs_causal(subject: Subject) -> None:
    if not subject.causal:
        raise NotApplicable("it reads in both directions")


def _step_by_step(subject: Subject, ids: Tensor, mask: Tensor | None, first: int) -> Tensor:
    """The last states (B, T, D) of rows read ``first`` tokens at first, and then one by one."""
    cache = KVCache.empty(subject.backbone.config.depth, ids.shape[1])
    pieces = [(0, first), *((at, at + 1) for at in range(first, ids.shape[1]))]
    read = (
        subject.read(ids[:, start:end], None if mask is None else mask[:, :end], causal=True, kv_cache=cache)
        for start, end in pieces
    )
    return torch.cat([one.last_hidden_state for one in read], dim=1)


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
