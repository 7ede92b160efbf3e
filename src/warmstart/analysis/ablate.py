"""Parts of a model are erased, one at a time, and what the model then says is compared with what it said whole.

A part's states are replaced by nothing (Michel et al. 2019), by their mean over the text, or by those of another token, drawn at
random; a block is skipped. What is compared is left to who asks: here stand the parts, the erasing, and a language model's loss
passage by passage.

Letters: B batch, T tokens, D width, H heads, K head width, L depth, N passages, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.analysis.pieces import stretches
from warmstart.backbone import Backbone, BackboneConfig, tapped
from warmstart.data.batch import Encoded, padded
from warmstart.engine import read
from warmstart.errors import DataError, ModelError
from warmstart.model import Bundle, Model
from warmstart.objectives import ObjectiveConfig
from warmstart.objectives.masked import hide
from warmstart.seeding import rng
from warmstart.types import IGNORE, Batch

Kind = Literal["head", "attention", "feed-forward", "block", "dimensions"]
Fill = Callable[["Part", Tensor, Tensor | None], Tensor | float]
"""``fill(part, states, mask)``: what stands instead of a part's states (B, T, ·); ``mask`` (B, T) is True at real tokens"""


@dataclass(frozen=True)
class Part:
    """What can be erased. People count blocks and heads from 1."""

    name: str
    kind: Kind
    place: str
    """the module of the backbone whose output it is; a head is a part of what goes into ``attention.out``"""
    ends: tuple[int, int | None] = (0, None)
    """which of the numbers there: from, and up to"""
    block: int | None = None
    """from 0"""
    head: int | None = None
    """from 0"""

    @property
    def columns(self) -> slice:
        """The numbers that are this part's."""
        return slice(*self.ends)


def parts_of(config: BackboneConfig, groups: int = 0) -> list[Part]:
    """Every head, attention, feed-forward layer and block, block by block; then the embedding's dimensions in so many ``groups``.

    Groups are neighbours, and one dimension each at most. The embedding is what the first block reads.
    """
    parts, wide = list[Part](), config.per_head
    for i in range(config.depth):
        at, name = f"blocks.{i}", f"block {i + 1}"
        for j in range(config.heads):
            parts.append(Part(f"{name}, head {j + 1}", "head", f"{at}.attention.out", (j * wide, (j + 1) * wide), i, j))
        parts.append(Part(f"{name}, attention", "attention", f"{at}.attention", block=i))
        parts.append(Part(f"{name}, feed-forward", "feed-forward", f"{at}.feedforward", block=i))
        parts.append(Part(name, "block", at, block=i))
    for few in np.array_split(np.arange(config.width), min(groups, config.width)) if groups else ():
        first, last = int(few[0]), int(few[-1])
        name = f"dimension {first + 1}" if first == last else f"dimensions {first + 1} to {last + 1}"
        parts.append(Part(name, "dimensions", "dropout", (first, last + 1)))
    return parts


@contextmanager
def erased(model: Model, parts: Iterable[Part], fill: Fill) -> Iterator[None]:
    """While it is open, ``fill`` stands for these parts' states; blocks are skipped: what comes in goes out."""
    backbone = model.backbone
    with ExitStack() as stack:
        masks = stack.enter_context(_masks(backbone))
        for part in parts:
            if part.kind == "block":
                hook = backbone.get_submodule(part.place).register_forward_hook(_skip)
                stack.callback(hook.remove)
            else:
                stack.enter_context(_edited(backbone, part, partial(_filled, part, fill, masks)))
        yield


def zero(part: Part, states: Tensor, mask: Tensor | None) -> float:
    """Nothing stands there."""
    return 0.0


@dataclass
class Means:
    """The mean over real tokens of what every part says, taken while a model reads: a ``Fill``."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    """(·,) float64 by the part's name"""
    tokens: dict[str, int] = field(default_factory=dict)

    def __call__(self, part: Part, states: Tensor, mask: Tensor | None) -> Tensor:
        """(·,) the same for every token."""
        return (self.sums[part.name] / self.tokens[part.name]).to(states.dtype)

    def add(self, part: Part, states: Tensor, mask: Tensor | None) -> None:
        """Count one batch's states (B, T, ·)."""
        real = states[mask] if mask is not None else states.flatten(0, 1)
        self.sums[part.name] = self.sums.get(part.name, 0) + real.sum(dim=0, dtype=torch.float64)
        self.tokens[part.name] = self.tokens.get(part.name, 0) + len(real)


@contextmanager
def means_of(model: Model, parts: Iterable[Part]) -> Iterator[Means]:
    """While it is open, what the model reads is counted; the model says what it always says."""
    means = Means()
    with ExitStack() as stack:
        masks = stack.enter_context(_masks(model.backbone))

        def counted(part: Part, x: Tensor) -> Tensor:
            means.add(part, x[..., part.columns], masks[0])
            return x

        for part in parts:
            if part.kind != "block":
                stack.enter_context(_edited(model.backbone, part, partial(counted, part)))
        yield means


def shuffled(seed: int, repeat: int) -> Fill:
    """Every real token gets the states of another one of the same batch, drawn without putting back."""
    calls = count()

    def fill(part: Part, states: Tensor, mask: Tensor | None) -> Tensor:
        real = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if mask is None else mask
        order = rng(seed, "resample", part.name, repeat, next(calls)).permutation(int(real.sum()))
        out = states.clone()
        out[real] = states[real][torch.from_numpy(order).to(states.device)]
        return out

    return fill


