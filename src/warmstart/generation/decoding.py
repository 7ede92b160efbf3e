"""Decoding: many rows of token ids are continued at once, from left to right, with the log-probability of every new token.

A KV cache makes a new token cost the same however long the text is. Rows of different length are padded on the left; a row that has
stopped leaves the batch. When a row outgrows the context window, its newer half is read again and decoding continues; such rows are
batched only with rows of the same length, so that the tokens one row attends to never depend on another.

Letters: B rows, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from warmstart.backbone.attention import KVCache
from warmstart.generation.settings import GenerateConfig
from warmstart.model.inference import inference_weights
from warmstart.model.model import Model
from warmstart.seeding import derive


def sampling_probabilities(logits: Tensor, config: GenerateConfig) -> Tensor:
    """Probabilities (V,) after temperature, top-k and top-p; tokens that are cut off have probability 0.

    With logits ``log([.5 .3 .2])`` and top_p 0.6, the two most probable tokens are left: ``[.625 .375 0]``.
    """
    ranked, order = (logits.double() / config.temperature).sort(descending=True, stable=True)  # the first of equals wins
    ranked, order = ranked[: config.top_k], order[: config.top_k]
    kept = ranked.softmax(dim=-1)
    if config.top_p is not None:
        more_probable = kept.cumsum(dim=-1) - kept
        kept = kept.where(more_probable < config.top_p, 0.0)
    return torch.zeros(len(logits), dtype=kept.dtype).index_copy(0, order, kept / kept.sum())


def draw_token(probabilities: Tensor, rng: np.random.Generator) -> int:
    """One token id, drawn with these probabilities (V,)."""
    token = int(np.searchsorted(probabilities.cumsum(dim=-1).numpy(), rng.random(), side="right"))
    return min(token, len(probabilities) - 1)


MAX_BATCH = 64
"""rows decoded at once"""

OnToken = Callable[[int, Tensor, int], None]
"""called for every new token with the index of the row, the log-probabilities (V,) it was chosen from, and the token"""


@dataclass(frozen=True)
class Decoded:
    """The continuation of one row."""

    ids: tuple[int, ...]
    """the new tokens, without the one that stopped it"""
    log_probabilities: tuple[float, ...]
    """the model's own log-probability in nats of each new token and the one that stopped it, before temperature, top-k and top-p"""
    stopped: bool
    """True if it ended with a stop token; otherwise ``max_new_tokens`` were generated"""


@dataclass
class _Row:
    """A row while it is decoded."""

    index: int
    ids: list[int]
    rng: np.random.Generator
    log_probabilities: list[float] = field(default_factory=list)
    stopped: bool = False


@torch.inference_mode()
def decode(
    model: Model,
    rows: Sequence[Sequence[int]],
    config: GenerateConfig,
    *,
    banned: Tensor,
    stop: Collection[int],
    on_token: OnToken | None = None,
) -> list[Decoded]:
    """Continue each row of token ids until a ``stop`` token or ``config.max_new_tokens``; ``banned`` ids are never chosen.

    The continuation of a row does not depend on the other rows. The random numbers of a row depend on the seed and on its index.
    """
    model.eval()
    decoded: dict[int, Decoded] = {}
    with inference_weights(model, bfloat16=config.precision == "bfloat16"):
        for indices in _batches(model, rows, config):
            batch = [_Row(i, list(rows[i]), np.random.default_rng(derive(config.seed, "generate", i))) for i in indices]
            _decode_batch(model, batch, config, banned, stop, on_token)
            for row in batch:
                new = row.ids[len(rows[row.index]) :]
                decoded[row.index] = Decoded(tuple(new), tuple(row.log_probabilities), row.stopped)
    return [decoded[i] for i in range(len(rows))]


def _batches(model: Model, rows: Sequence[Sequence[int]], config: GenerateConfig) -> Iterator[list[int]]:
    """Indices of rows to decode together: of similar length if none can outgrow the window, else of equal length."""
    backbone = model.backbone.config
    by_length = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))

    def group(i: int) -> int:
        fits = len(rows[i]) + config.max_new_tokens <= backbone.max_length
        # the weights of a synthesizer depend on the position in the row, so padding on the left would shift them
        return 0 if fits and backbone.attention == "dot-product" else len(rows[i])

    for _, members in groupby(sorted(by_length, key=group), key=group):
        indices = list(members)
        yield from (indices[start : start + MAX_BATCH] for start in range(0, len(indices), MAX_BATCH))


def _decode_batch(
    model: Model, rows: list[_Row], config: GenerateConfig, banned: Tensor, stop: Collection[int], on_token: OnToken | None
) -> None:
    """Continue all rows to their end, in place."""
    device, depth, window = next(model.parameters()).device, model.backbone.config.depth, model.backbone.config.max_length
    (unread, mask), cache = _left_padded([row.ids[-window:] for row in rows], device), None
    for remaining in range(config.max_new_tokens, 0, -1):
        if cache and cache.tokens == window:  # full: half of it is read anew, which makes room for many tokens
            (unread, mask), cache = _left_padded([row.ids[-(window // 2 or 1) :] for row in rows], device), None
        cache = cache or KVCache.empty(depth, min(window, unread.shape[1] + remaining))
        states = model.backbone(unread, attention_mask=mask, causal=True, kv_cache=cache).last_hidden_state  # (B, T, D)
        logits = model.head(states[:, -1:])[:, -1].float().cpu().index_fill_(1, banned, -math.inf)  # (B, V)
        log_probabilities = logits.log_softmax(dim=-1)
        tokens = _choose(logits, rows, config)
        chosen = log_probabilities[range(len(rows)), tokens].tolist()
        for row, all_of_row, token, of_token in zip(rows, log_probabilities, tokens, chosen, strict=True):
            row.log_probabilities.append(of_token)
            if on_token:
                on_token(row.index, all_of_row, token)
            row.stopped = token in stop
            if not row.stopped:
                row.ids.append(token)
        if any(row.stopped for row in rows):
            active = torch.tensor([not row.stopped for row in rows], device=device)
            rows = [row for row in rows if not row.stopped]
            if not rows:
                return
            cache.keep(active)
            mask = None if mask is None else mask[active]
        unread = torch.tensor([row.ids[-1:] for row in rows], device=device)
        mask = None if mask is None else F.pad(mask, (0, 1), value=True)


def _choose(logits: Tensor, rows: Sequence[_Row], config: GenerateConfig) -> list[int]:
    """The next token of each row, from logits (B, V); the first of equals wins."""
    if config.greedy:
        return logits.numpy().argmax(axis=1).tolist()  # ten times as fast as torch's
    return [draw_token(sampling_probabilities(scores, config), row.rng) for scores, row in zip(logits, rows, strict=True)]


def _left_padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Ids (B, T) padded on the left, and the attention mask (B, T) if any row is padded. Padding may be any id."""
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
    if all(len(row) == longest for row in rows):
        return ids, None
    return ids, torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows], device=device)
