"""Comparisons of methods: which one is better, by how much, and how certain that is.

Letters: S seeds, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from warmstart.notebook import Shown
from warmstart.stats.differences import Difference, MethodScores, corrected_p_values, paired_difference
from warmstart.stats.formatting import (
    p_value,
    percent,
    percent_range,
    percent_value,
    points,
    points_range,
    sentence_case,
    sources_of_chance,
)
from warmstart.stats.intervals import Interval, t_interval
from warmstart.stats.noise import POWER, ROUNDING, detectable_from_interval

SIGNIFICANT = 0.05
USEFUL = 0.5
"""detectable difference of a score between 0 and 1 that is not worth printing: half of the range"""
SMALL = 0.02
"""bound below which the largest difference of two methods is worth saying"""
MANY_SEEDS = 10
"""number of seeds for which a comparison without a decision says what it would find"""


@dataclass(frozen=True)
class MethodResult:
    """One method of a comparison."""

    name: str
    scores: tuple[float, ...]
    """(S,) the metric on the test split: one per seed, or a single one for a method without randomness"""
    seconds: float = 0.0
    """mean seconds of training"""
    trainable: int = 0
    """number of parameters that train"""
    note: str = ""
    """remarks beside the scores: settings chosen, collapsed runs"""
    resampled: np.ndarray | None = field(default=None, compare=False, repr=False)
    """(S, R) the same on resamples of the test split, in one order for all methods; None if they are not known"""
    bounded: bool = True
    """True if a score lies between 0 and 1"""
    collapsed: bool = False
    """True if some run learned nothing"""

    @property
    def interval(self) -> Interval:
        """Mean and 95% interval over seeds and test texts, cut to 0 to 1 for a bounded score; without resamples, over seeds."""
        interval = t_interval(self.scores) if self.resampled is None else _scores(self, texts=True).over_both
        return interval.within(0, 1) if self.bounded else interval

    @property
    def over_seeds(self) -> Interval:
        """Mean and 95% interval for other seeds on these test texts, cut to 0 to 1 for a bounded score."""
        return t_interval(self.scores).within(0, 1) if self.bounded else t_interval(self.scores)


@dataclass(frozen=True)
class PairedComparison:
    """The difference between two methods."""

    names: tuple[str, str]
    difference: Difference
    """the first less the second"""
    over_texts: bool
    """True if the interval also covers other test texts, beside other seeds"""
    p: float
    """the p-value of the difference, corrected for the number of comparisons"""
    comparisons: int = 1
    """number of comparisons made at once"""
    bounded: bool = True
    """True if scores lie between 0 and 1"""
    splits: bool = False
    """True if every seed has its own split"""
    texts: str = "the test texts"
    """name of the texts that were resampled"""

    @property
    def seeds(self) -> int:
        """Number of seeds that the difference is the mean of; 0 if nothing depends on a seed."""
        return self.difference.noise.seeds

    @property
    def significant(self) -> bool:
        """True if the difference is unlikely to be chance; one seed, or seeds without any spread, cannot say."""
        return self.p < SIGNIFICANT

    @property
    def sentence(self) -> str:
        """The better method, its lead and the certainty of it, as a complete sentence.

        -> ``"Pretrained is better than TF-IDF by 9.1 points (95% interval 6.2 to 12.0, over 5 seeds and the test texts)."`` or
        ``"Undecided: pretrained is ahead of TF-IDF by 2.1 points (…). A run of this size finds a lead of 6.3 points in …"``
        """
        (name, other), by = self.names, points(self.difference.mean)
        first = sentence_case(name)
        if self.seeds == 1:
            return f"{first} and {other} differ by {by} on one seed, which shows nothing{self._beyond_one_seed()}."
        if self.difference.error > ROUNDING:
            uncertainty = f"over {self._sources()}{self._corrected()}"
            if self.significant:
                return f"{first} is {self._verdict(other, by)}, {uncertainty})."
            ends = points_range(self.difference.low, self.difference.high)
            limits = limits_of([self.difference], self.comparisons, bounded=self.bounded, rescale=not self.splits)
            alone = self.difference.low * self.difference.high > 0  # significant if it were not one of several
            few = f", which is not enough as one of {self.comparisons} comparisons" * alone
            lead = f"{'behind' if self.difference.mean < 0 else 'ahead of'} {other} by {by.lstrip('+-')}"
            lead = f"level with {other}" if by.lstrip("+-") == points(0.0).lstrip("+-") else lead
            return f"Undecided: {name} is {lead} (95% interval {ends}, {uncertainty}){few}. {limits}"
        if self.seeds == 0:
            return f"No difference between {name} and {other}: {by} on {self.texts}, and on every resample of them."
        if abs(self.difference.mean) > ROUNDING:
            return f"{first} and {other} differ by {by} on each of {self.seeds} seeds; without spread, significance is unknown."
        return f"No difference between {name} and {other}: {points(0.0)} on each of {self.seeds} seeds."

    def _verdict(self, other: str, by: str) -> str:
        """``better than B by 3.2 points (95% interval 1.1 to 5.3``; a loss has positive figures too."""
        low, high, word = self.difference.low, self.difference.high, "better"
        if self.difference.mean < 0:
            low, high, word = -high, -low, "worse"
        return f"{word} than {other} by {by.lstrip('+-')} (95% interval {percent_range(low, high)}"

    def _sources(self) -> str:
        if self.splits:
            return "splits and seeds"
        return sources_of_chance(self.seeds, self.texts) if self.over_texts else f"{self.seeds} seeds on these test texts"

    def _corrected(self) -> str:
        return f"; corrected p {p_value(self.p)}" if self.comparisons > 1 else ""

    def _beyond_one_seed(self) -> str:
        if not self.over_texts or self.difference.error <= ROUNDING:
            return ""
        ends = points_range(self.difference.low, self.difference.high)
        return f" about other seeds (95% interval {ends}, over {sources_of_chance(self.seeds, self.texts)})"


def limits_of(differences: Sequence[Difference], comparisons: int, *, bounded: bool, rescale: bool = True) -> str:
    """Sentences: which lead a run of this size can find, and whether differences without significance are small.

    Of several differences, from the smallest to the largest. They are small if each 95% interval lies within 2 points of 0. Of
    ``bounded`` scores, 50 points or more are left out, and seeds are said to be too few. With ten seeds the variance over seeds is
    rescaled; other test texts would still be other ones. Splits overlap, so that theirs cannot be: then ``rescale`` is false.

    -> ``"A run of this size finds a lead of 24.1 points in 4 of 5 cases; with 10 seeds about 6."``
    """
    ends = [max(-gap.low, gap.high) if gap.claimable else math.inf for gap in differences]
    small = f"They differ by at most {_sizes(ends)}. " if max(ends) < SMALL else ""
    sizes, seeds = [gap.detectable(comparisons) for gap in differences], differences[0].noise.seeds
    if too_few := too_few_seeds(max(sizes), seeds, bounded=bounded):
        return sentence_case(f"{too_few}.")
    more = max(gap.detectable(comparisons, MANY_SEEDS) for gap in differences) if rescale and 1 < seeds < MANY_SEEDS else math.inf
    better = f"; with {MANY_SEEDS} seeds about {percent_value(more, 0 if more >= SMALL else 1)}" if more < 0.8 * max(sizes) else ""
    return f"{small}A run of this size finds a lead of {_sizes(sizes)} in 4 of 5 cases{better}."


def too_few_seeds(detectable: float, seeds: int, *, bounded: bool, power: float = POWER) -> str:
    """``"2 seeds are too few to detect a difference under 50 points with 80% power"``; empty if that is not so.

    It is so if the smallest ``detectable`` difference of ``bounded`` scores is 50 points or more. Without seeds, test texts are.
    """
    if not bounded or detectable < USEFUL:
        return ""
    seeds_are = {0: "the test texts are", 1: "1 seed is"}.get(seeds, f"{seeds} seeds are")
    return f"{seeds_are} too few to detect a difference under {percent_value(USEFUL, 0)} points with {percent(power, 0)} power"


def detectable_points(detectable: float, *, bounded: bool, unit: str = "") -> str:
    """A smallest detectable difference in a table: ``"2.4"``, or ``"too few seeds"`` where ``too_few_seeds`` says so."""
    return "too few seeds" if bounded and detectable >= USEFUL else f"{percent_value(detectable)}{unit}"


def detection_text(
    sizes: Sequence[float], write: Callable[[float], str] = percent_value, unit: str = " points", most: float = math.inf
) -> str:
    """A clause on the differences that would have been detected: none under ``most`` if the largest of ``sizes`` is not below it.

    ``detection_text([0.012, 0.031], "{:.3f}".format, " nats")`` -> ``"0.012 to 0.031 nats would have been detected with 80% …"``
    """
    difference = "no difference" if math.isinf(max(sizes)) else f"no difference under {write(most)}{unit}"
    if max(sizes) < most:
        difference = _sizes(sizes, write, unit)
    return f"{difference} would have been detected with {percent(POWER, 0)} power"


def limit_clause(low: float, high: float, count: int | None = None, write: Callable[[float], str] | None = None) -> str:
    """A clause on what would have been detected if the 95% interval of a difference includes 0: the end of a sentence.

    -> ``"; 2.4 points would have been detected with 80% power"``; nothing if the interval excludes 0, or has no width. ``count`` as
    for ``detectable_from_interval``. Without ``write``, figures are in points, and 50 points or more are not printed.
    """
    if low > 0 or high < 0 or low == high:
        return ""
    size = detectable_from_interval(low, high, count)
    return f"; {detection_text([size], most=USEFUL) if write is None else detection_text([size], write, '')}"


def _sizes(sizes: Sequence[float], write: Callable[[float], str] = percent_value, unit: str = " points") -> str:
    """``"2.0 points"`` or ``"2.0 to 3.1 points"``."""
    low, high = write(min(sizes)), write(max(sizes))
    return f"{low if low == high else f'{low} to {high}'}{unit}"


def compare_pairs(
    pairs: Sequence[tuple[MethodResult, MethodResult]], texts: str = "the test texts", primary: int | None = None
) -> list[PairedComparison]:
    """The difference of each pair, seed by seed and resample by resample; p-values are corrected for their number (Holm 1979).

    The pair number ``primary`` is the one question, which is not corrected (``corrected_p_values``).

    A method without randomness counts the same for every seed. With three seeds, the methods that the two are compared with
    support its variance over seeds (``moderated_noise``). If one of the two has no resamples, the interval covers seeds alone,
    and the sentence says so. ``texts`` names what was resampled. Simulation:
    tests/test_comparison.py: ``test_few_comparisons_of_equal_objectives_claim_a_difference``.

    >>> one, other = MethodResult("one", (0.80, 0.83, 0.84)), MethodResult("other", (0.70, 0.74, 0.73))
    >>> print(compare_pairs([(one, other)])[0].sentence)
    One is better than other by 10.0 points (95% interval 7.5 to 12.5, over 3 seeds on these test texts).
    """
    over_texts = [all(method.resampled is not None for method in pair) for pair in pairs]
    differences = [_difference(pair, _table(pairs, pair), texts=both) for pair, both in zip(pairs, over_texts, strict=True)]
    corrected, rest = corrected_p_values(differences, primary), len(pairs) - (primary is not None)
    return [
        PairedComparison((method.name, other.name), gap, both, p, 1 if i == primary else rest, method.bounded, texts=texts)
        for i, ((method, other), gap, both, p) in enumerate(zip(pairs, differences, over_texts, corrected, strict=True))
    ]


def _table(pairs: Sequence[tuple[MethodResult, MethodResult]], pair: tuple[MethodResult, MethodResult]) -> list[MethodResult]:
    """The further methods that one of the pair is compared with."""
    met = {id(method): method for both in pairs if any(method is own for method in both for own in pair) for method in both}
    return [method for method in met.values() if all(method is not own for own in pair)]


def _difference(pair: tuple[MethodResult, MethodResult], others: Sequence[MethodResult], *, texts: bool) -> Difference:
    """The difference of a pair; that of bounded scores is cut to -1 to 1."""
    first, second = (_scores(method, texts=texts) for method in pair)
    difference = paired_difference(first, second, [_scores(method, texts=False) for method in others])
    return replace(difference, low=max(-1.0, difference.low), high=min(1.0, difference.high)) if pair[0].bounded else difference


def _scores(method: MethodResult, *, texts: bool) -> MethodScores:
    """The scores of a method; without resamples, as if these test texts were the only ones."""
    if texts and method.resampled is not None:
        return MethodScores(method.name, method.scores, method.resampled, collapsed=method.collapsed)
    return MethodScores(method.name, method.scores, np.tile(np.array(method.scores)[:, None], 2), collapsed=method.collapsed)


@dataclass(frozen=True)
class MethodTable(Shown, view="report.notebook:comparison_view"):
    """Methods on the same splits and seeds; the first row is the method in question."""

    metric: str
    rows: tuple[MethodResult, ...]
    rival: str = ""
    """the row that the first method is compared with to answer the one question, whose p-value is not corrected; "" for none"""

    def ranked(self) -> list[MethodResult]:
        """The rows, best mean first."""
        return sorted(self.rows, key=lambda row: -row.interval.mean)

    @property
    def pairs(self) -> list[tuple[MethodResult, MethodResult]]:
        """The first method with each of the others, the strongest first."""
        return [(self.rows[0], row) for row in self.ranked() if row is not self.rows[0]]

    @property
    def primary(self) -> int | None:
        """The number of the pair with ``rival``."""
        return next((i for i, (_, other) in enumerate(self.pairs) if other.name == self.rival), None)

    def compared(self) -> list[PairedComparison]:
        """The first method against each of the others, the strongest first."""
        return compare_pairs(self.pairs, primary=self.primary)

    def findings(self) -> list[str]:
        """One sentence for each of these comparisons; of a method without rivals its score."""
        if len(self.rows) > 1:
            return [comparison.sentence for comparison in self.compared()]
        return [f"The {row.name} model reaches {row.interval} {self.metric}." for row in self.rows]

    @property
    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        several = any(len(row.scores) > 1 for row in self.rows)
        return ("method", f"score (95% over {'seeds and ' * several}texts)", "over seeds", "seconds", "trained parameters", "note")

    def table(self) -> list[tuple[str, ...]]:
        """One row per method under ``header``, best mean first."""
        return [
            (
                row.name,
                str(row.interval),
                row.over_seeds.ends,
                f"{row.seconds:.1f}" if row.seconds else "-",
                f"{row.trainable:,}" if row.trainable else "-",
                row.note,
            )
            for row in self.ranked()
        ]

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values, fit for JSON: the ends of an interval that does not exist are None, not nan."""
        rows = []
        for row in self.rows:
            kept = {name: getattr(row, name) for name in ("name", "seconds", "trainable", "note")}
            rows.append(kept | {"scores": list(row.scores)} | row.interval.to_dict() | {"over_seeds": row.over_seeds.to_dict()})
        return {"metric": self.metric, "rows": rows, "findings": self.findings()}
