"""Minimal pairs: how often the right sentence of a pair scores higher than one that differs in the error alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.data.minimal_pairs import MinimalPair
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import ProportionDifference, binomial_test, mean_proportion, paired_proportions, wilson_interval


@dataclass(frozen=True)
class PairGroup:
    """The verdicts on a group of P pairs."""

    name: str
    phenomenon: str
    """what the group belongs to"""
    right: np.ndarray
    """(P,) 1 if the right sentence scores higher, 0.5 for a tie, else 0"""

    @property
    def accuracy(self) -> Estimate:
        """The fraction of pairs in which the right sentence scores higher, with its 95% interval over pairs (Wilson 1927)."""
        return wilson_interval(float(self.right.mean()), len(self.right))

    @property
    def p_value(self) -> float:
        """The two-sided exact p-value of an accuracy this far from one half."""
        return binomial_test(float(self.right.sum()), len(self.right))


def judge_pairs(pairs: Sequence[MinimalPair], scores: np.ndarray) -> list[PairGroup]:
    """The groups of P pairs, in order of first appearance; ``scores`` (2 P,): all good sentences, then all bad ones."""
    good, bad = scores[: len(pairs)], scores[len(pairs) :]
    right = np.where(np.isclose(good, bad, rtol=0, atol=1e-6), 0.5, good > bad)
    members: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        members.setdefault(pair.group, []).append(i)
    return [PairGroup(name, pairs[indices[0]].phenomenon, right[indices]) for name, indices in members.items()]


def by_phenomenon(groups: Sequence[PairGroup]) -> list[PairGroup]:
    """The groups of each phenomenon as one; none, if a group has no phenomenon or each has its own."""
    joined: dict[str, list[np.ndarray]] = {}
    for group in groups:
        joined.setdefault(group.phenomenon, []).append(group.right)
    if "" in joined or len(joined) == len(groups):
        return []
    return [PairGroup(name, name, np.concatenate(rights)) for name, rights in joined.items()]


def mean_accuracy(groups: Sequence[PairGroup]) -> Estimate:
    """The mean accuracy over groups, each counted alike, with its 95% interval over pairs."""
    return mean_proportion([group.right for group in groups])


def compare_groups(one: Sequence[PairGroup], other: Sequence[PairGroup]) -> ProportionDifference:
    """The mean accuracy of ``one`` less that of ``other`` on the same pairs."""
    return paired_proportions([group.right for group in one], [group.right for group in other])
