"""Inference on many texts: every text once, in batches of similar length, as fast as the machine allows.

Small batches stay in the CPU's cache: on two machines about a thousand tokens per batch were fastest (lab note "performance").

Letters: N texts, D width, R rows: windows of the texts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from warmstart.data.batches import sorted_batches
from warmstart.data.encode import Encoded
from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.pooled import PooledHead
from warmstart.model.inference_weights import inference_weights
from warmstart.model.model import Model
from warmstart.system.device import autocast, in_bfloat16
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
    and stays off. Windows of a text may be read in different batches: however long a text is, memory is bounded.
    """
    if encoded.windows is not None and forward is None:
        return [(np.arange(len(encoded)), _joined(model, encoded, pad_id, precision))]
    model.eval()
    device, outputs = next(model.parameters()).device, list[tuple[np.ndarray, Tensor]]()
    tokens = INFERENCE_TOKENS if device.type == "cpu" else INFERENCE_TOKENS_GPU
    plain = in_bfloat16(precision, device) or int(encoded.lengths @ encoded.rows_per_example) < ENOUGH_TOKENS
    with nullcontext() if plain else inference_weights(model), autocast(precision, device):
        for indices, batch in sorted_batches(encoded, tokens, pad_id, causal=model.causal):
            batch = batch.to(device)
            output = forward(batch, indices) if forward else model(batch.ids, batch.attention_mask, batch.token_type_ids)
            outputs.append((indices, output.float().cpu()))
    return outputs


def _joined(model: Model, encoded: Encoded, pad_id: int, precision: str) -> Tensor:
    """(N, ...) the outputs for texts in windows: every window is read by itself, then the head joins those of each text."""
    head, device, states = model.head, next(model.parameters()).device, torch.empty(len(encoded.rows), model.backbone.config.width)
    assert isinstance(head, PooledHead | EmbeddingHead)
    assert encoded.windows is not None

    def pooled(batch: Batch, _: np.ndarray) -> Tensor:
        hidden_states = model.backbone.forward_batch(batch, causal=model.causal).last_hidden_state
        return head.pooling(hidden_states, batch.attention_mask)

    for indices, found in run_in_batches(model, encoded.by_row, pad_id, precision, pooled):
        states[indices] = found
    # pooling a single state gives that state
    outputs: Tensor = head(states[:, None].to(device), None, torch.from_numpy(encoded.windows).to(device))
    return outputs.float().cpu()
