"""Minimal pairs judged by a language model, and by a trigram model of some text.

The trigram (Kneser-Ney smoothing: Kneser and Ney 1995; Chen and Goodman 1999) is the baseline for what a network has learned about
grammar: it counts, and sees two tokens back.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.data.minimal_pairs import MinimalPair
from warmstart.errors import DataError
from warmstart.inspection.minimal_pairs import TRIGRAM, PairGroup, judge_pairs
from warmstart.inspection.sentence_scores import ScoreKind, score_sentences
from warmstart.model.bundle import Bundle

DISCOUNT = 0.75
"""subtracted from every count of the trigram, and given to the orders below"""


@dataclass(frozen=True)
class PairsMeasured:
    """The verdicts on P pairs."""

    pairs: Sequence[MinimalPair]
    scores: np.ndarray
    """(2 P,) the model's scores of all good sentences, then of all bad ones"""
    groups: list[PairGroup]
    rivals: Mapping[str, list[PairGroup]]
    """the same groups judged by others, by name: ``TRIGRAM``, another model"""
    kind: ScoreKind
    """how the model scores sentences"""


def measure_pairs(
    bundle: Bundle, pairs: Sequence[MinimalPair], documents: Sequence[str], others: Mapping[str, Bundle], *, per_token: bool
) -> PairsMeasured:
    """Judge the pairs by the model, by a trigram of ``documents`` if there are any, and by ``others``."""
    sentences = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    scored = score_sentences(bundle, sentences)
    scores = scored.normalized(per_token=per_token)
    rivals = {name: score_sentences(other, sentences).normalized(per_token=per_token) for name, other in others.items()}
    if documents:
        rivals = {TRIGRAM: _trigram_scores(bundle, sentences, documents, per_token=per_token)} | rivals
    judged = {name: judge_pairs(pairs, found) for name, found in rivals.items()}
    return PairsMeasured(pairs, scores, judge_pairs(pairs, scores), judged, scored.kind)


def _trigram_scores(bundle: Bundle, sentences: Sequence[str], documents: Sequence[str], *, per_token: bool) -> np.ndarray:
    """(N,) the log-probability of each sentence under a trigram of the documents, in tokens of the model's own tokenizer."""
    begin, tokenizer = bundle.tokenizer.specials.begin, bundle.tokenizer
    trigram = Trigram(([begin, begin, *ids] for ids in tokenizer.encode(documents)), tokenizer.vocab_size)
    rows = tokenizer.encode(sentences)
    scores = np.array([trigram.log_probability([begin, begin, *ids]) for ids in rows])
    return scores / np.array([max(1, len(ids)) for ids in rows]) if per_token else scores


class Trigram:
    """An interpolated trigram: each order gives what it discounts to the one below, the lowest to all ``size`` tokens equally.

    Raises ``DataError`` if no row has three tokens.
    """

    def __init__(self, rows: Iterable[Sequence[int]], size: int) -> None:
        self.size = size
        three: Counter[tuple[int, int, int]] = Counter()
        for row in rows:
            three.update(zip(row, row[1:], row[2:], strict=False))
        if not three:
            raise DataError("a trigram model needs at least one row of three tokens, but there is none; give more text")
        two = Counter((b, c) for _, b, c in three)  # continuation counts: how many different tokens came before
        one = Counter(c for _, c in two)
        self.tables = (_table(three), _table(two), _table({(token,): count for token, count in one.items()}))

    def log_probability(self, row: Sequence[int]) -> float:
        """In nats, of all tokens from the third one on."""
        return sum(math.log(self.probability(tuple(row[i - 2 : i]), row[i])) for i in range(2, len(row)))

    def probability(self, before: tuple[int, ...], token: int) -> float:
        """The probability of a token after the two before it."""
        probability, scale = 0.0, 1.0
        for order, table in enumerate(self.tables):
            total, different, counts = table.get(before[order:], (0, 0, None))
            if counts is not None:
                probability += scale * max(counts.get(token, 0) - DISCOUNT, 0) / total
                scale *= DISCOUNT * different / total
        return probability + scale / self.size


_Counts = tuple[int, int, dict[int, int]]
"""what follows a context: the sum of all counts, the number of different tokens, and the count of each token"""


def _table(
    counts: dict[tuple[int, ...], int] | Counter[tuple[int, int, int]] | Counter[tuple[int, int]],
) -> dict[tuple[int, ...], _Counts]:
    followers: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for key, count in counts.items():
        followers[tuple(key[:-1])][key[-1]] = count
    return {before: (sum(after.values()), len(after), after) for before, after in followers.items()}
