"""Counts of the tokens that follow each context in a corpus: the ground truth for a model of a small language.

Contexts of up to ``order`` tokens are counted in memory, so it is meant for corpora of up to a few million tokens.

Letters: V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warmstart.errors import DataError
from warmstart.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class NextTokenCounts:
    """The tokens that followed the longest context in the corpus, and the distance of a model's probabilities from their counts."""

    context: tuple[str, ...]
    """the tokens before, as many as the corpus contains in this order"""
    count: int
    """number of times that the context occurs"""
    most_common: tuple[tuple[str, int], ...]
    """tokens that followed, with counts, most common first"""
    kl_divergence: float
    """Kullback-Leibler divergence from the relative counts to the model's probabilities, in nats; 0 if they agree"""
    total_variation: float
    """total variation distance, the largest difference in the probability of any set of tokens; 0 to 1"""


class NgramCounts:
    """Counts of the tokens that followed each context of up to ``order`` tokens; a document begins and ends with [EOS]."""

    def __init__(self, tokenizer: Tokenizer, documents: Iterable[str], order: int = 3) -> None:
        self.tokenizer, self.order = tokenizer, order
        self.followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        eos = tokenizer.specials.eos
        for ids in tokenizer.encode(list(documents)):
            row = [eos, *ids, eos]
            for position in range(1, len(row)):
                for length in range(min(order, position) + 1):
                    self.followers[tuple(row[position - length : position])][row[position]] += 1
        if not self.followers:
            raise DataError("the corpus must contain at least one document, but it is empty; name another one")

    def longest(self, ids: Sequence[int]) -> tuple[tuple[int, ...], Counter[int]]:
        """The longest end of ``ids`` that the corpus contains, and the count of each token that followed it."""
        lengths = range(min(self.order, len(ids)), -1, -1)
        context = next(tuple(ids[len(ids) - n :]) for n in lengths if tuple(ids[len(ids) - n :]) in self.followers)
        return context, self.followers[context]

    def after(self, ids: Sequence[int], log_probabilities: Tensor, k: int) -> NextTokenCounts:
        """The ``k`` most common tokens after ``ids``, compared with a model's ``log_probabilities`` (V,)."""
        return self.compared(*self.longest(ids), log_probabilities, k)

    def compared(self, context: Sequence[int], counts: Counter[int], log_probabilities: Tensor, k: int) -> NextTokenCounts:
        """The ``k`` most common of the tokens that followed a ``context``, as ``longest`` gives them, compared with a model."""
        total = sum(counts.values())
        relative = torch.tensor(list(counts.values()), dtype=torch.float64) / total
        model = log_probabilities[torch.tensor(list(counts))].double()
        return NextTokenCounts(
            tuple(self.tokenizer.token(id_) for id_ in context),
            total,
            tuple((self.tokenizer.token(id_), count) for id_, count in counts.most_common(k)),
            max(0.0, float((relative * (relative.log() - model.clamp(min=math.log(1e-30)))).sum())),
            # the probability of tokens that never followed is part of the difference
            float(0.5 * ((relative - model.exp()).abs().sum() + (1 - model.exp().sum()).clamp(min=0))),
        )
