"""A bundle in memory: a model with everything needed to use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from warmstart.config import Config
from warmstart.errors import ModelError
from warmstart.heads.language_modeling import LMHead
from warmstart.model.history import Record
from warmstart.model.model import Model
from warmstart.notebook import Shown
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.tokenizer.tokenizer import Tokenizer

MOST_LEFT_OUT = 2000
"""labelled texts whose answers a model keeps: a random sample of more; an interval of shares is then at most 2 points wide"""


class LeftOutAnswers(Config):
    """Labelled texts, and the probabilities by models that did not learn from them; of copies one. No text is kept."""

    labels: tuple[tuple[int, ...], ...]
    """numbers of the labels of each text"""
    probabilities: tuple[tuple[float, ...], ...]
    """calibrated probability of each label, in the order of the labels"""
    hashes: tuple[str, ...] = ()
    """hash of each text, in hexadecimal, which tells it among other texts; empty: not kept"""
    random: tuple[bool, ...] = ()
    """True for each text that is known to be drawn at random; empty: of none it is known"""


class Calibration(Config):
    """The reliability of a model's confidence, measured after training on texts that were not trained on."""

    temperature: float = Field(1.0, gt=0)
    """logits are divided by it (Guo et al. 2017)"""
    interval: tuple[float, float] | None = None
    """ends of its 95% interval over the texts it was fitted on; None: none was fitted"""
    thresholds: tuple[float, ...] = ()
    """several labels per text: the probability from which each is given, in the order of the labels; empty: 0.5"""
    held_out: tuple[tuple[float, bool], ...] = ()
    """confidence and correctness of the prediction for texts that chose nothing; thresholds are found on them"""
    left_out: LeftOutAnswers | None = None
    """answers to the labelled texts, which correct the shares of labels among others; at most ``MOST_LEFT_OUT``"""


class Language(Config):
    """The training of a language head."""

    objective: ObjectiveConfig | None = None
    """objective that it was last trained on; None: unknown"""
    generates: bool = False
    """it was trained to generate text from left to right"""
    max_answer_tokens: int | None = None
    """largest number of tokens in an answer to a question; None: it was not trained to answer"""


@dataclass(frozen=True)
class Bundle(Shown, view="report.notebook:bundle_view"):
    """A model with everything needed to use it.

    Raises ``ModelError`` if the tokenizer has more tokens than the embedding has rows, or the label names do not fit the head.
    """

    model: Model
    tokenizer: Tokenizer
    labels: tuple[str, ...] = ()
    """names of the classes in the order of the head's logits; empty for a language model"""
    history: tuple[Record, ...] = ()
    """records of the commands that made it, oldest first"""
    calibration: Calibration | None = None
    """reliability of its confidence, if it was measured"""
    language: Language = field(default_factory=Language)
    """training of its language head, if it has one"""
    origin: Path | None = field(default=None, repr=False, compare=False)
    """the folder from which it was read; it may have changed since"""

    def __post_init__(self) -> None:
        tokens, rows = self.tokenizer.vocab_size, self.model.backbone.vocab_size
        if tokens > rows:  # an embedding may have spare rows: many are rounded up to a size that suits the hardware
            raise ModelError(
                f"the tokenizer has {tokens} tokens, but the backbone's embedding has {rows} rows; "
                "load the tokenizer that the weights were trained with"
            )
        if odd := [label for label in self.labels if not isinstance(label, str)]:
            raise ModelError(f"label names must be text, but one is {odd[0]!r}; save the model again from the run that made it")
        classes = getattr(self.model.head.config, "classes", 0)
        if len(self.labels) != classes:
            raise ModelError(f"the head has {classes} classes, but got {len(self.labels)} label names: {list(self.labels)}")
        if wrong := [record for record in self.history if not isinstance(record, Record)]:
            raise ModelError(
                f"history must hold records (see warmstart.model.history), but got {wrong[0]!r}; "
                "Record(command=..., settings={...}) holds anything"
            )

    def to_dict(self) -> dict[str, Any]:
        """A description as plain values, without the weights."""
        backbone = self.model.backbone.config
        return {
            "head": self.model.head.config.kind,
            "labels": list(self.labels),
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "backbone": backbone.to_dict(),
            "vocabulary": self.tokenizer.vocab_size,
            "calibrated": self.calibration is not None,
        }

    @property
    def objective(self) -> ObjectiveConfig | None:
        """The objective that the language head was last trained on; None if there is no language head.

        If it is unknown, it follows from the direction in which the backbone reads.
        """
        if not isinstance(self.model.head, LMHead):
            return None
        return self.language.objective or ObjectiveConfig(name="causal" if self.model.causal else "masked")

    @property
    def generates(self) -> bool:
        """True for a language head that was trained to generate text from left to right."""
        return self.language.generates and isinstance(self.model.head, LMHead)

    @property
    def max_answer_tokens(self) -> int | None:
        """Largest number of tokens in an answer; None for a model that was not trained to answer questions."""
        return self.language.max_answer_tokens if isinstance(self.model.head, LMHead) else None

    @property
    def likelihood(self) -> Literal["causal", "masked"] | None:
        """The way to measure the probability of a text: token after token, or one masked token at a time.

        None: the model has not learned to predict plain text.

        A hybrid model learned both, its masked tokens one position early, and is read token after token. A model trained on spans
        behind sentinels has only predicted masked spans, never plain text.
        """
        if not isinstance(self.model.head, LMHead):
            return None
        if self.objective and not OBJECTIVES[self.objective.name].plain_text and not self.generates:
            return None
        return "causal" if self.generates or self.model.causal else "masked"

    @property
    def never_generated(self) -> list[int]:
        """Token ids that must never be generated: special tokens except end-of-text, and embedding rows without a token."""
        specials, spare = self.tokenizer.specials, range(self.tokenizer.vocab_size, self.model.backbone.vocab_size)
        return [*sorted(specials.all() - {specials.eos}), *spare]
