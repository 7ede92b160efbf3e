"""Texts, pairs of texts and lists of words as token ids, cut to the longest row that a model reads, or read in windows.

    "I rub"           ->  [EOS] I rub [EOS]                 as documents are in tokenised text
    ("I rub", "dog")  ->  [EOS] I rub [EOS] dog [EOS]

Letters: N texts, B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from warmstart.errors import DataError
from warmstart.heads.settings import CUT, WindowSettings
from warmstart.stats.formatting import percent
from warmstart.tokenizer.pieces import WORD_MARK
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

READ_WHOLE = "Adapt with --windows mean to read them whole."
"""advice about texts that are cut"""


def window_starts(tokens: int, room: int, settings: WindowSettings = CUT) -> tuple[np.ndarray, int]:
    """The first token of each window (W,) of a text of ``tokens`` tokens, and how many of its tokens no window holds.

    A window holds ``room`` tokens, or the whole text if that is shorter.
    """
    if settings.windows == "none" or tokens <= room or room < 1:
        return np.zeros(1, dtype=np.int64), max(0, tokens - room)
    step = room - int(settings.window_overlap * room)
    count = 1 + -(-(tokens - room) // step)
    most = settings.max_windows or count
    read = tokens if count <= most else room + (most - 1) * step
    count = min(count, most)
    return np.arange(count) * (read - room) // max(1, count - 1), tokens - read


def framed_windows(tokens: int, max_length: int, settings: WindowSettings, opening: int = 1) -> np.ndarray:
    """(W, min(tokens, max_length)) the positions that each window reads of a row of ``tokens`` tokens.

    The first ``opening`` tokens of the row and the last, which frame the text, are in every window.
    """
    inside = min(tokens, max_length) - opening - 1
    starts, _ = window_starts(tokens - opening - 1, max_length - opening - 1, settings)
    positions = starts[:, None] + np.arange(inside + opening + 1)
    positions[:, :opening], positions[:, -1] = np.arange(opening), tokens - 1
    return np.asarray(positions)


@dataclass(frozen=True)
class Encoded:
    """Examples as token ids, ready for a model."""

    rows: tuple[np.ndarray, ...]
    """each (T,) int64; every row holds at least its end-of-text token"""
    cut: np.ndarray
    """number of tokens (or pieces) of each row that did not fit; of a text in windows, noted at its first row"""
    piece_starts: tuple[np.ndarray, ...] = ()
    """for each row, the index of the first token of every piece that fits; empty unless the texts were given in pieces"""
    second_starts: np.ndarray | None = None
    """for each row of a pair, the index at which its second text begins; None for models without token types"""
    windows: np.ndarray | None = None
    """(N,) rows of each example, if some are windows of longer texts; None: every example has one"""
    states: tuple[torch.Tensor, ...] = ()
    """for each row the (T, D) that block ``from_block`` of a model reads; empty: they are not known"""
    from_block: int = 0

    def __len__(self) -> int:
        return len(self.rows if self.windows is None else self.windows)

    def take(self, indices: np.ndarray) -> Encoded:
        """The examples at ``indices``, in that order."""
        rows = self.rows_of(indices)
        piece_starts = tuple(self.piece_starts[row] for row in rows) if self.piece_starts else ()
        second_starts = None if self.second_starts is None else self.second_starts[rows]
        taken = tuple(self.rows[row] for row in rows)
        states = tuple(self.states[row] for row in rows) if self.states else ()
        return Encoded(taken, self.cut[rows], piece_starts, second_starts, self.windows_of(indices), states, self.from_block)

    def batch(self, indices: np.ndarray, labels: np.ndarray | None, pad_id: int, *, causal: bool) -> Batch:
        """The examples at ``indices`` in one batch; ``labels`` (B,) are their targets."""
        rows = self.rows_of(indices)
        batch = collate([self.rows[row] for row in rows], labels, pad_id, causal=causal)
        if len(rows) != len(indices):
            batch = replace(batch, count=len(indices))
        if (windows := self.windows_of(indices)) is not None:
            batch = replace(batch, windows=torch.from_numpy(windows))
        if self.second_starts is not None:
            second = torch.arange(batch.ids.shape[1]) >= torch.from_numpy(self.second_starts[rows])[:, None]
            batch = replace(batch, token_type_ids=second.long())
        if self.states:
            states = pad_sequence([self.states[row] for row in rows], batch_first=True)
            batch = replace(batch, states=states, from_block=self.from_block)
        return batch

    def rows_of(self, indices: np.ndarray) -> np.ndarray:
        """The indices of the rows of the examples at ``indices``."""
        firsts, counts = self.firsts[indices], self.rows_per_example[indices]
        return np.repeat(firsts - (counts.cumsum() - counts), counts) + np.arange(counts.sum())

    def windows_of(self, indices: np.ndarray) -> np.ndarray | None:
        """(B,) the rows of each of the examples at ``indices``, if texts are read in windows."""
        return None if self.windows is None or not len(indices) else self.windows[indices]

    @property
    def by_row(self) -> Encoded:
        """Every row as an example of its own."""
        return replace(self, windows=None)

    @cached_property
    def rows_per_example(self) -> np.ndarray:
        """(N,) int64."""
        return np.ones(len(self), dtype=np.int64) if self.windows is None else self.windows

    @cached_property
    def firsts(self) -> np.ndarray:
        """(N,) the first row of each example."""
        counts = self.rows_per_example
        return np.asarray(counts.cumsum() - counts)

    @property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of the longest row of each example."""
        rows = np.array([len(row) for row in self.rows], dtype=np.int64)
        return np.asarray(np.maximum.reduceat(rows, self.firsts)) if len(rows) else rows


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    max_length: int,
    *,
    appended: bool = False,
    typed: bool = False,
    windows: WindowSettings = CUT,
) -> Encoded:
    """Each text between two end-of-text tokens, ``[EOS] text [EOS]``; a pair as ``[EOS] first [EOS] second [EOS]``.

    A tokenizer with a token for the beginning uses it: ``[CLS] text [SEP]``, ``<s> text </s>``; words that precede every text
    (``tokenizer.prefix``) follow it in every row. With ``appended`` the last token is
    ``[CLS]``. A text that is too long loses its end, but not these tokens; of a pair the longer text is cut first. With ``windows``
    nothing is cut: a row for each window; of a pair, for each window of the first with each of the second, and a text that would
    not be cut is one window. With ``typed`` the result says where second texts begin. Raises ``DataError`` for texts beside pairs.
    """
    require_one_form(texts)
    specials, opening = tokenizer.specials, tokenizer.opening
    free = max_length - len(opening) - 1
    if texts and not isinstance(texts[0], str):
        pairs = _encode_pairs(
            tokenizer, [pair for pair in texts if not isinstance(pair, str)], free, appended=appended, windows=windows
        )
        return pairs if typed else replace(pairs, second_starts=None)
    last = specials.cls if appended else specials.eos
    rows, cut, counts = list[np.ndarray](), list[int](), list[int]()
    for ids in tokenizer.encode([text for text in texts if isinstance(text, str)]):
        starts, lost = window_starts(len(ids), free, windows)
        rows += [np.array([*opening, *ids[start : start + free], last], dtype=np.int64) for start in starts.tolist()]
        cut += [lost, *[0] * (len(starts) - 1)]
        counts.append(len(starts))
    return Encoded(tuple(rows), np.array(cut, dtype=np.int64), windows=_if_several(counts))


