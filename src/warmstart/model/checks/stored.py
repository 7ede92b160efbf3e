"""Checks against what was stored when a bundle was saved: tokens, outputs, and predictions by the names of their labels."""

from __future__ import annotations

import torch

from warmstart.model.checks.check import OUTPUT_TOLERANCE, NotApplicable, Subject, largest, relative_gap
from warmstart.model.selftest import (
    SELFTEST_TEXTS,
    WINDOWS,
    calibrated_predictions,
    framed_ids,
    joins_windows,
    longest_row,
    outputs_of,
    row_products,
)


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
