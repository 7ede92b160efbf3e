"""Batches: which rows or texts a step reads, as a pure function of the step's number.

Pretraining cuts the token store into full rows, so nothing is padded. Labelled texts are short and ragged: they are bucketed by
length, so that the work is nearly proportional to their real tokens.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from warmstart.data.corpus import Corpus
from warmstart.objectives import OBJECTIVES, ObjectiveConfig
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer
from warmstart.tokenizer.pieces import MARK
from warmstart.types import IGNORE, Batch, Vocabulary

BUCKET = 50
"""batches that are shuffled together and then sorted by length"""
PART_TOKENS = 512
"""real tokens that a part of a ragged batch has at least; smaller products are slower for each token"""


@dataclass(frozen=True)
class Encoded:
    """Texts as token ids, ready for a model."""

    rows: tuple[np.ndarray, ...]
    """each (T,) int64; every row holds at least its end-of-text token"""
    cut: np.ndarray
    """(N,) how many tokens of each text did not fit"""
    group: int = 1
    """rows of each example; they stand together"""
    marks: tuple[np.ndarray, ...] = ()
    """for each row, the places of what is asked about: the first token of every word that fits"""
    seconds: np.ndarray | None = None
    """for each row of a pair, where its second text begins, for models that tell both apart"""

    def __len__(self) -> int:
        return len(self.rows) // self.group

    def take(self, places: np.ndarray) -> Encoded:
        """The examples at ``places``, in that order."""
        rows = self.rows_of(places)
        marks = tuple(self.marks[row] for row in rows) if self.marks else ()
        seconds = None if self.seconds is None else self.seconds[rows]
        return Encoded(tuple(self.rows[row] for row in rows), self.cut[rows], self.group, marks, seconds)

    def batch(self, places: np.ndarray, labels: np.ndarray | None, pad_id: int, *, causal: bool) -> Batch:
        """The examples at ``places`` side by side; ``labels`` are theirs, (B,)."""
        rows = self.rows_of(places)
        made = collate([self.rows[row] for row in rows], labels, pad_id, causal=causal)
        made = made if self.group == 1 else replace(made, count=len(places))
        if self.seconds is None:
            return made
        return replace(made, types=(torch.arange(made.ids.shape[1]) >= torch.from_numpy(self.seconds[rows])[:, None]).long())

    def rows_of(self, places: np.ndarray) -> np.ndarray:
        """The rows of the examples at ``places``."""
        return (np.asarray(places)[:, None] * self.group + np.arange(self.group)).ravel()

    @property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of the longest row of each example."""
        return np.array([len(row) for row in self.rows]).reshape(-1, self.group).max(axis=1)


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    max_tokens: int,
    *,
    appended: bool = False,
    typed: bool = False,
) -> Encoded:
    """Each text between two end-of-text tokens, as documents stand in the token store: ``[EOS] text [EOS]``.

    A tokenizer that has a token of its own to begin with gives that one: ``[CLS] text [SEP]``, ``<s> text </s>``. Pairs stand
    beside each other: ``[EOS] one [EOS] other [EOS]``. With ``appended`` the last one is ``[CLS]``. What is too long loses its
    end, never these tokens; of a pair the longer side is cut first. With ``typed`` it is told where second texts begin.
    """
    specials = tokenizer.specials
    if texts and not isinstance(texts[0], str):
        pairs = _encode_pairs(tokenizer, [pair for pair in texts if not isinstance(pair, str)], max_tokens, appended=appended)
        return pairs if typed else replace(pairs, seconds=None)
    last, room = (specials.cls if appended else specials.eos), max_tokens - 2
    spelled = tokenizer.encode([text for text in texts if isinstance(text, str)])
    rows = tuple(np.array([specials.begin, *ids[:room], last], dtype=np.int64) for ids in spelled)
    return Encoded(rows, np.array([max(0, len(ids) - room) for ids in spelled], dtype=np.int64))


