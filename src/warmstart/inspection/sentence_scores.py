"""Log-probabilities of sentences under a language model, and its verdicts on minimal pairs.

A causal model gives a sentence's log-probability from left to right. A masked model gives the sum of every token's log-probability
with that token masked (pseudo-log-likelihood, Salazar et al. 2020). The other pieces of its word would give it away, so those that
follow are masked too (Kauf and Ivanova 2023). Punctuation is a word of its own.

Letters: N sentences, P pairs, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from warmstart.data.encode import Encoded, encode
from warmstart.errors import ModelError
from warmstart.heads.language_modeling import LMHead
from warmstart.inspection.minimal_pairs import MinimalPair, PairGroup, judge_pairs
from warmstart.inspection.tokens import word_boundaries
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.types import Batch

_AT_ONCE = 2000
"""sentences whose prefixes, or whose masked copies, are in memory at once"""

ScoreKind = Literal["causal", "masked"]
"""log-probability, or pseudo-log-likelihood"""

_Prediction = tuple[int, int, int]
"""a position of a row, the token to be predicted there, and the number of the result"""


@dataclass(frozen=True)
class SentenceScores:
    """The scores of N sentences."""

    log_probabilities: np.ndarray
    """(N,) in nats"""
    tokens: np.ndarray
    """(N,) tokens of each sentence"""
    kind: ScoreKind

    def normalized(self, *, per_token: bool) -> np.ndarray:
        """(N,) the log-probabilities, divided by the number of tokens if ``per_token``."""
        return self.log_probabilities / np.maximum(self.tokens, 1) if per_token else self.log_probabilities


def score_sentences(bundle: Bundle, sentences: Sequence[str]) -> SentenceScores:
    """The log-probability of each sentence, in the way that the model was trained: see ``ScoreKind``.

    A sentence that occurs several times is read once, and so are sentences with the same tokens: their scores are exactly equal.
    Raises ``ModelError`` if the model has no language head, or learned only span corruption, or if a
    sentence is too long.
    """
    kind = _checked_kind(bundle)
    unique = sorted(set(sentences))  # sentences with the same beginning are neighbours
    encoded = encode(bundle.tokenizer, unique, bundle.model.backbone.config.max_length)
    if (too_long := int((encoded.cut > 0).sum())) > 0:
        longest = bundle.model.backbone.config.max_length
        raise ModelError(f"every sentence must fit into {longest} tokens, but {too_long} of {len(unique)} do not; leave them out")
    different = {row.tobytes(): row for row in encoded.rows}
    rows, number = list(different.values()), {key: i for i, key in enumerate(different)}
    scores = np.zeros(len(rows))
    for start in range(0, len(rows), _AT_ONCE):
        scores[start : start + _AT_ONCE] = _SCORERS[kind](bundle, rows[start : start + _AT_ONCE])
    row_of = {sentence: number[row.tobytes()] for sentence, row in zip(unique, encoded.rows, strict=True)}
    order = np.array([row_of[sentence] for sentence in sentences], dtype=np.int64)
    return SentenceScores(scores[order], np.array([len(row) - 2 for row in rows], dtype=np.int64)[order], kind)


def _checked_kind(bundle: Bundle) -> ScoreKind:
    kind = bundle.likelihood
    if kind is None and not isinstance(bundle.model.head, LMHead):
        raise ModelError(
            f"only a language model can score sentences, but this model has a '{bundle.model.head.config.kind}' head; "
            "take the bundle that it was fine-tuned from"
        )
    if kind is None:
        raise ModelError(
            "only a model that learned to predict text can score sentences, but this one learned span corruption alone; take a "
            "causal, masked or hybrid model"
        )
    return kind


def _score_causal(bundle: Bundle, framed: Sequence[np.ndarray]) -> np.ndarray:
    """(N,) log-probability of each row's tokens, without the first and the last, which frame the sentence.

    Every distinct prefix has a number, and one that several rows share is read once. The last token of a sentence is not read, as
    nothing follows it, and neither is a row that is a prefix of another.
    """
    texts = [row[:-1].tolist() for row in framed]
    numbers, paths = dict[tuple[int, int], int](), list[list[int]]()  # a prefix is known by the one before it and its last token
    for text in texts:
        path = [-1]
        for token in text:
            path.append(numbers.setdefault((path[-1], token), len(numbers)))
        paths.append(path[1:])
    rows, read_at = list[np.ndarray](), dict[int, tuple[int, int]]()  # row and position at which a prefix is read
    for i in sorted(range(len(texts)), key=lambda i: -len(texts[i])):
        prefixes = paths[i][:-1]
        if prefixes and prefixes[-1] not in read_at:
            read_at |= {number: (len(rows), at) for at, number in enumerate(prefixes) if number not in read_at}
            rows.append(np.array(texts[i][:-1]))
    predictions: list[list[_Prediction]] = [[] for _ in rows]
    for (before, token), number in numbers.items():
        if before >= 0:
            row, position = read_at[before]
            predictions[row].append((position, token, number))
    log_probabilities = _predict(bundle, rows, predictions, len(numbers), causal=True)
    return np.array([log_probabilities[path].sum() for path in paths])


def _score_masked(bundle: Bundle, framed: Sequence[np.ndarray]) -> np.ndarray:
    """(N,) pseudo-log-likelihood of each row's tokens, without the first and the last, which frame the sentence."""
    begins, ends = word_boundaries(bundle.tokenizer, np.unique(np.concatenate(framed)))
    starts, out = bundle.tokenizer.vocabulary().word_starts | begins, np.zeros(len(framed))
    copies, predictions, owners = list[np.ndarray](), list[list[_Prediction]](), list[int]()
    for owner, row in enumerate(framed):
        new_word = starts[row]  # by its piece, or because it follows punctuation
        new_word[1:] |= ends[row[:-1]]
        for position in range(1, len(row) - 1):
            copy = row.copy()
            end = position + 1
            while end < len(row) - 1 and not new_word[end]:
                end += 1
            copy[position:end] = bundle.tokenizer.specials.mask
            predictions.append([(position, int(row[position]), len(copies))])
            copies.append(copy)
            owners.append(owner)
    np.add.at(out, np.array(owners, dtype=np.int64), _predict(bundle, copies, predictions, len(copies), causal=False))
    return out


