"""What three words in a row can know: a trigram model with Kneser-Ney smoothing (Kneser and Ney 1995; Chen and Goodman 1999).

The floor for what a network is said to have learned of grammar: it counts, and sees two tokens back.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from warmstart.errors import DataError

DISCOUNT = 0.75


class Trigram:
    """Interpolated: each order gives what it discounts to the one below, the lowest to all ``size`` tokens alike.

    Raises ``DataError`` where no row has three tokens.
    """

    def __init__(self, rows: Iterable[Sequence[int]], size: int) -> None:
        self.size = size
        three: Counter[tuple[int, int, int]] = Counter()
        for row in rows:
            three.update(zip(row, row[1:], row[2:], strict=False))
        if not three:
            raise DataError("a trigram model needs a row of three tokens at least, but found none; give more text")
        two = Counter((b, c) for _, b, c in three)  # continuations: how many different tokens stood before
        one = Counter(c for _, c in two)
        self.tables = (_table(three), _table(two), _table({(token,): count for token, count in one.items()}))

    def log_probability(self, row: Sequence[int]) -> float:
        """In nats, of all tokens from the third one on."""
        return sum(math.log(self.probability(tuple(row[i - 2 : i]), row[i])) for i in range(2, len(row)))

    def probability(self, before: tuple[int, ...], token: int) -> float:
        """Of a token after the two before it."""
        found, scale = 0.0, 1.0
        for order, table in enumerate(self.tables):
            total, kinds, counts = table.get(before[order:], (0, 0, None))
            if counts is not None:
                found += scale * max(counts.get(token, 0) - DISCOUNT, 0) / total
                scale *= DISCOUNT * kinds / total
        return found + scale / self.size


Counts = tuple[int, int, dict[int, int]]
"""of what follows a context: the sum, how many different tokens, and each one's count"""


def _table(
    counts: dict[tuple[int, ...], int] | Counter[tuple[int, int, int]] | Counter[tuple[int, int]],
) -> dict[tuple[int, ...], Counts]:
    follows: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for key, count in counts.items():
        follows[tuple(key[:-1])][key[-1]] = count
    return {before: (sum(found.values()), len(found), found) for before, found in follows.items()}
