"""Attention maps: the weights over one text, and sums over a corpus by which ``head_attention`` tests what each head does.

The sums heed causal masks, local windows and padding. They are kept per passage, so that batches change nothing and passages can be
resampled.

Sources: Clark et al. 2019, "What does BERT look at?"; Vig and Belinkov 2019, "Analyzing the structure of attention".

Letters: N passages, B batch, T attending tokens (queries), S attended tokens (keys), L layers, H heads, R relations, M measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.backbone.attention import AttentionMask
from warmstart.data.encode import Encoded, encode
from warmstart.errors import ModelError
from warmstart.inspection.head_attention import MEASURES, HeadAttention, HeadTests, check_heads
from warmstart.inspection.tokens import is_punctuation, token_texts
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.training.progress import counting
from warmstart.types import Batch


@dataclass(frozen=True)
class AttentionMeasured:
    """Attention over one text of T tokens, and the tests over a corpus."""

    weights: np.ndarray
    """(L, H, T, T) float32"""
    ids: np.ndarray
    """(T,)"""
    tokens: list[str]
    cut: int
    """tokens at the end of the text that do not fit into the model"""
    text: HeadAttention
    """figures of the heads over the text alone"""
    tests: HeadTests
    """over the corpus, or over the text if there is none"""
    causal: bool


def measure_text_and_corpus(bundle: Bundle, text: str, passages: Sequence[str], seed: int) -> AttentionMeasured:
    """The weights over ``text``, and the heads' figures over ``passages``, or over the text if there are none."""
    weights, encoded = text_attention(bundle, text)
    of_text = measure_attention(bundle, [text])
    tokens = [bundle.tokenizer.token(int(token_id)) for token_id in encoded.rows[0]]
    tests = check_heads(measure_attention(bundle, passages) if passages else of_text, seed)
    return AttentionMeasured(weights, encoded.rows[0], tokens, int(encoded.cut[0]), of_text, tests, bundle.model.causal)


def measure_attention(bundle: Bundle, texts: Sequence[str]) -> HeadAttention:
    """The figures of every head over N texts, each cut to the model's context.

    Only the weights of one batch are in memory at a time. Raises ``ModelError`` for a backbone without blocks.
    """
    encoded = _encode(bundle, texts)
    texts_of = token_texts(bundle.tokenizer, encoded)
    marks = np.array([token_id for token_id, text in texts_of.items() if is_punctuation(text)], dtype=np.int64)
    special = np.array(sorted(bundle.tokenizer.specials.all()), dtype=np.int64)
    punctuation, specials = torch.from_numpy(np.setdiff1d(marks, special)), torch.from_numpy(special)
    config = bundle.model.backbone.config
    out = np.zeros((len(texts), config.depth, config.heads + 2, len(MEASURES)))

    with counting("passages", len(texts), show=len(texts) > 1) as done:

        def sums(batch: Batch, indices: np.ndarray) -> Tensor:
            device = batch.ids.device
            weights, masks = attention_weights(bundle, batch), attention_masks(bundle, batch)
            done(len(indices))
            return attention_sums(batch, weights, masks, punctuation.to(device), specials.to(device))

        for indices, batch_sums in run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=sums):
            out[indices] = batch_sums.numpy()
    return HeadAttention(out[:, :, :-2], out[:, :, -2], out[:, :, -1])


def text_attention(bundle: Bundle, text: str) -> tuple[np.ndarray, Encoded]:
    """(L, H, T, S) float32: the weights over one text, and the encoded text. Raises as ``measure_attention`` does."""
    encoded = _encode(bundle, [text])

    def weights(batch: Batch, _: np.ndarray) -> Tensor:
        return torch.stack(attention_weights(bundle, batch), dim=1)

    ((_, all_weights),) = run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=weights)
    return all_weights[0].numpy(), encoded


def _encode(bundle: Bundle, texts: Sequence[str]) -> Encoded:
    config = bundle.model.backbone.config
    if not config.depth:
        raise ModelError("a study of attention needs a backbone with blocks, but this one has depth 0; take another model")
    return encode(bundle.tokenizer, texts, config.max_length)


