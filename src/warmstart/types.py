"""Data types that packages pass to each other without knowing each other.

Letters in shapes, here and everywhere: B batch, T tokens, D width, H heads, K head width, L layers, V vocabulary, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import torch

IGNORE = -100
"""A target that does not count in the loss (torch's convention)."""
SelectionName = Literal["cross-validation", "holdout", "none"]
"""procedure that chooses settings: folds of the texts that learn, texts set apart, or none"""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens of a vocabulary. No text is ever encoded to them; only code inserts them."""

    pad: int
    """pads short rows; never attended to, never predicted"""
    unk: int
    """replaces text that the vocabulary cannot spell"""
    eos: int
    """ends a document, and begins the first one"""
    mask: int
    """replaces masked tokens"""
    cls: int
    """appended to a text whose classification token is read"""
    sentinels: tuple[int, ...] = ()
    """mark the spans that span corruption removes"""
    bos: int | None = None
    """begins a text; None: ``eos`` does"""

    def all(self) -> frozenset[int]:
        """Every special id."""
        return frozenset((self.pad, self.unk, self.eos, self.mask, self.cls, self.begin, *self.sentinels))

    @property
    def begin(self) -> int:
        """The token that a text begins with."""
        return self.eos if self.bos is None else self.bos


@dataclass(frozen=True)
class Vocabulary:
    """The facts on a tokenizer that an objective needs: its size, its special ids, and which tokens begin a word."""

    size: int
    specials: SpecialTokens
    word_starts: np.ndarray
    """(V,) bool: whether each token begins a new word (special tokens do too)"""

    @cached_property
    def is_special(self) -> np.ndarray:
        """(V,) bool: whether each token is special."""
        import numpy as np

        return np.isin(np.arange(self.size), list(self.specials.all()))

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Ids of all tokens that are not special, in ascending order."""
        return (~self.is_special).nonzero()[0]


@dataclass(frozen=True)
class Batch:
    """A batch: objectives and labelled tasks make it, models read it."""

    ids: torch.Tensor
    """(B, T) int64 token ids"""
    targets: torch.Tensor | None = None
    """(B, T) token ids with ``IGNORE`` where nothing is predicted, or (B,) class numbers, or what a head's loss takes"""
    attention_mask: torch.Tensor | None = None
    """(B, T) bool, True at real tokens; None: every token is real"""
    causal: bool = True
    """each token attends only to itself and the tokens before it"""
    count: int = 0
    """number of targets that count in the loss"""
    token_type_ids: torch.Tensor | None = None
    """(B, T) int64: 1 in the second text of a pair, for backbones with token types; None: all are 0"""
    windows: torch.Tensor | None = None
    """(N,) int64: the number of adjacent rows that are windows of each of N texts; None: every row is a text"""
    target_places: torch.Tensor | None = None
    """(N,) int64: where among all B T the targets are that count, for a device whose answer would have to be waited for; None: not
    looked up"""
    states: torch.Tensor | None = None
    """(B, T, D): what block ``from_block`` reads, computed before; None: the backbone begins with the ids"""
    from_block: int = 0
    """the first block that runs, if there are ``states``"""

    @classmethod
    def of(cls, batch: Batch, **changes: Any) -> Self:
        """A batch as one of this class, with the fields that it has of it, and with others."""
        return cls(**{field.name: getattr(batch, field.name) for field in fields(cls) if hasattr(batch, field.name)} | changes)

    @property
    def lengths(self) -> torch.Tensor:
        """(B,) the position after the last real token of each row.

        Without an attention mask, the padding of a causal batch begins after its last target.
        """
        import torch

        width = self.ids.shape[1]
        real = self.attention_mask
        if real is None and self.causal and self.targets is not None and self.targets.shape == self.ids.shape:
            real = self.targets != IGNORE
        if real is None:
            return torch.full((len(self.ids),), width)
        return (real * torch.arange(1, width + 1, device=real.device)).amax(dim=1)

    def rows(self, indices: torch.Tensor) -> Batch:
        """The rows at these indices, without the columns at the end that are padding in all of them; targets stay as they are."""
        width = int(self.lengths[indices].max())
        values: dict[str, Any] = {name: getattr(self, name) for name in ("ids", "attention_mask", "token_type_ids", "states")}
        return replace(self, **{name: tensor[indices, :width] for name, tensor in values.items() if tensor is not None})

    def to(self, device: torch.device) -> Batch:
        """The batch on another device; for one that is not the CPU the places of its targets are looked up first."""
        if device.type == "cpu":
            return self._mapped(lambda tensor: tensor.to(device))
        return self.with_target_places()._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """The batch in pinned memory, from which a GPU copies while the program goes on, with the places of its targets."""
        return self.with_target_places()._mapped(lambda tensor: tensor.pin_memory())

    def with_target_places(self) -> Batch:
        """The batch with ``target_places``, if it is on the CPU and each token has a target of its own."""
        targets = self.targets
        if targets is None or targets.shape != self.ids.shape or targets.device.type != "cpu" or self.target_places is not None:
            return self
        return replace(self, target_places=(targets.flatten() != IGNORE).nonzero()[:, 0])

    def _mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        import torch

        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: change(value) for name, value in values.items() if isinstance(value, torch.Tensor)}
        return replace(self, **changed)
