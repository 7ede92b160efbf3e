"""Inference on many texts: every text once, in batches of similar length, as fast as the machine allows; and embeddings.

Letters: N texts, D width, R rows: windows of the texts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.data.batches import sorted_batches
from warmstart.data.encode import Encoded, encode
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.pooled import PooledHead
from warmstart.heads.settings import WindowSettings
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.system.device import autocast, in_bfloat16
from warmstart.system.products import Linear, Product, reordered_product
from warmstart.types import Batch

# Copies of the weights in a layout that is faster for inference.
#
# oneDNN reorders a weight once and then multiplies faster than with the weight as it is, most of all a single row, which waits for
# memory (results/performance.md). The products are equal up to the order of their sums (``products``).


@contextmanager
def inference_weights(model: Model, *, bfloat16: bool = False) -> Iterator[None]:
    """Inside this context the linear layers of a model on the CPU multiply with reordered copies of their weights.

    ``bfloat16``: the copies are bfloat16, on any device, and only the products are; everything between them stays as it is. For
    inference only: no gradient flows through the copies, and they do not follow changes of the weights.
    """
    changed = [] if model.reordered else _reorder(model, bfloat16=bfloat16)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def reordered_copy(model: Model) -> Model:
    """A copy that has its linear layers in this layout for good, for a program that serves it; it shares all parameters."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    _reorder(copied, bfloat16=False)
    copied.reordered = True
    return copied


def _reorder(model: Model, *, bfloat16: bool) -> list[nn.Module]:
    """Let the linear layers multiply with copies of their weights; returns the modules whose ``forward`` was replaced."""
    changed: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, Linear) and (product := _product(module.weight, module.bias, bfloat16=bfloat16)):
            module.forward = product  # type: ignore[method-assign, assignment]
            changed.append(module)
    head = model.head
    if isinstance(head, LMHead) and (logits := _product(head.weight, head.bias, bfloat16=bfloat16)):
        transform = head.transform
        head.forward = lambda states, mask=None: logits(  # type: ignore[method-assign, assignment]
            transform(states) if transform else states
        )
        changed.append(head)
    return changed


def _product(weight: Tensor, bias: Tensor | None, *, bfloat16: bool) -> Product | None:
    """``x W^T + b`` with a copy of ``W`` (out, in); None if a copy is of no use."""
    if hasattr(weight, "device_mesh"):  # several processes have a part each
        return None
    dtype = torch.bfloat16 if bfloat16 else weight.dtype
    copied = weight.detach().to(dtype)
    bias = None if bias is None else bias.detach().to(dtype)
    product = reordered_product(copied, bias)
    if not bfloat16:
        return product

    def rounded(x: Tensor) -> Tensor:
        x_rounded = x.to(dtype)
        return (product(x_rounded) if product else F.linear(x_rounded, copied, bias)).to(x.dtype)

    return rounded


# Small batches stay in the CPU's cache: on two machines about a thousand tokens per batch were fastest (lab note "performance").

INFERENCE_TOKENS, INFERENCE_TOKENS_GPU = 1024, 16_384
"""tokens in a batch, padding included"""
ENOUGH_TOKENS = 512
"""number of tokens in all below which preparing the inference weights takes longer than it saves"""

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
            output = forward(batch, indices) if forward else model.read(batch)
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

    for indices, vectors in run_in_batches(model, encoded.by_row, pad_id, precision, pooled):
        states[indices] = vectors
    # pooling a single state gives that state
    outputs: Tensor = head(states[:, None].to(device), None, torch.from_numpy(encoded.windows).to(device))
    return outputs.float().cpu()


def embed(bundle: Bundle, texts: str | Sequence[str | tuple[str, str]], windows: WindowSettings | None = None) -> Tensor:
    """(N, D) float32, in the order of the texts or pairs; (D,) for a single string. Other texts never change a vector.

    What becomes of texts that are longer than the model reads ``windows`` says; None: the settings of the bundle. Raises
    ``ModelError`` if the bundle has another head.

    >>> vectors = ws.embed(ws.load("hf:MiniLM"), ["a cat", "a kitten"])
    >>> float(vectors[0] @ vectors[1])  # their cosine similarity
    """
    if isinstance(texts, str):
        return embed(bundle, [texts], windows)[0]
    model, head = bundle.model, bundle.model.head
    if not isinstance(head, EmbeddingHead):
        raise ModelError(f"embeddings need an embedding head, but this model has a {head.config.kind} head")
    config, backbone = head.config, model.backbone.config
    if windows is not None:
        config = EmbeddingHeadConfig(**dict(config) | dict(windows))
        model = Model(model.backbone, EmbeddingHead(config, backbone.width), causal=model.causal)
    appended, typed = config.pooling == "appended", backbone.token_types > 1
    encoded = encode(bundle.tokenizer, texts, backbone.max_length, appended=appended, typed=typed, windows=config.window_settings)
    out = torch.empty(len(texts), backbone.width)
    for indices, vectors in run_in_batches(model, encoded, bundle.tokenizer.specials.pad):
        out[indices] = vectors
    return out
