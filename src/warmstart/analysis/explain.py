"""Why a model said what it said of one text: how much each word counts, by three methods, and how far each method is right.

What is explained is the log-probability of one outcome: a label of a classifier, as ``predict`` gives it (calibrated), or the token
that a language model would write next, as ``generate`` does (from left to right, and never a special token but the end).

- *erasure*: by how much it falls when a word, or a phrase, is taken out (Li et al. 2016)
- *gradient x input*: the slope along each token's embedding (Shrikumar et al. 2016)
- *integrated gradients*: the slope summed up on the way from empty embeddings to the text's (Sundararajan et al. 2017). The sum
  over tokens must be the whole difference (completeness), and how far it is away is told.

Faithful is an order of words that, taken out first to last, makes the probability fall fast, and put in, rise fast: faster than an
order by chance (Petsiuk et al. 2018; DeYoung et al. 2020).

Letters: B batch, T tokens, D width, W words, P points on the way, R orders by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from warmstart.backbone import tapped
from warmstart.data.batch import Encoded, encode
from warmstart.engine import read
from warmstart.errors import ModelError, suggest
from warmstart.heads import ClassifyHead, LanguageHead
from warmstart.model import Bundle
from warmstart.tokenizer import Tokenizer
from warmstart.types import Batch

CLOSE, MOST = 0.01, 512
"""integrated gradients take more points until what is missing is this share of the whole, or so many points were taken"""
AT_ONCE = 2048
"""tokens whose gradients are taken at once"""

By = Literal["delete", "mask"]


@dataclass(frozen=True)
class Question:
    """One text, and the outcome whose log-probability is explained."""

    bundle: Bundle
    row: np.ndarray
    """(T,) token ids, with those that frame the text"""
    words: tuple[str, ...]
    """the text's words without the space around them; of white space alone, that"""
    owner: np.ndarray
    """(T,) which word each token belongs to; -1 at the frame"""
    outcome: int
    """the label's number, or the next token's id"""
    by: By = "delete"
    """how a word is taken out: its tokens go, or become mask tokens"""

    @property
    def causal(self) -> bool:
        """How the backbone reads: a writer from left to right, whichever way else it can read."""
        return self.bundle.model.causal or isinstance(self.bundle.model.head, LanguageHead)

    @property
    def name(self) -> str:
        """The outcome as it prints."""
        labels = self.bundle.labels
        return labels[self.outcome] if labels else self.bundle.tokenizer.token(self.outcome)

    def without(self, words: Sequence[int] | np.ndarray) -> np.ndarray:
        """The row with these words taken out."""
        gone = np.isin(self.owner, words)
        if self.by == "delete":
            return self.row[~gone]
        return np.where(gone, self.bundle.tokenizer.specials.mask, self.row)

    def said(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """(N,) the outcome's log-probability for each of N rows, in nats."""
        out = np.empty(len(rows))
        encoded = Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64))
        pad = self.bundle.tokenizer.specials.pad
        for places, found in read(self.bundle.model, encoded, pad, ask=lambda batch, _: self.outcomes(batch)):
            out[places] = found.numpy()
        return out

    def outcomes(self, batch: Batch) -> Tensor:
        """(B,) the outcome's log-probability, with its gradient where one is wanted."""
        return self.scores(batch).log_softmax(dim=-1)[:, self.outcome]

    def scores(self, batch: Batch) -> Tensor:
        """(B, C) logits of a classifier over its temperature; (B, V) of the next token, -inf where it is never written."""
        model, calibration = self.bundle.model, self.bundle.calibration
        states = model.backbone(batch.ids, mask=batch.mask, causal=self.causal).last
        if isinstance(model.head, ClassifyHead):
            return model.head(states, batch.mask) / (calibration.temperature if calibration else 1.0)
        last = batch.lengths.to(states.device) - 1
        logits = model.head(states[torch.arange(len(states), device=states.device), last])
        return logits.index_fill(1, torch.tensor(self.bundle.unwritten, device=logits.device), -torch.inf)


