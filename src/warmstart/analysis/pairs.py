"""Minimal pairs: whether a language model finds the right sentence likelier than one that differs in what makes it wrong.

Two ways to score a sentence: its log-probability from left to right, or, for a masked model, the sum of every token's
log-probability with that token hidden (pseudo-log-likelihood, Salazar et al. 2020). Hiding one piece of a word leaves the others to
give it away, so the pieces of the same word that follow are hidden too (Kauf and Ivanova 2023).

Letters: N sentences, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warmstart.data.batch import Encoded, encode
from warmstart.data.pairs import Pair
from warmstart.engine import read
from warmstart.engine.reading import Ask
from warmstart.errors import ModelError
from warmstart.heads import LanguageHead
from warmstart.model import Bundle
from warmstart.types import Batch

AT_ONCE = 2000
"""sentences of which a masked model's copies are kept at once"""


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

    Each is read once, however often it comes. Raises ``ModelError`` where the model has no language head.
    """
    if not isinstance(bundle.model.head, LanguageHead):
        raise ModelError(
            f"sentences are scored by a language model, but this one has a head of the kind '{bundle.model.head.config.kind}'; "
            "take the bundle that it was adapted from"
        )
    unique = list(dict.fromkeys(sentences))
    encoded = encode(bundle.tokenizer, unique, bundle.model.backbone.config.max_tokens)
    if (lost := int((encoded.cut > 0).sum())) > 0:
        longest = bundle.model.backbone.config.max_tokens
        raise ModelError(f"every sentence must fit into {longest} tokens, but {lost} of {len(unique)} do not; leave them out")
    found = _causal(bundle, encoded) if bundle.model.causal else _masked(bundle, encoded)
    place = {sentence: i for i, sentence in enumerate(unique)}
    order = np.array([place[sentence] for sentence in sentences], dtype=np.int64)
    return Scored(found[order], np.array([len(row) - 2 for row in encoded.rows])[order])


def _causal(bundle: Bundle, encoded: Encoded) -> np.ndarray:
    """(N,) log-probability of the tokens between the first and the last one of each row, which are frame."""
    model = bundle.model

    def asked(batch: Batch, _: np.ndarray) -> Tensor:
        states = model.backbone(batch.ids, mask=batch.mask, causal=True).last[:, :-1]  # (B, T - 1, D)
        real = torch.ones_like(batch.ids, dtype=torch.bool) if batch.mask is None else batch.mask
        wanted = real[:, 1:].clone()
        wanted[torch.arange(len(wanted)), real.sum(dim=1) - 2] = False  # the end of the text is no part of it
        said = torch.zeros(wanted.shape, device=states.device)
        said[wanted] = _log_probability(bundle, states[wanted], batch.ids[:, 1:][wanted])
        return said.sum(dim=1)

    return _gathered(bundle, encoded, asked)


def _masked(bundle: Bundle, encoded: Encoded) -> np.ndarray:
    """(N,) pseudo-log-likelihood."""
    model, specials = bundle.model, bundle.tokenizer.specials
    starts, out = bundle.tokenizer.vocabulary().word_starts, np.zeros(len(encoded))
    for first in range(0, len(encoded), AT_ONCE):
        copies, owners, hidden = list[np.ndarray](), list[int](), list[int]()
        for owner, row in enumerate(encoded.rows[first : first + AT_ONCE], first):
            for place in range(1, len(row) - 1):
                copy = row.copy()
                end = place + 1
                while end < len(row) - 1 and not starts[row[end]]:
                    end += 1
                copy[place:end] = specials.mask
                copies.append(copy)
                owners.append(owner)
                hidden.append(place)
        where, whose = np.array(hidden), np.array(owners)
        targets = np.array([encoded.rows[owner][place] for owner, place in zip(owners, hidden, strict=True)])

        def asked(batch: Batch, places: np.ndarray, where: np.ndarray = where, targets: np.ndarray = targets) -> Tensor:
            states = model.backbone(batch.ids, mask=batch.mask, causal=False).last
            here = states[torch.arange(len(places)), torch.from_numpy(where[places]).to(states.device)]  # (B, D)
            return _log_probability(bundle, here, torch.from_numpy(targets[places]).to(states.device))

        if copies:
            said = _gathered(bundle, Encoded(tuple(copies), np.zeros(len(copies), dtype=np.int64)), asked)
            np.add.at(out, whose, said)
    return out


def _log_probability(bundle: Bundle, states: Tensor, ids: Tensor) -> Tensor:
    """(M,) of the tokens ``ids`` (M,) given states (M, D)."""
    logits = bundle.model.head(states)
    return logits.gather(-1, ids[:, None])[:, 0] - logits.logsumexp(dim=-1)


def _gathered(bundle: Bundle, encoded: Encoded, asked: Ask) -> np.ndarray:
    out = np.zeros(len(encoded))
    for places, said in read(bundle.model, encoded, bundle.tokenizer.specials.pad, ask=asked):
        out[places] = said.numpy()
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


def judge(pairs: Sequence[Pair], values: np.ndarray) -> list[Judgement]:
    """Groups in the order in which they come; ``values`` (2 P,) are of all good sentences, then of all bad ones."""
    good, bad = values[: len(pairs)], values[len(pairs) :]
    right = np.where(np.isclose(good, bad, rtol=0, atol=1e-6), 0.5, good > bad)
    places: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault(pair.group, []).append(place)
    return [Judgement(name, pairs[found[0]].field, right[found]) for name, found in places.items()]


def overall(judged: Sequence[Judgement]) -> tuple[float, float, float]:
    """The mean over groups, each counting alike, with its 95 % interval over pairs."""
    mean = float(np.mean([one.share for one in judged]))
    error = math.sqrt(sum(one.right.var() / len(one.right) for one in judged)) / len(judged)
    return mean, mean - 1.96 * error, mean + 1.96 * error