def _encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], max_tokens: int, *, appended: bool) -> Encoded:
    specials, room = tokenizer.specials, max_tokens - 3
    ones, others = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    rows, cut, seconds = [], [], []
    for one, other in zip(ones, others, strict=True):
        over = max(0, len(one) + len(other) - room)
        first = min(len(one), max(room - len(other), room // 2))
        second = min(len(other), room - first)
        last = specials.cls if appended else specials.eos
        rows.append(np.array([specials.begin, *one[:first], specials.eos, *other[:second], last], dtype=np.int64))
        cut.append(over)
        seconds.append(first + 2)
    return Encoded(tuple(rows), np.array(cut, dtype=np.int64), seconds=np.array(seconds, dtype=np.int64))


def encode_pieces(tokenizer: Tokenizer, texts: Sequence[Sequence[str]], max_tokens: int) -> Encoded:
    """Texts that are given in pieces (words; a piece keeps the space before it), with the place of each piece's first token.

    ``[["I", " rub"]]`` -> rows ``[EOS I rub EOS]``, marks ``[1, 2]``. Pieces that do not fit are left out and counted, whole.
    Where a tokenizer puts a blank before every text, whether it begins with one or not (Llama 2), it is not given the space too.
    """
    specials, room = tokenizer.specials, max_tokens - 2
    bare, spaced = tokenizer.encode(["a", " a"])
    own = bare != spaced and bool(bare) and tokenizer.token(bare[0]).startswith(MARK)
    spelled = iter(tokenizer.encode([piece.removeprefix(" ") if own else piece for pieces in texts for piece in pieces]))
    rows, marks, cut = [], [], []
    for pieces in texts:
        row, places, lost = [specials.begin], list[int](), 0
        for _ in pieces:
            ids = next(spelled) or [specials.unk]
            if lost or len(row) - 1 + len(ids) > room:
                lost += 1
                continue
            places.append(len(row))
            row += ids
        rows.append(np.array([*row, specials.eos], dtype=np.int64))
        marks.append(np.array(places, dtype=np.int64))
        cut.append(lost)
    return Encoded(tuple(rows), np.array(cut, dtype=np.int64), marks=tuple(marks))


def padded(rows: Sequence[Sequence[int] | np.ndarray], fill: int) -> np.ndarray:
    """Rows side by side, filled up on the right to the longest: (B, T) int64."""
    ids = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def collate(rows: Sequence[np.ndarray], labels: np.ndarray | None, pad_id: int, *, causal: bool) -> Batch:
    """Rows side by side, padded on the right to the longest: ids and mask (B, T), targets (B,)."""
    ids = padded(rows, pad_id)
    real = np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
    mask = None if real.all() else torch.from_numpy(real)
    targets = None if labels is None else torch.from_numpy(labels)
    return Batch(torch.from_numpy(ids), targets, mask, causal=causal, count=len(rows))


def labelled_batches(
    encoded: Encoded, labels: np.ndarray, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool
) -> Callable[[int], list[Batch]]:
    """``batches(step)`` for fine-tuning: each epoch is every text once, in batches of like length, in an order of its own.

    ``size`` is (texts of a batch, batches of a step).
    """
    return chosen_batches(encoded, lambda places: encoded.batch(places, labels[places], pad_id, causal=causal), size, seed)


def chosen_batches(
    encoded: Encoded, made: Callable[[np.ndarray], Batch], size: tuple[int, int], seed: int
) -> Callable[[int], list[Batch]]:
    """The same with ``made(places)`` for the batch of the examples at these places."""
    batch, accumulate = size
    chosen = by_length(encoded.lengths, batch, seed)
    return lambda step: [made(chosen(number)) for number in range(step * accumulate, (step + 1) * accumulate)]


def by_length(lengths: np.ndarray, batch: int, seed: int) -> Callable[[int], np.ndarray]:
    """``chosen(number)``: the places of the texts in batch ``number``, counted through the epochs; each is every text once."""
    per_epoch = -(-len(lengths) // batch)

    @lru_cache(maxsize=2)
    def order(epoch: int) -> list[np.ndarray]:
        draw = rng(seed, "texts", epoch)
        shuffled = draw.permutation(len(lengths))
        room = BUCKET * batch
        buckets = [shuffled[i : i + room] for i in range(0, len(shuffled), room)]
        ranked = np.concatenate([bucket[np.argsort(lengths[bucket], kind="stable")] for bucket in buckets])
        groups = [ranked[i : i + batch] for i in range(0, len(ranked), batch)]
        return [groups[i] for i in draw.permutation(per_epoch)]

    return lambda number: order(number // per_epoch)[number % per_epoch]


def ordered_batches(encoded: Encoded, tokens: int, pad_id: int, *, causal: bool) -> Iterator[tuple[np.ndarray, Batch]]:
    """Every text once, shortest first, in batches of at most ``tokens`` padded tokens; yields the texts' places and the batch."""
    lengths = encoded.lengths
    ranked = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(ranked):
        end = start + 1
        while end < len(ranked) and (end + 1 - start) * encoded.group * lengths[ranked[end]] <= tokens:
            end += 1
        places = ranked[start:end]
        yield places, encoded.batch(places, None, pad_id, causal=causal)
        start = end


@dataclass(frozen=True)
class Rows:
    """How pretraining reads a token store."""

    corpus: Corpus
    vocabulary: Vocabulary
    objective: ObjectiveConfig
    tokens: int
    """tokens of one model row (T)"""

    @property
    def stride(self) -> int:
        """Fresh tokens of text per row."""
        return OBJECTIVES[self.objective.name].stride(self.tokens, self.objective)

    @property
    def documents(self) -> bool:
        """Whether a row is one document."""
        return self.objective.rows == "documents" or OBJECTIVES[self.objective.name].whole_documents(self.objective)

    @property
    def mean_tokens(self) -> float:
        """Fresh tokens of text that a row has on average: a budget in tokens is counted in these."""
        return min(self.stride, self.corpus.predicted / self.corpus.documents) if self.documents else self.stride

    def __len__(self) -> int:
        return self.corpus.documents if self.documents else self.corpus.rows(self.stride)

    def batch(self, places: np.ndarray, draw: np.random.Generator, *, ragged: bool = False) -> Batch:
        """The batch of the rows at ``places`` (B,); ``ragged`` admits the last, short row of the store."""
        pad = self.vocabulary.specials.pad
        if self.documents:
            rows, lengths = self.corpus.documents_block(places, self.stride + 1, pad)
        else:
            rows, lengths = self.corpus.row_block(places, self.stride, pad, ragged=ragged)
        return OBJECTIVES[self.objective.name].make(rows, lengths, draw, self.vocabulary, self.objective)


def evened(batch: Batch) -> list[Batch]:
    """A ragged batch as several of like length, so that little padding is read; together they have the same summed loss.

    ``lengths [3 9 2 8]`` -> ``[2 3]`` and ``[8 9]``, each as wide as its longest row. Small batches stay whole: a part has at
    least ``PART_TOKENS`` real tokens.
    """
    lengths = batch.lengths
    count = min(int(lengths.sum()) // PART_TOKENS, len(lengths))
    if int(lengths.min()) == batch.ids.shape[1]:
        return [batch]
    parts = []
    for places in lengths.argsort().tensor_split(max(1, count)):
        wide = int(lengths[places].max())
        targets = None if batch.targets is None else batch.targets[places, :wide]
        mask = None if batch.mask is None else batch.mask[places, :wide]
        counted = 0 if targets is None else int((targets != IGNORE).sum())
        parts.append(Batch(batch.ids[places, :wide], targets, None if mask is None or mask.all() else mask, batch.causal, counted))
    return parts


def pretraining_batches(rows: Rows, batch: int, accumulate: int, seed: int) -> Callable[[int], list[Batch]]:
    """``batches(step)`` for pretraining: each epoch is every row once, in an order of its own."""
    count = len(rows)

    @lru_cache(maxsize=2)
    def order(epoch: int) -> np.ndarray:
        return rng(seed, "rows", epoch).permutation(count)

    def batches(step: int) -> list[Batch]:
        made = []
        for part in range(accumulate):
            first = (step * accumulate + part) * batch
            places = np.array([order(i // count)[i % count] for i in range(first, first + batch)])
            made += evened(rows.batch(places, rng(seed, "objective", step, part)))
        return made

    return batches
