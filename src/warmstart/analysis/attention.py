"""Where heads look: the weights of attention over one text, and what each head does over a corpus, beside uniform attention.

A share of weight says little by itself: over a row of four tokens, a head that has learned nothing puts a quarter on each. So every
figure stands beside that of uniform attention over the same tokens in view (causal or not, local windows and padding heeded), and
counts only tokens that have a choice: a second token in view, and one of the kind in question (no token before the first has a
previous one). Figures are sums and counts per passage, so that batches change nothing and passages can be drawn again. Doubt is
that of the passages that hold what is asked about, however many more were read.

Sources: Clark et al. 2019, "What does BERT look at?"; Vig and Belinkov 2019, "Analyzing the structure of attention".

Letters: N passages, B batch, T tokens asking, S tokens seen, L depth, H heads, K kinds of tokens looked at, M measures, R draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.pieces import is_punctuation, pieces_of
from warmstart.backbone.attention import Sight
from warmstart.data.batch import Encoded, encode
from warmstart.engine import read
from warmstart.errors import ModelError
from warmstart.model import Bundle
from warmstart.seeding import rng
from warmstart.types import Batch

KINDS = ("itself", "previous", "next", "first", "last", "same", "punctuation")
"""what may be looked at: the token itself, or another one: the one before it, the one after it, the first or the last of the row
(they frame the text), one of the same id that is no special one, punctuation"""
MEASURES = ("entropy", "evenness", "distance", *KINDS)
"""entropy in bits; evenness: entropy over that of uniform attention, 0 to 1; distance in tokens; shares of weight"""
DRAWS = 1000
FEW = 10
"""passages with what is asked about: percentiles of the bootstrap are too narrow below, and Student's t stands in their place"""


@dataclass(frozen=True)
class Looks:
    """What L x H heads do over N passages: sums over the tokens that have a choice."""

    sums: np.ndarray
    """(N, L, H, M) of each measure"""
    uniform: np.ndarray
    """(N, L, M) the same of uniform attention"""
    counts: np.ndarray
    """(N, L, M) tokens that were asked"""

    @cached_property
    def means(self) -> np.ndarray:
        """(L, H, M) over all tokens asked; nan where there were none."""
        return _ratio(self.sums.sum(axis=0), self.counts.sum(axis=0)[:, None])

    @cached_property
    def baseline(self) -> np.ndarray:
        """(L, M) of uniform attention."""
        return _ratio(self.uniform.sum(axis=0), self.counts.sum(axis=0))

    @property
    def difference(self) -> np.ndarray:
        """(L, H, M): what a head does more than uniform attention."""
        return self.means - self.baseline[:, None]

    @cached_property
    def seen(self) -> np.ndarray:
        """(L, M) how many passages hold a token that was asked."""
        return (self.counts > 0).sum(axis=0)

    @cached_property
    def error(self) -> np.ndarray:
        """(L, H, M) standard error of the difference, a ratio over the passages that hold such tokens; nan for fewer than two."""
        gaps = self.sums - self.uniform[:, :, None]
        off = gaps - np.nan_to_num(self.difference) * self.counts[:, :, None]
        seen = self.seen[:, None]
        spread = np.sqrt((off**2).sum(axis=0) * seen / np.maximum(seen - 1, 1))
        return np.where(seen < 2, np.nan, _ratio(spread, self.counts.sum(axis=0)[:, None]))

    def interval(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Both ends (L, H, M) of the difference's 95 % interval over passages; nan where fewer than two have what is asked about.

        Percentiles of the bootstrap; where fewer than ``FEW`` passages have it, Student's t.
        """
        from scipy import stats

        low, high = self._drawn(seed)
        half = stats.t.ppf(0.975, np.maximum(self.seen - 1, 1))[:, None] * self.error  # nan below two
        few = np.broadcast_to((self.seen < FEW)[:, None], half.shape)
        return np.where(few, self.difference - half, low), np.where(few, self.difference + half, high)

    def _drawn(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Both ends (L, H, M) by the bootstrap over passages."""
        count, flat = len(self.sums), (len(self.sums), -1)
        draws = rng(seed, "bootstrap").multinomial(count, np.full(count, 1 / count), DRAWS).astype(float)  # (R, N)
        over = (draws @ (self.sums - self.uniform[:, :, None]).reshape(flat)).reshape(-1, *self.means.shape)
        under = (draws @ self.counts.reshape(flat)).reshape(-1, *self.baseline.shape)[:, :, None]
        values = np.where(under > 0, over / np.maximum(under, 1), self.difference)  # a draw may lack what is rare
        low, high = np.quantile(values, (0.025, 0.975), axis=0)
        return low, high

    def chances(self) -> np.ndarray:
        """(L, H, M): how likely a difference as large would be if there were none (t-test of a ratio over passages, two-sided).

        nan where fewer than two passages have what is asked about.
        """
        from scipy import stats

        size = np.abs(self.difference)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 2 * stats.t.sf(np.where(self.error > 0, size / self.error, np.inf), np.maximum(self.seen - 1, 1)[:, None])
        return np.where(np.isnan(self.error), np.nan, np.where(size < 1e-6, 1.0, found))  # below are roundings


def looks_of(bundle: Bundle, texts: Sequence[str]) -> tuple[Looks, Encoded]:
    """What every head does over N texts, and the texts as they were read, cut to what fits.

    Memory holds the weights of one batch at a time. Raises ``ModelError`` for a backbone without blocks.
    """
    encoded = _encoded(bundle, texts)
    marks = np.array([one for one, piece in pieces_of(bundle.tokenizer, encoded).items() if is_punctuation(piece)], dtype=np.int64)
    frame = np.array(sorted(bundle.tokenizer.specials.all()), dtype=np.int64)
    punctuation, specials = torch.from_numpy(np.setdiff1d(marks, frame)), torch.from_numpy(frame)
    config = bundle.model.backbone.config
    out = np.zeros((len(texts), config.depth, config.heads + 2, len(MEASURES)))

    def asked(batch: Batch, _: np.ndarray) -> Tensor:
        device = batch.ids.device
        return measured(batch, weights_of(bundle, batch), views_of(bundle, batch), punctuation.to(device), specials.to(device))

    for places, found in read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=asked):
        out[places] = found.numpy()
    return Looks(out[:, :, :-2], out[:, :, -2], out[:, :, -1]), encoded


