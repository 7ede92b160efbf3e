"""What pretraining predicts. Each objective is a pure function; a new one is one file and one row here."""

from __future__ import annotations

from warmstart.objectives.causal import causal
from warmstart.objectives.config import Objective as Objective
from warmstart.objectives.config import ObjectiveConfig as ObjectiveConfig
from warmstart.objectives.config import always, itself, whole_row
from warmstart.objectives.hybrid import hybrid, two_views
from warmstart.objectives.loss import class_loss as class_loss
from warmstart.objectives.loss import language_loss as language_loss
from warmstart.objectives.masked import masked
from warmstart.objectives.span import span, span_stride
from warmstart.registry import Registry

OBJECTIVES = Registry(
    "objective",
    {
        "causal": Objective(causal, whole_row, generates=always, causal=True, views=itself),
        "masked": Objective(masked, whole_row, generates=lambda _config: False, causal=False, views=itself),
        "span": Objective(
            span,
            span_stride,
            generates=lambda config: config.form == "prefix-suffix",  # with sentinels only hidden spans are predicted
            causal=True,
            views=itself,
            whole_documents=lambda config: config.form == "prefix-suffix",
        ),
        "hybrid": Objective(hybrid, whole_row, generates=always, causal=False, views=two_views),
    },
)
"""Every pretraining objective."""