_SCORERS = {"causal": _score_causal, "masked": _score_masked}


def _predict(
    bundle: Bundle, rows: Sequence[np.ndarray], predictions: Sequence[list[_Prediction]], count: int, *, causal: bool
) -> np.ndarray:
    """(count,) the log-probabilities of the ``predictions`` of each row, each under its own number; 0 for numbers without one."""

    def log_probabilities(batch: Batch, indices: np.ndarray) -> Tensor:
        states = bundle.model.backbone(batch.ids, attention_mask=batch.attention_mask, causal=causal).last_hidden_state  # (B, T, D)
        row = np.repeat(np.arange(len(indices)), [len(predictions[i]) for i in indices])
        position, tokens, _ = np.concatenate([predictions[i] for i in indices]).T
        spots, which = np.unique(row * states.shape[1] + position, return_inverse=True)  # one row of logits per position
        logits = bundle.model.head(states.flatten(0, 1)[torch.from_numpy(spots).to(states.device)])
        return logits[which, tokens] - logits.logsumexp(dim=-1)[which]

    out = np.zeros(count)
    encoded = Encoded(tuple(rows), np.zeros(len(rows), dtype=np.int64))
    for indices, values in run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=log_probabilities):
        out[[number for i in indices for _, _, number in predictions[i]]] = values.numpy()
    return out


@dataclass(frozen=True)
class PairsMeasured:
    """The verdicts on P pairs."""

    pairs: Sequence[MinimalPair]
    scores: np.ndarray
    """(2 P,) the model's scores of all good sentences, then of all bad ones"""
    groups: list[PairGroup]
    rivals: Mapping[str, list[PairGroup]]
    """groups as other models judge them, by name of the model"""
    kind: ScoreKind
    """the model's score of a sentence"""


def measure_pairs(bundle: Bundle, pairs: Sequence[MinimalPair], others: Mapping[str, Bundle], *, per_token: bool) -> PairsMeasured:
    """Judge the pairs by the model, and by ``others``."""
    sentences = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    scored = score_sentences(bundle, sentences)
    scores = scored.normalized(per_token=per_token)
    rivals = {name: score_sentences(other, sentences).normalized(per_token=per_token) for name, other in others.items()}
    judged = {name: judge_pairs(pairs, rival) for name, rival in rivals.items()}
    return PairsMeasured(pairs, scores, judge_pairs(pairs, scores), judged, scored.kind)