def _filled(part: Part, fill: Fill, masks: list[Tensor | None], x: Tensor) -> Tensor:
    out = x.clone()
    out[..., part.columns] = fill(part, x[..., part.columns], masks[0])
    return out


def _skip(_module: nn.Module, inputs: Any, output: Any) -> Any:
    return (inputs[0], *output[1:])


@contextmanager
def _edited(backbone: Backbone, part: Part, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """A part's states pass through ``edit``: a head's on their way into a module, all others on their way out."""
    if part.kind != "head":
        with tapped(backbone, {part.place: edit}):
            yield
        return
    hook = backbone.get_submodule(part.place).register_forward_pre_hook(lambda _, inputs: (edit(inputs[0]),))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _masks(backbone: Backbone) -> Iterator[list[Tensor | None]]:
    """A list whose one entry is the mask of the batch being read."""
    masks = list[Tensor | None]([None])

    def noted(_module: nn.Module, _inputs: Any, given: dict[str, Any]) -> None:
        masks[0] = given.get("mask")

    hook = backbone.register_forward_pre_hook(noted, with_kwargs=True)
    try:
        yield masks
    finally:
        hook.remove()


# ------------------------------------------------------------------------------------------------ a language model's loss


@dataclass(frozen=True)
class Passages:
    """N passages as a language model reads them, and what it is asked of each."""

    encoded: Encoded
    targets: tuple[np.ndarray, ...]
    """each (T,) int64: the token to be predicted at this place, or ``IGNORE``"""
    causal: bool
    """every token is predicted from those before it, and not hidden ones from both sides"""

    @property
    def counts(self) -> np.ndarray:
        """(N,) tokens predicted of each."""
        return np.array([int((row != IGNORE).sum()) for row in self.targets])


def passages_of(bundle: Bundle, documents: Iterable[str], first: int, seed: int, longest: int | None = None) -> Passages:
    """The ``first`` passages of documents: each is a document, or so much of it as the model reads at once, or as ``longest`` says.

    A model that writes predicts every token of the text; for a masked one 15 % of each passage are hidden once, at least one token.
    Raises ``DataError`` where there is nothing to predict, and ``ModelError`` for a model that never learned to predict plain text.
    """
    if bundle.likelihood is None:
        raise ModelError(
            "a loss of text needs a model that learned to predict text, but this one has no language head, or learned only spans "
            "behind sentinels; give it a task instead"
        )
    specials, vocabulary = bundle.tokenizer.specials, bundle.tokenizer.vocabulary()
    room, causal = (longest or bundle.model.backbone.config.max_tokens) - 2, bundle.likelihood == "causal"
    pieces = stretches(bundle.tokenizer, documents, room)
    rows, targets = list[np.ndarray](), list[np.ndarray]()
    for number, piece in enumerate(islice(pieces, first)):
        if causal:
            rows.append(np.array([specials.begin, *piece[:-1]], dtype=np.int64))
            targets.append(np.array(piece, dtype=np.int64))
            continue
        ids = np.array([[specials.begin, *piece, specials.eos]], dtype=np.int64)
        draw = rng(seed, "hidden", number)
        hidden, chosen = hide(ids, np.ones_like(ids, dtype=bool), draw, vocabulary, ObjectiveConfig(name="masked", mask_rate=0.15))
        if chosen.any():
            rows.append(hidden[0])
            targets.append(np.where(chosen, ids, IGNORE)[0])
    if len(rows) < 2:
        raise DataError(f"a loss needs at least two passages of text, but {len(rows)} came; give more text")
    return Passages(Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64)), tuple(targets), causal)


def losses(model: Model, passages: Passages, pad_id: int) -> np.ndarray:
    """(N,) summed loss in nats of the tokens predicted in each passage."""

    def asked(batch: Batch, places: np.ndarray) -> Tensor:
        targets = torch.from_numpy(padded([passages.targets[place] for place in places], IGNORE)).to(batch.ids.device)
        wanted = targets != IGNORE
        states = _last(model, batch, causal=passages.causal)
        logits = model.head(states[wanted]).float()  # (M, V)
        lost = logits.logsumexp(dim=-1) - logits.gather(-1, targets[wanted][:, None])[:, 0]
        return torch.zeros(targets.shape, device=lost.device).masked_scatter(wanted, lost).sum(dim=1)

    out = np.empty(len(passages.encoded))
    for places, said in read(model, passages.encoded, pad_id, ask=asked):
        out[places] = said.numpy()
    return out


def difference_from(model: Model, parts: Iterable[Part], pruned: Model, encoded: Encoded, pad_id: int) -> float:
    """How far ``pruned`` is from ``model`` with ``parts`` at zero, as a share of the largest of the states that heads read."""
    found = _states(pruned, encoded, pad_id)
    with erased(model, parts, zero):
        wanted = _states(model, encoded, pad_id)
    gap = max(float((one - other).abs().max()) for one, other in zip(found, wanted, strict=True))
    return gap / max(float(states.abs().max()) for states in wanted)


def _states(model: Model, encoded: Encoded, pad_id: int) -> list[Tensor]:
    return [states for _, states in read(model, encoded, pad_id, ask=lambda batch, _: _last(model, batch, causal=model.causal))]


def _last(model: Model, batch: Batch, *, causal: bool) -> Tensor:
    """(B, T, D): what heads read."""
    return model.backbone(batch.ids, mask=batch.mask, causal=causal, types=batch.types).last
