"""What changed inside a model: the states and weights of a backbone before and after it went on learning.

States are compared by centred kernel alignment (CKA) with linear kernels: 1 where one is the other turned, mirrored or scaled, near
0 where they have nothing in common (Kornblith et al. 2019, equation 4). Its usual estimate is far above 0 for noise as soon as
tokens are few beside the width, so the unbiased estimate of HSIC is taken (Song et al. 2007, equation 5), as Nguyen et al. 2021 do.
Doubt comes from leaving out one passage at a time (the jackknife, which holds for such statistics: Arvesen 1969): a bootstrap would
draw passages twice, and count the pairs of a token with its own copy as likeness.

Letters: N passages, n tokens, B batch, T tokens, L depth, D width.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.activations import all_layers, states_of
from warmstart.analysis.neighbours import unit
from warmstart.analysis.pieces import sampled, stretches
from warmstart.backbone import Backbone
from warmstart.data.batch import Encoded
from warmstart.engine import read
from warmstart.errors import DataError, ModelError
from warmstart.heads import LanguageHead
from warmstart.inserts import Inserted, Mix, merge
from warmstart.model import Bundle, Model
from warmstart.seeding import rng
from warmstart.types import Batch

LONGEST = 128
"""tokens of a passage, its frame included: longer texts are cut into several"""
FEWEST = 8
"""passages without which no interval is worth its name"""


def check_alike(before: Bundle, after: Bundle) -> None:
    """Raise ``ModelError`` where two models cannot be compared state by state, head by head."""
    if before.tokenizer.digest != after.tokenizer.digest:
        raise ModelError(
            "both models must have the same tokenizer, or their tokens are not the same things, but the digests are "
            f"{before.tokenizer.digest[:12]} and {after.tokenizer.digest[:12]}; take the bundle that the second was adapted from"
        )
    old, new = (bundle.model.backbone.config for bundle in (before, after))
    for name in ("depth", "width", "heads"):
        if (one := getattr(old, name)) != (other := getattr(new, name)):
            raise ModelError(f"both backbones must have the same {name}, but have {one} and {other}; take two of one shape")
    if before.model.causal != after.model.causal:
        raise ModelError("both models must look the same way, but one looks back only and the other both ways")
    if not old.depth:
        raise ModelError("drift is followed from block to block, but these backbones have depth 0; take models with blocks")


# ---------------------------------------------------------------------------------------------------------------- states


@dataclass(frozen=True)
class Sample:
    """N passages, and the tokens of them that are compared."""

    encoded: Encoded
    places: tuple[np.ndarray, ...]
    """for each passage, where the chosen tokens stand; the tokens that frame a text are none"""

    @cached_property
    def starts(self) -> np.ndarray:
        """(N,) number of each passage's first chosen token."""
        return np.cumsum([0, *(len(one) for one in self.places[:-1])])

    @property
    def owners(self) -> np.ndarray:
        """(n,) the passage of each token."""
        return np.repeat(np.arange(len(self.places)), [len(one) for one in self.places])


def sample_of(bundle: Bundle, documents: Iterable[str], passages: int, tokens: int, seed: int) -> Sample:
    """About ``tokens`` tokens of at most so many passages, both drawn at random; ``DataError`` for fewer than ``FEWEST``."""
    specials, room = bundle.tokenizer.specials, min(LONGEST, bundle.model.backbone.config.max_tokens) - 2
    kept = sampled(stretches(bundle.tokenizer, documents, room), passages, seed)
    if len(kept) < FEWEST:
        raise DataError(f"drift needs at least {FEWEST} passages (paragraphs) of text, but {len(kept)} came; give more text")
    rows = tuple(np.array([specials.begin, *ids, specials.eos], dtype=np.int64) for ids in kept)
    each, draw = math.ceil(tokens / len(rows)), rng(seed, "tokens")
    places = tuple(np.sort(draw.permutation(len(row) - 2)[:each]) + 1 for row in rows)
    return Sample(Encoded(rows, np.zeros(len(rows), dtype=np.int64)), places)


def token_states(bundle: Bundle, sample: Sample) -> np.ndarray:
    """(n, L + 1, D) float32: every layer's states of the chosen tokens, in the order of their passages."""
    config, owners = bundle.model.backbone.config, sample.owners
    out = np.empty((len(owners), config.depth + 1, config.width), dtype=np.float32)

    def asked(batch: Batch, places: np.ndarray) -> Tensor:
        layers = all_layers(states_of(bundle, batch))  # (B, T, L + 1, D)
        return torch.cat([layers[i, torch.from_numpy(sample.places[place])] for i, place in enumerate(places)])

    for places, found in read(bundle.model, sample.encoded, bundle.tokenizer.specials.pad, ask=asked):
        out[np.concatenate([sample.starts[place] + np.arange(len(sample.places[place])) for place in places])] = found.numpy()
    return out


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n, L + 1) between the same tokens' states (n, L + 1, D) in two models."""
    return np.asarray((unit(one) * unit(other)).sum(axis=-1))


# ------------------------------------------------------------------------------------------------------------------- CKA


@dataclass(frozen=True)
class Kernel:
    """Products of all pairs of n tokens' states, and what their sums are with all passages and with each left out."""

    values: np.ndarray
    """(n, n) float32, 0 on the diagonal"""
    starts: np.ndarray
    """(N,) the first token of each passage"""
    sums: np.ndarray
    """(n, 1 + N) of each row: of all, then with each passage left out; 0 for the tokens left out"""

    @cached_property
    def own(self) -> np.ndarray:
        """(1 + N,) HSIC with itself."""
        return hsic(self, self)


