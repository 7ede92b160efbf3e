"""Differences between methods when uncertainty has two sources: the seeds of the runs, and the texts that form the test split.

Seeds are covered by repeating the run, texts by the bootstrap: every method is scored on the same resamples of the test split, so
that the difference of two methods can be taken resample by resample. How the two combine is in ``stats/noise.py``.

Letters: S seeds, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from warmstart.stats.intervals import Interval, percentiles, t_interval, t_quantile
from warmstart.stats.multiple_testing import holm
from warmstart.stats.noise import ROUNDING, Noise, moderated_noise, possible_noise, rescaled, smallest_detectable
from warmstart.stats.resampling import resample_indices


@dataclass(frozen=True)
class MethodScores:
    """One method's scores on a split: the test split to report, the validation split to choose."""

    name: str
    scores: tuple[float, ...]
    """(S,) one per seed, or a single one for a method without randomness"""
    resampled: np.ndarray
    """(S, R) the same on resamples of the split, in one order for all methods"""
    overlap: float | None = None
    """scored texts per training text if every seed draws its own split; None if all seeds share one"""
    deterministic: bool = False
    """nothing depends on a seed, so that the one score is that of every seed"""
    collapsed: bool = False
    """True if a run of some seed learned nothing, so that the variance over seeds is not that of other methods"""

    @classmethod
    def from_texts(
        cls, name: str, values: np.ndarray, groups: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> MethodScores:
        """Scores from ``values`` (S, N), a number for each seed and text, 1 for right and 0 for wrong; the score is their mean.

        Texts are resampled alike for all methods with as many texts, those of one group in ``groups`` (N,) together (Efron 1979).
        With ``weights`` (N,) the mean is weighted, on each resample by the weights of the texts that were drawn.

        >>> MethodScores.from_texts("a", np.array([[1, 1, 0, 1], [1, 0, 0, 1]])).scores
        (0.75, 0.5)
        """
        weighted = values if weights is None else values * weights

        def mean(chosen: np.ndarray | slice) -> np.ndarray:
            some = weighted[:, chosen]
            return np.asarray(some.sum(axis=1) / (some.shape[1] if weights is None else weights[chosen].sum()))

        drawn = [mean(chosen) for chosen in resample_indices(values.shape[1], groups=groups)]
        return cls(name, tuple(mean(slice(None)).tolist()), np.stack(drawn, axis=1))

    def _supports(self, seeds: int) -> bool:
        """True if the variance over so many seeds is like that of other methods on the same split."""
        varies = len(self.scores) == seeds and float(np.ptp(self.scores)) > ROUNDING
        return varies and not self.collapsed and self.overlap is None

    @property
    def over_seeds(self) -> Interval:
        """Mean and 95% interval for other seeds on these test texts; no interval if every seed has other test texts."""
        interval = t_interval(self.scores)
        return interval if self.overlap is None else replace(interval, low=math.nan, high=math.nan)

    @property
    def over_texts(self) -> Interval:
        """Mean and 95% interval for other test texts, over these runs: the bootstrap's percentiles (Efron 1979).

        No interval if every seed has other test texts.
        """
        if self.overlap is not None:
            return self.over_seeds
        means = self.resampled.mean(axis=0)
        low, high = percentiles(means)
        return Interval(float(np.mean(self.scores)), float(low), float(high), float(means.std(ddof=1)), len(means))

    @property
    def of_one_user(self) -> Interval:
        """The 95% prediction interval of a single further seed, such as a user with other labelled texts.

        m +- sqrt((t(S - 1) s sqrt(1 + 1 / S))^2 + (z V)^2): s is the spread over seeds, V^2 the variance over resamples of texts of
        one seed, m (1 - m) / N for an accuracy (Hahn 1969). The interval of the mean shrinks with more seeds, this one does not.
        No interval with one seed, or if every seed has other test texts. Simulation: tests/test_noise.py:
        ``test_what_a_single_user_gets_is_covered``.
        """
        interval = self.over_seeds
        if math.isnan(interval.low):
            return interval
        seeds = (interval.high - interval.mean) * math.sqrt(len(self.scores) + 1)
        half = math.hypot(seeds, t_quantile(0.95, math.inf) * math.sqrt(float(self.resampled.var(axis=1, ddof=1).mean())))
        return Interval(interval.mean, interval.mean - half, interval.mean + half, interval.spread, interval.count)

    @property
    def over_both(self) -> Interval:
        """Mean and 95% interval for other seeds and other test texts; with a split for each seed, for other splits too."""
        difference = _with_both_variances(np.array(self.scores), self.resampled, self.overlap)
        return Interval(difference.mean, difference.low, difference.high, difference.error, len(self.scores))


@dataclass(frozen=True)
class Difference:
    """A difference with its 95% interval over seeds and test texts."""

    mean: float
    low: float
    high: float
    error: float
    """standard error"""
    p: float
    """probability of a difference at least as large if there were none; 1 if the noise is unknown"""
    noise: Noise = field(default_factory=lambda: Noise(0.0, 0.0, 1), compare=False)
    """the variance of the difference, by source"""

    @property
    def claimable(self) -> bool:
        """True if the difference can be significant: one seed says nothing about seeds, and no spread at all nothing about noise.

        Of two methods without randomness, no seed plays a part.
        """
        return self.noise.seeds != 1 and self.error > 0

    @property
    def at_most(self) -> float:
        """The largest difference of the two (5% level); infinite if nothing can be claimed.

        The smallest margin for which both one-sided tests of equivalence reject (Schuirmann 1987): the end of the 90% interval that
        is farther from 0. The claim is of this difference alone: like an interval, it is not corrected for the number of
        comparisons. Simulation: tests/test_power.py: ``test_two_methods_differ_by_at_most_what_is_claimed``.
        """
        return abs(self.mean) + self.noise.half_width(0.10) if self.claimable else math.inf

    def detectable(self, comparisons: int = 1, seeds: int | None = None) -> float:
        """The smallest true difference that a repetition finds significant with 80% power, as one of so many (Bonferroni).

        With ``seeds`` a repetition on so many seeds and the same test texts (``rescaled``).
        """
        if not self.claimable:
            return math.inf
        noise = possible_noise(self.noise, self.noise.degrees)
        return smallest_detectable(rescaled(noise, seeds, 1.0) if seeds else noise, error_rate=0.05 / comparisons)


def corrected_p_values(differences: Sequence[Difference], primary: int | None = None) -> list[float]:
    """p-values corrected for their number (Holm 1979); 1 for each that is not ``claimable``, so that it is never significant.

    The difference number ``primary`` answers the one question that was asked before anything was seen, such as pretrained against
    from scratch: its p-value is not corrected, nor does it count for the others (Bender and Lange 2001). Every "better" or
    "worse" comes from this function. Simulation: tests/test_noise.py: ``test_few_tables_of_equal_methods_claim_a_difference``.

    >>> corrected_p_values([Difference(0.1, 0.05, 0.15, 0.02, 0.001, Noise(4e-4, 0.0, 1))])  # one seed
    [1.0]
    """
    p = [difference.p if difference.claimable else 1.0 for difference in differences]
    others = iter(holm([value for i, value in enumerate(p) if i != primary]))
    return [value if i == primary else next(others) for i, value in enumerate(p)]


def paired_difference(one: MethodScores, other: MethodScores, table: Sequence[MethodScores] = ()) -> Difference:
    """``one`` less ``other``, seed by seed and resample by resample; a method without randomness counts the same for every seed.

    mean_s(one_s - other_s), with its 95% interval and p-value over seeds and texts from ``Noise`` (Behrens 1929; Fisher 1935);
    of two methods without randomness, over texts. With three seeds, the other methods of a ``table`` on the same seeds
    support the variance over seeds (``moderated_noise``), if both vary with the seed and no run of either collapsed. Texts are
    those of the paired bootstrap (Dror et al. 2018). Simulation: tests/test_noise.py:
    ``test_intervals_over_seeds_and_texts_hold_the_truth``.

    >>> right = np.random.default_rng(0).random((2, 5, 400)) < np.array([0.85, 0.75])[:, None, None]  # (methods, S, N)
    >>> difference = paired_difference(*(MethodScores.from_texts(name, row) for name, row in zip("ab", right, strict=True)))
    >>> round(difference.mean, 3), difference.low > 0, difference.p < 0.01
    (0.095, True, True)
    """
    values, _ = _paired(one, other)
    noise = _noise_of_pair(one, other, table)
    return _around(float(values.mean()), replace(noise, seeds=0) if one.deterministic and other.deterministic else noise)


def _noise_of_pair(first: MethodScores, second: MethodScores, table: Sequence[MethodScores]) -> Noise:
    """The noise of ``first`` less ``second``, supported by the rest of the table where that is possible."""
    values, resampled = _paired(first, second)
    noise = Noise.of(values, resampled, first.overlap)
    rest = [method for method in table if method is not first and method is not second]
    kept = [method.scores for method in rest if method._supports(len(values))]
    if not kept or not (first._supports(len(values)) and second._supports(len(values))):
        return noise
    return moderated_noise(noise, values, np.array(kept))


def _paired(first: MethodScores, second: MethodScores) -> tuple[np.ndarray, np.ndarray]:
    """``first`` less ``second`` by seed (S,), and on resamples (S, R)."""
    count = max(len(first.scores), len(second.scores))
    assert {len(first.scores), len(second.scores)} <= {1, count}, "the same seeds on both sides, or a method without randomness"
    draws = first.resampled.shape[1]
    resampled = np.broadcast_to(first.resampled, (count, draws)) - np.broadcast_to(second.resampled, (count, draws))
    return np.broadcast_to(first.scores, count) - np.broadcast_to(second.scores, count), resampled


def picked(methods: Sequence[MethodScores]) -> MethodScores:
    """The scores of a choice, from S methods: seed s scores ``methods[s]``, which was chosen on the other seeds.

    Or on the labelled texts of seed s alone, if every seed draws its own: these are then the scores of S users.

    A method that is chosen for its validation scores owes some of them to lucky seeds, and its test scores on the same seeds are
    too high: by 1 to 3 points in simulations. Chosen without seed s, it has no luck on seed s (cross-fitting, Stone 1974).
    """
    rows = [min(s, len(method.scores) - 1) for s, method in enumerate(methods)]
    chosen = [*zip(methods, rows, strict=True)]
    scores, resampled = tuple(method.scores[s] for method, s in chosen), np.array([method.resampled[s] for method, s in chosen])
    return MethodScores("", scores, resampled, methods[0].overlap, collapsed=any(method.collapsed for method in methods))


def difference_to_choice(
    one: MethodScores,
    best: MethodScores,
    folds: Sequence[tuple[MethodScores, MethodScores]],
    doubt: float,
    table: Sequence[MethodScores] = (),
) -> Difference:
    """``one`` less ``best``, which was chosen on the same S seeds: mean over folds, each a method and the choice without seed s.

    The luck of the chosen method counts against all others, so each fold is scored on the seed that did not choose. Where the
    fold's choice is ``one`` itself, ``best`` takes its place in the comparison. Then the mean over all methods has no bias.

    The variance is that of ``one`` less ``best``, with 1 / S + ``doubt`` / (S - 1) for 1 / S over seeds: a fixed pair if the choice
    is certain (0), the scores of a choice that shares its seeds (Nadeau and Bengio 2003, equation 10) if it is not (1). Two methods
    without randomness show nothing of the seeds: if the folds are not all these two, the variance is that of the folds' scores.
    ``table`` as in ``paired_difference``.

    Simulation: tests/test_choice.py: ``test_differences_to_the_choice_are_not_flattered``.

    >>> one, best = (MethodScores("", scores, np.zeros((2, 2))) for scores in ((0.7, 0.8), (0.8, 0.7)))
    >>> round(difference_to_choice(one, best, [(one, best), (best, one)], doubt=1.0).mean, 2)
    -0.1
    """
    ones, others = zip(*folds, strict=True)
    of_folds = picked(ones), picked(others)
    mean = float(np.mean(of_folds[0].scores) - np.mean(of_folds[1].scores))
    if one.deterministic and best.deterministic:
        if all(a is one and b is best for a, b in folds):
            return paired_difference(one, best)
        return _around(mean, Noise.of(*_paired(*of_folds), best.overlap).of_choice(1.0, best.overlap))
    return _around(mean, _noise_of_pair(one, best, table).of_choice(doubt, best.overlap))


def score_of_choice(methods: Sequence[MethodScores]) -> Interval:
    """Mean and 95% interval over seeds and texts of S choices: seed s scores ``methods[s]``, which was chosen on the other seeds.

    The S choices share most of their seeds, so that their scores depend on each other: 1 / S becomes 1 / S + 1 / (S - 1) in the
    variance over seeds (Nadeau and Bengio 2003, equation 10), to which ``overlap`` is added if every seed draws its own split.
    Simulation: tests/test_choice.py: ``test_the_score_of_the_choice_is_not_flattered``.

    >>> same = MethodScores("a", (0.7, 0.8), np.array([[0.7, 0.7], [0.8, 0.8]]))
    >>> round(score_of_choice([same, same]).mean, 2)
    0.75
    """
    scores = picked(methods)
    values = np.array(scores.scores)
    noise = Noise.of(values, scores.resampled, scores.overlap).of_choice(1.0, scores.overlap)
    difference = _around(float(values.mean()), noise)
    return Interval(difference.mean, difference.low, difference.high, difference.error, len(methods))


def _with_both_variances(values: np.ndarray, resampled: np.ndarray, overlap: float | None) -> Difference:
    """The mean of ``values`` (S,), given what they are on resamples (S, R), as a difference from 0.

    One seed says nothing about seeds: the uncertainty is then that of the texts alone.
    """
    return _around(float(values.mean()), Noise.of(values, resampled, overlap))


def _around(mean: float, noise: Noise) -> Difference:
    """A difference with its noise."""
    half = noise.half_width()
    return Difference(mean, mean - half, mean + half, float(noise.error), float(noise.p(mean)), noise)
