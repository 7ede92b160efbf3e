"""Input of pretraining: tokenised text, its rows, and the rows of each step, as a pure function of its number.

The text is cut into full rows, so nothing is padded; a row can also be one document.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from warmstart.corpora.order import ShardOrder
from warmstart.corpora.store import TokenFolder, TokenText, text_of_shards
from warmstart.corpora.write import TokenSides, text_here, tokenized_text
from warmstart.data.source import Document, Source
from warmstart.errors import ConfigError, DataError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.contrastive import crop_lengths
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.system.device import pick_device
from warmstart.system.urls import is_url
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import IGNORE, Batch, Vocabulary

PART_TOKENS = {"cpu": 512, "cuda": 32_768}
"""fewest real tokens in a part of a ragged batch, by device; smaller matrix products cost more per token"""
USUALLY_HELD_OUT = 0.02
"""fraction of the documents that commands hold out if none is named"""


@dataclass(frozen=True)
class ShardsToRead:
    """Names of the shards to train on, and their tokenizer."""

    text: tuple[str, ...]
    """paths and URLs: all of them folders of shards, or none"""
    held_out: str | float | None
    """shards or text, a fraction, or nothing"""
    tokenizer: Tokenizer | None
    """tokenizer that was named, or that of the model to train further"""
    document: Document
    cache: Path

    def open(self) -> tuple[Tokenizer, TokenSides] | None:
        """The tokenizer, the training text and the held-out text; None if ``text`` is no shards.

        Raises ``ConfigError`` or ``DataError`` if shards are mixed with text, or do not fit each other or the tokenizer.
        """
        folders = shard_folders(self.text)
        if not folders:
            return None
        tokenizer = folders[0].tokenizer()
        if self.tokenizer is not None and self.tokenizer.digest != tokenizer.digest:
            raise ConfigError(
                f"the shards of {folders[0].place} were made with another tokenizer than the one that is named, or that of the "
                f"model to train further; tokenize the text again with that one (--tokenizer-file)"
            )
        training = text_of_shards(folders, tokenizer, held_out=False)
        if training is None:
            raise DataError(f"{folders[0].place} must hold shards to train on, but all documents are held out; hold out less")
        return tokenizer, (training, self._held_out(folders, tokenizer))

    def _held_out(self, folders: Sequence[TokenFolder], tokenizer: Tokenizer) -> TokenText | None:
        """The held-out text: documents of the shards, other shards, or text."""
        if self.held_out is None:
            return None
        if isinstance(self.held_out, float):
            return self._held_out_documents(folders, tokenizer)
        others = shard_folders([self.held_out])
        if others:
            _require_one_tokenizer([*folders[:1], others[0]], [self.text[0], self.held_out])
            return text_of_shards(others, tokenizer, held_out=False)
        return tokenized_text([text_here(Source(path=self.held_out, document=self.document), self.cache)], tokenizer, self.cache)

    def _held_out_documents(self, folders: Sequence[TokenFolder], tokenizer: Tokenizer) -> TokenText:
        """Rows that were held out when the text was tokenized."""
        text = text_of_shards(folders, tokenizer, held_out=True)
        if text is None:
            raise ConfigError(
                f"{self.text[0]} holds no documents out; name other shards or text (--held-out FILE), or --held-out none, or "
                "tokenize the text with a fraction to hold out"
            )
        fractions = {folder.index.held_out for folder in folders}
        if self.held_out not in {*fractions, USUALLY_HELD_OUT}:
            known = ", ".join(f"{fraction:g}" for fraction in sorted(filter(None, fractions)))
            raise ConfigError(
                f"which documents of {self.text[0]} are held out was decided when they were tokenized ({known}), so --held-out "
                f"must not be {self.held_out:g}; leave it out"
            )
        return text


def shard_folders(paths: Sequence[str]) -> list[TokenFolder]:
    """The folders of shards that paths name. Raises ``ConfigError`` if only some of them do, ``DataError`` if they do not fit."""
    known = {path: None if is_url(path) else TokenFolder.open(Path(path)) for path in paths}
    folders = [folder for path in paths if (folder := known[path])]
    if folders and len(folders) < len(paths):
        other = next(path for path, folder in known.items() if folder is None)
        raise ConfigError(
            f"train on text or on shards, but {folders[0].place} is a folder of shards and {other} is not; tokenize it first"
        )
    _require_one_tokenizer(folders, [str(folder.place) for folder in folders])
    return folders


def _require_one_tokenizer(folders: Sequence[TokenFolder], places: Sequence[str]) -> None:
    """Raise ``DataError`` unless all shards are of one tokenizer."""
    for folder, place in zip(folders, places, strict=True):
        if folder.index.tokenizer != folders[0].index.tokenizer:
            raise DataError(
                f"all shards must be of one tokenizer, but those of {place} are of another than those of {places[0]}; "
                "tokenize one of them again with the tokenizer.json of the other (--tokenizer-file)"
            )


@dataclass(frozen=True)
class PretrainingRows:
    """The rows of a tokenised text under an objective."""

    store: TokenText
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

    def order(self, seed: int, epoch: int) -> ShardOrder | np.ndarray:
        """The order in which an epoch reads the rows."""
        return self.store.order(seed, epoch, None if self.documents else self.stride)

    def batch(self, indices: np.ndarray, draw: np.random.Generator, *, ragged: bool = False) -> Batch:
        """The batch of the rows at ``indices`` (B,); ``ragged`` admits the last, shorter row of the text."""
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
    def order(epoch: int) -> ShardOrder | np.ndarray:
        return rows.order(seed, epoch)

    def batches(step: int) -> list[Batch]:
        parts = []
        for part in range(accumulate):
            first = (step * accumulate + part) * batch
            indices = np.array([order(i // count)[i % count] for i in range(first, first + batch)])
            whole = rows.batch(indices, rng(seed, "objective", step, part))
            parts += [whole] if compares else split_by_length(whole, part_tokens)
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
