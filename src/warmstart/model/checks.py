"""Checks of a saved model: what a damaged, edited, exchanged or foreign file can break.

A check measures one number that must not exceed a limit: a function, and a row in ``CHECKS``. ``warmstart doctor`` runs all of
them; some also run before a bundle is saved, and those that read what was stored with it whenever it is loaded. No check reads a
text of the user's, and none asks what the code promises of every model, such as that padding changes no output: tests prove that
(``tests/test_backbone.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from warmstart.backbone.taps import tapped
from warmstart.heads.language_modeling import LMHead
from warmstart.model.bundle import Bundle
from warmstart.model.history import imported, recorded_labels
from warmstart.model.selftest import (
    SELFTEST_TEXTS,
    WINDOWS,
    calibrated_predictions,
    framed_ids,
    joins_windows,
    longest_row,
    named_predictions,
    outputs_of,
    row_products,
)
from warmstart.notebook import Shown
from warmstart.objectives.registry import OBJECTIVES
from warmstart.registry import Registry
from warmstart.seeding import rng

OUTPUT_TOLERANCE = 1e-4
"""largest difference of an output, as a fraction of the largest output"""
NAMED_TOLERANCE = 1e-3
"""largest difference of a probability, which may be as small as the rounding of its outputs; other names are further off"""
FEWEST = 0.5
"""smallest vocabulary of a tokenizer, as a fraction of the rows of the embedding"""
EDITED = "copy the folder again, or save the model again from the run that made it"

S = TypeVar("S")
Moment = Literal["save", "load"]
"""``save``: before a bundle is written; ``load``: whenever it is loaded, and so once in a fresh process after it was written"""


class NotApplicable(Exception):  # noqa: N818  it is no error
    """A check has nothing to look at in this model; the message says why."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A bundle to be checked, and what was stored with it."""

    bundle: Bundle
    stored: Mapping[str, Tensor] = field(default_factory=dict)
    """its self-test; empty for a model that was not saved here"""

    @cached_property
    def named_predictions(self) -> Mapping[str, Tensor]:
        """The model's predictions for the test texts, by label name."""
        return named_predictions(self.bundle)

    def stored_tensor(self, name: str) -> Tensor:
        """A tensor of the self-test. Raises ``NotApplicable`` if it has none of this name."""
        if not self.stored:
            raise NotApplicable("it is not a bundle, so nothing is stored")
        if name not in self.stored:
            raise NotApplicable("it has no such outputs")
        return self.stored[name]


