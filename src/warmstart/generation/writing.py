"""Many rows written at once, from left to right, with what the model thought of every token it wrote.

Keys and values of what is read are kept, so that a new token costs the same however long the text is. Rows of different length
stand side by side, padded on the left; a row that has stopped leaves the batch. When a row outgrows the backbone's window, the
newer half of it is read again and writing goes on; such rows are written only beside rows of the same length, so that what one
row sees never depends on another.

Letters: B rows, T tokens, V vocabulary.
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

from warmstart.backbone import Cache
from warmstart.generation.choose import GenerateConfig, keep_likeliest, pick
from warmstart.model import Model
from warmstart.model.packed import packed
from warmstart.seeding import derive

ROWS = 64
"""rows written side by side at most"""

Watch = Callable[[int, Tensor, int], None]
"""called for every token: the row's place, the log-probabilities (V,) it was chosen from, and the token"""


@dataclass(frozen=True)
class Written:
    """One continuation."""

    ids: tuple[int, ...]
    """the new tokens, without the one that stopped it"""
    log_probabilities: tuple[float, ...]
    """of every token written in nats, that which stopped it included: the model's own, before temperature, top-k and top-p"""
    stopped: bool
    """it ended by itself; else the budget of tokens ran out"""


@dataclass
class _Row:
    """A row while it is written."""

    place: int
    ids: list[int]
    draw: np.random.Generator
    log_probabilities: list[float] = field(default_factory=list)
    stopped: bool = False


@torch.inference_mode()
def write(
    model: Model,
    rows: Sequence[Sequence[int]],
    config: GenerateConfig,
    *,
    banned: Tensor,
    stop: Collection[int],
    watch: Watch | None = None,
) -> list[Written]:
    """Continue each row of token ids until a token of ``stop`` comes or ``config.tokens`` are written; never with ``banned`` ids.

    A row's continuation does not depend on the rows beside it. Chance is drawn for each row by its place in ``rows``.
    """
    model.eval()
    done: dict[int, Written] = {}
    with packed(model, half=config.precision == "bfloat16"):
        for batch in _batches(model, rows, config):
            made = [
                _Row(place, list(rows[place]), np.random.default_rng(derive(config.seed, "generate", place))) for place in batch
            ]
            _continue(model, made, config, banned, stop, watch)
            for row in made:
                new = row.ids[len(rows[row.place]) :]
                done[row.place] = Written(tuple(new), tuple(row.log_probabilities), row.stopped)
    return [done[place] for place in range(len(rows))]


def _batches(model: Model, rows: Sequence[Sequence[int]], config: GenerateConfig) -> Iterator[list[int]]:
    """Places of rows that are written together: of like length where none can outgrow the window, of equal length elsewhere."""
    shape = model.backbone.config
    places = sorted(range(len(rows)), key=lambda place: (len(rows[place]), place))

    def kind(place: int) -> int:
        fits = len(rows[place]) + config.tokens <= shape.max_tokens
        # a synthesizer's weights hang on the place in the row: padding on the left would shift them
        return 0 if fits and shape.attention == "dot-product" else len(rows[place])

    for _, alike in groupby(sorted(places, key=kind), key=kind):
        group = list(alike)
        yield from (group[start : start + ROWS] for start in range(0, len(group), ROWS))


def _continue(
    model: Model, rows: list[_Row], config: GenerateConfig, banned: Tensor, stop: Collection[int], watch: Watch | None
) -> None:
    """Write all rows to their end, in place."""
    device, depth, window = next(model.parameters()).device, model.backbone.config.depth, model.backbone.config.max_tokens
    (unread, mask), cache = _padded([row.ids[-window:] for row in rows], device), None
    for left in range(config.tokens, 0, -1):
        if cache and cache.tokens == window:
            (unread, mask), cache = _padded([row.ids[-(window // 2 or 1) :] for row in rows], device), None
        cache = cache or Cache.empty(depth, min(window, unread.shape[1] + left))
        states = model.backbone(unread, mask=mask, causal=True, cache=cache).last  # (B, T, D)
        logits = model.head(states[:, -1:])[:, -1].float().cpu().index_fill_(1, banned, -math.inf)  # (B, V)
        said = logits.log_softmax(dim=-1)
        chosen = _choose(logits, rows, config)
        for row, log_probability, token, sure in zip(rows, said, chosen, said[range(len(rows)), chosen].tolist(), strict=True):
            row.log_probabilities.append(sure)
            if watch:
                watch(row.place, log_probability, token)
            row.stopped = token in stop
            if not row.stopped:
                row.ids.append(token)
        if any(row.stopped for row in rows):
            going = torch.tensor([not row.stopped for row in rows], device=device)
            rows = [row for row in rows if not row.stopped]
            if not rows:
                return
            cache.keep(going)
            mask = None if mask is None else mask[going]
        unread = torch.tensor([row.ids[-1:] for row in rows], device=device)
        mask = None if mask is None else F.pad(mask, (0, 1), value=True)


def _choose(logits: Tensor, rows: Sequence[_Row], config: GenerateConfig) -> list[int]:
    """The next token of each row, from logits (B, V); of equals the first wins."""
    if config.greedy:
        return logits.numpy().argmax(axis=1).tolist()  # ten times as fast as torch's
    return [pick(keep_likeliest(score, config), row.draw) for score, row in zip(logits, rows, strict=True)]


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Rows side by side, padded on the left: ids (B, T), and a mask (B, T) if any is padded. The padding may be any id."""
    wide = max(map(len, rows))
    ids = torch.tensor([[0] * (wide - len(row)) + list(row) for row in rows], device=device)
    if all(len(row) == wide for row in rows):
        return ids, None
    return ids, torch.tensor([[False] * (wide - len(row)) + [True] * len(row) for row in rows], device=device)
