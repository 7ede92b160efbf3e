"""What a check of a model is, what it reads, and what it says.

A check measures one number that must not exceed a limit. It is a function and one row in ``CHECKS``.

Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from warmstart.backbone.backbone import Backbone, BackboneOutput
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.model.selftest import named_predictions
from warmstart.notebook import Shown
from warmstart.seeding import rng

OUTPUT_TOLERANCE = 1e-4
"""largest difference of an output, as a fraction of the largest output"""
ROWS, ROW_TOKENS = 3, 6
"""rows of random tokens that most checks read, and the most tokens in one"""

S = TypeVar("S")
Moment = Literal["save", "load"]
"""``save``: before a bundle is written; ``load``: whenever it is loaded, and so once in a fresh process after it was written"""


class NotApplicable(Exception):  # noqa: N818  it is no error
    """A check has nothing to look at in this model; the message says why."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to be checked: its bundle, and what was stored with it."""

    bundle: Bundle
    stored: Mapping[str, Tensor] = field(default_factory=dict)
    """its self-test; empty for a model that was not saved here"""

    @property
    def model(self) -> Model:
        """The model itself."""
        return self.bundle.model

    @property
    def backbone(self) -> Backbone:
        """The model's backbone."""
        return self.bundle.model.backbone

    @cached_property
    def ids(self) -> Tensor:
        """(3, T) rows of random tokens. Raises ``NotApplicable`` if the context has no room for two tokens and some padding."""
        if (tokens := min(ROW_TOKENS, self.backbone.config.max_length - 3)) < 2:
            raise NotApplicable("the context is too short")
        return torch.from_numpy(rng(0, "checks").integers(0, self.backbone.vocab_size, size=(ROWS, tokens)))

    def read(self, ids: Tensor) -> BackboneOutput:
        """The backbone's states of ``ids`` (B, T), as the model reads."""
        return self.backbone(ids, causal=self.model.causal)

    @cached_property
    def named_predictions(self) -> Mapping[str, Tensor]:
        """What the model predicts for the test texts, by label name."""
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
    """One row of a table of checks, for models of one kind."""

    measure: Callable[[S], float]
    """the number; raises ``NotApplicable`` if the model has nothing to check"""
    promise: str
    """what holds if it passes"""
    fault: str
    """what is wrong if it fails, with ``{value}`` for the number"""
    advice: str
    """what to do then"""
    limit: float = OUTPUT_TOLERANCE
    """the largest number that passes"""
    moments: tuple[Moment, ...] = ()
    """when it runs beside ``warmstart doctor``"""

    @torch.no_grad()
    def __call__(self, name: str, subject: S) -> CheckResult:
        """Examine a model. An exception, whatever it is, is a fault: a model of ours raises none."""
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
    """What one check found."""

    name: str
    check: ModelCheck[Any]
    status: Literal["pass", "fail", "not applicable"]
    value: float = math.nan
    """the number measured; nan if there is none"""
    note: str = ""
    """what is wrong, or why it is not applicable"""
    part: str = ""
    """the member of a stack that it looked at"""

    @property
    def number(self) -> str:
        """What was measured, for a table."""
        return _number(self.value)

    @property
    def title(self) -> str:
        """Its name, after that of the part."""
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
    """What several checks found."""


def relative_gap(found: Tensor, wanted: Tensor) -> float:
    """The largest difference as a fraction of the largest of ``wanted``; both of any one shape, which may be empty."""
    if not wanted.numel():
        return 0.0
    return float((found.float() - wanted.float()).abs().max() / wanted.float().abs().max().clamp(min=1e-6))


def largest(values: Iterable[float]) -> float:
    """The largest number; nan if one of them is nan."""
    return float(torch.tensor([*values], dtype=torch.float64).max())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:.2g}"
