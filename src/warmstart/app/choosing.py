"""The choice of the next text: a mixture of ways to choose, drawn with known probabilities.

    random       every text with the same probability
    uncertain    one of the few texts about which the model is least certain
    diverse      far from everything labelled: with probability proportional to the squared distance (k-means++: Arthur and
                 Vassilvitskii 2007)

Some share is always random. So every text can be drawn, and what the draws show holds for the whole pool (``accuracy.py``).

Letters: N texts of the pool, R texts without a label, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from warmstart.app.learner import Beliefs
from warmstart.errors import ConfigError, suggest

COMPONENTS = ("random", "uncertain", "diverse")
LEAST_RANDOM = 0.1
_MOST_UNCERTAIN = 0.05
"""share of the texts among which an uncertain one is drawn"""
_FEWEST = 10
_BLOCK = 128
"""texts whose distances are computed at once"""


@dataclass(frozen=True)
class Mixture:
    """Shares of the draws among new texts, which sum to 1, and shares of all turns for second looks."""

    random: float = 0.5
    uncertain: float = 0.3
    diverse: float = 0.2
    doubtful: float = 0.05
    """share of the turns for labelled texts whose label is likely wrong, while there are any"""
    overlap: float = 0.1
    """share of the turns for texts that one other person has answered, while there are several people"""
    information: bool = False
    """uncertain: by the members' disagreement (BALD) instead of the margin between the two most probable labels"""

    @classmethod
    def of(cls, shares: Mapping[str, float], information: bool = False) -> Mixture:
        """Shares by name; components that are not named get none. Raises ``ConfigError`` for shares that cannot be."""
        known = (*COMPONENTS, "doubtful", "overlap")
        for name, share in shares.items():
            if name not in known:
                raise ConfigError(f"a mixture has the parts {', '.join(known)}, but one is called '{name}'; {suggest(name, known)}")
            if not 0 <= share <= 1:
                raise ConfigError(f"a share of a mixture must lie between 0 and 1, but that of {name} is {share}")
        parts = {name: shares.get(name, 0.0) for name in COMPONENTS} if set(shares) & {*COMPONENTS} else _DEFAULTS
        total = sum(parts.values())
        if not total or parts["random"] / total < LEAST_RANDOM:
            raise ConfigError(
                f"at least {LEAST_RANDOM:.0%} of the texts must be drawn at random, so that the accuracy can be estimated, but "
                f"'random' has {parts['random'] / total if total else 0:.0%}; write --mixture random=0.5 uncertain=0.5"
            )
        turns = {name: shares[name] for name in ("doubtful", "overlap") if name in shares}
        return cls(**{name: part / total for name, part in parts.items()}, **turns, information=information)


_DEFAULTS = {name: getattr(Mixture, name) for name in COMPONENTS}


def component_probabilities(
    remaining: np.ndarray, beliefs: Beliefs | None, squared_distances: np.ndarray, mixture: Mixture
) -> np.ndarray:
    """(3, R): for each of ``COMPONENTS`` the probability of each remaining text; rows sum to 1.

    ``remaining`` (R,) are places in the pool, ``squared_distances`` (N,) those to the nearest labelled text.
    """
    count = len(remaining)
    probabilities = np.full((len(COMPONENTS), count), 1 / count)
    if beliefs is not None:
        certainty = (-beliefs.information if mixture.information else beliefs.margin)[remaining]
        few = min(count, max(_FEWEST, round(_MOST_UNCERTAIN * count)))
        probabilities[1] = 0
        probabilities[1, np.argpartition(certainty, few - 1)[:few]] = 1 / few
    distances = squared_distances[remaining]
    if np.isfinite(distances).all() and (total := distances.sum()) > 0:
        probabilities[2] = distances / total
    return probabilities


@dataclass(frozen=True)
class Chosen:
    """A text that was drawn."""

    text: int
    component: str
    probability: float
    """probability of this text among the remaining ones, under the whole mixture"""


def draw_text(
    remaining: np.ndarray, beliefs: Beliefs | None, squared_distances: np.ndarray, mixture: Mixture, chance: np.random.Generator
) -> Chosen:
    """Draw one of the remaining texts (R,)."""
    shares = np.array([getattr(mixture, name) for name in COMPONENTS])
    probabilities = component_probabilities(remaining, beliefs, squared_distances, mixture)
    component = int(chance.choice(len(COMPONENTS), p=shares / shares.sum()))
    place = int(chance.choice(len(remaining), p=probabilities[component] / probabilities[component].sum()))
    return Chosen(int(remaining[place]), COMPONENTS[component], float(shares @ probabilities[:, place]))


class Distances:
    """Distances of every text to the nearest labelled one, kept while labels are added."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors
        self._norms = np.einsum("nd,nd->n", vectors, vectors)
        self.squared = np.full(len(vectors), np.inf)
        """(N,) infinite as long as nothing is labelled"""

    def add(self, *texts: int) -> None:
        """Texts have a label now."""
        for start in range(0, len(texts), _BLOCK):
            block = list(texts[start : start + _BLOCK])
            distances = self._norms[:, None] - 2 * (self.vectors @ self.vectors[block].T) + self._norms[block]
            np.minimum(self.squared, np.maximum(distances.min(axis=1), 0), out=self.squared)
