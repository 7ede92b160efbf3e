"""The table of objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from warmstart.objectives.causal import causal_batch
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.contrastive import contrastive_batch, contrastive_stride, contrastive_target_fractions, masked_view
from warmstart.objectives.masked import (
    hybrid_batch,
    hybrid_held_out_configs,
    hybrid_target_fractions,
    masked_batch,
    masked_target_fractions,
)
from warmstart.objectives.span import is_prefix_suffix, span_batch, span_stride, span_target_fractions
from warmstart.registry import Registry
from warmstart.types import Batch, Vocabulary

MakeBatch = Callable[[np.ndarray, np.ndarray, np.random.Generator, Vocabulary, ObjectiveConfig], Batch]


def _never(_config: ObjectiveConfig) -> bool:
    return False


def _same_length(tokens: int, _config: ObjectiveConfig) -> int:
    return tokens


def _every_token(_config: ObjectiveConfig) -> tuple[float, float]:
    return 1.0, 1.0


def _as_trained(config: ObjectiveConfig) -> dict[str, ObjectiveConfig]:
    return {config.name: config}


@dataclass(frozen=True)
class Objective:
    """One row of the table of objectives."""

    make: MakeBatch
    """``make(rows, lengths, rng, vocabulary, config) -> Batch``, a pure function; the first ``lengths`` (B,) tokens of each of the
    ``rows`` (B, stride + 1) of token ids are real"""
    causal: bool
    """True if the trained backbone is causal when it is used afterwards"""
    generates: Callable[[ObjectiveConfig], bool] = _never
    """True if the trained model can generate text from left to right"""
    stride: Callable[[int, ObjectiveConfig], int] = _same_length
    """number of new tokens of text in a row of T tokens"""
    target_fractions: Callable[[ObjectiveConfig], tuple[float, float]] = _every_token
    """fraction of a row's tokens that are predicted: on average, and in the batch that predicts most"""
    held_out_configs: Callable[[ObjectiveConfig], dict[str, ObjectiveConfig]] = _as_trained
    """the settings under which held-out loss is measured, by name"""
    whole_documents: Callable[[ObjectiveConfig], bool] = _never
    """True if rows are always single documents, which the objective itself truncates"""
    compares: bool = False
    """True if the loss also compares the rows of a step, two of which are of one document (``contrastive.py``)"""
    plain_text: bool = True
    """True if rows are text in its own order, so that the loss of a causal batch is the text's negative log-likelihood"""


OBJECTIVES = Registry(
    "objective",
    {
        "causal": Objective(causal_batch, causal=True, generates=lambda _config: True),
        "masked": Objective(masked_batch, causal=False, target_fractions=masked_target_fractions),
        "span": Objective(
            span_batch,
            causal=True,
            generates=is_prefix_suffix,
            stride=span_stride,
            target_fractions=span_target_fractions,
            whole_documents=is_prefix_suffix,
            plain_text=False,
        ),
        "hybrid": Objective(
            hybrid_batch,
            causal=False,
            generates=lambda _config: True,
            target_fractions=hybrid_target_fractions,
            held_out_configs=hybrid_held_out_configs,
        ),
        "contrastive": Objective(
            contrastive_batch,
            causal=False,
            stride=contrastive_stride,
            target_fractions=contrastive_target_fractions,
            held_out_configs=masked_view,
            whole_documents=lambda _config: True,
            compares=True,
        ),
    },
)
"""Every pretraining objective."""
