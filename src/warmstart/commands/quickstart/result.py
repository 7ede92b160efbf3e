"""The result of the quickstart: pretraining, and an adaptation for each number of labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from warmstart.notebook import Shown
from warmstart.stats.comparison import compare_pairs
from warmstart.stats.splits import ONE_SPLIT

if TYPE_CHECKING:
    from warmstart.commands.pretrain.result import PretrainResult
    from warmstart.experiment.adaptation_result import AdaptResult


@dataclass(frozen=True)
class QuickstartResult(Shown, view="commands.quickstart.page:quickstart_view"):
    """What pretraining on the documentation of the installed libraries brought."""

    pretraining: PretrainResult
    adaptations: tuple[AdaptResult, ...]
    """one for each number of labels"""

    @cached_property
    def comparisons(self) -> list[tuple[int, str]]:
        """(labels, sentence) of every comparison, the strongest rival first; p-values are corrected for those of all numbers.

        The one question, whose p-value is not, is that of the largest number.
        """
        pairs = [(result.labels, pair) for result in self.adaptations for pair in result.comparison.pairs]
        last = self.adaptations[-1].comparison
        first = len(pairs) - len(last.pairs)
        found = compare_pairs([pair for _, pair in pairs], primary=None if last.primary is None else first + last.primary)
        return [(labels, one.sentence) for (labels, _), one in zip(pairs, found, strict=True)]

    @property
    def headline(self) -> str:
        """The comparisons with the two strongest rivals at the largest number of labels, the strongest first."""
        most = self.adaptations[-1].labels
        first, *more = [sentence for labels, sentence in self.comparisons if labels == most][:2]
        undecided = f"Undecided with {most} labels: {first.removeprefix('Undecided: ')}"
        return " ".join([undecided if first.startswith("Undecided: ") else f"With {most} labels: {first}", *more])

    @property
    def findings(self) -> list[str]:
        """The comparisons for each number of labels, and what the labels were for; once, what intervals leave out, and scorings."""
        compared = [f"{labels} labels: {sentence}" for labels, sentence in self.comparisons]
        one_split = [ONE_SPLIT] if any(result.one_split for result in self.adaptations) else []
        labels = [sentence for result in self.adaptations for sentence in result.label_findings]
        return [*compared, *labels, *one_split, *self.adaptations[-1].ledger.findings]

    def score_rows(self) -> list[tuple[str, int, float, float, float]]:
        """(method, labels, mean, low, high) of the test score of every method for every number of labels."""
        return [
            (row.name, result.labels, row.interval.mean, row.interval.low, row.interval.high)
            for result in self.adaptations
            for row in result.comparison.rows
        ]

    @property
    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        method, score, over_seeds, *_ = self.adaptations[-1].comparison.header
        return ("labels", method, score, over_seeds)

    def table(self) -> list[tuple[str, ...]]:
        """One row for each number of labels and method, best mean first."""
        return [(f"{one.labels:,}", *row[:3]) for one in self.adaptations for row in one.comparison.table()]

    def to_dict(self) -> dict[str, Any]:
        """Everything but models and predictions as plain values, fit for JSON."""
        return {
            "findings": self.findings,
            "pretraining": self.pretraining.to_dict(),
            "adaptations": [result.to_dict() for result in self.adaptations],
        }