def question(bundle: Bundle, text: str, outcome: str | None = None, by: By = "delete") -> Question:
    """What is asked of a text: why ``outcome``, a label or the next token; None: what the model finds likeliest.

    Raises ``ModelError`` as ``check`` does, for texts that do not fit or have no words, and for outcomes that the model does not
    know.
    """
    check(bundle)
    head, tokenizer = bundle.model.head, bundle.tokenizer
    writes = isinstance(head, LanguageHead)
    appended = getattr(head.config, "pooling", "") == "appended"
    encoded = encode(tokenizer, [text], bundle.model.backbone.config.max_tokens, appended=appended)
    if encoded.cut[0]:
        raise ModelError(f"the text must fit into {bundle.model.backbone.config.max_tokens} tokens, but is {encoded.cut[0]} longer")
    row = encoded.rows[0][:-1] if writes else encoded.rows[0]
    inside = np.arange(len(row)) > 0 if writes else (np.arange(len(row)) > 0) & (np.arange(len(row)) < len(row) - 1)
    starts = tokenizer.vocabulary().word_starts[row] & inside
    starts[1] |= bool(inside[1:2].any())
    owner = np.where(inside, starts.cumsum() - 1, -1)
    words = tuple(_word(tokenizer, row[owner == place]) for place in range(int(owner.max()) + 1))
    if not words:
        raise ModelError("there is nothing to explain in an empty text; give some words")
    if outcome is not None:
        return Question(bundle, row, words, owner, _outcome(bundle, outcome), by)
    asked = Question(bundle, row, words, owner, 0, by)
    with torch.no_grad():
        likeliest = asked.scores(Batch(torch.from_numpy(row).to(_device(bundle))[None], causal=asked.causal)).argmax()
    return replace(asked, outcome=int(likeliest))


def check(bundle: Bundle) -> None:
    """Raises ``ModelError`` for models that neither label texts nor learned to write from left to right."""
    head, causal = bundle.model.head, bundle.model.causal
    if isinstance(head, ClassifyHead) or bundle.generates or (isinstance(head, LanguageHead) and causal and not bundle.history):
        return
    why = f"has a head of the kind '{head.config.kind}'"
    if isinstance(head, LanguageHead):
        why += " and did not learn to write: it was pretrained to fill gaps" if causal else " and reads both ways"
    raise ModelError(
        f"a prediction is explained of models that label texts or write from left to right, but this one {why}; adapt it to a task "
        "first, or take one that `warmstart generate` can write with"
    )