@dataclass(frozen=True)
class ModelCheck(Generic[S]):
    """One check, of models of one kind."""

    measure: Callable[[S], float]
    """the number; raises ``NotApplicable`` if the model has nothing to check"""
    promise: str
    """sentence that holds if it passes"""
    fault: str
    """the fault if it fails, with ``{value}`` for the number"""
    advice: str
    """advice for that case"""
    limit: float = 0
    """the largest number that passes"""
    moments: tuple[Moment, ...] = ()
    """moments at which it runs beside ``warmstart doctor``"""

    @torch.no_grad()
    def __call__(self, name: str, subject: S) -> CheckResult:
        """Examine a model. An exception, whatever it is, is a fault: a sound model raises none."""
        try:
            value = self.measure(subject)
        except NotApplicable as reason:
            return CheckResult(name, self, "not applicable", note=str(reason))
        except Exception as error:
            return CheckResult(name, self, "fail", note=f"it cannot be read: {type(error).__name__}: {error}")
        if value <= self.limit:  # nan fails
            return CheckResult(name, self, "pass", value)
        return CheckResult(name, self, "fail", value, self.fault.format(value=_number(value)))


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    check: ModelCheck[Any]
    status: Literal["pass", "fail", "not applicable"]
    value: float = math.nan
    """the number measured; nan if there is none"""
    note: str = ""
    """the fault, or the reason why it is not applicable"""
    part: str = ""
    """the member of a stack that it looked at"""

    @property
    def number(self) -> str:
        """The number measured, for a table."""
        return _number(self.value)

    @property
    def title(self) -> str:
        """The check's name, after that of the part."""
        return f"{self.part}: {self.name}" if self.part else self.name

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON; a number that is none is None."""
        return {
            "part": self.part,
            "check": self.name,
            "status": self.status,
            "value": self.value if math.isfinite(self.value) else None,
            "limit": self.check.limit,
            "promise": self.check.promise,
            "note": self.note,
            "advice": self.check.advice if self.status == "fail" else "",
        }


class CheckResults(list[CheckResult], Shown, view="report.notebook:checks_view"):
    """The results of several checks."""


# Checks against what was stored when a bundle was saved: tokens, outputs, and predictions by the names of their labels.


def _stored_tokens(subject: Subject) -> float:
    """Number of tokens of the test texts that differ: in kind or number, or in those that frame a text."""
    wanted = subject.stored_tensor("text_ids").tolist()
    ids = [id_ for row in subject.bundle.tokenizer.encode(SELFTEST_TEXTS) for id_ in row]
    pairs = [(ids, wanted)]
    if "framed_ids" in subject.stored:
        pairs.append((framed_ids(subject.bundle).tolist(), subject.stored["framed_ids"].tolist()))
    return float(sum(abs(len(ids) - len(other)) + sum(a != b for a, b in zip(ids, other, strict=False)) for ids, other in pairs))


def _stored_vocabulary(subject: Subject) -> float:
    """Number of rows of the tables, and of ids of tokens, that are not those that were stored."""
    products, wanted = row_products(subject.bundle.model), subject.stored_tensor("row_products")
    pieces, named = torch.from_numpy(subject.bundle.tokenizer.checksums()), subject.stored["pieces"]
    if products.shape != wanted.shape or pieces.shape != named.shape:
        return float(abs(len(products) - len(wanted)) + abs(len(pieces) - len(named)))
    near = (products - wanted).abs() <= OUTPUT_TOLERANCE * wanted.abs().max()  # nan is not near
    return float((~near).sum() + (pieces != named).sum())


def _stored_outputs(subject: Subject) -> float:
    """The largest change of the outputs for the stored rows, also as windows of texts."""
    wanted, model = subject.stored_tensor("answers"), subject.bundle.model
    ids, mask = subject.stored["ids"], subject.stored["mask"]
    gaps = [_relative_gap(outputs_of(model, ids, mask), wanted)]
    if joins_windows(model):
        gaps.append(_relative_gap(outputs_of(model, ids, mask, WINDOWS), subject.stored["window_answers"]))
    return _largest(gaps)


def _stored_predictions(subject: Subject) -> float:
    """The largest change of a prediction for the test texts: a number, or the probability of each label, by its name."""
    if not (predictions := subject.named_predictions):
        raise NotApplicable("it has no labels, and predicts no number")
    subject.stored_tensor("number" if "number" in predictions else "calibrated")
    wanted = {name: column for name, column in subject.stored.items() if name == "number" or name.startswith("label ")}
    if wanted.keys() != predictions.keys():
        return float(len(wanted.keys() ^ predictions.keys()))
    return _largest(_relative_gap(predictions[name], wanted[name]) for name in wanted)


def _stored_calibration(subject: Subject) -> float:
    """The largest change of the predictions for the test texts at its temperature."""
    if not subject.bundle.labels:
        raise NotApplicable("it has no labels")
    wanted = subject.stored_tensor("calibrated")
    return _relative_gap(calibrated_predictions(subject.bundle, subject.named_predictions), wanted)


def _stored_length(subject: Subject) -> float:
    """Number of tokens by which the end of a text that is too long has moved."""
    return float(abs(longest_row(subject.bundle) - int(subject.stored_tensor("longest"))))


# Checks that need nothing stored, so that they also examine a folder of transformers.


def _finite(subject: Subject) -> float:
    """Number of values in all tensors that are nan, infinite or not float32."""
    weights = subject.bundle.model.weights().values()
    return float(sum(_not_finite(tensor) if tensor.dtype is torch.float32 else tensor.numel() for tensor in weights))


def _not_finite(tensor: Tensor) -> int:
    """Number of values that are nan or infinite; they are counted only if the smallest or the largest is."""
    sound = not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())
    return 0 if sound else int((~tensor.isfinite()).sum())


def _dead(subject: Subject) -> float:
    """The largest fraction of dimensions in which a branch of a block, or the head, gives every token the same."""
    model, states = subject.bundle.model, dict[str, Tensor]()

    def keep(name: str, output: Tensor) -> Tensor:
        states[name] = output.flatten(0, -2)
        return output

    if (tokens := min(6, model.backbone.config.max_length - 3)) < 2:
        raise NotApplicable("the context is too short")
    ids = torch.from_numpy(rng(0, "checks").integers(0, model.backbone.vocab_size, size=(3, tokens)))
    branches = [f"blocks.{i}.{branch}" for i in range(model.backbone.config.depth) for branch in ("attention", "feedforward")]
    edits: dict[str, Callable[[Tensor], Tensor]] = {name: partial(keep, name) for name in branches}
    with tapped(model.backbone, edits):
        states["head"] = outputs_of(model, ids)
    return _largest(float((state == state[:1]).all(dim=0).float().mean()) for state in states.values())


def _objective(subject: Subject) -> float:
    """1 if the direction or the ability to generate is not that of its objective."""
    bundle, objective = subject.bundle, subject.bundle.language.objective
    if not isinstance(bundle.model.head, LMHead) or objective is None:
        raise NotApplicable("it names no objective of its head")
    row = OBJECTIVES[objective.name]
    can_generate = row.generates(objective) or bundle.max_answer_tokens
    return float(row.causal != bundle.model.causal or (bundle.generates and not can_generate))


def _tokenizer_round_trip(subject: Subject) -> float:
    """Number of test texts that, decoded and encoded again, have other tokens; texts that it cannot spell are left out."""
    tokenizer = subject.bundle.tokenizer
    rows = [row for row in tokenizer.encode(SELFTEST_TEXTS) if tokenizer.specials.unk not in row]
    if not rows:
        raise NotApplicable("it cannot spell the test texts")
    return float(sum(row != other for row, other in zip(tokenizer.encode([*map(tokenizer.decode, rows)]), rows, strict=True)))


def _vocabulary_size(subject: Subject) -> float:
    """1 if embedding, head and tokenizer are not of one size; the embedding may have spare rows, but no more than tokens."""
    backbone, head = subject.bundle.model.backbone, subject.bundle.model.head
    rows, tokens = backbone.vocab_size, subject.bundle.tokenizer.vocab_size
    sizes = {rows, len(backbone.embedding.weight), len(head.weight) if isinstance(head, LMHead) else rows}
    return float(len(sizes) > 1 or not FEWEST * rows <= tokens <= rows)


def _label_names(subject: Subject) -> float:
    """Number of names that are empty, repeated, or those of another class in its history; a class may get a new name."""
    names = subject.bundle.labels
    if not names:
        raise NotApplicable("it has no labels")
    known = recorded_labels(subject.bundle.history) or _imported_labels(subject.bundle)
    moved = len(known) == len(names) and sum(name != other and name in known for name, other in zip(names, known, strict=True))
    return float(moved + len(names) - len(set(names)) + sum(not name for name in names))


def _imported_labels(bundle: Bundle) -> tuple[str, ...]:
    """The names in the ``config.json`` that it was imported with; empty if it came without."""
    names = imported(bundle.history).get("config", {}).get("id2label") or {}
    return tuple(str(names[key]) for key in sorted(names, key=int))


def _relative_gap(outputs: Tensor, wanted: Tensor) -> float:
    """The largest difference as a fraction of the largest of ``wanted``; both of any one shape, which may be empty."""
    if not wanted.numel():
        return 0.0
    return float((outputs.float() - wanted.float()).abs().max() / wanted.float().abs().max().clamp(min=1e-6))


def _largest(values: Iterable[float]) -> float:
    """The largest number; nan if one of them is nan."""
    return float(torch.tensor([*values], dtype=torch.float64).max())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:.2g}"


of_stored = partial(ModelCheck[Subject], advice=EDITED, moments=("load",))
"""a check against what was stored when the bundle was saved"""

CHECKS: Registry[ModelCheck[Subject]] = Registry(
    "check",
    {
        "stored tokens": of_stored(
            _stored_tokens,
            "The tokenizer splits and frames the test texts as when it was saved.",
            "the tokenizer splits the test texts differently: {value} tokens differ",
        ),
        "stored vocabulary": of_stored(
            _stored_vocabulary,
            "Each token has the id, and each row of embedding and learned positions the values, of the day it was saved.",
            "{value} tokens have another id, or another row in the embedding, than when it was saved",
        ),
        "stored outputs": of_stored(
            _stored_outputs,
            "Outputs for the stored rows are those of the day it was saved.",
            "outputs differ from the stored ones by {value} of the largest",
            limit=OUTPUT_TOLERANCE,
        ),
        "stored predictions": of_stored(
            _stored_predictions,
            "Each label, found by its name, has the predictions that it had when it was saved; so have numbers.",
            "predictions, found by label name, differ from the stored ones by {value} of the largest",
            limit=NAMED_TOLERANCE,
        ),
        "stored calibration": of_stored(
            _stored_calibration,
            "Calibrated predictions are those of the day it was saved.",
            "calibrated predictions differ from the stored ones by {value} of the largest",
            limit=NAMED_TOLERANCE,
        ),
        "stored length": of_stored(
            _stored_length,
            "A text that is too long is cut where it was cut when it was saved.",
            "a text that is too long is cut {value} tokens further on or earlier than when it was saved",
        ),
        "finite": ModelCheck(
            _finite,
            "Every number in the weights is finite, and float32.",
            "{value} numbers in the weights are nan, infinite or not float32",
            "train again with a lower learning rate, or from an earlier checkpoint; `model.float()` converts half precision",
            moments=("save",),
        ),
        "dead units": ModelCheck(
            _dead,
            "No branch of a block, and no head, gives every token the same in most dimensions.",
            "in one branch of a block, or in the head, {value} of the dimensions never change",
            "look for weights that are zero; copy the model again, or train again",
            limit=0.5,
        ),
        "objective": ModelCheck(
            _objective,
            "Its direction, and whether it generates, are those of the objective that it was trained on.",
            "its direction, or whether it generates, is not that of its objective",
            "correct `causal` of the model, or `generates` of its `language`",
            moments=("save",),
        ),
        "tokenizer round trip": ModelCheck(
            _tokenizer_round_trip,
            "Tokens, decoded and encoded again, are the same.",
            "of the test texts, {value} decoded and encoded again have other tokens",
            "use the tokenizer as its library saved it; some normalisers cannot be undone",
        ),
        "vocabulary size": ModelCheck(
            _vocabulary_size,
            "Embedding and head have a row for each token, and few others.",
            "the sizes of tokenizer, embedding and head do not fit each other",
            "load the tokenizer that the weights were trained with",
        ),
        "label names": ModelCheck(
            _label_names,
            "Label names differ from each other, and none is that of another class of the task in its history.",
            "{value} label names are empty, repeated, or those of other classes of the task that it was trained on",
            "give `labels` in the order of the classes that it was trained on",
            moments=("save",),
        ),
    },
)
"""Every check, by the name that ``warmstart doctor`` prints."""


def run_checks(bundle: Bundle, stored: Mapping[str, Tensor] | None = None, moment: Moment | None = None) -> list[CheckResult]:
    """Every check of a model, or those of a moment; ``stored`` is the self-test that was saved with it."""
    subject = Subject(bundle, stored or {})
    return [check(name, subject) for name, check in CHECKS.items() if moment is None or moment in check.moments]


def faults(results: Iterable[CheckResult]) -> Sequence[str]:
    """The faults, one phrase for each check that failed; empty if all is well."""
    return [f"{result.note} ({result.title})" for result in results if result.status == "fail"]
