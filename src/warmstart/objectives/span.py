"""Span corruption: take spans out of a text and write them at its end, read by one causal stack.

Two forms. T5's (Raffel et al. 2020, section 3.1.4): many short spans, each replaced by its own sentinel; only the spans are
predicted. CS224N's: one long span of a document between two masks, moved behind the rest; everything is predicted.
"""

from __future__ import annotations

import numpy as np
import torch

from warmstart.errors import ConfigError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary


def span(rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig) -> Batch:
    """A batch of corrupted rows, each followed by what was taken out of it."""
    pad, block = vocabulary.specials.pad, rows.shape[1] - 1
    if config.form == "sentinel":
        pairs = [_sentinel_row(row[:length], rng, vocabulary, config) for row, length in zip(rows[:, :-1], lengths, strict=True)]
    else:
        pairs = [prefix_suffix(row[:length], block, rng, vocabulary) for row, length in zip(rows, lengths, strict=True)]
    width = max(len(sequence) for sequence, _ in pairs)
    ids = np.full((len(pairs), width), pad, dtype=np.int64)
    targets = np.full((len(pairs), width), IGNORE, dtype=np.int64)
    for i, (sequence, kept) in enumerate(pairs):
        ids[i, : len(sequence)] = sequence
        targets[i, kept : len(sequence)] = sequence[kept:]
    ids, targets = ids[:, :-1], targets[:, 1:]  # each row ends with its targets: what pads it on the right is never seen
    counted = int((targets != IGNORE).sum())
    return Batch(torch.from_numpy(ids.copy()), torch.from_numpy(targets.copy()), causal=True, count=counted)


def sentinel_form(ids: np.ndarray, hidden: np.ndarray, sentinels: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Masks spans. ``[5 6 7 8 9]`` with spans (6 7), (9) -> inputs ``[5 <0> 8 <1>]``, targets ``[<0> 6 7 <1> 9 <2>]``."""
    starts = hidden & ~np.concatenate([[False], hidden[:-1]])
    marks = np.asarray(sentinels)[np.maximum(starts.cumsum() - 1, 0)]  # each token's span number, as a sentinel
    inputs = np.where(hidden, marks, ids)[~hidden | starts]
    targets = [np.concatenate([[marks[i]], ids[i : i + _run(hidden, i)]]) for i in map(int, np.flatnonzero(starts))]
    return inputs, np.concatenate([*targets, [sentinels[int(starts.sum())]]])


def prefix_suffix(ids: np.ndarray, block: int, rng: np.random.Generator, vocabulary: Vocabulary) -> tuple[np.ndarray, int]:
    """``[a b c d e]`` with span (b c) -> ``[a M d e M b c]``, all of it predicted.

    The document is first cut to a random length of 4 to 7/8 of the ``block`` (a row's tokens); the span is a quarter of that on
    average. Returns the sequence, and the place of its first predicted token: 0.
    """
    longest = min(len(ids), block * 7 // 8)
    length = int(rng.integers(min(4, longest), longest + 1))
    taken = max(1, int(rng.integers(1, max(2, length // 2))))
    start = int(rng.integers(0, max(1, length - taken)))
    mask = [vocabulary.specials.mask]
    end = start + taken
    return np.concatenate([ids[:start], mask, ids[end:length], mask, ids[start:end]]), 0


def span_mask(length: int, rate: float, mean_span: float, rng: np.random.Generator) -> np.ndarray:
    """(length,) bool: ``rate`` of the tokens hidden, in spans of ``mean_span`` on average, never the first token."""
    hidden = min(max(1, round(length * rate)), length - 1)
    spans = min(max(1, round(hidden / mean_span)), hidden, length - hidden)
    sizes = np.stack([_parts(length - hidden, spans, rng), _parts(hidden, spans, rng)], axis=1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, sizes)


def span_stride(tokens: int, config: ObjectiveConfig) -> int:
    """The longest stretch of text whose corrupted row and spans together fit in ``tokens``: n + 2 spans <= tokens."""
    if config.form == "prefix-suffix":
        return tokens
    length = tokens
    while length > 2 and length + 2 * max(1, round(round(length * config.hidden) / config.mean_span)) > tokens:
        length -= 1
    if length <= 2:
        raise ConfigError(f"span corruption needs rows of at least 5 tokens, but rows hold {tokens}; raise max_tokens")
    return length


def _sentinel_row(
    ids: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> tuple[np.ndarray, int]:
    hidden = span_mask(len(ids), config.hidden, config.mean_span, rng)
    spans = int((hidden & ~np.concatenate([[False], hidden[:-1]])).sum())
    if spans + 1 > len(vocabulary.specials.sentinels):
        raise ConfigError(
            f"a row with {spans} hidden spans needs {spans + 1} sentinels, but the tokenizer has "
            f"{len(vocabulary.specials.sentinels)}; train it with more sentinels, or raise mean_span"
        )
    inputs, targets = sentinel_form(ids, hidden, vocabulary.specials.sentinels)
    return np.concatenate([inputs, targets]), len(inputs)


def _parts(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` whole numbers of at least 1 that sum to ``total``, all such choices equally likely."""
    cuts = np.sort(rng.choice(total - 1, size=count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _run(flags: np.ndarray, start: int) -> int:
    """How many flags are set in a row from ``start`` on."""
    rest = flags[start:]
    return len(rest) if rest.all() else int(np.argmin(rest))