def _word(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """A word's text without the space around it; white space as it is, and of tokens that stand for no text their names."""
    text = tokenizer.decode(ids.tolist())
    return text.strip() or text or "".join(tokenizer.token(int(one)) for one in ids)


def _outcome(bundle: Bundle, name: str) -> int:
    if bundle.labels:
        if name not in bundle.labels:
            raise ModelError(f"there is no label '{name}'; {suggest(name, bundle.labels)}")
        return bundle.labels.index(name)
    ids = bundle.tokenizer.encode([name])[0]
    if len(ids) != 1:
        raise ModelError(f"an outcome must be one token, but {name!r} is {len(ids)}; mind the space before a word: ' the'")
    if ids[0] in bundle.unwritten:
        raise ModelError(f"an outcome must be a token that the model can write, but {name!r} is {bundle.tokenizer.token(ids[0])}")
    return ids[0]


def erasure(asked: Question) -> np.ndarray:
    """(W,) how many nats the outcome loses without each word; below zero: the word speaks against it."""
    said = asked.said([asked.row, *(asked.without([place]) for place in range(len(asked.words)))])
    return np.asarray(said[0] - said[1:])


def phrases(asked: Question, longest: int = 3) -> list[tuple[int, int, float]]:
    """(first word, word after the last, nats lost without it) of every run of up to ``longest`` words, weightiest first."""
    count = len(asked.words)
    spans = [(a, b) for a in range(count) for b in range(a + 1, min(count, a + longest) + 1) if b - a < count or count == 1]
    said = asked.said([asked.row, *(asked.without(np.arange(a, b)) for a, b in spans)])
    found = [(a, b, float(said[0] - value)) for (a, b), value in zip(spans, said[1:], strict=True)]
    return sorted(found, key=lambda span: -abs(span[2]))


def gradient_input(asked: Question) -> np.ndarray:
    """(W,) gradient x input: the slope of the outcome along each token's embedding, summed over a word's tokens."""
    x = _embedded(asked)
    return asked_words(asked, (_slopes(asked, x[None])[0] * x).sum(dim=-1))


def integrated(asked: Question) -> tuple[np.ndarray, float, int]:
    """(W,) integrated gradients, the share of the whole difference that they miss, and how many points were taken.

    The way begins with the frame's own embeddings and zeros for the text. Points are those of Gauss and Legendre; they are doubled
    until the sum is complete to a hundredth.
    """
    end = _embedded(asked)
    start = torch.where(torch.from_numpy(asked.owner >= 0).to(end.device)[:, None], torch.zeros_like(end), end)
    with torch.no_grad():
        ends = _at(asked, torch.stack([start, end]))
    whole, points = float(ends[1] - ends[0]), 16
    while True:
        places, weights = np.polynomial.legendre.leggauss(points)
        share = torch.from_numpy((places + 1) / 2).to(end)[:, None, None]
        slopes = _slopes(asked, start + share * (end - start))
        mean = torch.einsum("p,ptd->td", torch.from_numpy(weights / 2).to(end), slopes)
        tokens = (mean * (end - start)).sum(dim=-1)
        missing = abs(whole - float(tokens.sum())) / max(abs(whole), 1e-6)
        if missing <= CLOSE or points >= MOST:
            return asked_words(asked, tokens), missing, points
        points *= 2


def asked_words(asked: Question, tokens: Tensor) -> np.ndarray:
    """(T,) -> (W,): the sums over each word's tokens."""
    values, inside = tokens.detach().cpu().double().numpy(), asked.owner >= 0
    return np.bincount(asked.owner[inside], values[inside], minlength=len(asked.words))


def _device(bundle: Bundle) -> torch.device:
    return next(bundle.model.parameters()).device


def _embedded(asked: Question) -> Tensor:
    """(T, D): the row's token embeddings."""
    table = asked.bundle.model.backbone.embedding.weight.detach()
    return table[torch.from_numpy(asked.row).to(table.device)]


def _at(asked: Question, x: Tensor) -> Tensor:
    """(P,) the outcome with these embeddings (P, T, D) in the place of the text's own."""
    ids = torch.from_numpy(asked.row).to(x.device).expand(len(x), -1)
    asked.bundle.model.eval()
    with tapped(asked.bundle.model.backbone, {"embedding": lambda _: x}):
        return asked.outcomes(Batch(ids, causal=asked.causal))


def _slopes(asked: Question, x: Tensor) -> Tensor:
    """(P, T, D) the outcome's gradient at each of P places."""
    size, found = max(1, AT_ONCE // x.shape[1]), []
    for start in range(0, len(x), size):
        part = x[start : start + size].clone().requires_grad_()
        with torch.enable_grad():
            found.append(torch.autograd.grad(_at(asked, part).sum(), part)[0])
    return torch.cat(found)


def curves(asked: Question, orders: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Twice (R, W + 1): the outcome's probability as words go, and as they come, in each of R orders.

    Deletion begins with the whole text and ends with none of it, insertion the other way.
    """
    count, rows = len(asked.words), list[np.ndarray]()
    for order in orders:
        rows += [asked.without(order[:many]) for many in range(count + 1)]
        rows += [asked.without(order[many:]) for many in range(count + 1)]
    said = np.exp(asked.said(rows)).reshape(len(orders), 2, count + 1)
    return said[:, 0], said[:, 1]


def areas(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """(R,) how faithful each order is: the area below its insertion curve less that below its deletion curve, -1 to 1."""
    gone, come = (np.trapezoid(part, axis=-1) / (part.shape[-1] - 1) for part in found)
    return np.asarray(come - gone)
