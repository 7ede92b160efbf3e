"""What pretraining reads: rows of a token store or of shards, and which of them a step reads, as a pure function of its number.

The text is cut into full rows, so nothing is padded; a row can also be one document.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from warmstart.data.token_store import RowOrder, TokenizedText
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.contrastive import crop_lengths
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.system.device import pick_device
from warmstart.types import IGNORE, Batch, Vocabulary

PART_TOKENS = {"cpu": 512, "cuda": 32_768}
"""fewest real tokens in a part of a ragged batch, by device; smaller matrix products cost more per token"""


@dataclass(frozen=True)
class PretrainingRows:
    """The rows of a token store, or of shards, under an objective."""

    store: TokenizedText
    vocabulary: Vocabulary
    objective: ObjectiveConfig
    length: int
    """tokens of one row that the model reads (T)"""

    @property
    def stride(self) -> int:
        """Tokens of text that are new in each row."""
        return OBJECTIVES[self.objective.name].stride(self.length, self.objective)

    @property
    def documents(self) -> bool:
        """Whether a row is one document."""
        return self.objective.rows == "documents" or OBJECTIVES[self.objective.name].whole_documents(self.objective)

    @property
    def mean_tokens(self) -> float:
        """Mean number of new tokens of text per row; a budget in tokens counts these, or those of the crops that are compared."""
        document = min(self.stride, self.store.predicted_tokens / max(1, len(self)))
        if OBJECTIVES[self.objective.name].compares:  # the two crops of a document of mean length
            return float(np.sum(crop_lengths(np.array([document]), self.length)))
        return document if self.documents else self.stride

    def __len__(self) -> int:
        return self.store.documents if self.documents else self.store.rows(self.stride)

    def order(self, seed: int, epoch: int) -> RowOrder:
        """The order in which an epoch reads the rows."""
        return self.store.order(seed, epoch, None if self.documents else self.stride)

    def batch(self, indices: np.ndarray, draw: np.random.Generator, *, ragged: bool = False) -> Batch:
        """The batch of the rows at ``indices`` (B,); ``ragged`` admits the last, shorter row of the store."""
        pad = self.vocabulary.specials.pad
        if self.documents:
            rows, lengths = self.store.documents_block(indices, self.stride + 1, pad)
        else:
            rows, lengths = self.store.row_block(indices, self.stride, pad, ragged=ragged)
        return OBJECTIVES[self.objective.name].make(rows, lengths, draw, self.vocabulary, self.objective)


def pretraining_batches(rows: PretrainingRows, batch: int, accumulate: int, seed: int) -> Callable[[int], list[Batch]]:
    """``batches(step)`` for pretraining: an epoch reads every row once, in its own order."""
    count = len(rows)

    compares = OBJECTIVES[rows.objective.name].compares
    part_tokens = PART_TOKENS.get(pick_device().type, PART_TOKENS["cpu"])

    @lru_cache(maxsize=2)
    def order(epoch: int) -> RowOrder:
        return rows.order(seed, epoch)

    def batches(step: int) -> list[Batch]:
        parts = []
        for part in range(accumulate):
            first = (step * accumulate + part) * batch
            indices = np.array([order(i // count)[i % count] for i in range(first, first + batch)])
            made = rows.batch(indices, rng(seed, "objective", step, part))
            parts += [made] if compares else split_by_length(made, part_tokens)
        return parts

    return batches


def split_by_length(batch: Batch, part_tokens: int) -> list[Batch]:
    """A ragged batch as several of similar lengths, so that little of them is padding; their summed loss is the same.

    ``lengths [3 9 2 8]`` -> ``[2 3]`` and ``[8 9]``, each as wide as its longest row. A part has at least
    ``part_tokens`` real tokens, so small batches stay whole.
    """
    lengths = batch.lengths
    count = min(int(lengths.sum()) // part_tokens, len(lengths))
    if int(lengths.min()) == batch.ids.shape[1]:
        return [batch]
    parts = []
    for indices in lengths.argsort().tensor_split(max(1, count)):
        width = int(lengths[indices].max())
        targets, mask = (None if full is None else full[indices, :width] for full in (batch.targets, batch.attention_mask))
        mask = None if mask is None or mask.all() else mask
        counted = 0 if targets is None else int((targets != IGNORE).sum())
        parts.append(Batch(batch.ids[indices, :width], targets, mask, batch.causal, counted))
    return parts
