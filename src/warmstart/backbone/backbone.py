"""The backbone: token ids in, one hidden state per token out, after the embedding and after every block.

It knows nothing of heads, objectives or tokenizers. Whether attention is causal or bidirectional is chosen per call.
It is never subclassed or copied to adapt it: schemes insert adapters from outside.

Letters: B batch, T tokens, S key tokens (T and those in the KV cache), D width, H heads, K head width, L layers, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from warmstart.backbone.attention import AttentionMask, KVCache
from warmstart.backbone.block import Block, make_norm
from warmstart.backbone.config import BackboneConfig
from warmstart.backbone.ngrams import NGrams
from warmstart.backbone.positions import DistanceBias, Rotary, Sinusoidal
from warmstart.dropout import Dropout
from warmstart.errors import ModelError
from warmstart.types import Batch

EMBEDDING_MODULES = ("embedding", "token_types", "positions", "embedding_norm", "ngrams")
"""the backbone's modules below its blocks"""
Views = tuple[tuple[AttentionMask, tuple[Tensor, Tensor] | None], ...]
"""mask and rotary (cos, sin) of blocks with global attention, then of those with local attention"""


@dataclass(frozen=True)
class BackboneOutput:
    """The output of a backbone."""

    hidden_states: tuple[Tensor, ...]
    """L + 1 tensors (B, T, D): the embedding, then the output of each block, before the final norm; fewer if only some blocks ran:
    what the first of these read, then the output of each"""
    last_hidden_state: Tensor
    """(B, T, D): the last of them after the final norm, if the backbone has one; what heads read"""
    attention_weights: tuple[Tensor, ...] = ()
    """L tensors (B, H, T, S), if they were wanted"""


