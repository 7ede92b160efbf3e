"""Held-out loss of a language model, and the figures that let tokenizers be compared.

A sub-word's loss depends on how the tokenizer cuts. The same loss per word and per byte does not: word-level perplexity is
``exp(nats of the whole text / its words)``, where words are what white space separates plus one end per document (as WikiText
counts its ``<eos>``), and bits per byte are ``nats / ln 2 / bytes``. Unknown tokens make a text look easier than it is, so their
share is given too. Both figures are given where every token is predicted from those before it; a masked objective has its loss and
perplexity per hidden token alone, which compare between models that hide the same share of the same tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from warmstart.data.batch import Rows
from warmstart.model import Model
from warmstart.model.packed import packed
from warmstart.objectives import OBJECTIVES
from warmstart.seeding import rng

BATCH_TOKENS, BATCH_TOKENS_GPU = 2048, 16_384
"""read at once; few stay in a processor's cache"""


def held_out(model: Model, rows: Rows, limit: int | None = None) -> dict[str, Any]:
    """Held-out figures under every view of the objective; the first ``limit`` tokens of the store only, where that is given.

    What is hidden is drawn from a fixed seed, so that figures of one model at two times compare.
    """
    views = OBJECTIVES[rows.objective.name].views(rows.objective)
    figures: dict[str, Any] = {}
    for name, config in views.items():
        view = Rows(rows.corpus, rows.vocabulary, config, rows.tokens)
        prefix = f"{name} " if len(views) > 1 else ""
        figures |= {prefix + key: value for key, value in _view(model, view, limit).items()}
    return figures


@torch.inference_mode()
def _view(model: Model, rows: Rows, limit: int | None) -> dict[str, float]:
    """Mean loss per target in nats, and what follows from it."""
    count = len(rows) if rows.documents else rows.corpus.rows(rows.stride, ragged=True)
    if limit is not None:
        count = min(count, max(1, limit // rows.tokens))
    device = next(model.parameters()).device
    size = max(1, (BATCH_TOKENS if device.type == "cpu" else BATCH_TOKENS_GPU) // rows.tokens)
    total, targets, likelihood = 0.0, 0, rows.objective.name != "span"
    with packed(model):
        for start in range(0, count, size):
            places = np.arange(start, min(count, start + size))
            batch = rows.batch(places, rng(0, "held out", start), ragged=True)
            total += float(model.loss(batch.to(device)))
            targets += batch.count
            likelihood = likelihood and batch.causal
    loss = total / max(1, targets)
    figures = {"loss": loss, "perplexity": math.exp(min(loss, 700))}
    if not likelihood:
        return figures  # tokens read from both sides, or sentinels: no likelihood of the text follows
    corpus = rows.corpus
    per_word = loss * corpus.predicted / corpus.words
    return figures | {
        "word_perplexity": math.exp(min(per_word, 700)),
        "bits_per_byte": loss * corpus.predicted / corpus.bytes / math.log(2),
        "unknown_share": corpus.unknown / corpus.predicted,
    }
