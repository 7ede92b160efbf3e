"""Checks of how a model reads rows: padding, batch mates and the order of rows never change an output."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.backbone.backbone import BackboneOutput
from warmstart.model.checks.check import NotApplicable, Subject, largest, relative_gap
from warmstart.model.inference import run_in_batches
from warmstart.model.inference_weights import inference_weights
from warmstart.model.selftest import LEAST_LENGTH, encoded_texts, outputs_of

AMOUNTS = (0, 3)
"""tokens of padding beyond the longest row"""


def padding_right(subject: Subject) -> float:
    """Rows of three lengths, padded on the right, against each row alone: states and outputs."""
    return _padding(subject, left=False)


def padding_left(subject: Subject) -> float:
    """The same on the left: the positions of a text count from its first token."""
    if subject.backbone.config.attention == "synthesizer":
        raise NotApplicable("synthesizer attention pads on the right alone")
    return _padding(subject, left=True)


def attention_mask(subject: Subject) -> float:
    """Whatever ids stand at padding, outputs stay the same."""
    ids, mask = _padded(subject, AMOUNTS[-1])
    other = torch.where(mask, ids, (ids + 1 + torch.arange(ids.shape[1])) % subject.backbone.vocab_size)
    return relative_gap(outputs_of(subject.model, other, mask), outputs_of(subject.model, ids, mask))


def batch_mates(subject: Subject) -> float:
    """Rows of one length in batches of three and of two, against each alone."""
    alone = torch.cat([outputs_of(subject.model, row[None]) for row in subject.ids])
    pairs = torch.cat([outputs_of(subject.model, subject.ids[:2]), outputs_of(subject.model, subject.ids[1:])])
    return largest([relative_gap(outputs_of(subject.model, subject.ids), alone), relative_gap(pairs, alone[[0, 1, 1, 2]])])


def order_of_rows(subject: Subject) -> float:
    """Texts of several lengths by the code that predicts, in two orders, against each alone."""
    if subject.backbone.config.max_length < LEAST_LENGTH:
        raise NotApplicable("the context is too short")
    bundle = subject.bundle
    encoded, pad = encoded_texts(bundle), bundle.tokenizer.specials.pad
    alone = torch.cat([outputs_of(subject.model, torch.from_numpy(row)[None]) for row in encoded.rows])
    found = []
    for order in (np.arange(len(encoded)), np.arange(len(encoded))[::-1]):
        rows, outputs = encoded.take(order), torch.full_like(alone, torch.nan)
        for indices, batch in run_in_batches(subject.model, rows, pad):
            last = torch.from_numpy(rows.lengths[indices] - 1)
            outputs[indices] = batch[torch.arange(len(batch)), last] if subject.model.head.per_token else batch
        found.append(relative_gap(outputs, alone[order.copy()]))
    return largest(found)


def inference_layout(subject: Subject) -> float:
    """With the weights laid out for fast inference, against the weights as they are."""
    plain = outputs_of(subject.model, subject.ids)
    with inference_weights(subject.model):
        return relative_gap(outputs_of(subject.model, subject.ids), plain)


def _ragged(subject: Subject) -> list[Tensor]:
    """Three rows of different lengths, the last of one token."""
    tokens = subject.ids.shape[1]
    return [row[:length] for row, length in zip(subject.ids, (tokens, max(1, tokens - 3), 1), strict=True)]


def _padded(subject: Subject, amount: int, *, left: bool = False) -> tuple[Tensor, Tensor]:
    """The same rows with padding on one side, and their mask: both (3, T + amount)."""
    rows, tokens = _ragged(subject), subject.ids.shape[1] + amount
    sides = [(tokens - len(row), 0) if left else (0, tokens - len(row)) for row in rows]
    ids = [F.pad(row, side, value=subject.bundle.tokenizer.specials.pad) for row, side in zip(rows, sides, strict=True)]
    real = [F.pad(torch.ones_like(row, dtype=torch.bool), side) for row, side in zip(rows, sides, strict=True)]
    return torch.stack(ids), torch.stack(real)


def _padding(subject: Subject, *, left: bool) -> float:
    """The largest gap between padded rows and each alone: of states of all layers, and of outputs."""
    alone, found = [_layers(subject.read(row[None])) for row in _ragged(subject)], list[float]()
    outputs = torch.cat([outputs_of(subject.model, row[None]) for row in _ragged(subject)])
    for amount in AMOUNTS:
        ids, mask = _padded(subject, amount, left=left)
        padded = _layers(subject.read(ids, mask))
        for row, (real, wanted) in enumerate(zip(mask, alone, strict=True)):
            layers = zip(padded, wanted, strict=True)
            found += [relative_gap(states[row][real], own[0]) for states, own in layers]
        if not (left and subject.model.head.per_token):  # ``outputs_of`` would read the wrong token
            found.append(relative_gap(outputs_of(subject.model, ids, mask), outputs))
    return largest(found)


def _layers(output: BackboneOutput) -> tuple[Tensor, ...]:
    return (*output.hidden_states, output.last_hidden_state)
