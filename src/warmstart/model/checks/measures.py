"""What the checks of a model measure: what was stored when it was saved, its tokenizer and labels, and what it consists of.

Letters: T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from warmstart.backbone.backbone import make_positions, make_window_positions
from warmstart.backbone.positions import Rotary
from warmstart.backbone.taps import tapped
from warmstart.errors import ModelError
from warmstart.heads.language_modeling import LMHead
from warmstart.model.checks.check import OUTPUT_TOLERANCE, NotApplicable, Subject, largest, relative_gap
from warmstart.model.history import AnswersRecord, ImportRecord, recorded_labels
from warmstart.model.selftest import (
    LEAST_LENGTH,
    SELFTEST_TEXTS,
    WINDOWS,
    calibrated_predictions,
    framed_ids,
    joins_windows,
    longest_row,
    outputs_of,
    row_products,
)
from warmstart.objectives import OBJECTIVES
from warmstart.stats.calibration import RANGE
from warmstart.system.device import autocast

# Checks against what was stored when a bundle was saved: tokens, outputs, and predictions by the names of their labels.


def stored_tokens(subject: Subject) -> float:
    """How many tokens of the test texts differ: in kind or number, or in those that frame a text."""
    wanted = subject.stored_tensor("text_ids").tolist()
    found = [id_ for row in subject.bundle.tokenizer.encode(SELFTEST_TEXTS) for id_ in row]
    pairs = [(found, wanted)]
    if "framed_ids" in subject.stored:
        pairs.append((framed_ids(subject.bundle).tolist(), subject.stored["framed_ids"].tolist()))
    return float(sum(abs(len(one) - len(other)) + sum(a != b for a, b in zip(one, other, strict=False)) for one, other in pairs))


def stored_vocabulary(subject: Subject) -> float:
    """How many rows of the tables, and ids of tokens, are not those that were stored."""
    found, wanted = row_products(subject.model), subject.stored_tensor("row_products")
    pieces, named = torch.from_numpy(subject.bundle.tokenizer.checksums()), subject.stored["pieces"]
    if found.shape != wanted.shape or pieces.shape != named.shape:
        return float(abs(len(found) - len(wanted)) + abs(len(pieces) - len(named)))
    near = (found - wanted).abs() <= OUTPUT_TOLERANCE * wanted.abs().max()  # nan is not
    return float((~near).sum() + (pieces != named).sum())


def stored_outputs(subject: Subject) -> float:
    """The outputs of the stored rows, also as windows of texts."""
    wanted, model = subject.stored_tensor("answers"), subject.model
    ids, mask = subject.stored["ids"], subject.stored["mask"]
    found = [relative_gap(outputs_of(model, ids, mask), wanted)]
    if joins_windows(model):
        found.append(relative_gap(outputs_of(model, ids, mask, WINDOWS), subject.stored["window_answers"]))
    return largest(found)


def stored_predictions(subject: Subject) -> float:
    """The prediction for each test text: a number, or the probability of each label, found by its name."""
    if not (found := subject.named_predictions):
        raise NotApplicable("it has no labels, and predicts no number")
    subject.stored_tensor("number" if "number" in found else "calibrated")
    wanted = {name: column for name, column in subject.stored.items() if name == "number" or name.startswith("label ")}
    if wanted.keys() != found.keys():
        return float(len(wanted.keys() ^ found.keys()))
    return largest(relative_gap(found[name], wanted[name]) for name in wanted)


def stored_calibration(subject: Subject) -> float:
    """The predictions for the test texts at its temperature."""
    if not subject.bundle.labels:
        raise NotApplicable("it has no labels")
    wanted = subject.stored_tensor("calibrated")
    return relative_gap(calibrated_predictions(subject.bundle, subject.named_predictions), wanted)


def stored_length(subject: Subject) -> float:
    """By how many tokens the end of a text that is too long has moved."""
    return float(abs(longest_row(subject.bundle) - int(subject.stored_tensor("longest"))))


# Checks of tokenizer, length, labels and temperature, and of whether they fit the weights.

FEWEST = 0.5
"""a tokenizer has at least this fraction of the rows of the embedding"""


def tokenizer_round_trip(subject: Subject) -> float:
    """How many of the test texts, decoded and encoded again, have other tokens; texts that it cannot spell are left out."""
    tokenizer = subject.bundle.tokenizer
    rows = [row for row in tokenizer.encode(SELFTEST_TEXTS) if tokenizer.specials.unk not in row]
    if not rows:
        raise NotApplicable("it cannot spell the test texts")
    return float(sum(one != other for one, other in zip(tokenizer.encode([*map(tokenizer.decode, rows)]), rows, strict=True)))


def vocabulary_size(subject: Subject) -> float:
    """1 if embedding, head and tokenizer are not of one size; the embedding may have spare rows, but no more than tokens."""
    rows, tokens = subject.backbone.vocab_size, subject.bundle.tokenizer.vocab_size
    head = subject.model.head
    sizes = {rows, len(subject.backbone.embedding.weight), len(head.weight) if isinstance(head, LMHead) else rows}
    return float(len(sizes) > 1 or not FEWEST * rows <= tokens <= rows)


def maximum_length(subject: Subject) -> float:
    """By how many tokens the longest row that positions allow, or a text that is cut, is off the settings."""
    backbone, length = subject.backbone, subject.backbone.config.max_length
    rows = [_table_rows(module) - offset for module, offset in _tables(subject)]
    if length >= LEAST_LENGTH:
        rows.append(max(length, longest_row(subject.bundle)))  # a tokenizer that joins unknown words gives fewer
    try:
        backbone(torch.zeros(1, length + 1, dtype=torch.int64), causal=subject.model.causal)
        rows.append(length + 1)
    except ModelError:
        pass
    return float(max(abs(one - length) for one in rows)) if rows else 0.0


def labels_in_order(subject: Subject) -> float:
    """How many names are empty, repeated, or those of another class in its history; a class may get a new name."""
    names = subject.bundle.labels
    if not names:
        raise NotApplicable("it has no labels")
    known = recorded_labels(subject.bundle) or _imported_labels(subject)
    moved = sum(one != other and one in known for one, other in zip(names, known, strict=True)) if len(known) == len(names) else 0
    return float(moved + len(names) - len(set(names)) + sum(not name for name in names))


def temperature(subject: Subject) -> float:
    """1 if the temperature lies outside its own interval, or outside the range that is searched."""
    calibration = subject.bundle.calibration
    if calibration is None:
        raise NotApplicable("it is not calibrated")
    low, high = calibration.interval or RANGE
    return float(not max(low, RANGE[0]) * (1 - 1e-6) <= calibration.temperature <= min(high, RANGE[1]) * (1 + 1e-6))


def _tables(subject: Subject) -> list[tuple[nn.Module, int]]:
    """The tables of positions, each with its number of rows that belong to no position."""
    backbone = subject.backbone
    return [
        (one, backbone.config.position_offset * isinstance(one, nn.Embedding))
        for one in (backbone.positions, backbone.window_positions)
        if one is not None
    ]


def _table_rows(table: nn.Module) -> int:
    if isinstance(table, nn.Embedding):
        return table.num_embeddings
    return len(table.get_buffer("cos" if isinstance(table, Rotary) else "table"))


def _imported_labels(subject: Subject) -> tuple[str, ...]:
    """The names in the ``config.json`` that it was imported with; empty if it has been trained for a task, or came without."""
    last = subject.bundle.history[-1] if subject.bundle.history else None
    names = last.config.get("id2label") if isinstance(last, ImportRecord) else None
    return tuple(str(names[key]) for key in sorted(names, key=int)) if names else ()


# Checks of what a model consists of: its tensors, tables of positions, precision, mode and objective.


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
