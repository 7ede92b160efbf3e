"""The result of the quickstart: pretraining, and an adaptation for each number of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warmstart.stats.splits import ONE_SPLIT

if TYPE_CHECKING:
    from warmstart.commands.adapt.result import AdaptResult
    from warmstart.commands.pretrain.result import PretrainResult


@dataclass(frozen=True)
class QuickstartResult:
    """What pretraining on the documentation of the installed libraries brought."""

    pretraining: PretrainResult
    adaptations: tuple[AdaptResult, ...]
    """one for each number of labels"""

    @property
    def headline(self) -> str:
        """The comparisons with the two strongest rivals at the largest number of labels, the strongest first."""
        last = self.adaptations[-1]
        return f"With {last.labels} labels: {' '.join(last.comparison.findings()[:2])}"

    @property
    def findings(self) -> list[str]:
        """The comparisons for each number of labels, and what the labels were for; once, what intervals leave out, and scorings."""
        found = [(result.labels, sentence) for result in self.adaptations for sentence in result.comparison.findings()]
        compared = [f"{labels} labels: {sentence}" for labels, sentence in found]
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

    def to_dict(self) -> dict[str, Any]:
        """Everything but models and predictions as plain values, fit for JSON."""
        return {
            "findings": self.findings,
            "pretraining": self.pretraining.to_dict(),
            "adaptations": [result.to_dict() for result in self.adaptations],
        }
