"""A stack in memory: fitted models of which one or several predict together; the weighted mean of their calibrated probabilities.

A single baseline is a stack of one. ``tasks/predict.py`` predicts with it, ``files.py`` saves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from warmstart.errors import ModelError
from warmstart.model.beside import BesideText
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.fitted import FittedBaseline
from warmstart.model.history import Record
from warmstart.notebook import Shown


@dataclass(frozen=True, eq=False)
class Member:
    """One model of a stack."""

    name: str
    """the method, as a race calls it"""
    model: Bundle | FittedBaseline
    """a fine-tuned network, or a baseline"""
    temperature: float = 1.0
    """its logits are divided by it before the mean"""
    weight: float = 1.0
    """its share of the mean, relative to those of the others"""


@dataclass(frozen=True, eq=False)
class Stack(Shown, view="report.notebook:stack_view"):
    """Models that predict together. Raises ``ModelError`` if they predict different labels."""

    members: tuple[Member, ...]
    type: str
    """the name of the task type"""
    labels: tuple[str, ...] = ()
    """names of the classes, in the order of the columns; empty for numbers"""
    history: tuple[Record, ...] = ()
    """records of the commands that made it, oldest first"""
    calibration: Calibration | None = None
    """reliability of the confidence of all together, if it was measured"""
    beside: BesideText | None = None
    """other columns of a table that it reads beside the text; None: it reads the text alone"""
    without: tuple[str, ...] = ()
    """columns that it was made to leave out, as ``text_alone`` does"""

    def to_dict(self) -> dict[str, Any]:
        """A description as plain values, without the members' weights."""
        return {"type": self.type, "labels": list(self.labels), "members": [member.name for member in self.members]}

    def __post_init__(self) -> None:
        if not self.members:
            raise ModelError("a stack must have a member, but has none")
        wanted = len(self.labels) or 1
        for member in self.members:
            if isinstance(member.model, Bundle) and member.model.labels != self.labels:
                raise ModelError(
                    f"every member of a stack must have its labels in the same order, {list(self.labels)}, but '{member.name}' has "
                    f"{list(member.model.labels)}"
                )
            if isinstance(member.model, FittedBaseline) and member.model.columns != wanted:
                raise ModelError(
                    f"every member of a stack must predict {wanted} columns, but '{member.name}' predicts {member.model.columns}"
                )

        if self.beside and not self.beside.fits(wanted):
            raise ModelError(f"trees on other columns must fit {wanted} labels and the columns they name, but do not")

    @property
    def text_alone(self) -> Stack:
        """The stack without the other columns, with the confidence of its answers to texts alone."""
        return replace(self, beside=None, calibration=self.beside.text, without=self.beside.names) if self.beside else self

    @property
    def several_labels(self) -> bool:
        """True if a text may have several labels, each with a probability of its own."""
        return self.type == "multilabel"

    @property
    def networks(self) -> tuple[Bundle, ...]:
        """The members that are fine-tuned networks."""
        return tuple(member.model for member in self.members if isinstance(member.model, Bundle))

    @property
    def backbones(self) -> tuple[Bundle, ...]:
        """The networks whose vectors its baselines read, each once, however many read it."""
        bundles = (member.model.backbone for member in self.members if isinstance(member.model, FittedBaseline))
        return tuple({id(bundle): bundle for bundle in bundles if bundle}.values())

    def backbone_of(self, member: Member) -> int | None:
        """Number of the member's backbone among ``backbones``, from 1 on; None: it has none."""
        own = None if isinstance(member.model, Bundle) else member.model.backbone
        return next((number for number, bundle in enumerate(self.backbones, 1) if bundle is own), None)

    @property
    def names(self) -> str:
        """Names of its members: ``"full, naive Bayes"``."""
        return ", ".join(member.name for member in self.members)
