"""Many rows written at once, from left to right, with what the model thought of every token it wrote.

Keys and values of what is read are kept, so that a new token costs the same however long the text is. Rows of different length
stand side by side, padded on the left; a row that has stopped leaves the batch. When a row outgrows the backbone's window, the
newer half of it is read again and writing goes on; such rows are written only beside rows of the same length, so that what one
row sees never depends on another.

Letters: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
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
    if config.precision == "bfloat16":
        model = copy.deepcopy(model).bfloat16()
    done: dict[int, Written] = {}
    for batch in _batches(model, rows, config):
        made = [_Row(place, list(rows[place]), np.random.default_rng(derive(config.seed, "generate", place))) for place in batch]
        with packed(model, len(made)):
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
    unread, mask = _padded([row.ids[-window:] for row in rows])
    cache = Cache.empty(depth, window)
    for _ in range(config.tokens):
        if cache.tokens + unread.shape[1] > window:
            unread, mask = _padded([row.ids[-(window // 2 or 1) :] for row in rows])
            cache = Cache.empty(depth, window)
        here = None if mask.all() else mask.to(device)
        states = model.backbone(unread.to(device), mask=here, causal=True, cache=cache).last  # (B, T, D)
        logits = model.head(states[:, -1:])[:, -1].float().cpu().index_fill(1, banned, -math.inf)  # (B, V)
        said = logits.log_softmax(dim=-1)
        for row, score, log_probability in zip(rows, logits, said, strict=True):
            chosen = int(score.argmax()) if config.greedy else pick(keep_likeliest(score, config), row.draw)
            row.log_probabilities.append(float(log_probability[chosen]))
            if watch:
                watch(row.place, log_probability, chosen)
            row.stopped = chosen in stop
            if not row.stopped:
                row.ids.append(chosen)
        going = torch.tensor([not row.stopped for row in rows])
        if not going.all():
            rows = [row for row in rows if not row.stopped]
            if not rows:
                return
            cache.keep(going.to(device))
            mask = mask[going]
        unread = torch.tensor([[row.ids[-1]] for row in rows])
        mask = torch.cat([mask, torch.ones(len(rows), 1, dtype=torch.bool)], dim=1)


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows side by side, padded on the left: ids and mask, each (B, T). What the padding's id is does not matter."""
    wide = max(map(len, rows))
    ids = torch.tensor([[0] * (wide - len(row)) + list(row) for row in rows])
    return ids, torch.tensor([[False] * (wide - len(row)) + [True] * len(row) for row in rows])