def kernel(states: np.ndarray, starts: np.ndarray) -> Kernel:
    """The linear kernel of states (n, D), brought to mean 0 and like size, which changes no CKA but keeps its digits."""
    x = states - states.mean(axis=0, dtype=np.float64)
    x = (x / max(float(np.sqrt((x**2).mean())), 1e-12)).astype(np.float32)
    values = x @ x.T
    np.fill_diagonal(values, 0)
    parts = np.add.reduceat(values, starts, axis=1, dtype=np.float64)  # (n, N)
    sums = parts.sum(axis=1, keepdims=True) - np.pad(parts, ((0, 0), (1, 0)))
    owner = np.searchsorted(starts, np.arange(len(x)), side="right")
    sums[np.arange(len(x)), owner] = 0
    return Kernel(values, starts, sums)


def hsic(one: Kernel, other: Kernel) -> np.ndarray:
    """(1 + N,) the unbiased estimate of HSIC (Song et al. 2007, equation 5): of all n tokens, then with each passage left out."""
    starts, count = one.starts, len(one.values)
    n = np.concatenate([[count], count - np.diff([*starts, count])]).astype(float)
    blocks = np.add.reduceat(np.add.reduceat(one.values * other.values, starts, axis=1, dtype=np.float64), starts, axis=0)  # (N, N)
    traces = blocks.sum() - np.concatenate([[0], 2 * blocks.sum(axis=1) - np.diag(blocks)])
    crossed = (one.sums * other.sums).sum(axis=0)
    found = traces + one.sums.sum(axis=0) * other.sums.sum(axis=0) / ((n - 1) * (n - 2)) - 2 * crossed / (n - 2)
    return np.asarray(found / (n * (n - 3)))


def cka(one: Kernel, other: Kernel) -> np.ndarray:
    """(1 + N,) unbiased linear CKA: of all tokens, then with each passage left out; nan where states do not vary."""
    under = one.own * other.own
    return np.divide(hsic(one, other), np.sqrt(np.maximum(under, 0)), out=np.full_like(under, np.nan), where=under > 1e-20)


def grid(before: np.ndarray, after: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(L + 1, L + 1, 1 + N): CKA of every layer of (n, L + 1, D) with every layer of the other."""
    kernels = [kernel(after[:, layer], starts) for layer in range(after.shape[1])]
    rows = (kernel(before[:, layer], starts) for layer in range(before.shape[1]))
    return np.stack([np.stack([cka(row, other) for other in kernels]) for row in rows])


def jackknifed(values: np.ndarray) -> tuple[float, float, float]:
    """A figure and its 95 % interval, from values (1 + N,): of all, then with each passage left out (Student's t)."""
    from scipy import stats

    left, count = values[1:], len(values) - 1
    error = math.sqrt((count - 1) / count * float(((left - left.mean()) ** 2).sum())) * float(stats.t.ppf(0.975, count - 1))
    return float(values[0]), float(values[0] - error), float(values[0] + error)


# --------------------------------------------------------------------------------------------------------------- weights


@dataclass(frozen=True)
class Change:
    """How far the weights of one part went."""

    part: str
    """attention, feed-forward, norms; embedding, positions ..."""
    block: int | None
    """from 1; None below and above the blocks"""
    size: float
    """length of the weights before, as one vector"""
    moved: float
    """length of what was added to them"""

    @property
    def relative(self) -> float:
        """||after - before|| / ||before||; nan where all were 0."""
        return self.moved / self.size if self.size else math.nan


def weight_changes(before: Bundle, after: Bundle) -> list[Change]:
    """Part by part, from below; LoRA counts as folded in, what has no counterpart (adapters, other sizes) is left out."""
    olds, news = (_weights(bundle.model.backbone) for bundle in (before, after))
    found = dict[tuple[str, int | None], list[float]]()
    for name, old in olds.items():
        if (new := news.get(name)) is not None and new.shape == old.shape:
            sums = found.setdefault(_part(name), [0.0, 0.0])
            sums[0] += float(old.double().square().sum())
            sums[1] += float((new.double() - old.double()).square().sum())
    return [Change(*part, *map(math.sqrt, sums)) for part, sums in found.items()]


def _weights(backbone: Backbone) -> dict[str, Tensor]:
    if any(isinstance(part, Inserted) and part.folded() is not None for part in backbone.modules()):
        backbone = copy.deepcopy(backbone)
        merge(backbone)
    return {name: parameter.detach().cpu() for name, parameter in backbone.named_parameters()}


def _part(name: str) -> tuple[str, int | None]:
    first, *rest = name.split(".")
    if first != "blocks":
        return {"norm": "last norm", "embedding_norm": "embedding's norm"}.get(first, first), None
    return {"attention": "attention", "feedforward": "feed-forward"}.get(rest[1], "norms"), int(rest[0]) + 1


def speaking(before: Bundle, after: Bundle) -> Model:
    """The second model as a language model: with its own head if it has such a one, else with the first one's on its backbone.

    A layer mix stays out then: it serves the new head, and the old one never read any. Raises ``ModelError`` where neither speaks.
    """
    if isinstance(after.model.head, LanguageHead):
        return after.model
    if not isinstance(before.model.head, LanguageHead):
        raise ModelError(
            "what was forgotten of language is told by a language head, but neither model has one; leave out --held-out"
        )
    backbone = copy.deepcopy(after.model.backbone)
    for name in [name for name, part in backbone.named_children() if isinstance(part, Mix)]:
        delattr(backbone, name)
    return Model(backbone, before.model.head, causal=before.model.causal).eval()
