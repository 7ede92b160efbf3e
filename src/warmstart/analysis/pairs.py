"""Minimal pairs: whether a language model finds the right sentence likelier than one that differs in what makes it wrong.

Two ways to score a sentence: its log-probability from left to right, or, for a masked model, the sum of every token's
log-probability with that token hidden (pseudo-log-likelihood, Salazar et al. 2020). Hiding one piece of a word leaves the others to
give it away, so the pieces of the same word that follow are hidden too (Kauf and Ivanova 2023). Punctuation is a word of its own.

Letters: N sentences, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.analysis.pieces import punctuated
from warmstart.data.batch import Encoded, encode
from warmstart.data.pairs import Pair
from warmstart.engine import read
from warmstart.errors import ModelError
from warmstart.heads import LanguageHead
from warmstart.model import Bundle
from warmstart.types import Batch

AT_ONCE = 2000
"""sentences whose beginnings, or whose copies for a masked model, are kept at once"""

Wanted = tuple[int, int, int]
"""a place of a row, the token asked for there, and the number of the answer"""


@dataclass(frozen=True)
class Scored:
    """What a model says of N sentences."""

    log_probabilities: np.ndarray
    """(N,) in nats"""
    tokens: np.ndarray
    """(N,) how many each has"""

    def by(self, *, per_token: bool) -> np.ndarray:
        """(N,) what pairs are compared by."""
        return self.log_probabilities / np.maximum(self.tokens, 1) if per_token else self.log_probabilities


def score(bundle: Bundle, sentences: Sequence[str]) -> Scored:
    """How likely a language model finds each sentence, in the way it was trained: causal, or masked.

    Each is read once, however often it comes, and so are sentences that the tokenizer does not tell apart: they score the same to
    the last bit. Raises ``ModelError`` where the model has no language head.
    """
    if not isinstance(bundle.model.head, LanguageHead):
        raise ModelError(
            f"sentences are scored by a language model, but this one has a head of the kind '{bundle.model.head.config.kind}'; "
            "take the bundle that it was adapted from"
        )
    if bundle.likelihood is None:
        raise ModelError(
            "sentences are scored by a model that learned to predict text, but this one learned only spans behind sentinels"
        )
    unique = sorted(set(sentences))  # those that begin alike stand together
    encoded = encode(bundle.tokenizer, unique, bundle.model.backbone.config.max_tokens)
    if (lost := int((encoded.cut > 0).sum())) > 0:
        longest = bundle.model.backbone.config.max_tokens
        raise ModelError(f"every sentence must fit into {longest} tokens, but {lost} of {len(unique)} do not; leave them out")
    different = {row.tobytes(): row for row in encoded.rows}
    rows, number = list(different.values()), {key: place for place, key in enumerate(different)}
    way, found = _causal if bundle.likelihood == "causal" else _masked, np.zeros(len(rows))
    for first in range(0, len(rows), AT_ONCE):
        found[first : first + AT_ONCE] = way(bundle, rows[first : first + AT_ONCE])
    place = {sentence: number[row.tobytes()] for sentence, row in zip(unique, encoded.rows, strict=True)}
    order = np.array([place[sentence] for sentence in sentences], dtype=np.int64)
    return Scored(found[order], np.array([len(row) - 2 for row in rows], dtype=np.int64)[order])


def _causal(bundle: Bundle, framed: Sequence[np.ndarray]) -> np.ndarray:
    """(N,) log-probability of the tokens between the first and the last one of each row, which are frame.

    Every distinct beginning has a number, and what several rows begin with is asked for once. A sentence's last token is not
    read, for nothing of it stands behind, nor is a row that is the beginning of another one.
    """
    texts = [row[:-1].tolist() for row in framed]
    numbers, paths = dict[tuple[int, int], int](), list[list[int]]()  # a beginning is known by the one before it and its token
    for text in texts:
        path = [-1]
        for token in text:
            path.append(numbers.setdefault((path[-1], token), len(numbers)))
        paths.append(path[1:])
    rows, found = list[np.ndarray](), dict[int, tuple[int, int]]()  # the row and the place where a beginning is read
    for place in sorted(range(len(texts)), key=lambda place: -len(texts[place])):
        read_here = paths[place][:-1]
        if read_here and read_here[-1] not in found:
            found |= {number: (len(rows), at) for at, number in enumerate(read_here) if number not in found}
            rows.append(np.array(texts[place][:-1]))
    wanted: list[list[Wanted]] = [[] for _ in rows]
    for (before, token), number in numbers.items():
        if before >= 0:
            row, at = found[before]
            wanted[row].append((at, token, number))
    said = _answers(bundle, rows, wanted, len(numbers), causal=True)
    return np.array([said[path].sum() for path in paths])


def _masked(bundle: Bundle, framed: Sequence[np.ndarray]) -> np.ndarray:
    """(N,) pseudo-log-likelihood."""
    begins, ends = punctuated(bundle.tokenizer, np.unique(np.concatenate(framed)))
    starts, out = bundle.tokenizer.vocabulary().word_starts | begins, np.zeros(len(framed))
    copies, wanted, owners = list[np.ndarray](), list[list[Wanted]](), list[int]()
    for owner, row in enumerate(framed):
        new = starts[row]  # where a word begins: by its piece, or behind punctuation
        new[1:] |= ends[row[:-1]]
        for place in range(1, len(row) - 1):
            copy = row.copy()
            end = place + 1
            while end < len(row) - 1 and not new[end]:
                end += 1
            copy[place:end] = bundle.tokenizer.specials.mask
            wanted.append([(place, int(row[place]), len(copies))])
            copies.append(copy)
            owners.append(owner)
    np.add.at(out, np.array(owners, dtype=np.int64), _answers(bundle, copies, wanted, len(copies), causal=False))
    return out


def _answers(bundle: Bundle, rows: Sequence[np.ndarray], wanted: Sequence[list[Wanted]], count: int, *, causal: bool) -> np.ndarray:
    """(count,) the log-probabilities that are ``wanted`` of each row, each at its own number; 0 where none is."""

    def asked(batch: Batch, places: np.ndarray) -> Tensor:
        states = bundle.model.backbone(batch.ids, mask=batch.mask, causal=causal).last  # (B, T, D)
        row = np.repeat(np.arange(len(places)), [len(wanted[place]) for place in places])
        at, tokens, _ = np.concatenate([wanted[place] for place in places]).T
        spots, which = np.unique(row * states.shape[1] + at, return_inverse=True)  # logits are made once for each place
        logits = bundle.model.head(states.flatten(0, 1)[torch.from_numpy(spots).to(states.device)])
        return logits[which, tokens] - logits.logsumexp(dim=-1)[which]

    out = np.zeros(count)
    encoded = Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64))
    for places, said in read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=asked):
        out[[number for place in places for _, _, number in wanted[place]]] = said.numpy()
    return out


@dataclass(frozen=True)
class Judgement:
    """How a group of pairs fares."""

    name: str
    field: str
    right: np.ndarray
    """(P,) 1 where the right sentence is likelier, 0.5 where both are alike, else 0"""

    @property
    def share(self) -> float:
        """Of pairs judged rightly."""
        return float(self.right.mean())

    def ends(self) -> tuple[float, float]:
        """95 % interval over pairs of this kind (Wilson 1927)."""
        n, p, z = len(self.right), self.share, 1.96
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    def p(self) -> float:
        """Of a share so far from one half, were it all chance (exact, on both sides); half a pair is rounded towards chance."""
        from scipy import stats

        n, right = len(self.right), float(self.right.sum())
        whole = math.floor(right) if right > n / 2 else math.ceil(right)
        return float(stats.binomtest(whole, n).pvalue)


def judge(pairs: Sequence[Pair], values: np.ndarray) -> list[Judgement]:
    """Groups in the order in which they come; ``values`` (2 P,) are of all good sentences, then of all bad ones."""
    good, bad = values[: len(pairs)], values[len(pairs) :]
    right = np.where(np.isclose(good, bad, rtol=0, atol=1e-6), 0.5, good > bad)
    places: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault(pair.group, []).append(place)
    return [Judgement(name, pairs[found[0]].field, right[found]) for name, found in places.items()]


def overall(judged: Sequence[Judgement]) -> tuple[float, float, float]:
    """The mean over groups, each counting alike, with its 95 % interval over pairs.

    A group's variance is that of its share with two pairs more right and two more wrong (Agresti and Coull 1998): few pairs that
    all agree do not make it certain. One group alone has its own interval.
    """
    mean = float(np.mean([one.share for one in judged]))
    if len(judged) == 1:
        return mean, *judged[0].ends()
    shares = [(float(one.right.sum() + 2) / (len(one.right) + 4), len(one.right)) for one in judged]
    error = 1.96 * math.sqrt(sum(share * (1 - share) / n for share, n in shares)) / len(judged)
    return mean, max(0.0, mean - error), min(1.0, mean + error)


@dataclass(frozen=True)
class Lead:
    """How much better one is at the same pairs than another, as a share of pairs."""

    mean: float
    """each group counts alike"""
    low: float
    high: float
    """of the 95 % interval over pairs"""
    p: float
    """of a sign test on the pairs that the two judge differently"""
    balance: int
    """so many pairs judged better less those judged worse"""

    @property
    def sign(self) -> int:
        """1 where it is surely better, -1 where it is surely worse: interval and sign test both say so; else 0."""
        agreed = int(self.low > 0 and self.balance > 0) - int(self.high < 0 and self.balance < 0)
        return agreed if self.p < 0.05 else 0


def lead(one: Sequence[Judgement], other: Sequence[Judgement]) -> Lead:
    """``one`` less ``other``, pair by pair.

    The variance is that of the pairs and of two more: one for each side by half, and one alike (Agresti and Min 2005), so that
    pairs of which all say the same leave a doubt.
    """
    from scipy import stats

    gaps = np.concatenate([a.right - b.right for a, b in zip(one, other, strict=True)])
    weights = np.concatenate([np.full(len(a.right), 1 / len(a.right) / len(one)) for a in one])
    mean, squares = float((gaps * weights).sum()), float((weights**2).sum())
    count = 1 / squares  # so many pairs of equal weight would tell as much
    variance = float(((gaps - mean) ** 2 * weights**2).sum()) / squares
    smoothed = (count * variance + 1 + 2 * mean**2) / (count + 2)
    error = 1.96 * math.sqrt(smoothed / count)
    better, worse = int((gaps > 0).sum()), int((gaps < 0).sum())
    p = float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return Lead(mean, max(-1.0, mean - error), min(1.0, mean + error), p, better - worse)
