"""A model reads texts it does not learn from: every text once, in batches of like length, as fast as the machine allows.

Small batches stay in a processor's cache: on two machines, about a thousand tokens were read fastest (docs/performance.md).

Letters: N texts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from warmstart.data.batch import Encoded, ordered_batches
from warmstart.engine.device import arithmetic, in_bfloat16
from warmstart.model import Model
from warmstart.model.packed import packed
from warmstart.types import Batch

TOKENS, TOKENS_GPU = 1024, 16_384
"""padded tokens read at once"""
MANY = 512
"""tokens in all from which on it pays to lay weights out"""

Ask = Callable[[Batch, np.ndarray], Tensor]
"""of a batch, and the places of its texts"""


@torch.no_grad()
def read(
    model: Model, encoded: Encoded, pad_id: int, precision: str = "float32", ask: Ask | None = None
) -> list[tuple[np.ndarray, Tensor]]:
    """The places of some of the N texts and what is said of them, on the processor; all texts come once, shortest first.

    ``ask`` says what is asked of a batch: the head's scores where nothing is given. Dropout is off, and stays off.
    """
    model.eval()
    device, found = next(model.parameters()).device, list[tuple[np.ndarray, Tensor]]()
    tokens = TOKENS if device.type == "cpu" else TOKENS_GPU
    plain = in_bfloat16(precision, device) or int(encoded.lengths.sum()) * encoded.group < MANY
    with nullcontext() if plain else packed(model), arithmetic(precision, device):
        for places, batch in ordered_batches(encoded, tokens, pad_id, causal=model.causal):
            batch = batch.to(device)
            found.append((places, (ask(batch, places) if ask else model(batch.ids, batch.mask, batch.types)).float().cpu()))
    return found
