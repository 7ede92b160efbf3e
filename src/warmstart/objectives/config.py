"""The settings of pretraining objectives, and what an objective is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from tyro.conf import arg

from warmstart.config import Config
from warmstart.types import Batch, Vocabulary


class ObjectiveConfig(Config):
    """What pretraining predicts."""

    name: Annotated[str, arg(name="objective")] = "causal"
    """causal, masked, span, or hybrid (each batch causal or masked, on one set of weights)"""
    mask_rate: float | None = Field(None, gt=0, lt=1)
    """share of tokens that masked, hybrid and span hide; none: 0.3 for masked, which took the fewest tokens, else 0.15"""
    whole_words: bool = False
    """masked and hybrid: hide all pieces of a word together"""
    mean_span: float = Field(3.0, ge=1)
    """span: mean length of a hidden span, in tokens"""
    form: Literal["sentinel", "prefix-suffix"] = "sentinel"
    """span: T5's many spans with sentinels in a row of text, or CS224N's one span of a document, moved to its end"""
    causal_share: float = Field(0.5, ge=0, le=1)
    """hybrid: share of batches that are causal"""
    rows: Literal["packed", "documents"] = "packed"
    """what a row is: a stretch of the whole text, so that nothing is padded, or one document, cut where it is too long"""

    @property
    def hidden(self) -> float:
        """The share of tokens that is hidden: ``mask_rate``, or the objective's own (docs/performance.md; Wettig et al. 2023)."""
        if self.mask_rate is not None:
            return self.mask_rate
        return 0.3 if self.name == "masked" else 0.15


Make = Callable[[np.ndarray, np.ndarray, np.random.Generator, Vocabulary, ObjectiveConfig], Batch]


@dataclass(frozen=True)
class Objective:
    """One row of the table of objectives."""

    make: Make
    """``make(rows, lengths, rng, vocabulary, config) -> Batch``: a pure function of its arguments. ``rows`` (B, stride + 1) are
    token ids, of which the first ``lengths`` (B,) are real."""
    stride: Callable[[int, ObjectiveConfig], int]
    """how many fresh tokens of text one row of T model tokens takes"""
    generates: Callable[[ObjectiveConfig], bool]
    """what it learns can write text from left to right"""
    causal: bool
    """which way the backbone looks when it is read afterwards"""
    views: Callable[[ObjectiveConfig], dict[str, ObjectiveConfig]]
    """the settings under which held-out loss is measured, by name"""
    whole_documents: Callable[[ObjectiveConfig], bool] = lambda _config: False
    """rows are always single documents, and the objective itself cuts them"""


def whole_row(tokens: int, _config: ObjectiveConfig) -> int:
    """A row of T model tokens takes T fresh tokens of text."""
    return tokens


def always(_config: ObjectiveConfig) -> bool:
    """Whatever the settings."""
    return True


def itself(config: ObjectiveConfig) -> dict[str, ObjectiveConfig]:
    """Held-out loss is measured as the objective trains."""
    return {config.name: config}
