"""Kinds of task: what is asked of a text, and all that follows from it. A new kind is one file and one row here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warmstart.data import Task
from warmstart.errors import ModelError
from warmstart.evaluate.calibrate import at_temperature
from warmstart.heads import Head
from warmstart.kinds.choice import Choice
from warmstart.kinds.figures import Figures as Figures
from warmstart.kinds.kind import Kind as Kind
from warmstart.kinds.kind import Result as Result
from warmstart.kinds.label import Label
from warmstart.kinds.labels import Labels
from warmstart.kinds.number import Number
from warmstart.kinds.span import Span
from warmstart.kinds.tags import Tags
from warmstart.model import Bundle
from warmstart.registry import Registry

KINDS: Registry[Kind] = Registry(
    "kind of task",
    {"label": Label(), "labels": Labels(), "number": Number(), "choice": Choice(), "tags": Tags(), "span": Span()},
)
"""Every kind of task."""


def kind_of(task: Task) -> Kind:
    """The kind of a task."""
    return KINDS[task.kind]


def ask(bundle: Bundle, texts: Sequence[Any], top: int = 3) -> list[dict[str, Any]]:
    """What an adapted model of any kind says of each text, as plain values.

    Texts are strings; pairs where the task is about pairs; a text and its alternatives; words; a question and its passage.
    """
    kind, model = kind_for(bundle.model.head), bundle.model
    encoded = kind.encode(model, bundle.tokenizer, texts)
    said = kind.said(model, encoded, bundle.tokenizer.specials.pad)
    if bundle.calibration:
        said = at_temperature(said, bundle.calibration.temperature)
    return kind.answers(bundle, texts, said, top)


def kind_for(head: Head) -> Kind:
    """The kind of task that a head was made for; raises ``ModelError`` for a head that was made for none."""
    for kind in KINDS.values():
        if kind.head_kind == head.config.kind:
            return kind
    raise ModelError(
        f"a model that was adapted is needed, but this one has a head of the kind '{head.config.kind}'; adapt it to a task first"
    )
