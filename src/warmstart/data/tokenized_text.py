"""What pretraining and its metrics need of a large text that is stored as tokens: a token store, or shards.

The text is cut into rows of T predicted tokens, or a row is one document. Rows have numbers, and each can be read at any time.

Letters: B rows, T predicted tokens of a row.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class RowOrder(Protocol):
    """The order in which an epoch reads rows."""

    def __getitem__(self, position: int, /) -> int:
        """The number of the row that is read at a position."""
        ...


class TokenizedText(Protocol):
    """A text as tokens, read by rows."""

    @property
    def digest(self) -> str:
        """A hash of the tokens."""
        ...

    @property
    def documents(self) -> int:
        """Number of documents."""
        ...

    @property
    def words(self) -> int:
        """Those between white space, and one for every line end."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the text in UTF-8."""
        ...

    @property
    def unknown(self) -> int:
        """Number of unknown tokens."""
        ...

    @property
    def total_tokens(self) -> int:
        """All tokens, those between documents included."""
        ...

    @property
    def predicted_tokens(self) -> int:
        """The number of tokens that a language model predicts in it."""
        ...

    def rows(self, length: int, *, ragged: bool = False) -> int:
        """The number of rows of ``length`` predicted tokens; with ``ragged`` shorter last rows count too."""
        ...

    def row_block(self, indices: np.ndarray, length: int, pad_id: int, *, ragged: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows by number: ids (B, T + 1) int64, and the number of ids of each row that are not padding (B,)."""
        ...

    def documents_block(self, indices: np.ndarray, length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Documents by number: ids (B, ``length``) int64, and the number of ids of each row that are not padding (B,)."""
        ...

    def order(self, seed: int, epoch: int, length: int | None) -> RowOrder:
        """The order of an epoch, for rows of ``length`` predicted tokens; None: for rows of one document."""
        ...


def gather(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """(B, ``width``) ids from each start, int64; after the first ``lengths`` ids there is padding. And the lengths."""
    steps = np.arange(width)
    indices = np.minimum(starts[:, None] + steps, len(tokens) - 1)  # (B, width)
    ids = tokens[indices].astype(np.int64)
    ids[steps >= lengths[:, None]] = pad_id
    return ids, lengths