def text_weights(bundle: Bundle, text: str) -> tuple[np.ndarray, Encoded]:
    """(L, H, T, S) float32: the weights over one text, and the text as it was read. Raises as ``looks_of`` does."""
    encoded = _encoded(bundle, [text])

    def asked(batch: Batch, _: np.ndarray) -> Tensor:
        return torch.stack(weights_of(bundle, batch), dim=1)

    ((_, found),) = read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=asked)
    return found[0].numpy(), encoded


def _encoded(bundle: Bundle, texts: Sequence[str]) -> Encoded:
    config = bundle.model.backbone.config
    if not config.depth:
        raise ModelError("a study of attention needs a backbone with blocks, but this one has depth 0; take another model")
    return encode(bundle.tokenizer, texts, config.max_tokens)


def weights_of(bundle: Bundle, batch: Batch) -> list[Tensor]:
    """For each layer (B, H, T, S): the weights over a batch."""
    model = bundle.model
    return list(model.backbone(batch.ids, mask=batch.mask, causal=model.causal, types=batch.types, weights=True).weights)


def views_of(bundle: Bundle, batch: Batch) -> list[Tensor]:
    """For each layer (B, T, S) bool: which tokens each real token may see; none for padding."""
    config, wide = bundle.model.backbone.config, batch.ids.shape[1]
    real = torch.ones_like(batch.ids, dtype=torch.bool) if batch.mask is None else batch.mask
    views = []
    for layer in range(config.depth):
        window = config.window if config.is_local(layer) else None
        seen = Sight(bundle.model.causal, wide, batch.ids.device, real, window=window).matrix[:, 0]
        views.append(seen & real[:, :, None])
    return views


def measured(batch: Batch, weights: Sequence[Tensor], views: Sequence[Tensor], punctuation: Tensor, specials: Tensor) -> Tensor:
    """(B, L, H + 2, M): sums of every measure for each head, then those of uniform attention, then how many tokens were asked.

    ``weights`` are L of (B, H, T, S), ``views`` L of (B, T, S) bool, ``punctuation`` and ``specials`` ids of tokens.
    """
    kinds = _kinds(batch, punctuation, specials)  # (B, T, S, K)
    places = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    apart = (places - places[:, None]).abs()[None, :, :, None].float()  # (1, T, S, 1)
    return torch.stack([_layer(w, seen, kinds, apart) for w, seen in zip(weights, views, strict=True)], dim=1)


def _kinds(batch: Batch, punctuation: Tensor, specials: Tensor) -> Tensor:
    """(B, T, S, K) bool: what token s is to token t. Special ones are never the same: often one id begins and ends the text."""
    ids, wide = batch.ids, batch.ids.shape[1]
    places = torch.arange(wide, device=ids.device)
    step = (places - places[:, None])[None]  # (1, T, S): how far s stands after t
    ends = batch.lengths.to(ids.device) - 1 if batch.mask is not None else torch.full_like(ids[:, 0], wide - 1)
    found = (
        step == 0,
        step == -1,
        step == 1,
        (places == 0) & (step != 0),
        (places == ends[:, None])[:, None] & (step != 0),
        (ids[:, :, None] == ids[:, None]) & (step != 0) & ~torch.isin(ids, specials)[:, None],
        torch.isin(ids, punctuation)[:, None] & (step != 0),
    )
    return torch.stack([kind.expand(len(ids), wide, wide) for kind in found], dim=-1)


def _layer(weights: Tensor, seen: Tensor, kinds: Tensor, apart: Tensor) -> Tensor:
    """(B, H + 2, M) of one layer: weights (B, H, T, S), seen (B, T, S), kinds (B, T, S, K), apart (1, T, S, 1)."""
    count = seen.sum(dim=-1)  # (B, T)
    chosen = count > 1
    kinds = kinds & seen[..., None]
    asked = torch.stack([chosen] * 3 + list((kinds.any(dim=2) & chosen[..., None]).unbind(dim=-1)), dim=-1).float()  # (B, T, M)
    what = torch.cat([apart * seen[..., None], kinds], dim=-1)  # (B, T, S, 1 + K)
    of_heads = weights.transpose(1, 2) @ what  # (B, T, H, 1 + K)
    most = count.clamp(min=2).log2()[..., None]  # (B, T, 1): bits of uniform attention
    bits = torch.special.entr(weights).sum(dim=-1).transpose(1, 2) / np.log(2)  # (B, T, H)
    values = torch.cat([torch.stack([bits, bits / most], dim=-1), of_heads], dim=-1)  # (B, T, H, M)
    even = torch.cat([most, torch.ones_like(most), what.sum(dim=2) / count.clamp(min=1)[..., None]], dim=-1)  # (B, T, M)
    heads = torch.einsum("bthm,btm->bhm", values, asked)
    return torch.cat([heads, (even * asked).sum(dim=1)[:, None], asked.sum(dim=1)[:, None]], dim=1)


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """One over the other; nan where there is nothing."""
    return np.where(under > 0, over / np.maximum(under, 1), np.nan)