def attention_weights(bundle: Bundle, batch: Batch) -> list[Tensor]:
    """For each layer (B, H, T, S): the weights over a batch."""
    model = bundle.model
    return list(model.backbone.forward_batch(batch, causal=model.causal, need_weights=True).attention_weights)


def attention_masks(bundle: Bundle, batch: Batch) -> list[Tensor]:
    """For each layer (B, T, S) bool: the tokens to which each real token may attend; none for padding."""
    config, width = bundle.model.backbone.config, batch.ids.shape[1]
    real = torch.ones_like(batch.ids, dtype=torch.bool) if batch.attention_mask is None else batch.attention_mask
    masks = []
    for layer in range(config.depth):
        window = config.window if config.is_local(layer) else None
        visible = AttentionMask(bundle.model.causal, width, batch.ids.device, real, window=window).matrix[:, 0]
        masks.append(visible & real[:, :, None])
    return masks


def attention_sums(
    batch: Batch, weights: Sequence[Tensor], masks: Sequence[Tensor], punctuation: Tensor, specials: Tensor
) -> Tensor:
    """(B, L, H + 2, M): the sums of every measure for each head, then those of uniform attention, then the tokens that count.

    ``weights`` are L of (B, H, T, S), ``masks`` L of (B, T, S) bool, ``punctuation`` (P,) and ``specials`` (S,) token ids.
    """
    relations = _relations(batch, punctuation, specials)  # (B, T, S, R)
    positions = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    distance = (positions - positions[:, None]).abs()[None, :, :, None].float()  # (1, T, S, 1)
    return torch.stack([_layer_sums(w, visible, relations, distance) for w, visible in zip(weights, masks, strict=True)], dim=1)


def _relations(batch: Batch, punctuation: Tensor, specials: Tensor) -> Tensor:
    """(B, T, S, R) bool: what token s is to token t. Special tokens are never the same: often one id begins and ends the text."""
    ids, width = batch.ids, batch.ids.shape[1]
    positions = torch.arange(width, device=ids.device)
    step = (positions - positions[:, None])[None]  # (1, T, S): how far s is after t
    ends = batch.lengths.to(ids.device) - 1 if batch.attention_mask is not None else torch.full_like(ids[:, 0], width - 1)
    relations = (
        step == 0,
        step == -1,
        step == 1,
        (positions == 0) & (step != 0),
        (positions == ends[:, None])[:, None] & (step != 0),
        (ids[:, :, None] == ids[:, None]) & (step != 0) & ~torch.isin(ids, specials)[:, None],
        torch.isin(ids, punctuation)[:, None] & (step != 0),
    )
    return torch.stack([relation.expand(len(ids), width, width) for relation in relations], dim=-1)


def _layer_sums(weights: Tensor, visible: Tensor, relations: Tensor, distance: Tensor) -> Tensor:
    """(B, H + 2, M) of one layer: weights (B, H, T, S), visible (B, T, S), relations (B, T, S, R), distance (1, T, S, 1)."""
    count = visible.sum(dim=-1)  # (B, T)
    choice = count > 1
    relations = relations & visible[..., None]
    related = relations.any(dim=2) & choice[..., None]  # (B, T, R)
    counted = torch.stack([choice] * 3 + list(related.unbind(dim=-1)), dim=-1).float()  # (B, T, M)
    values = torch.cat([distance * visible[..., None], relations], dim=-1)  # (B, T, S, 1 + R)
    of_heads = weights.transpose(1, 2) @ values  # (B, T, H, 1 + R)
    uniform_bits = count.clamp(min=2).log2()[..., None]  # (B, T, 1)
    bits = torch.special.entr(weights).sum(dim=-1).transpose(1, 2) / np.log(2)  # (B, T, H)
    measures = torch.cat([torch.stack([bits, bits / uniform_bits], dim=-1), of_heads], dim=-1)  # (B, T, H, M)
    uniform = values.sum(dim=2) / count.clamp(min=1)[..., None]  # (B, T, 1 + R)
    uniform = torch.cat([uniform_bits, torch.ones_like(uniform_bits), uniform], dim=-1)  # (B, T, M)
    heads = torch.einsum("bthm,btm->bhm", measures, counted)
    return torch.cat([heads, (uniform * counted).sum(dim=1)[:, None], counted.sum(dim=1)[:, None]], dim=1)
