"""Hidden states of a model's layers, for texts and for words.

Layer 0 is the embedding, layer l the output of block l; the last layer is what heads read, after the norm if the backbone ends in
one.

Letters: N texts, B batch, T tokens, L blocks, D width, W words of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from warmstart.backbone.backbone import Backbone, BackboneOutput
from warmstart.data.encode import Encoded, encode, encode_pieces
from warmstart.heads.pooled import POOLINGS
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import seed_torch
from warmstart.types import Batch


def layer_names(bundle: Bundle) -> list[str]:
    """``["embedding", "1", "2", ...]``: one name per layer."""
    return ["embedding", *(str(number) for number in range(1, bundle.model.backbone.config.depth + 1))]


def stack_layers(output: BackboneOutput) -> Tensor:
    """(B, T, L + 1, D): the hidden states of every layer."""
    return torch.stack([*output.hidden_states[:-1], output.last_hidden_state], dim=2)


def run_backbone(bundle: Bundle, batch: Batch) -> BackboneOutput:
    """The backbone's output for a batch, causal or bidirectional as the model was trained."""
    return bundle.model.backbone.forward_batch(batch, causal=bundle.model.causal)


def with_random_weights(bundle: Bundle, seed: int) -> Bundle:
    """A model of the same architecture with new random weights, under a language head that is never read."""
    seed_torch(seed, "random weights")
    backbone = Backbone(bundle.model.backbone.config, bundle.model.backbone.vocab_size)
    head = fresh_head(LMHeadConfig(), backbone, seed)
    model = Model(backbone, head, causal=bundle.model.causal).to(next(bundle.model.parameters()).device).eval()
    return replace(bundle, model=model, labels=(), calibration=None)


def text_states(bundle: Bundle, texts: Sequence[str | tuple[str, str]], pooling: str = "mean") -> np.ndarray:
    """(N, L + 1, D) float32: the hidden states of each text or pair, pooled over its tokens as heads pool them."""
    config, pool = bundle.model.backbone.config, POOLINGS[pooling]
    typed = config.token_types > 1
    encoded = encode(bundle.tokenizer, texts, config.max_length, appended=pooling == "appended", typed=typed)
    out = np.empty((len(encoded), config.depth + 1, config.width), dtype=np.float32)

    def pooled(batch: Batch, _: np.ndarray) -> Tensor:
        layers = stack_layers(run_backbone(bundle, batch)).unbind(dim=2)
        return torch.stack([pool(layer, batch.attention_mask) for layer in layers], dim=1)

    for indices, states in run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=pooled):
        out[indices] = states.numpy()
    return out


@dataclass(frozen=True)
class EncodedWords:
    """N texts of given words, as token ids."""

    encoded: Encoded
    texts: tuple[tuple[str, ...], ...]
    """the words of each text that fit into the model"""

    @cached_property
    def word_ids(self) -> tuple[np.ndarray, ...]:
        """For each text (T,) int64: the number of the word that each token belongs to; -1 at the tokens that frame the text."""
        word_ids = []
        for row, starts in zip(self.encoded.rows, self.encoded.piece_starts, strict=True):
            numbers = np.searchsorted(starts, np.arange(len(row)), side="right") - 1
            numbers[-1] = -1
            word_ids.append(numbers)
        return tuple(word_ids)


def encode_words(bundle: Bundle, texts: Sequence[Sequence[str]]) -> EncodedWords:
    """Texts given as words, with a space before every word but the first. Words that do not fit into the model are left out."""
    pieces = [[word if i == 0 else f" {word}" for i, word in enumerate(words)] for words in texts]
    encoded = encode_pieces(bundle.tokenizer, pieces, bundle.model.backbone.config.max_length)
    kept = tuple(tuple(words[: len(starts)]) for words, starts in zip(texts, encoded.piece_starts, strict=True))
    return EncodedWords(encoded, kept)


def word_states(bundle: Bundle, words: EncodedWords) -> list[np.ndarray]:
    """For each text (W, L + 1, D) float32: the hidden states of each word, the mean over its tokens."""
    config = bundle.model.backbone.config
    empty = np.empty((0, config.depth + 1, config.width), dtype=np.float32)
    out = [empty for _ in words.texts]

    def averaged(batch: Batch, indices: np.ndarray) -> Tensor:
        layers = stack_layers(run_backbone(bundle, batch))  # (B, T, L + 1, D)
        most = max(1, *(len(words.texts[i]) for i in indices))
        weights = torch.zeros(len(indices), most, layers.shape[1], device=layers.device)  # (B, W, T)
        for row, i in enumerate(indices):
            word_ids = words.word_ids[i]
            inside = np.flatnonzero(word_ids >= 0)
            weights[row, torch.from_numpy(word_ids[inside]), torch.from_numpy(inside)] = 1.0
        weights /= weights.sum(dim=-1, keepdim=True).clamp(min=1.0)
        return torch.einsum("bwt,btld->bwld", weights, layers)

    for indices, states in run_in_batches(bundle.model, words.encoded, bundle.tokenizer.specials.pad, forward=averaged):
        for i, rows in zip(indices, states.numpy(), strict=True):
            out[i] = rows[: len(words.texts[i])].copy()
    return out