def require_one_form(texts: Sequence[Any]) -> None:
    """Raise ``DataError`` if some are texts and others are several texts each."""
    if other := next((i for i, text in enumerate(texts) if isinstance(text, str) != isinstance(texts[0], str)), None):
        kind, more = ("pairs", "a text") if isinstance(texts[other], str) else ("texts", "a pair")
        raise DataError(
            f"inputs must be all texts or all pairs, but the first are {kind} and input {other} is {more}; give each kind by itself"
        )


def cut_tokens(encoded: Encoded) -> np.ndarray:
    """(N,) the tokens (or words) that each text lost, N at least 1."""
    return np.asarray(np.add.reduceat(encoded.cut, encoded.firsts))


def cut_sentence(encoded: Encoded, max_length: int, *, advice: bool) -> str:
    """The numbers of cut texts and lost tokens (or words), as a sentence; empty if none were. With ``advice`` on a remedy."""
    cut = int((cut_tokens(encoded) > 0).sum())
    if not cut:
        return ""
    lost, unit = int(encoded.cut.sum()), "word" if encoded.piece_starts else "token"
    return (
        f"{cut:,} of {len(encoded):,} texts ({percent(cut / len(encoded))}) did not fit into the {max_length:,} tokens that the "
        f"model reads: {lost:,} {unit}{' was' if lost == 1 else 's were'} cut off.{f' {READ_WHOLE}' if advice else ''}"
    )


