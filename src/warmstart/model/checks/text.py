"""Checks of tokenizer, length, labels and temperature, and of whether they fit the weights."""

from __future__ import annotations

import torch
from torch import nn

from warmstart.backbone.positions import Rotary
from warmstart.errors import ModelError
from warmstart.heads.language_modeling import LMHead
from warmstart.model.checks.check import NotApplicable, Subject
from warmstart.model.history import ImportRecord, recorded_labels
from warmstart.model.selftest import LEAST_LENGTH, SELFTEST_TEXTS, longest_row
from warmstart.stats.calibration import RANGE

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
