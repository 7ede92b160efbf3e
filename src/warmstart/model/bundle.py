"""A bundle in memory: a model with all that is needed to use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from warmstart.errors import ModelError
from warmstart.heads import LanguageHead
from warmstart.model.calibration import Calibration
from warmstart.model.model import Model
from warmstart.tokenizer import Tokenizer


@dataclass(frozen=True)
class Bundle:
    """A model with all that is needed to use it."""

    model: Model
    tokenizer: Tokenizer
    labels: tuple[str, ...] = ()
    """names of the classes, in the order of the head's logits; empty for a language model"""
    history: tuple[dict[str, Any], ...] = field(default=())
    """what made it, oldest first: one entry per command, with its settings and results"""
    calibration: Calibration | None = None
    """what it knows of its own confidence, if it gives labels"""

    def __post_init__(self) -> None:
        known, have = self.tokenizer.vocab_size, self.model.backbone.vocab_size
        if known > have:  # an embedding may have spare rows: many are rounded up to a size that hardware likes
            raise ModelError(
                f"the tokenizer has {known} tokens, but the backbone's embedding has {have}; "
                "load the tokenizer that the weights were trained with"
            )
        classes = getattr(self.model.head.config, "classes", 0)
        if len(self.labels) != classes:
            raise ModelError(f"the head has {classes} classes, but {len(self.labels)} label names came: {list(self.labels)}")

    @property
    def generates(self) -> bool:
        """It has a language head, and was trained to write from left to right."""
        return isinstance(self.model.head, LanguageHead) and bool(self.history and self.history[-1].get("generates"))

    @property
    def likelihood(self) -> Literal["causal", "masked"] | None:
        """How it is to be asked how likely a text is: token after token, or gap by gap; None where it never learned that.

        A hybrid model learned both, its gaps one place early, and is asked token after token. One that learned spans behind
        sentinels has predicted nothing but what was hidden, and never plain text.
        """
        if not isinstance(self.model.head, LanguageHead):
            return None
        objective = self.history[-1].get("objective") if self.history else None
        if objective and objective["name"] == "span" and not self.generates:
            return None
        return "causal" if self.generates or self.model.causal else "masked"

    @property
    def unwritten(self) -> list[int]:
        """Ids that are never written: special ones but the end, and rows of the embedding that no token has."""
        specials, spare = self.tokenizer.specials, range(self.tokenizer.vocab_size, self.model.backbone.vocab_size)
        return [*sorted(specials.all() - {specials.eos}), *spare]

    @property
    def answers(self) -> bool:
        """It was taught to answer questions in writing."""
        return isinstance(self.model.head, LanguageHead) and bool(self.history and self.history[-1].get("command") == "answers")
