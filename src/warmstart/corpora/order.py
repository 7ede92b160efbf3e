"""The order in which an epoch reads the rows of many shards: shuffled, and never whole in memory.

    shards   in a random order, ``SHARDS_AT_ONCE`` at a time
    blocks   of ``BLOCK_ROWS`` consecutive rows, those of the shards at hand in a random order
    rows     of ``BUFFER_BLOCKS`` blocks, in a random order

A small corpus is one buffer, and so is shuffled whole. All of it is a function of the seed, the epoch and the numbers of rows: the
row at any position is found without those before it, by every process alike, so that a run can be resumed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from warmstart.seeding import rng

SHARDS_AT_ONCE = 4
"""shards whose rows are mixed"""
BLOCK_ROWS = 1024
"""rows that lie side by side in a shard"""
BUFFER_BLOCKS = 64
"""blocks whose rows are shuffled together"""


class ShardOrder:
    """The rows of an epoch, by position.

    Rows are numbered through all shards. Memory holds one number for every block of the shards at hand, and for every row of a
    buffer or two.
    """

    def __init__(self, rows: Sequence[int], seed: int, epoch: int) -> None:
        self.rows, self.seed, self.epoch = np.asarray(rows, dtype=np.int64), seed, epoch
        self.firsts = np.cumsum(self.rows) - self.rows
        self.shards = rng(seed, "shards", epoch).permutation(len(self.rows))
        sizes = self.rows[self.shards]
        self.ends = np.add.reduceat(sizes, np.arange(0, len(sizes), SHARDS_AT_ONCE)).cumsum() if len(sizes) else sizes
        self._blocks, self._buffer = lru_cache(maxsize=2)(self._find_blocks), lru_cache(maxsize=2)(self._find_buffer)

    def __len__(self) -> int:
        return int(self.rows.sum())

    def __getitem__(self, position: int) -> int:
        """The number of the row that is read at a position."""
        group = int(np.searchsorted(self.ends, position, "right"))
        within = position - (int(self.ends[group - 1]) if group else 0)
        _, ends = self._blocks(group)
        buffer = int(np.searchsorted(ends, within, "right")) // BUFFER_BLOCKS
        start = int(ends[buffer * BUFFER_BLOCKS - 1]) if buffer else 0
        return int(self._buffer(group, buffer)[within - start])

    def _find_blocks(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """(blocks, 2) first row of each block and the row behind its last, as they are read; (blocks,) rows so far."""
        shards = self.shards[group * SHARDS_AT_ONCE : (group + 1) * SHARDS_AT_ONCE]
        bounds = [
            (start, min(start + BLOCK_ROWS, int(first + rows)))
            for first, rows in zip(self.firsts[shards], self.rows[shards], strict=True)
            for start in range(int(first), int(first + rows), BLOCK_ROWS)
        ]
        blocks = np.array(bounds, dtype=np.int64)[rng(self.seed, "blocks", self.epoch, group).permutation(len(bounds))]
        return blocks, np.cumsum(blocks[:, 1] - blocks[:, 0])

    def _find_buffer(self, group: int, buffer: int) -> np.ndarray:
        """The rows of a buffer as they are read."""
        blocks = self._blocks(group)[0][buffer * BUFFER_BLOCKS : (buffer + 1) * BUFFER_BLOCKS]
        return rng(self.seed, "rows", self.epoch, group, buffer).permutation(np.concatenate([np.arange(*ends) for ends in blocks]))
