"""Metrics of a language model on held-out text.

The loss per token depends on how the tokenizer splits words; the loss per word and per byte does not, so it compares between
tokenizers. Word-level perplexity is ``exp(nats of the whole text / its words)``: words are separated by white space, and each line
end counts as one, blank lines included, as WikiText counts its ``<eos>`` (``data.read.count_documents``). Bits per byte are
``nats / ln 2 / bytes``. Unknown tokens make a text look easier than it is, so their fraction is given too.

These metrics exist only if every token is predicted from those before it; if rows are documents, some of which are cut, the
fraction of tokens that were scored is given instead. A masked objective has its loss and perplexity per masked
token, which compare between models that mask the same fraction of the same tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from warmstart.data.pretraining_rows import PretrainingRows
from warmstart.model.inference_weights import inference_weights
from warmstart.model.model import Model
from warmstart.objectives import OBJECTIVES
from warmstart.seeding import rng

BATCH_TOKENS, BATCH_TOKENS_GPU = 2048, 16_384
"""tokens in a batch; a small batch stays in the CPU's cache"""


def held_out_metrics(model: Model, rows: PretrainingRows, limit: int | None = None) -> dict[str, Any]:
    """Metrics under every view of the objective, on the whole text or on its first ``limit`` tokens.

    The masks are drawn from a fixed seed, so that the metrics of one model at two times compare.
    """
    views = OBJECTIVES[rows.objective.name].held_out_configs(rows.objective)
    metrics: dict[str, Any] = {}
    for name, config in views.items():
        view = PretrainingRows(rows.store, rows.vocabulary, config, rows.length)
        prefix = f"{name} " if len(views) > 1 else ""
        metrics |= {prefix + key: value for key, value in _metrics_of_view(model, view, limit).items()}
    return metrics


@torch.inference_mode()
def _metrics_of_view(model: Model, rows: PretrainingRows, limit: int | None) -> dict[str, float]:
    """The mean loss per target in nats, and what follows from it."""
    count = len(rows) if rows.documents else rows.store.rows(rows.stride, ragged=True)
    if limit is not None:
        count = min(count, max(1, limit // rows.length))
    device = next(model.parameters()).device
    size = max(1, (BATCH_TOKENS if device.type == "cpu" else BATCH_TOKENS_GPU) // rows.length)
    total, targets, has_likelihood = 0.0, 0, OBJECTIVES[rows.objective.name].plain_text
    with inference_weights(model):
        for start in range(0, count, size):
            indices = np.arange(start, min(count, start + size))
            batch = rows.batch(indices, rng(0, "held out", start), ragged=True)
            total += float(model.loss(batch.to(device)))
            targets += batch.count
            has_likelihood = has_likelihood and batch.causal
    loss = total / max(1, targets)
    metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700))}
    if not has_likelihood:
        return metrics  # tokens are predicted from both sides, or behind sentinels: the text has no likelihood
    store = rows.store
    if rows.documents and targets < store.predicted_tokens:  # the ends of long documents were not read
        return metrics | {"scored_fraction": targets / store.predicted_tokens}
    per_word = loss * store.predicted_tokens / store.words
    return metrics | {
        "word_perplexity": math.exp(min(per_word, 700)),
        "bits_per_byte": loss * store.predicted_tokens / store.bytes / math.log(2),
        "unknown_fraction": store.unknown / store.predicted_tokens,
    }
