"""Texts, pairs of texts and lists of words as token ids, cut to the longest row that a model reads.

    "I rub"           ->  [EOS] I rub [EOS]                 as documents are in the token store
    ("I rub", "dog")  ->  [EOS] I rub [EOS] dog [EOS]

Letters: N texts, B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from warmstart.tokenizer.pieces import WORD_MARK
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch


@dataclass(frozen=True)
class Encoded:
    """Examples as token ids, ready for a model."""

    rows: tuple[np.ndarray, ...]
    """each (T,) int64; every row holds at least its end-of-text token"""
    cut: np.ndarray
    """number of tokens (or pieces) of each row that did not fit"""
    group: int = 1
    """rows per example; the rows of an example are adjacent"""
    piece_starts: tuple[np.ndarray, ...] = ()
    """for each row, the index of the first token of every piece that fits; empty unless the texts were given in pieces"""
    second_starts: np.ndarray | None = None
    """for each row of a pair, the index at which its second text begins; None for models without token types"""

    def __len__(self) -> int:
        return len(self.rows) // self.group

    def take(self, indices: np.ndarray) -> Encoded:
        """The examples at ``indices``, in that order."""
        rows = self.rows_of(indices)
        piece_starts = tuple(self.piece_starts[row] for row in rows) if self.piece_starts else ()
        second_starts = None if self.second_starts is None else self.second_starts[rows]
        return Encoded(tuple(self.rows[row] for row in rows), self.cut[rows], self.group, piece_starts, second_starts)

    def batch(self, indices: np.ndarray, labels: np.ndarray | None, pad_id: int, *, causal: bool) -> Batch:
        """The examples at ``indices`` in one batch; ``labels`` (B,) are their targets."""
        rows = self.rows_of(indices)
        batch = collate([self.rows[row] for row in rows], labels, pad_id, causal=causal)
        if self.group > 1:
            batch = replace(batch, count=len(indices))
        if self.second_starts is not None:
            second = torch.arange(batch.ids.shape[1]) >= torch.from_numpy(self.second_starts[rows])[:, None]
            batch = replace(batch, token_type_ids=second.long())
        return batch

    def rows_of(self, indices: np.ndarray) -> np.ndarray:
        """The indices of the rows of the examples at ``indices``."""
        return (np.asarray(indices)[:, None] * self.group + np.arange(self.group)).ravel()

    @property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of the longest row of each example."""
        return np.array([len(row) for row in self.rows]).reshape(-1, self.group).max(axis=1)


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    max_length: int,
    *,
    appended: bool = False,
    typed: bool = False,
) -> Encoded:
    """Each text between two end-of-text tokens, ``[EOS] text [EOS]``; a pair as ``[EOS] first [EOS] second [EOS]``.

    A tokenizer with a token for the beginning uses it: ``[CLS] text [SEP]``, ``<s> text </s>``. With ``appended`` the last token is
    ``[CLS]``. A text that is too long loses its end, but not these tokens; of a pair the longer text is cut first. With ``typed``
    the result says where second texts begin.
    """
    if texts and not isinstance(texts[0], str):
        pairs = _encode_pairs(tokenizer, [pair for pair in texts if not isinstance(pair, str)], max_length, appended=appended)
        return pairs if typed else replace(pairs, second_starts=None)
    specials, free = tokenizer.specials, max_length - 2
    last = specials.cls if appended else specials.eos
    ids_of = tokenizer.encode([text for text in texts if isinstance(text, str)])
    rows = tuple(np.array([specials.begin, *ids[:free], last], dtype=np.int64) for ids in ids_of)
    return Encoded(rows, np.array([max(0, len(ids) - free) for ids in ids_of], dtype=np.int64))


def _encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], max_length: int, *, appended: bool) -> Encoded:
    specials, free = tokenizer.specials, max_length - 3
    firsts, seconds = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    rows, cut, second_starts = [], [], []
    for first, second in zip(firsts, seconds, strict=True):
        kept_first = min(len(first), max(free - len(second), free // 2))
        kept_second = min(len(second), free - kept_first)
        last = specials.cls if appended else specials.eos
        row = [specials.begin, *first[:kept_first], specials.eos, *second[:kept_second], last]
        rows.append(np.array(row, dtype=np.int64))
        cut.append(max(0, len(first) + len(second) - free))
        second_starts.append(kept_first + 2)
    return Encoded(tuple(rows), np.array(cut, dtype=np.int64), second_starts=np.array(second_starts, dtype=np.int64))


def encode_pieces(tokenizer: Tokenizer, texts: Sequence[Sequence[str]], max_length: int) -> Encoded:
    """Texts that come in pieces (words, each with the space before it), with the index of each piece's first token.

    ``[["I", " rub"]]`` -> rows ``[EOS I rub EOS]``, piece_starts ``[1, 2]``. A piece that does not fit is left out whole, with all
    that follow it, and counted. The space is dropped for a tokenizer that puts one before every text by itself (Llama 2).
    """
    specials, free = tokenizer.specials, max_length - 2
    bare, spaced = tokenizer.encode(["a", " a"])
    adds_space = bare != spaced and bool(bare) and tokenizer.token(bare[0]).startswith(WORD_MARK)
    ids_of = iter(tokenizer.encode([piece.removeprefix(" ") if adds_space else piece for pieces in texts for piece in pieces]))
    rows, piece_starts, cut = [], [], []
    for pieces in texts:
        row, starts, left_out = [specials.begin], list[int](), 0
        for _ in pieces:
            ids = next(ids_of) or [specials.unk]
            if left_out or len(row) - 1 + len(ids) > free:
                left_out += 1
                continue
            starts.append(len(row))
            row += ids
        rows.append(np.array([*row, specials.eos], dtype=np.int64))
        piece_starts.append(np.array(starts, dtype=np.int64))
        cut.append(left_out)
    return Encoded(tuple(rows), np.array(cut, dtype=np.int64), piece_starts=tuple(piece_starts))


def padded(rows: Sequence[Sequence[int] | np.ndarray], fill: int) -> np.ndarray:
    """Rows padded on the right with ``fill`` to the longest: (B, T) int64."""
    ids = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def collate(rows: Sequence[np.ndarray], labels: np.ndarray | None, pad_id: int, *, causal: bool) -> Batch:
    """Rows padded on the right to the longest: ids and attention mask (B, T), targets (B,)."""
    ids = padded(rows, pad_id)
    real = np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
    mask = None if real.all() else torch.from_numpy(real)
    targets = None if labels is None else torch.from_numpy(labels)
    return Batch(torch.from_numpy(ids), targets, mask, causal=causal, count=len(rows))
