"""What requests may hold: every field has a limit, and a text must be one that can be written as UTF-8."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from warmstart.app.answers import Fields, Unicode
from warmstart.generation.settings import GenerateConfig

MOST_INPUTS = 1_000
"""of a request"""
MOST_CHARACTERS = 100_000
"""of a text"""
MOST_NEW_TOKENS = 2_000
"""of a continuation"""


Text = Annotated[Unicode, Field(max_length=MOST_CHARACTERS)]
Inputs = Annotated[
    list[Text | Annotated[list[Text], Field(min_length=1, max_length=10_000, fail_fast=True)]],
    Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True),
]
Name = Annotated[Unicode, Field(max_length=1_000)]


class Body(Fields):
    """What every request may say."""

    model: Name | None = None
    """name of a served model; none: the first"""


class PredictBody(Body):
    """``POST /api/predict``."""

    inputs: Inputs
    """texts; where the task needs more, lists of them: pairs, or words to tag"""
    top: int = Field(3, gt=0, le=100_000)
    """number of labels to give with their probabilities"""
    target_error: float | None = Field(None, gt=0, lt=1)
    """abstain where needed to guarantee at most this error rate"""
    confidence_level: float = Field(0.95, gt=0, lt=1)
    """probability with which that error rate is guaranteed"""


class NearestBody(Body):
    """``POST /api/nearest``."""

    inputs: Inputs
    """texts, or lists of two for tasks about pairs"""
    count: int = Field(5, gt=0, le=100)
    """number of training texts for each"""


class GenerateBody(Body):
    """``POST /api/generate``."""

    prompt: Text = ""
    max_new_tokens: int = Field(60, gt=0, le=MOST_NEW_TOKENS)
    greedy: bool = False
    temperature: float = Field(1.0, ge=0.01, le=100)
    top_k: int | None = Field(None, gt=0, le=10_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int = Field(0, ge=0, lt=2**63)
    candidates: int = Field(6, ge=0, le=50)
    """number of probable tokens to show at every step"""
    stream: bool = False
    """server-sent events: ``token`` for each, then ``done``, or ``error``"""

    def settings(self) -> GenerateConfig:
        """How the text is generated."""
        names = ("max_new_tokens", "greedy", "temperature", "top_k", "top_p", "seed")
        return GenerateConfig(**{name: getattr(self, name) for name in names})


class TextsBody(Body):
    """``POST /api/embed`` and ``POST /api/tokens``."""

    texts: Annotated[list[Text], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)]


class ExplainBody(Body):
    """``POST /api/explain``."""

    text: Text
    target: Name | None = None
    """the label, or the next token, to be explained; none: the most probable one"""
