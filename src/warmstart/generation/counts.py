"""What a corpus itself says of the next token: counts of what followed each context, the ground truth of a small language.

Contexts of up to ``order`` tokens are counted in memory, so it is meant for corpora of up to some million tokens.

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
from warmstart.tokenizer import Tokenizer


@dataclass(frozen=True)
class Truth:
    """What followed the longest known context, and how far a model's opinion is from it."""

    context: tuple[str, ...]
    """the tokens before, as many as were found in the corpus"""
    count: int
    """how often they stand there with a token after them"""
    likeliest: tuple[tuple[str, int], ...]
    """what followed, with counts, commonest first"""
    divergence: float
    """Kullback-Leibler divergence from the counts' shares to the model's probabilities, in nats; 0 where they agree"""
    variation: float
    """total variation distance: the largest difference in probability that any set of tokens has; 0 to 1"""


class Counts:
    """Which tokens followed each context of up to ``order`` tokens; documents stand between two [EOS]."""

    def __init__(self, tokenizer: Tokenizer, documents: Iterable[str], order: int = 3) -> None:
        self.tokenizer, self.order = tokenizer, order
        self.followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        eos = tokenizer.specials.eos
        for ids in tokenizer.encode(list(documents)):
            row = [eos, *ids, eos]
            for place in range(1, len(row)):
                for length in range(min(order, place) + 1):
                    self.followers[tuple(row[place - length : place])][row[place]] += 1
        if not self.followers:
            raise DataError("the text to count in must hold at least one document, but is empty; name another")

    def truth(self, ids: Sequence[int], log_probabilities: Tensor, k: int) -> Truth:
        """What the corpus says after ``ids``, beside a model's ``log_probabilities`` (V,)."""
        lengths = range(min(self.order, len(ids)), -1, -1)
        context = next(tuple(ids[len(ids) - n :]) for n in lengths if tuple(ids[len(ids) - n :]) in self.followers)
        seen = self.followers[context]
        total = sum(seen.values())
        tokens = torch.tensor(list(seen))
        shares = torch.tensor(list(seen.values()), dtype=torch.float64) / total
        said = log_probabilities[tokens].double()
        return Truth(
            tuple(self.tokenizer.token(id_) for id_ in context),
            total,
            tuple((self.tokenizer.token(id_), count) for id_, count in seen.most_common(k)),
            max(0.0, float((shares * (shares.log() - said.clamp(min=math.log(1e-30)))).sum())),
            # what the model gives to tokens that never followed is all difference
            float(0.5 * ((shares - said.exp()).abs().sum() + (1 - said.exp().sum()).clamp(min=0))),
        )
