"""Span corruption: move spans of a text to its end, to be predicted there by a causal decoder.

Two forms. T5's (Raffel et al. 2020, section 3.1.4): many short spans, each replaced by its own sentinel; only the spans are
predicted. CS224N's: one long span of a document, replaced by a mask and moved behind a second one; everything is predicted.

Letters: B batch, T tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from warmstart.errors import ConfigError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary

MEAN_SPAN = 3
"""mean length of a masked span, in tokens (Raffel et al. 2020, section 3.3.4)"""


def span_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """A batch of corrupted rows, each followed by the spans that were taken out of it.

    ``rows`` (B, stride + 1), of which the first ``lengths`` (B,) tokens are real.
    """
    pad, block = vocabulary.specials.pad, rows.shape[1] - 1
    if is_prefix_suffix(config):
        corrupted = [prefix_suffix(row[:length], block, rng, vocabulary) for row, length in zip(rows, lengths, strict=True)]
    else:
        texts = [row[:length] for row, length in zip(rows[:, :-1], lengths, strict=True)]
        corrupted = [_sentinel_row(text, rng, vocabulary, config) for text in texts]
    width = max(len(sequence) for sequence, _ in corrupted)
    ids = np.full((len(corrupted), width), pad, dtype=np.int64)
    targets = np.full((len(corrupted), width), IGNORE, dtype=np.int64)
    for i, (sequence, first_target) in enumerate(corrupted):
        ids[i, : len(sequence)] = sequence
        targets[i, first_target : len(sequence)] = sequence[first_target:]
    ids, targets = ids[:, :-1], targets[:, 1:]  # padding comes after the targets, so no token attends to it
    count = int((targets != IGNORE).sum())
    return Batch(torch.from_numpy(ids.copy()), torch.from_numpy(targets.copy()), causal=True, count=count)


def sentinel_form(ids: np.ndarray, masked: np.ndarray, sentinels: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Masks spans. ``[5 6 7 8 9]`` with spans (6 7), (9) -> inputs ``[5 <0> 8 <1>]``, targets ``[<0> 6 7 <1> 9 <2>]``.

    ``ids`` (T,) and ``masked`` (T,) bool, True in the spans -> inputs (I,) and targets (J,).
    """
    starts = _span_starts(masked)
    marks = np.asarray(sentinels)[np.maximum(starts.cumsum() - 1, 0)]  # (T,): the sentinel of each token's span
    inputs = np.where(masked, marks, ids)[~masked | starts]
    targets = [np.concatenate([[marks[i]], ids[i : i + _run_length(masked, i)]]) for i in map(int, np.flatnonzero(starts))]
    return inputs, np.concatenate([*targets, [sentinels[int(starts.sum())]]])


def prefix_suffix(ids: np.ndarray, block: int, rng: np.random.Generator, vocabulary: Vocabulary) -> tuple[np.ndarray, int]:
    """``ids`` (T,) ``[a b c d e]`` with span (b c) -> ``[a M d e M b c]``, all of it predicted.

    The document is first truncated to a random length from 4 to 7/8 of ``block`` (a row's tokens); the span is a quarter of that on
    average. Returns the sequence (S,), and the index of its first target: 0.
    """
    longest = min(len(ids), block * 7 // 8)
    length = int(rng.integers(min(4, longest), longest + 1))
    span_length = max(1, int(rng.integers(1, max(2, length // 2))))
    start = int(rng.integers(0, max(1, length - span_length)))
    mask = [vocabulary.specials.mask]
    end = start + span_length
    return np.concatenate([ids[:start], mask, ids[end:length], mask, ids[start:end]]), 0


def is_prefix_suffix(config: ObjectiveConfig) -> bool:
    """Whether the form is CS224N's: it reads whole documents and learns to generate; with sentinels only spans are predicted."""
    return config.form == "prefix-suffix"


def span_target_fractions(config: ObjectiveConfig) -> tuple[float, float]:
    """The fraction of a row's tokens that are predicted.

    With sentinels, of n tokens ``r n`` are masked in ``r n / s`` spans. The row has a sentinel for each span twice, and predicts
    the masked tokens and one sentinel for each span, so the fraction is ``(r + r/s) / (1 + 2 r/s)``.
    """
    if is_prefix_suffix(config):
        return 1.0, 1.0
    spans = config.effective_mask_rate / MEAN_SPAN
    fraction = (config.effective_mask_rate + spans) / (1 + 2 * spans)
    return fraction, fraction


def span_mask(length: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """(length,) bool: a fraction ``rate`` of the tokens, in spans of ``MEAN_SPAN`` on average, never the first token."""
    masked = min(max(1, round(length * rate)), length - 1)
    spans = min(max(1, round(masked / MEAN_SPAN)), masked, length - masked)
    sizes = np.stack([_random_parts(length - masked, spans, rng), _random_parts(masked, spans, rng)], axis=1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, sizes)


def span_stride(tokens: int, config: ObjectiveConfig) -> int:
    """The longest stretch of text that fits in ``tokens`` together with its sentinels: n + 2 spans <= tokens."""
    if is_prefix_suffix(config):
        return tokens
    length = tokens
    while length > 2 and length + 2 * max(1, round(round(length * config.effective_mask_rate) / MEAN_SPAN)) > tokens:
        length -= 1
    if length <= 2:
        raise ConfigError(f"span corruption needs rows of at least 5 tokens, but rows have {tokens}; raise max_length")
    return length


def _sentinel_row(
    ids: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> tuple[np.ndarray, int]:
    masked = span_mask(len(ids), config.effective_mask_rate, rng)
    spans = int(_span_starts(masked).sum())
    if spans + 1 > len(vocabulary.specials.sentinels):
        raise ConfigError(
            f"a row with {spans} masked spans needs {spans + 1} sentinels, but the tokenizer has "
            f"{len(vocabulary.specials.sentinels)}; train it with more sentinels, or lower --mask-rate"
        )
    inputs, targets = sentinel_form(ids, masked, vocabulary.specials.sentinels)
    return np.concatenate([inputs, targets]), len(inputs)


def _random_parts(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) integers of at least 1 that sum to ``total``, all such choices equally likely."""
    cuts = np.sort(rng.choice(total - 1, size=count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _span_starts(masked: np.ndarray) -> np.ndarray:
    """(T,) bool: the first token of each span."""
    return masked & ~np.concatenate([[False], masked[:-1]])


def _run_length(flags: np.ndarray, start: int) -> int:
    """Number of consecutive flags that are set from ``start`` on."""
    rest = flags[start:]
    return len(rest) if rest.all() else int(np.argmin(rest))