def _if_several(counts: list[int]) -> np.ndarray | None:
    """The number of windows of each text; None if every text is one."""
    return np.array(counts, dtype=np.int64) if sum(counts) > len(counts) else None


def _encode_pairs(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], free: int, *, appended: bool, windows: WindowSettings
) -> Encoded:
    """Pairs of texts as rows, of which ``free`` tokens are for the texts and the tokens between them."""
    specials, between = tokenizer.specials, tokenizer.between
    free -= len(between)
    last = specials.cls if appended else specials.eos
    firsts, seconds = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    rows, cut, second_starts, counts = list[np.ndarray](), list[int](), list[int](), list[int]()
    for first, second in zip(firsts, seconds, strict=True):
        kept_first = min(len(first), max(free - len(second), free // 2))
        kept_second = min(len(second), free - kept_first)
        starts, lost = window_starts(len(first), kept_first, windows)
        second_windows, lost_second = window_starts(len(second), kept_second, windows)
        for start, other in product(starts.tolist(), second_windows.tolist()):
            row = [*tokenizer.opening, *first[start : start + kept_first], *between, *second[other : other + kept_second], last]
            rows.append(np.array(row, dtype=np.int64))
        counts.append(len(starts) * len(second_windows))
        cut += [lost + lost_second, *[0] * (counts[-1] - 1)]
        second_starts += [len(tokenizer.opening) + kept_first + len(between)] * counts[-1]
    starts_of_seconds = np.array(second_starts, dtype=np.int64)
    return Encoded(tuple(rows), np.array(cut, dtype=np.int64), second_starts=starts_of_seconds, windows=_if_several(counts))


def encode_pieces(tokenizer: Tokenizer, texts: Sequence[Sequence[str]], max_length: int) -> Encoded:
    """Texts that come in pieces (words, each with the space before it), with the index of each piece's first token.

    ``[["I", " rub"]]`` -> rows ``[EOS I rub EOS]``, piece_starts ``[1, 2]``. A piece that does not fit is left out whole, with all
    that follow it, and counted. The space is dropped for a tokenizer that puts one before every text by itself (Llama 2).
    """
    specials, opening = tokenizer.specials, tokenizer.opening
    free = max_length - len(opening) - 1
    bare, spaced = tokenizer.encode(["a", " a"])
    adds_space = bare != spaced and bool(bare) and tokenizer.token(bare[0]).startswith(WORD_MARK)
    ids_of = iter(tokenizer.encode([piece.removeprefix(" ") if adds_space else piece for pieces in texts for piece in pieces]))
    rows, piece_starts, cut = [], [], []
    for pieces in texts:
        row, starts, left_out = [*opening], list[int](), 0
        for _ in pieces:
            ids = next(ids_of) or [specials.unk]
            if left_out or len(row) - len(opening) + len(ids) > free:
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
