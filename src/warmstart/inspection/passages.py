"""Passages of a text with the tokens to be predicted in them, and a language model's loss on each.

Letters: N passages, B batch, T tokens, D width, M predicted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from warmstart.data.encode import Encoded, padded
from warmstart.errors import DataError, ModelError
from warmstart.inspection.tokens import token_chunks
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.masked import mask_tokens
from warmstart.seeding import rng
from warmstart.types import IGNORE, Batch


@dataclass(frozen=True)
class Passages:
    """N passages as a language model reads them, with targets."""

    encoded: Encoded
    targets: tuple[np.ndarray, ...]
    """each (T,) int64: the token to be predicted at each position, or ``IGNORE``"""
    causal: bool
    """every token is predicted from those before it; if False, masked tokens are predicted from both sides"""

    @property
    def counts(self) -> np.ndarray:
        """(N,) predicted tokens of each passage."""
        return np.array([int((row != IGNORE).sum()) for row in self.targets])


def language_passages(bundle: Bundle, documents: Iterable[str], limit: int, seed: int, max_length: int | None = None) -> Passages:
    """The first ``limit`` passages of the documents: a passage is a document, or as much of one as fits into ``max_length`` tokens.

    ``max_length`` is the model's own by default. A causal model predicts every token; for a masked model 15% of each passage, but
    at least one token, are masked once. Raises ``DataError`` for fewer than two passages with a prediction, and ``ModelError``
    for a model that was not trained to predict plain text.
    """
    if bundle.likelihood is None:
        raise ModelError(
            "the loss of a text needs a model trained to predict text, but this one has no language head, or was trained on "
            "sentinel spans only; give it a task instead"
        )
    specials, vocabulary = bundle.tokenizer.specials, bundle.tokenizer.vocabulary()
    causal = bundle.likelihood == "causal"
    chunks = token_chunks(bundle.tokenizer, documents, (max_length or bundle.model.backbone.config.max_length) - 2)
    objective = ObjectiveConfig(name="masked", mask_rate=0.15)
    rows, targets = list[np.ndarray](), list[np.ndarray]()
    for number, chunk in enumerate(islice(chunks, limit)):
        if causal:
            rows.append(np.array([specials.begin, *chunk[:-1]], dtype=np.int64))
            targets.append(np.array(chunk, dtype=np.int64))
            continue
        ids = np.array([[specials.begin, *chunk, specials.eos]], dtype=np.int64)
        inputs, chosen = mask_tokens(ids, np.ones_like(ids, dtype=bool), rng(seed, "hidden", number), vocabulary, objective)
        if chosen.any():
            rows.append(inputs[0])
            targets.append(np.where(chosen, ids, IGNORE)[0])
    if len(rows) < 2:
        raise DataError(f"the loss of a text needs at least two passages, but there are {len(rows)}; give more text")
    return Passages(Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64)), tuple(targets), causal)


def passage_losses(model: Model, passages: Passages, pad_id: int) -> np.ndarray:
    """(N,) summed loss in nats over the predicted tokens of each passage."""

    def sums(batch: Batch, indices: np.ndarray) -> Tensor:
        targets = torch.from_numpy(padded([passages.targets[index] for index in indices], IGNORE)).to(batch.ids.device)
        predicted = targets != IGNORE
        states = model.backbone.forward_batch(batch, causal=passages.causal).last_hidden_state  # (B, T, D)
        logits = model.head(states[predicted]).float()  # (M, V)
        nats = logits.logsumexp(dim=-1) - logits.gather(-1, targets[predicted][:, None])[:, 0]
        return torch.zeros(targets.shape, device=nats.device).masked_scatter(predicted, nats).sum(dim=1)

    out = np.empty(len(passages.encoded))
    for indices, losses in run_in_batches(model, passages.encoded, pad_id, forward=sums):
        out[indices] = losses.numpy()
    return out
