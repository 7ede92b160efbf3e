"""The table of objectives."""

from __future__ import annotations

from warmstart.objectives.causal import causal_batch
from warmstart.objectives.contrastive import contrastive_batch, contrastive_stride, contrastive_target_fractions, masked_view
from warmstart.objectives.masked import (
    hybrid_batch,
    hybrid_held_out_configs,
    hybrid_target_fractions,
    masked_batch,
    masked_target_fractions,
)
from warmstart.objectives.objective import Objective
from warmstart.objectives.span import is_prefix_suffix, span_batch, span_stride, span_target_fractions
from warmstart.registry import Registry

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