class Backbone(nn.Module):
    """A Transformer with the switches of ``BackboneConfig`` (Vaswani et al. 2017)."""

    def __init__(self, config: BackboneConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, config.width)
        self.token_types = nn.Embedding(config.token_types, config.width) if config.token_types else None
        self.positions = make_positions(config)
        self.window_positions = make_window_positions(config)
        self.distances = DistanceBias(config.distance_buckets, config.heads) if config.distance_buckets else None
        self.embedding_norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.ngrams = NGrams(config) if config.ngrams else None
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, first=i == 0) for i in range(config.depth))
        self.norm = make_norm(config) if config.norm == "pre" else nn.Identity()
        self._initialize()

    def forward(
        self,
        ids: Tensor,
        *,
        attention_mask: Tensor | None = None,
        causal: bool = True,
        kv_cache: KVCache | None = None,
        need_weights: bool = False,
        token_type_ids: Tensor | None = None,
    ) -> BackboneOutput:
        """Hidden states of the tokens ``ids`` (B, T).

        ``attention_mask`` (B, S), True at real tokens, covers the cached tokens too; padding may be on either side and never
        changes another token's state. With a ``kv_cache``, give only the new tokens. ``token_type_ids`` (B, T) tell the
        two texts of a pair apart, for backbones with token types; None: all are 0. Raises ``ModelError`` for rows longer than
        ``max_length`` and for ids outside the vocabulary.
        """
        past = kv_cache.tokens if kv_cache else 0
        self._check(ids, past)
        mask = AttentionMask(causal, ids.shape[1], ids.device, attention_mask, past)
        position_ids = _position_ids(ids, attention_mask, past)
        x = self._embed(ids, position_ids, token_type_ids, attention_mask)  # (B, T, D)
        return self._through(range(len(self.blocks)), x, self._views(mask, position_ids), kv_cache, need_weights=need_weights)

    def forward_batch(self, batch: Batch, *, causal: bool | None = None, need_weights: bool = False) -> BackboneOutput:
        """Hidden states of a batch's tokens, (B, T, D) each, from its ``states`` on; ``causal`` None: as in the batch."""
        if batch.states is not None:
            return self.forward_part(batch, range(batch.from_block, len(self.blocks)), causal=causal, need_weights=need_weights)
        return self(
            batch.ids,
            attention_mask=batch.attention_mask,
            causal=batch.causal if causal is None else causal,
            need_weights=need_weights,
            token_type_ids=batch.token_type_ids,
        )

    def forward_part(
        self, batch: Batch, blocks: range, *, causal: bool | None = None, need_weights: bool = False
    ) -> BackboneOutput:
        """Hidden states of these ``blocks`` only, from ``batch.states`` (B, T, D) or the embedding on; a scalar mix has no part."""
        ids, causal = batch.ids, batch.causal if causal is None else causal
        self._check(ids, 0)
        position_ids = _position_ids(ids, batch.attention_mask, 0)
        x = batch.states  # (B, T, D)
        if x is None:
            x = self._embed(ids, position_ids, batch.token_type_ids, batch.attention_mask)
        mask = AttentionMask(causal, ids.shape[1], ids.device, batch.attention_mask)
        return self._through(blocks, x, self._views(mask, position_ids), need_weights=need_weights)

    def _through(
        self, blocks: range, x: Tensor, views: Views, kv_cache: KVCache | None = None, *, need_weights: bool
    ) -> BackboneOutput:
        """The output of ``blocks`` for ``x`` (B, T, D)."""
        hidden_states, attention_weights = [x], []
        for i in blocks:
            layer_cache = kv_cache.layers[i] if kv_cache else None
            x, weights = self.blocks[i](x, *views[self.config.is_local(i)], layer_cache, need_weights=need_weights)  # (B, T, D)
            hidden_states.append(x)
            if weights is not None:
                attention_weights.append(weights)  # (B, H, T, S)
        return BackboneOutput(tuple(hidden_states), self.norm(x), tuple(attention_weights))

    def _embed(self, ids: Tensor, position_ids: Tensor, token_type_ids: Tensor | None, real: Tensor | None) -> Tensor:
        """(B, T, D): the sum of the embeddings of tokens, token types and positions (unless rotary); or what ``ngrams`` make of it.

        ``real`` (B, T) is True at real tokens; None: all are.
        """
        x = self.embedding(ids)  # (B, T, D)
        if self.config.scale_embeddings:
            x = x * math.sqrt(self.config.width)
        if self.token_types is not None:
            x = x + (self.token_types.weight[0] if token_type_ids is None else self.token_types(token_type_ids))
        elif token_type_ids is not None and bool(token_type_ids.any()):
            raise ModelError("this backbone has no token types (its setting token_types is 0); leave token_type_ids out")
        if not isinstance(self.positions, Rotary):
            x = x + self.positions(position_ids + self.config.position_offset if self.config.position_offset else position_ids)
        x = self.dropout(self.embedding_norm(x))
        return x if self.ngrams is None else self.ngrams(x, real)

    def _views(self, mask: AttentionMask, position_ids: Tensor) -> Views:
        """The mask and the rotary (cos, sin) for blocks with global attention, then for those with local attention, if any."""
        if self.distances is not None:
            tokens = torch.arange(mask.past + mask.queries, device=mask.device)
            mask = replace(mask, distances=self.distances(tokens - tokens[mask.past :, None]))
        cos_sin = self.positions(position_ids) if isinstance(self.positions, Rotary) and self.config.depth else None
        if self.config.window is None:
            return ((mask, cos_sin),)
        local_cos_sin = cos_sin if self.window_positions is None else self.window_positions(position_ids)
        return (mask, cos_sin), (replace(mask, window=self.config.window), local_cos_sin)

    def _check(self, ids: Tensor, past: int) -> None:
        if torch.compiler.is_compiling():  # the graph being traced has no values to check yet
            return
        longest = past + ids.shape[1]
        if longest > self.config.max_length:
            raise ModelError(
                f"a row must have at most max_length={self.config.max_length} tokens, but one has {longest}; "
                "cut the text, or pretrain with a larger max_length"
            )
        if ids.device.type == "cpu" and ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise ModelError(
                f"token ids must lie in 0..{self.vocab_size - 1}, but these range from {int(ids.min())} to {int(ids.max())}; "
                "the tokenizer does not belong to this backbone"
            )

    def _initialize(self) -> None:
        """Initial weights: normal with ``init_std``; projections into the residual sum are divided by sqrt(2 L) (GPT-2)."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                scale = math.sqrt(2 * self.config.depth) if name.endswith(".out") else 1.0
                nn.init.normal_(module.weight, std=self.config.init_std / scale)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def _position_ids(ids: Tensor, attention_mask: Tensor | None, past: int) -> Tensor:
    """(B or 1, T): positions counted over real tokens, so that padding on the left does not shift a text."""
    if attention_mask is None:
        return torch.arange(past, past + ids.shape[1], device=ids.device)[None]
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]


def make_positions(config: BackboneConfig) -> nn.Module:
    """The positions that the settings name."""
    if config.positions == "learned":
        return nn.Embedding(config.position_offset + config.max_length, config.width)
    if config.positions == "sinusoidal":
        return Sinusoidal(config.max_length, config.width)
    return Rotary(config.max_length, config.per_head, config.rotary_base, config.rotary_scaling)


def make_window_positions(config: BackboneConfig) -> Rotary | None:
    """Rotary positions of the blocks with local attention, if theirs differ from the others'."""
    if config.window is None or config.positions != "rotary" or config.window_rotary_base == config.rotary_base:
        return None
    return Rotary(config.max_length, config.per_head, config.window_rotary_base)
