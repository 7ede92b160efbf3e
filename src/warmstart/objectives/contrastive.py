"""Contrastive: two crops of a document are more alike than crops of different documents, and masked tokens are predicted.

After DeCLUTR (Giorgi et al. 2021, section 3), with crops as Contriever cuts them (Izacard et al. 2022, section 3.2):

    document "a b c d e f g h"  ->  rows  [EOS] b c M e [EOS]   and   [EOS] d e f M [EOS]
    loss = mean over masked tokens of -log p(token)
           + weight x mean over crops of -log( exp(cosine with the other crop / temperature) / the same over all other crops )

Masked language modeling alone teaches what a word can be; the vector of a whole text, the mean of its states, is left to chance.
Here it is trained, and needs no labels for that. Crops are short, at most half a row: so a step compares many documents for its
cost, and two crops of a long one share few words.

Letters: B documents, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.objectives.causal import real_tokens
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.masked import in_place_batch, mask_tokens
from warmstart.types import Batch, Vocabulary

SHORTEST_CROP, LONGEST_CROP = 1 / 4, 2 / 3
"""length of a crop, as a fraction of its document: uniform between these, but at most half a row with both ends"""
READ = 4
"""rows of a document from which its crops are cut"""


@dataclass(frozen=True)
class CroppedBatch(Batch):
    """A masked batch of 2 B crops, two of each document."""

    documents: Tensor | None = None
    """(2 B,) int64: the document of each crop, counted in this batch"""


def contrastive_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> CroppedBatch:
    """``[EOS a b c d EOS]`` -> crops such as ``[EOS a b EOS]`` and ``[EOS b c EOS]`` of each document, with masked tokens.

    ``rows`` (B, 4 T + 1), of which the first ``lengths`` (B,) tokens are real.
    """
    eos, tokens = vocabulary.specials.eos, (rows.shape[1] - 1) // READ
    texts = [row[:length][row[:length] != eos] for row, length in zip(rows, lengths, strict=True)]
    fewest, most = crop_lengths(np.array([len(text) for text in texts]), tokens)
    crops = [_crop(text, int(rng.integers(low, high + 1)), rng)
             for text, low, high in zip(texts, fewest, most, strict=True) for _ in range(2)]  # fmt: skip
    ends = np.array([len(crop) + 2 for crop in crops])
    ids = np.full((len(crops), ends.max()), vocabulary.specials.pad)
    for row, crop in zip(ids, crops, strict=True):
        row[: len(crop) + 2] = [eos, *crop, eos]
    real = real_tokens(ids, ends)
    inputs, chosen = mask_tokens(ids, real, rng, vocabulary, config)
    return CroppedBatch.of(in_place_batch(inputs, ids, chosen, real), documents=torch.arange(len(rows)).repeat_interleave(2))


def crop_lengths(texts: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The fewest and the most tokens of a crop, each (B,), of ``texts`` (B,) tokens, with a context of ``tokens`` T."""
    longest = max(1, tokens // 2 - 2)
    fewest, most = (np.clip((texts * share).astype(np.int64), 1, longest) for share in (SHORTEST_CROP, LONGEST_CROP))
    return fewest, most


def _crop(text: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """``length`` adjacent tokens of a text, anywhere in it."""
    start = int(rng.integers(0, max(0, len(text) - length) + 1))
    return text[start : start + length]


def contrastive_stride(tokens: int, _config: ObjectiveConfig) -> int:
    """Tokens of a document that crops are cut from: its first four rows."""
    return READ * tokens


def contrastive_target_fractions(config: ObjectiveConfig) -> tuple[float, float]:
    """Every batch predicts the masked tokens of its crops."""
    return config.effective_mask_rate, config.effective_mask_rate


def masked_view(config: ObjectiveConfig) -> dict[str, ObjectiveConfig]:
    """Held-out loss is that of masked tokens, as the masked objective has it."""
    return {"masked": config.model_copy(update={"name": "masked", "mask_rate": config.effective_mask_rate})}
