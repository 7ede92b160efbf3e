"""Inference on many texts: every text once, in batches of similar length, as fast as the machine allows.

Small batches stay in the CPU's cache: on two machines about a thousand tokens per batch were fastest (docs/performance.md).

Letters: N texts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from warmstart.data.batches import sorted_batches
from warmstart.data.encode import Encoded
from warmstart.device import autocast, in_bfloat16
from warmstart.model.inference_weights import inference_weights
from warmstart.model.model import Model
from warmstart.types import Batch

INFERENCE_TOKENS, INFERENCE_TOKENS_GPU = 1024, 16_384
"""tokens in a batch, padding included"""
ENOUGH_TOKENS = 512
"""with fewer tokens in all, preparing the inference weights takes longer than it saves"""

Forward = Callable[[Batch, np.ndarray], Tensor]
"""(batch, indices of its texts) -> outputs"""


@torch.no_grad()
def run_in_batches(
    model: Model, encoded: Encoded, pad_id: int, precision: str = "float32", forward: Forward | None = None
) -> list[tuple[np.ndarray, Tensor]]:
    """(indices, outputs) of every batch, the shortest texts first; the indices of all batches together are 0 .. N-1.

    ``forward`` computes the outputs of a batch; by default they are the model's. Outputs are float32 on the CPU. Dropout is off,
    and stays off.
    """
    model.eval()
    device, outputs = next(model.parameters()).device, list[tuple[np.ndarray, Tensor]]()
    tokens = INFERENCE_TOKENS if device.type == "cpu" else INFERENCE_TOKENS_GPU
    plain = in_bfloat16(precision, device) or int(encoded.lengths.sum()) * encoded.group < ENOUGH_TOKENS
    with nullcontext() if plain else inference_weights(model), autocast(precision, device):
        for indices, batch in sorted_batches(encoded, tokens, pad_id, causal=model.causal):
            batch = batch.to(device)
            output = forward(batch, indices) if forward else model(batch.ids, batch.attention_mask, batch.token_type_ids)
            outputs.append((indices, output.float().cpu()))
    return outputs
