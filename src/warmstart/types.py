"""Values that pass between parts which do not know each other.

Letters in shapes, here and everywhere: B batch, T tokens, D width, H heads, K head width, L depth, V vocabulary, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch

IGNORE = -100
"""A target that does not count in the loss (torch's own convention)."""


@dataclass(frozen=True)
class Specials:
    """Ids of the special tokens of a vocabulary. Text can never produce them; only code places them."""

    pad: int
    """fills short rows; never read, never predicted"""
    unk: int
    """stands for what the vocabulary cannot spell"""
    eos: int
    """ends a document, and begins a stream of them"""
    mask: int
    """stands where a masked token was"""
    cls: int
    """is appended when a classification token is read"""
    sentinels: tuple[int, ...] = ()
    """mark the spans that span corruption takes out"""
    bos: int | None = None
    """begins a text; None: ``eos`` does, as it begins a stream of documents"""

    def all(self) -> frozenset[int]:
        """Every special id."""
        return frozenset((self.pad, self.unk, self.eos, self.mask, self.cls, self.begin, *self.sentinels))

    @property
    def begin(self) -> int:
        """What a text begins with."""
        return self.eos if self.bos is None else self.bos


@dataclass(frozen=True)
class Vocabulary:
    """What an objective needs to know of a tokenizer: its size, its special ids, and which tokens begin a word."""

    size: int
    specials: Specials
    word_starts: np.ndarray
    """(V,) bool: this token begins a new word (special tokens do too)"""

    @cached_property
    def is_special(self) -> np.ndarray:
        """(V,) bool: this token is a special one."""
        import numpy as np

        return np.isin(np.arange(self.size), list(self.specials.all()))

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Ids of all tokens that are not special, ascending."""
        return (~self.is_special).nonzero()[0]


@dataclass(frozen=True)
class Batch:
    """One batch, as an objective or a labelled task makes it and a model reads it."""

    ids: torch.Tensor
    """(B, T) int64 token ids"""
    targets: torch.Tensor | None = None
    """(B, T) token ids with ``IGNORE`` where nothing is predicted, or (B,) class numbers"""
    mask: torch.Tensor | None = None
    """(B, T) bool, True at real tokens; None where every token is real"""
    causal: bool = True
    """each token sees only itself and what stands before it"""
    count: int = 0
    """how many targets count in the loss"""
    types: torch.Tensor | None = None
    """(B, T) kinds of the tokens: 1 in the second text of a pair, for backbones that tell them apart; None: all are of kind 0"""

    @property
    def lengths(self) -> torch.Tensor:
        """(B,) how many tokens of each row are real. A causal batch may leave its padding unmasked: it ends with its targets."""
        import torch

        wide = self.ids.shape[1]
        real = self.mask
        if real is None and self.causal and self.targets is not None and self.targets.shape == self.ids.shape:
            real = self.targets != IGNORE
        if real is None:
            return torch.full((len(self.ids),), wide)
        return (real * torch.arange(1, wide + 1, device=real.device)).amax(dim=1)

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""

        def move(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.to(device, non_blocking=True)

        ids = self.ids.to(device, non_blocking=True)
        return replace(self, ids=ids, targets=move(self.targets), mask=move(self.mask), types=move(self.types))
