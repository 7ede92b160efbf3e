"""What a fit found where a text may have several labels: which are given, which are missed. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warmstart.experiment.choose import MAJORITY_LABEL
from warmstart.experiment.fit_result import FitResult, OutOfFold, stack_among
from warmstart.runs.verdict import MISTAKE_CHARACTERS, SHOWN_MISTAKES, Mistake, ScoreRow, row_of
from warmstart.stats.formatting import first_of, of_100, percent_value
from warmstart.stats.intervals import Estimate
from warmstart.stats.selected import SelectedScore, selected_accuracy, selected_f1
from warmstart.stats.several_labels import given_and_found, without_label

NAMED_RARE = 4


@dataclass(frozen=True)
class SeveralLabelsResult(FitResult):
    """The same by F1, or by the texts of which all labels are right; each label is given at its threshold."""

    def _score(self, *methods: OutOfFold, metric: str = "") -> SelectedScore:
        """The best of some methods by a metric, that of the task if none is named."""
        units = self.left_out.units
        if (metric := metric or self.task.metric) == "subset":
            return selected_accuracy(np.stack([one.right for one in methods]), units, stack_among(methods))
        average = metric.removesuffix("_f1")
        return selected_f1(np.stack([one.predicted for one in methods]), self.left_out.labels, average, units, stack_among(methods))

    @property
    def majority(self) -> tuple[str, float]:
        """The most frequent label, and the share of texts that have it."""
        shares = self.left_out.labels.mean(axis=0)
        return self.task.labels[int(shares.argmax())], float(shares.max())

    @property
    def always(self) -> str:
        """What a method does that learns nothing."""
        return "giving every text the same labels"

    @property
    def constant_row(self) -> ScoreRow:
        """The labels that most texts have, at their thresholds."""
        score = self.alone_scores[MAJORITY_LABEL].out_of_fold
        return row_of("always the same labels", self.task.metric, Estimate(score, score, score))

    @cached_property
    def by_metric(self) -> dict[str, float]:
        """The chosen method's scores out of fold by all metrics."""
        return {name: self._score(self.best, metric=name).out_of_fold for name in ("micro_f1", "macro_f1", "subset")}

    @property
    def label_sentences(self) -> tuple[str, ...]:
        """How many labels that it gives are right and how many it finds, by all metrics; and how many texts get none."""
        if not self.learned:
            return ()
        scores, none = self.by_metric, without_label(float(np.mean(~self.best.predicted.any(axis=1))))
        whole = (
            f"On your own texts, left out: micro-F1 {scores['micro_f1']:.2f}, macro-F1 {scores['macro_f1']:.2f}; all labels are "
            f"right in {of_100(scores['subset'])} of 100 texts."
        )
        return (given_and_found(self.left_out.labels, self.best.predicted), whole, *filter(None, [none]))

    @property
    def unseen(self) -> str:
        """Which labels have fewer than two texts; empty if none."""
        rare = [name for name, count in zip(self.task.labels, self.left_out.labels.sum(axis=0), strict=True) if count < 2]
        if not rare:
            return ""
        return f"Fewer than two texts have {first_of(rare, NAMED_RARE, 'others')}: too few to learn from; label more."

    @cached_property
    def failures(self) -> tuple[tuple[Mistake, ...], tuple[str, ...]]:
        """The surest mistakes, and a sentence about the label that is found least."""
        best, truth = self.best, self.left_out.labels > 0.5
        wrong = np.where((best.predicted > 0.5) != truth, np.abs(best.probabilities - truth), 0.0).max(axis=1)
        surest = [int(i) for i in np.argsort(-wrong, kind="stable")[:SHOWN_MISTAKES] if wrong[i] > 0]
        mistakes = [
            Mistake(
                str(self.left_out.texts[i])[:MISTAKE_CHARACTERS],
                self._named(truth[i]),
                self._named(best.predicted[i] > 0.5),
                float(wrong[i]),
            )
            for i in surest
        ]
        name, count, found, _ = self.label_rows()[0]
        weakest = f'Weakest label: "{name}", found in {found}% of the texts that have it ({count}).'
        return tuple(mistakes), (weakest,)

    def _named(self, held: np.ndarray) -> str:
        return ", ".join(name for name, one in zip(self.task.labels, held, strict=True) if one) or "none"

    label_header = ("label", "labelled texts", "found, %", "right of those given, %")

    def label_rows(self) -> list[tuple[str, str, str, str]]:
        """(label, labelled texts, found of 100, right of 100 given, out of fold) of each label, the weakest first."""
        truth, given, rows = self.left_out.labels, self.best.predicted, []
        hits = (truth * given).sum(axis=0)
        for i in np.flatnonzero(truth.sum(axis=0)).tolist():
            found, times = float(hits[i] / truth[:, i].sum()), float(given[:, i].sum())
            right = percent_value(float(hits[i] / times)) if times else "-"
            rows.append((found, (self.task.labels[i], f"{int(truth[:, i].sum()):,}", percent_value(found), right)))
        return [row for _, row in sorted(rows, key=lambda row: row[0])]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return super().to_dict() | {"out_of_fold_by_metric": self.by_metric if self.learned else {}}
