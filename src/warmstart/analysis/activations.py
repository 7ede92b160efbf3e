"""States of a model's layers, for texts and for words: what every look inside reads.

Layer 0 is the embedding, layer l what block l gives; the last is what heads read, after the norm where the backbone ends in one.

Letters: N texts, B batch, T tokens, L depth, D width, W words of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from warmstart.backbone import Backbone, States
from warmstart.data.batch import Encoded, encode, encode_pieces
from warmstart.engine import read
from warmstart.heads import POOLINGS, LanguageHeadConfig
from warmstart.model import Bundle, Model, fresh_head
from warmstart.seeding import seed_torch
from warmstart.types import Batch


def layer_names(bundle: Bundle) -> list[str]:
    """``["embedding", "1", "2", ...]``: one name a layer."""
    return ["embedding", *(str(number) for number in range(1, bundle.model.backbone.config.depth + 1))]


def all_layers(states: States) -> Tensor:
    """(B, T, L + 1, D): every layer's states, the last as heads read it."""
    return torch.stack([*states.layers[:-1], states.last], dim=2)


def states_of(bundle: Bundle, batch: Batch) -> States:
    """What the backbone says of a batch, looking the way it was trained to."""
    return bundle.model.backbone(batch.ids, mask=batch.mask, causal=bundle.model.causal, types=batch.types)


def text_states(bundle: Bundle, texts: Sequence[str], pooling: str = "mean") -> np.ndarray:
    """(N, L + 1, D) float32: each text's states, pooled as heads pool them, in the order of the texts."""
    config, pool = bundle.model.backbone.config, POOLINGS[pooling]
    encoded = encode(bundle.tokenizer, texts, config.max_tokens)
    out = np.empty((len(encoded), config.depth + 1, config.width), dtype=np.float32)

    def pooled(batch: Batch, _: np.ndarray) -> Tensor:
        return torch.stack([pool(layer, batch.mask) for layer in all_layers(states_of(bundle, batch)).unbind(dim=2)], dim=1)

    for places, found in read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=pooled):
        out[places] = found.numpy()
    return out


def with_random_weights(bundle: Bundle, seed: int) -> Bundle:
    """The same shape with fresh weights, under a language head that is never read."""
    seed_torch(seed, "random weights")
    backbone = Backbone(bundle.model.backbone.config, bundle.model.backbone.vocab_size)
    head = fresh_head(LanguageHeadConfig(), backbone, seed)
    model = Model(backbone, head, causal=bundle.model.causal).to(next(bundle.model.parameters()).device).eval()
    return replace(bundle, model=model, labels=(), calibration=None)


@dataclass(frozen=True)
class Words:
    """The words of N texts as a model reads them."""

    encoded: Encoded
    texts: tuple[tuple[str, ...], ...]
    """the words that fit"""

    @cached_property
    def owners(self) -> tuple[np.ndarray, ...]:
        """For each text (T,), which word each token belongs to; -1 at the tokens that frame the text."""
        found = []
        for row, marks in zip(self.encoded.rows, self.encoded.marks, strict=True):
            owner = np.searchsorted(marks, np.arange(len(row)), side="right") - 1
            owner[-1] = -1
            found.append(owner)
        return tuple(found)


def words_of(bundle: Bundle, texts: Sequence[Sequence[str]]) -> Words:
    """Texts given as words, encoded with a space before every word but the first. Words that do not fit are left out."""
    pieces = [[word if place == 0 else f" {word}" for place, word in enumerate(words)] for words in texts]
    encoded = encode_pieces(bundle.tokenizer, pieces, bundle.model.backbone.config.max_tokens)
    kept = tuple(tuple(words[: len(marks)]) for words, marks in zip(texts, encoded.marks, strict=True))
    return Words(encoded, kept)


def word_states(bundle: Bundle, words: Words) -> list[np.ndarray]:
    """For each text (W, L + 1, D) float32: each word's states, the mean over its tokens."""
    config = bundle.model.backbone.config
    empty = np.empty((0, config.depth + 1, config.width), dtype=np.float32)
    out = [empty for _ in words.texts]

    def averaged(batch: Batch, places: np.ndarray) -> Tensor:
        layers = all_layers(states_of(bundle, batch))  # (B, T, L + 1, D)
        wide = max(1, *(len(words.texts[place]) for place in places))
        share = torch.zeros(len(places), wide, layers.shape[1], device=layers.device)
        for i, place in enumerate(places):
            owner = words.owners[place]
            inside = np.flatnonzero(owner >= 0)
            share[i, torch.from_numpy(owner[inside]), torch.from_numpy(inside)] = 1.0
        share /= share.sum(dim=-1, keepdim=True).clamp(min=1.0)
        return torch.einsum("bwt,btld->bwld", share, layers)

    for places, found in read(bundle.model, words.encoded, bundle.tokenizer.specials.pad, ask=averaged):
        for place, rows in zip(places, found.numpy(), strict=True):
            out[place] = rows[: len(words.texts[place])].copy()
    return out
